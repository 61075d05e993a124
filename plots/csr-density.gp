# Peak extra memory against the density of the mask at one L.
draws(p) = 'priced_bytes beyond_bytes ledger_bytes resident_bytes only_resident_bytes'
lines(p) = word(panels, p)
y_label = 'peak extra memory'
ends = 1
load 'style.gp'
eval axis
eval bytes
met(c, p, what) = mine(c, p) && strcol(what) ne '' ? column(what) : 1e-99 # where csr meets dense
do for [t in formats] {
    eval start(t)
    do for [p = 1:words(panels)] {
        eval panel(p)
        eval names
        plot for [c = 1:curves] csv using (x(c,p,"beyond_bytes")):(y(c,p,"beyond_bytes")) with lines lc rgb colour(c) lw width(c) dt 2 notitle, \
             for [c = 1:curves] csv using (x(c,p,"priced_bytes")):(y(c,p,"priced_bytes")) with lines lc rgb colour(c) lw width(c) dt dash(c) notitle, \
             for [c = 1:curves] csv using (x(c,p,"ledger_bytes")):(y(c,p,"ledger_bytes")) with points lc rgb colour(c) pt filled(c) ps size(c) notitle, \
             for [c = 1:curves] csv using (x(c,p,"resident_bytes")):(y(c,p,"resident_bytes")) with points lc rgb colour(c) pt open(c) ps large(c) notitle, \
             for [c = 1:curves] csv using (x(c,p,"only_resident_bytes")):(y(c,p,"only_resident_bytes")) with linespoints lc rgb colour(c) lw width(c) dt dash(c) pt filled(c) ps size(c) notitle, \
             for [c = 1:curves] csv using (met(c,p,"crossing_density")):(met(c,p,"crossing_bytes")) with points lc rgb 'black' pt 6 ps 2.2 * point notitle, \
             @tips
    }
    unset multiplot
    unset output
}
