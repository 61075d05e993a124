# Peak extra memory of a process, or of the fullest rank, against what the group varies.
draws(p) = 'priced_bytes beyond_bytes ledger_bytes resident_bytes only_resident_bytes'
lines(p) = word(panels, p)
exponent = across eq 'layers' ? '' : 'bytes_exponent' # all tensors of a stack are no power
if (across eq 'layers') { remark = remark.' Of layers all tensors count.' }
load 'style.gp'
eval axis
eval bytes
set ylabel 'peak extra memory'
do for [t in formats] {
    eval start(t)
    do for [p = 1:words(panels)] {
        eval panel(p)
        if (exists("memory") && inside(y_range, memory)) {
            set arrow 1 from graph 0, first memory to graph 1, first memory nohead dt 3
            set label 9 'memory of this machine' at graph 0.01, first memory offset 0,0.5
        }
        plot for [c = 1:curves] csv using (x(c,p,"beyond_bytes")):(y(c,p,"beyond_bytes")) with lines lc rgb colour(c) lw 1.6 dt 2 notitle, \
             for [c = 1:curves] csv using (x(c,p,"priced_bytes")):(y(c,p,"priced_bytes")) with lines lc rgb colour(c) lw width(c) dt dash(c) notitle, \
             for [c = 1:curves] csv using (x(c,p,"ledger_bytes")):(y(c,p,"ledger_bytes")) with points lc rgb colour(c) pt filled(c) ps size(c) notitle, \
             for [c = 1:curves] csv using (x(c,p,"resident_bytes")):(y(c,p,"resident_bytes")) with points lc rgb colour(c) pt open(c) ps 1.4 notitle, \
             for [c = 1:curves] csv using (x(c,p,"only_resident_bytes")):(y(c,p,"only_resident_bytes")) with linespoints lc rgb colour(c) lw width(c) dt dash(c) pt filled(c) ps size(c) notitle, \
             for [c = 1:curves] keyentry with linespoints lc rgb colour(c) lw key_width(c,p) dt key_dash(c,p) pt key_mark(c,p) ps key_size(c,p) title key(c,p)
    }
    unset multiplot
    unset output
}
