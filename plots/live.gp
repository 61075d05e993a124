# Where the bytes go: a bar for each implementation, of its buffers at the peak, by name.
draws(p) = 'from to'
lines(p) = word(panels, p)
load 'style.gp'
unset logscale
unset key
key_rows = 3 # names stand in the bars
canvas_y = head_y + rows * (300 + big * (60 + 19 * key_rows))
set bmargin 6
n_bars = 1
do for [i = 1:strlen(bars)] { if (bars[i:i] eq '|') { n_bars = n_bars + 1 } }
set xrange [-0.6:n_bars - 0.4]
set yrange [0:1.12]
set xtics () scale 0 rotate by 20 right
bar = 0
label = ''
do for [i = 1:strlen(bars)] {
    if (bars[i:i] eq '|') { set xtics add (label bar); bar = bar + 1; label = '' } else { label = label.bars[i:i] }
}
set xtics add (label bar)
set ytics ('0' 0, '25 %%' 0.25, '50 %%' 0.5, '75 %%' 0.75, '100 %%' 1)
set grid noxtics
set style fill solid 0.45 border rgb '#ffffff'
set ylabel 'share of the workspace'
size_text(b) = b < 1024 ? sprintf('%d B', b) : b < 1024.0**2 ? sprintf('%.3g KiB', b / 1024) : \
               b < 1024.0**3 ? sprintf('%.3g MiB', b / 1024.0**2) : sprintf('%.3g GiB', b / 1024.0**3)
here(p)  = strcol("panel") eq word(panels, p)
top(p)   = here(p) && column("to") > 0.999 ? column(across) : NaN
named(p) = here(p) && column("to") - column("from") > 0.045 ? column(across) : NaN
do for [t in formats] {
    eval start(t)
    do for [p = 1:words(panels)] {
        eval panel(p)
        plot for [c = 1:curves] csv using (x(c,p,"to")):(y(c,p,"to")):(x(c,p,"to") - 0.46):(x(c,p,"to") + 0.46):(y(c,p,"from")):(y(c,p,"to")) with boxxyerror lc rgb colour(c) notitle, \
             csv using (named(p)):(0.5 * (column("from") + column("to"))):(strcol("curve")) with labels font ',7' notitle, \
             csv using (top(p)):(1.05):(size_text(column("of_bytes"))) with labels font ',8' notitle
    }
    unset multiplot
    unset output
}
