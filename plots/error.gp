# Largest error over its bound against L, one panel for each output.
# A panel is a column: those that `panels` names above, else all that have something.
outputs = 'O LSE dQ dK dV dBias all_outputs' # the last where records do not tell them apart
if (strstrt(outputs, word(panels, 1)) == 0) { panels = outputs }
draws(p) = word(panels, p).' '.word(panels, p).'_sample'
lines(p) = '*'
must = 1 # the bound
load 'style.gp'
eval axis
set ylabel 'largest error / bound'
do for [t in formats] {
    eval start(t)
    do for [p = 1:words(panels)] {
        eval panel(p)
        set arrow 1 from graph 0, first 1 to graph 1, first 1 nohead lw 1.5
        set label 9 'the bound' at graph 0.01, first 1 offset 0,0.5
        plot for [c = 1:curves] csv using (x(c,p,word(panels,p))):(y(c,p,word(panels,p))) with linespoints lc rgb colour(c) lw width(c) dt dash(c) pt filled(c) ps size(c) notitle, \
             for [c = 1:curves] csv using (x(c,p,word(panels,p).'_sample')):(y(c,p,word(panels,p).'_sample')) with linespoints lc rgb colour(c) dt 3 pt open(c) ps 1.2 notitle, \
             for [c = 1:curves] keyentry with linespoints lc rgb colour(c) lw key_width(c,p) dt key_dash(c,p) pt key_mark(c,p) ps key_size(c,p) title key(c,p)
    }
    unset multiplot
    unset output
}
