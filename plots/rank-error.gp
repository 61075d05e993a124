# Largest error by the largest number of the truth against the number of ranks R: O, and gradients.
draws(p) = word(panels, p) eq 'forward' ? 'O_error' : 'gradients_error'
lines(p) = word(panels, p)
y_format = '%.0e'
widest_y = '1e-07'
y_label  = (word(panels, 1) eq 'forward' ? 'O: largest error / largest number; ' : '').'gradients, the worst of dQ, dK, dV: the same;'
load 'style.gp'
eval axis
do for [t in formats] {
    eval start(t)
    do for [p = 1:words(panels)] {
        eval panel(p)
        plot for [c = 1:curves] csv using (x(c,p,draws(p))):(y(c,p,draws(p))) with linespoints lc rgb colour(c) lw width(c) dt dash(c) pt filled(c) ps size(c) notitle
    }
    unset multiplot
    unset output
}
