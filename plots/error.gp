# Largest error over its bound against L, one panel for each output.
# A panel is a column: those that `panels` names above, else all that have something.
outputs = 'O LSE dQ dK dV dBias all_outputs' # the last where records do not tell them apart
if (strstrt(outputs, word(panels, 1)) == 0) { panels = outputs }
draws(p) = word(panels, p).' '.word(panels, p).'_sample'
lines(p) = '*'
must = 1 # the bound
columns_most = 2
widest_y = '0.0001'
y_label = 'largest error / bound'
load 'style.gp'
eval axis
do for [t in formats] {
    eval start(t)
    do for [p = 1:words(panels)] {
        eval panel(p)
        guide_at = 1; guide_text = 'the bound'; eval guide
        plot for [c = 1:curves] csv using (x(c,p,word(panels,p))):(y(c,p,word(panels,p))) with linespoints lc rgb colour(c) lw width(c) dt dash(c) pt filled(c) ps size(c) notitle, \
             for [c = 1:curves] csv using (x(c,p,word(panels,p).'_sample')):(y(c,p,word(panels,p).'_sample')) with linespoints lc rgb colour(c) lw 0.8 dt dash(c) pt open(c) ps large(c) notitle, \
             @tips
    }
    unset multiplot
    unset output
}
