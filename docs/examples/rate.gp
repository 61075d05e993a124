# Flops a second of a call, by the price and the median of its warm calls.
draws(p) = 'flops_per_s'
lines(p) = word(panels, p)
y_label  = 'flops a second'
y_format = '%.0s %c'
load 'style.gp'
eval axis
do for [t in formats] {
    eval start(t)
    do for [p = 1:words(panels)] {
        eval panel(p)
        plot for [c = 1:curves] csv using (x(c,p,"flops_per_s")):(y(c,p,"flops_per_s")) with linespoints lc rgb colour(c) lw width(c) dt dash(c) pt filled(c) ps size(c) notitle
    }
    unset multiplot
    unset output
}
