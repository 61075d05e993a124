# Largest error by the largest number of the truth against the number of ranks R: O, and gradients.
draws(p) = word(panels, p) eq 'forward' ? 'O_error' : 'gradients_error'
lines(p) = word(panels, p)
load 'style.gp'
eval axis
set format y '%.0e'
set ylabel 'largest error / largest number'
do for [t in formats] {
    eval start(t)
    do for [p = 1:words(panels)] {
        panel_title[p] = word(panels, p) eq 'forward' ? 'O' : 'gradients: the worst of dQ, dK, dV'
        eval panel(p)
        plot for [c = 1:curves] csv using (x(c,p,draws(p))):(y(c,p,draws(p))) with linespoints lc rgb colour(c) lw width(c) dt dash(c) pt filled(c) ps size(c) notitle, \
             for [c = 1:curves] keyentry with linespoints lc rgb colour(c) lw width(c) dt dash(c) pt filled(c) ps size(c) title key(c,p)
    }
    unset multiplot
    unset output
}
