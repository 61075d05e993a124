# Bytes that one rank sends against the number of ranks R.
draws(p) = 'sent_priced_bytes sent_beyond_bytes sent_bytes'
lines(p) = word(panels, p)
load 'style.gp'
priced_size = 1.2 # few points, and curves that coincide: marks tell them apart
eval axis
eval bytes
set ylabel 'bytes sent by the busiest rank'
do for [t in formats] {
    eval start(t)
    do for [p = 1:words(panels)] {
        eval panel(p)
        plot for [c = 1:curves] csv using (x(c,p,"sent_beyond_bytes")):(y(c,p,"sent_beyond_bytes")) with linespoints lc rgb colour(c) lw 1.6 dt 2 pt open(c) ps priced_size notitle, \
             for [c = 1:curves] csv using (x(c,p,"sent_priced_bytes")):(y(c,p,"sent_priced_bytes")) with lines lc rgb colour(c) lw width(c) dt dash(c) notitle, \
             for [c = 1:curves] csv using (x(c,p,"sent_bytes")):(y(c,p,"sent_bytes")) with points lc rgb colour(c) pt filled(c) ps size(c) notitle, \
             for [c = 1:curves] keyentry with linespoints lc rgb colour(c) lw key_width(c,p) dt key_dash(c,p) pt key_mark(c,p) ps key_size(c,p) title key(c,p)
    }
    unset multiplot
    unset output
}
