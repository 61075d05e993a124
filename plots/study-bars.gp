# Live sets of a study: a bar for each peak, from the left a piece for each object, with its name
# where there is room.
draws(p) = 'from to'
lines(p) = word(panels, p)
swatch   = 0.5
set datafile separator comma
set datafile columnheaders
stats name.'.csv' using (column("of_bytes")) nooutput
bar_end = STATS_max
power   = bar_end < 1024 ? 0 : int(log(bar_end) / log(1024) + 1e-9)
if (bar_end / 1024.0**power < 2 && power > 0) { power = power - 1 }
scale   = 1024.0**power
x_label = word("B KiB MiB GiB TiB PiB", power + 1)
load 'style.gp'
set xtics ()
tick = nice((wide('1000') + 1) * em / plot_x * bar_end / scale)
do for [i = 0:floor(bar_end / scale / tick)] { set xtics add (sprintf('%g', i * tick) i * tick * scale) }
piece_px  = "(column('to') - column('from')) * pixel"
do for [t in formats] {
    eval start(t)
    do for [p = 1:words(panels)] {
        eval panel(p)
        eval bar_words
        plot for [c = 1:curves] csv using (mine(c,p) && @piece_px > 1 ? 0.5 * column("to") : NaN):(bar_low(column("bar"))):(column("from")):(column("to")):(bar_low(column("bar"))):(bar_high(column("bar"))) with boxxyerror lc rgb colour(c) notitle, \
             for [c = 1:curves] csv using (mine(c,p) && named(c, @piece_px) ? 0.5 * (column("from") + column("to")) : NaN):(0.5 * (bar_low(column("bar")) + bar_high(column("bar")))):(field(c, 2)) with labels font font(t, 0.85) notitle, \
             csv using (is_beside && is_of(p) && column("to") > (1 - 1e-9) * column("of_bytes") ? column("to") : NaN):(0.5 * (bar_low(column("bar")) + bar_high(column("bar")))):(size_text(column("of_bytes"))) with labels left offset character 0.5,0 notitle
    }
    unset multiplot
    unset output
}
