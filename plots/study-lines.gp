# Curves of a study: lines are computed, marks were published.  linear 1: no logarithms, and marks at
# all points; y_label '': bytes.  Each of several panels has its own range, and where y_label is
# 'A; B' the first has A and the second B.
draws(p) = got.' '.published
lines(p) = word(panels, p)
load 'style.gp'
x_base = 2
eval axis
if (y_label eq '') { eval bytes; y_label = 'bytes' }
if (linear) { unset logscale; set format x; set ytics auto }
marks = linear ? got : published
cut = strstrt(y_label, '; ')
y_label_of(p) = cut == 0 ? y_label : p == 1 ? y_label[1:cut - 1] : y_label[cut + 2:*]
do for [t in formats] {
    eval start(t)
    do for [p = 1:words(panels)] {
        eval panel(p)
        set ylabel y_label_of(p)
        if (words(panels) > 1) { set yrange [panel_low[p] / 1.5:panel_high[p] * 1.5] }
        plot for [c = 1:curves] csv using (x(c,p,got)):(y(c,p,got)) with lines lc rgb colour(c) lw width(c) dt dash(c) notitle, \
             for [c = 1:curves] csv using (x(c,p,marks)):(y(c,p,marks)) with points lc rgb colour(c) pt filled(c) ps size(c) notitle, \
             for [c = 1:curves] keyentry with linespoints lc rgb colour(c) lw width(c) dt dash(c) pt (has(c,p,marks) ? filled(c) : 0) ps size(c) title key(c,p)
    }
    unset multiplot
    unset output
}
