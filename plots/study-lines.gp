# Curves of a study: lines are computed, marks were published.  linear 1: no logarithms, and marks at
# all points; y_label '': bytes.
draws(p) = got.' '.published
lines(p) = word(panels, p)
load 'style.gp'
x_base = 2
eval axis
if (y_label eq '') { eval bytes; y_label = 'bytes' }
if (linear) { unset logscale; set format x; set ytics auto }
marks = linear ? got : published
set ylabel y_label
do for [t in formats] {
    eval start(t)
    eval panel(1)
    plot for [c = 1:curves] csv using (x(c,1,got)):(y(c,1,got)) with lines lc rgb colour(c) lw width(c) dt dash(c) notitle, \
         for [c = 1:curves] csv using (x(c,1,marks)):(y(c,1,marks)) with points lc rgb colour(c) pt filled(c) ps size(c) notitle, \
         for [c = 1:curves] keyentry with linespoints lc rgb colour(c) lw width(c) dt dash(c) pt (has(c,1,marks) ? filled(c) : 0) ps size(c) title key(c,1)
    unset multiplot
    unset output
}
