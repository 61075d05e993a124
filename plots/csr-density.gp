# Peak extra memory against the density of the mask at one L.
load 'style.gp'
eval bytes
set format x '%g'
set xlabel 'density (visible pairs / all pairs)'
set ylabel 'peak extra memory'
do for [t in formats] {
    eval start(t)
    do for [p = 1:words(panels)] {
        eval panel(p)
        plot for [c = 1:curves] csv using (at(c,p,"density")):"beyond_bytes" with lines lc rgb colour(c) lw width(c) dt 2 notitle, \
             for [c = 1:curves] csv using (at(c,p,"density")):"priced_bytes" with lines lc rgb colour(c) lw width(c) dt dash(c) notitle, \
             for [c = 1:curves] csv using (at(c,p,"density")):"ledger_bytes" with points lc rgb colour(c) pt filled(c) ps size(c) notitle, \
             for [c = 1:curves] csv using (at(c,p,"density")):"resident_bytes" with points lc rgb colour(c) pt open(c) ps 1.4 notitle, \
             for [c = 1:curves] csv using (at(c,p,"density")):"only_resident_bytes" with linespoints lc rgb colour(c) lw width(c) dt dash(c) pt filled(c) ps size(c) notitle, \
             for [c = 1:curves] csv using (at(c,p,"density")):"break_even_bytes" with points lc rgb 'black' pt 6 ps 2.2 notitle, \
             for [c = 1:curves] keyentry with linespoints lc rgb colour(c) lw width(c) dt dash(c) pt filled(c) ps size(c) title key(c,p)
    }
    unset multiplot
    unset output
}
