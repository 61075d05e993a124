# Flops a second of a call, by the price and the median of its warm calls.
draws(p) = 'flops_per_s'
lines(p) = word(panels, p)
load 'style.gp'
eval axis
set format y '%.0s %c'
set ylabel 'flops a second'
do for [t in formats] {
    eval start(t)
    do for [p = 1:words(panels)] {
        eval panel(p)
        plot for [c = 1:curves] csv using (x(c,p,"flops_per_s")):(y(c,p,"flops_per_s")) with linespoints lc rgb colour(c) lw width(c) dt dash(c) pt filled(c) ps size(c) notitle, \
             for [c = 1:curves] keyentry with linespoints lc rgb colour(c) lw width(c) dt dash(c) pt filled(c) ps size(c) title key(c,p)
    }
    unset multiplot
    unset output
}
