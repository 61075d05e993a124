# Live sets of a study: a bar for each peak, from the left a piece for each object, with its name
# where there is room.
draws(p) = 'from to'
lines(p) = word(panels, p)
load 'style.gp'
unset logscale
unset key
n_bars = 0
longest_bar = 0
last = 0
do for [i = 1:strlen(bars)] {
    if (bars[i:i] eq '|') { n_bars = n_bars + 1; longest_bar = longest_bar > i - last ? longest_bar : i - last; last = i }
}
canvas_y = head_y + n_bars * 42 + 62
stats csv using (column("of_bytes")) nooutput
power = STATS_max < 1024 ? 0 : int(log(STATS_max) / log(1024) + 1e-9)
if (STATS_max / 1024.0**power < 2 && power > 0) { power = power - 1 }
scale = 1024.0**power
most = STATS_max / scale
set lmargin at screen (longest_bar * 7.2 * big + 14) / canvas_x
set rmargin 1
set bmargin 4
set xrange [0:most * 1.13]
set yrange [n_bars - 0.45:-0.55]
set ytics () scale 0
bar = 0
label = ''
do for [i = 1:strlen(bars)] {
    if (bars[i:i] eq '|') { set ytics add (label bar); bar = bar + 1; label = '' } else { label = label.bars[i:i] }
}
set xtics auto
set grid xtics noytics
set style fill solid 0.5 noborder
set xlabel word("B KiB MiB GiB TiB PiB", power + 1)
gap       = most / 500
piece(c)  = mine(c,1) && column("to") - column("from") > STATS_max / 400 ? 0.5 * column("to") / scale : NaN # to be seen
wide(n)   = (column("to") - column("from")) / scale > strlen(n) * most / 108
named(n)  = wide(n) ? 0.5 * (column("from") + column("to")) / scale : NaN
total     = "column('to') > 0.9999 * column('of_bytes') ? column('to') / scale : NaN"
in(b, e)  = sprintf('%.3g %s', b / 1024.0**e, word("B KiB MiB GiB TiB PiB", e + 1))
text(b)   = in(b, b >= scale || power == 0 ? power : b >= scale / 1024 ? power - 1 : power - 2)
do for [t in formats] {
    eval start(t)
    eval panel(1)
    plot for [c = 1:curves] csv using (piece(c)):(column("bar")):(column("from") / scale):(column("to") / scale - gap):(column("bar") - 0.36):(column("bar") + 0.36) with boxxyerror lc rgb colour(c) notitle, \
         csv using (named(strcol("curve"))):(column("bar")):(strcol("curve")) with labels font ',8' notitle, \
         csv using (@total):(column("bar")):(text(column("of_bytes"))) with labels left offset 0.5,0 font ',8' notitle
    unset multiplot
    unset output
}
