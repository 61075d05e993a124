# Memory of the fullest rank against the number of ranks R, or against L.
# Each pass twice: with inputs and outputs, which is what a rank needs in all, and without them.
passes = panels
panels = ''
do for [w in passes] { panels = panels.w.'_with_its_inputs_and_outputs ' }
do for [w in passes] { panels = panels.w.'_without_them ' }
column_of(p, what) = (strstrt(word(panels, p), '_with_its_') > 0 ? 'total_' : '').what
lines(p) = word(panels, p)[1:strstrt(word(panels, p), '_with') - 1]
draws(p) = column_of(p, 'priced_bytes').' '.column_of(p, 'beyond_bytes').' '.column_of(p, 'ledger_bytes').' '.column_of(p, 'ideal_bytes').(strstrt(word(panels, p), '_with_its_') > 0 ? '' : ' one_rank_bytes')
y_label = 'memory'
ends = 1
load 'style.gp'
priced_marks = 1 # few points, and curves that coincide: marks tell them apart
eval axis
is_whole(p) = strstrt(word(panels, p), '_with_its_') > 0
lowest(w)   = (least = 1e300, sum [p = 1:words(panels)] (is_whole(p) == w ? (least = smaller(least, panel_low[p]), 0) : 0), least)
highest(w)  = (most = 0, sum [p = 1:words(panels)] (is_whole(p) == w ? (most = larger(most, panel_high[p]), 0) : 0), most)
range_of(w) = room(lowest(w), highest(w), 1.7, 2.0)

do for [t in formats] {
    eval start(t)
    do for [p = 1:words(panels)] {
        eval panel(p)
        range = own_y ? y_range : range_of(is_whole(p)) # of both passes; with and without differ by hundreds
        eval bytes
        eval 'set yrange '.range
        eval names
        plot for [c = 1:curves] csv using (x(c,p,column_of(p,'ideal_bytes'))):(y(c,p,column_of(p,'ideal_bytes'))) with lines lc rgb '#bbbbbb' lw 1 notitle, \
             for [c = 1:curves] csv using (x(c,p,column_of(p,'beyond_bytes'))):(y(c,p,column_of(p,'beyond_bytes'))) with linespoints lc rgb colour(c) lw width(c) dt 2 pt open(c) ps large(c) notitle, \
             for [c = 1:curves] csv using (x(c,p,column_of(p,'priced_bytes'))):(y(c,p,column_of(p,'priced_bytes'))) with lines lc rgb colour(c) lw width(c) dt dash(c) notitle, \
             for [c = 1:curves] csv using (x(c,p,"one_rank_bytes")):(y(c,p,"one_rank_bytes")) with points lc rgb colour(c) pt 2 ps 1.2 * point notitle, \
             for [c = 1:curves] csv using (x(c,p,column_of(p,'ledger_bytes'))):(y(c,p,column_of(p,'ledger_bytes'))) with points lc rgb colour(c) pt filled(c) ps size(c) notitle, \
             @tips
    }
    unset multiplot
    unset output
}
