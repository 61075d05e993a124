# Memory or time that others recorded, against L.
recorded = kind eq 'external-memory' ? 'recorded_bytes' : 'recorded_s'
draws(p) = recorded
lines(p) = word(panels, p)
load 'style.gp'
eval axis
if (recorded eq 'recorded_bytes') { eval bytes } else { set format y '%.0s %cs' }
set ylabel (recorded eq 'recorded_bytes' ? 'memory, as recorded' : 'time, as recorded')
do for [t in formats] {
    eval start(t)
    do for [p = 1:words(panels)] {
        eval panel(p)
        plot for [c = 1:curves] csv using (x(c,p,recorded)):(y(c,p,recorded)) with lines lc rgb colour(c) lw width(c) dt dash(c) notitle, \
             for [c = 1:curves] csv using (x(c,p,recorded)):(y(c,p,recorded)) with points lc rgb colour(c) lw 1.6 pt filled(c) ps size(c) notitle, \
             for [c = 1:curves] keyentry with linespoints lc rgb colour(c) lw key_width(c,p) dt key_dash(c,p) pt key_mark(c,p) ps key_size(c,p) title key(c,p)
    }
    unset multiplot
    unset output
}
