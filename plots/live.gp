# Where the bytes go: a bar for each implementation, of its buffers at the peak, by name.
draws(p) = 'from to'
lines(p) = word(panels, p)
swatch   = 0.45
bar_end  = 1
columns_most = 1
x_label  = 'share of the workspace'
load 'style.gp'
set xtics ('0' 0, '25 %%' 0.25, '50 %%' 0.5, '75 %%' 0.75, '100 %%' 1)
if (4 * (wide('100 %') + 1) * em > plot_x) { set xtics ('0' 0, '100 %%' 1) }
is_end(p) = is_of(p) && column("to") > 1 - 1e-9 # one piece of a bar
at(p)     = bar_low(column("bar"))
piece_px  = "(column('to') - column('from')) * pixel"
do for [t in formats] {
    eval start(t)
    do for [p = 1:words(panels)] {
        eval panel(p)
        eval bar_words
        plot for [c = 1:curves] csv using (mine(c,p) ? 0.5 * (column("from") + column("to")) : NaN):(bar_low(column("bar"))):(column("from")):(column("to")):(bar_low(column("bar"))):(bar_high(column("bar"))) with boxxyerror lc rgb colour(c) notitle, \
             for [c = 1:curves] csv using (mine(c,p) && named(c, @piece_px) ? 0.5 * (column("from") + column("to")) : NaN):(0.5 * (bar_low(column("bar")) + bar_high(column("bar")))):(field(c, 2)) with labels font font(t, 0.85) notitle, \
             csv using (is_beside && is_end(p) ? 1 : NaN):(0.5 * (bar_low(column("bar")) + bar_high(column("bar")))):(size_text(column("of_bytes"))) with labels left offset character 0.5,0 notitle
    }
    unset multiplot
    unset output
}
