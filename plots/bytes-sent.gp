# Bytes that one rank sends against the number of ranks R.
draws(p) = 'sent_priced_bytes sent_beyond_bytes sent_bytes'
lines(p) = word(panels, p)
y_label = 'bytes sent by the busiest rank'
ends = 1
load 'style.gp'
priced_marks = 1 # few points, and curves that coincide: marks tell them apart
eval axis
eval bytes
do for [t in formats] {
    eval start(t)
    do for [p = 1:words(panels)] {
        eval panel(p)
        eval names
        plot for [c = 1:curves] csv using (x(c,p,"sent_beyond_bytes")):(y(c,p,"sent_beyond_bytes")) with linespoints lc rgb colour(c) lw width(c) dt 2 pt open(c) ps large(c) notitle, \
             for [c = 1:curves] csv using (x(c,p,"sent_priced_bytes")):(y(c,p,"sent_priced_bytes")) with lines lc rgb colour(c) lw width(c) dt dash(c) notitle, \
             for [c = 1:curves] csv using (x(c,p,"sent_bytes")):(y(c,p,"sent_bytes")) with points lc rgb colour(c) pt filled(c) ps size(c) notitle, \
             @tips
    }
    unset multiplot
    unset output
}
