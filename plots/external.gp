# Memory or time that others recorded, against L.
recorded = kind eq 'external-memory' ? 'recorded_bytes' : 'recorded_s'
draws(p) = recorded
lines(p) = word(panels, p)
y_format = '%.0s %cs'
widest_y = recorded eq 'recorded_bytes' ? '256 KiB' : '100 ms'
y_label = recorded eq 'recorded_bytes' ? 'memory, as recorded' : 'time, as recorded'
load 'style.gp'
eval axis
if (recorded eq 'recorded_bytes') { eval bytes }
do for [t in formats] {
    eval start(t)
    do for [p = 1:words(panels)] {
        eval panel(p)
        plot for [c = 1:curves] csv using (x(c,p,recorded)):(y(c,p,recorded)) with lines lc rgb colour(c) lw width(c) dt dash(c) notitle, \
             for [c = 1:curves] csv using (x(c,p,recorded)):(y(c,p,recorded)) with points lc rgb colour(c) pt filled(c) ps size(c) notitle
    }
    unset multiplot
    unset output
}
