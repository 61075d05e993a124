# Curves of a study: lines are computed, marks were published, or measured by others.  Beyond the last
# mark of a curve its line is dashed, where some have marks.  joined 0: x are whole numbers, between
# which there is nothing, and all have marks.  linear 1: no logarithms; y_label '': bytes.  Each of
# several panels has its own range.
draws(p) = got.' '.published
lines(p) = word(panels, p)
has_bytes = y_label eq ''
if (has_bytes) { y_label = 'bytes'; widest_y = '256 KiB' } else { widest_y = '1000' }
if (linear) { widest_x = '16' } else { x_base = 2 }
with_lines = joined
marked(c) = !joined || any(c, published) > 0
if (strstrt(remark, 'Marks: measured') > 0) { remark = remark.'; dashed: not measured' }
load 'style.gp'
is_measured = joined ? (sum [c = 1:curves] any(c, published)) > 0 : 0
# The last x of a curve that has a mark.
set xrange [*:*] # stats looks at what is within the ranges
set yrange [*:*]
array last_mark[curves + 1]
do for [c = 1:curves] {
    last_mark[c] = is_measured ? -1 : 1e300
    do for [p = 1:words(panels)] {
        stats csv using (is_measured && mine(c, p) && strcol(published) ne '' ? (last_mark[c] = larger(last_mark[c], column(across)), 1) : 1) nooutput
    }
}
eval 'set xrange '.x_range
eval 'set yrange '.y_range
at(c, p)       = joined && last_mark[c] >= 0 ? x(c, p, got) : 1e-99
far(c, p)      = joined && is_measured ? x(c, p, got) : 1e-99
measured(c, p) = last_mark[c] < 0 ? 1e-99 : column(across) <= last_mark[c] ? y(c, p, got) : NaN
beyond(c, p)   = !is_measured ? 1e-99 : column(across) >= last_mark[c] ? y(c, p, got) : NaN
look_dash(c)    = last_mark[c] < 0 ? 2 : dash(c)
marks = joined ? published : got
eval axis
do for [t in formats] {
    eval start(t)
    do for [p = 1:words(panels)] {
        eval panel(p)
        if (words(panels) > 1) { y_range = room(panel_low[p], panel_high[p], 1.5, 4.0); eval 'set yrange '.y_range; y_format = panel_high[p] < 1e5 ? '%g' : '%.0s%c'; eval axis }
        if (has_bytes) { eval bytes }
        if (linear) { unset logscale; eval linear_axis }
        plot for [c = 1:curves] csv using (at(c,p)):(measured(c,p)) with lines lc rgb colour(c) lw width(c) dt dash(c) notitle, \
             for [c = 1:curves] csv using (far(c,p)):(beyond(c,p)) with lines lc rgb colour(c) lw width(c) dt 2 notitle, \
             for [c = 1:curves] csv using (x(c,p,marks)):(y(c,p,marks)) with points lc rgb colour(c) pt filled(c) ps size(c) * (joined ? 1 : 1.5) notitle
    }
    unset multiplot
    unset output
}
