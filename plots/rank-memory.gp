# Memory of the fullest rank against the number of ranks R, or against L.
# Each pass twice: with inputs and outputs, which is what a rank needs in all, and without them.
passes = panels
panels = ''
do for [w in passes] { panels = panels.w.'_with_its_inputs_and_outputs ' }
do for [w in passes] { panels = panels.w.'_without_them ' }
column_of(p, what) = (strstrt(word(panels, p), '_with_its_') > 0 ? 'total_' : '').what
lines(p) = word(panels, p)[1:strstrt(word(panels, p), '_with') - 1]
draws(p) = column_of(p, 'priced_bytes').' '.column_of(p, 'beyond_bytes').' '.column_of(p, 'ledger_bytes').' '.column_of(p, 'ideal_bytes').(strstrt(word(panels, p), '_with_its_') > 0 ? '' : ' one_rank_bytes')
load 'style.gp'
priced_size = 1.2 # few points, and curves that coincide: marks tell them apart
eval axis
eval bytes
set ylabel 'memory of a process or rank'

do for [t in formats] {
    eval start(t)
    do for [p = 1:words(panels)] {
        eval panel(p)
        range = own_y ? y_range : room(panel_low[p], panel_high[p], 1.7, 2.0) # of its own: they differ by hundreds
        eval between
        step_y = doublings > 7 ? ceil(doublings / 7) : 1
        eval bytes
        eval 'set yrange '.range
        plot for [c = 1:curves] csv using (x(c,p,column_of(p,'ideal_bytes'))):(y(c,p,column_of(p,'ideal_bytes'))) with lines lc rgb '#999999' dt 3 notitle, \
             for [c = 1:curves] csv using (x(c,p,column_of(p,'beyond_bytes'))):(y(c,p,column_of(p,'beyond_bytes'))) with linespoints lc rgb colour(c) lw 1.6 dt 2 pt open(c) ps priced_size notitle, \
             for [c = 1:curves] csv using (x(c,p,column_of(p,'priced_bytes'))):(y(c,p,column_of(p,'priced_bytes'))) with lines lc rgb colour(c) lw width(c) dt dash(c) notitle, \
             for [c = 1:curves] csv using (x(c,p,"one_rank_bytes")):(y(c,p,"one_rank_bytes")) with points lc rgb colour(c) pt 2 notitle, \
             for [c = 1:curves] csv using (x(c,p,column_of(p,'ledger_bytes'))):(y(c,p,column_of(p,'ledger_bytes'))) with points lc rgb colour(c) pt filled(c) ps size(c) notitle, \
             for [c = 1:curves] keyentry with linespoints lc rgb colour(c) lw key_width(c,p) dt key_dash(c,p) pt key_mark(c,p) ps key_size(c,p) title key(c,p)
    }
    unset multiplot
    unset output
}
