# Live bytes over the course of a pass, buffer on buffer, on one scale; a panel of which little is seen
# there comes once more, enlarged.  From a CSV with the columns panel, first, end
# (events), buffer, place (of the buffer, for its colour), from, to (bytes), backward (where it begins).
#
#     gnuplot -e "name = 'live-bytes'" plots/live-bytes.gp      reads NAME.csv, writes NAME.svg and NAME.pdf

set encoding utf8
set datafile separator comma
set datafile columnheaders
csv = name.'.csv'
panels = ''
stats csv using (strstrt(panels, '<'.strcol("panel").'>') ? 0 : (panels = panels.'<'.strcol("panel").'>', 1)) nooutput
n = 0
array panel[99]
do for [i = 1:strlen(panels)] {
    if (panels[i:i] eq '<') { n = n + 1; panel[n] = '' } else { if (panels[i:i] ne '>') { panel[n] = panel[n].panels[i:i] } }
}
# The panels to draw, and how much of a byte's height: 1, or that of an enlarged one.
stats csv using (column("to")) name 'ALL' nooutput
array peak[n]
array drawn[2 * n]
array most[2 * n]
do for [p = 1:n] {
    stats csv using (strcol("panel") eq panel[p] ? column("to") : NaN) name 'L' nooutput
    peak[p] = L_max
    drawn[p] = p
    most[p] = ALL_max
}
m = n
do for [p = 1:n] { if (peak[p] < 0.1 * ALL_max) { m = m + 1; drawn[m] = p; most[m] = peak[p] } }
colours = '0x9ecae1 0xfdd0a2 0xa1d99b 0xdadaeb 0xfbb4b9 0xffffb3 0xd9d9d9 0xccebc5'
colour(k) = int(word(colours, int(k) % 8 + 1))
here(p) = strcol("panel") eq panel[p]
size_text(b) = b < 2048 ? sprintf('%d B', b) : b < 1024.0**2 ? sprintf('%.3g KiB', b / 1024) : sprintf('%.3g MiB', b / 1024.0**2)
middle(a, b) = 0.5 * (column(a) + column(b))
set border 3 lc rgb '#666666'
set tics nomirror scale 0.6 textcolor rgb '#666666'
unset xtics
unset key
set style fill solid border rgb '#ffffff'
do for [t in 'svg pdf'] {
    if (t eq 'svg') { set terminal svg noenhanced size 270 * m, 380 font 'DejaVu Sans,12' background '#ffffff' }
    if (t eq 'pdf') { set terminal pdfcairo noenhanced size 2.8 * m, 3.95 font 'DejaVu Sans,9' }
    set output name.'.'.t
    set multiplot layout 1, m spacing 0.07, 0 margins 0.07, 0.99, 0.12, 0.86
    do for [q = 1:m] {
        p = drawn[q]
        high = most[q]
        set xrange [*:*]
        set yrange [*:*]
        stats csv using (here(p) ? column("end") : NaN) name 'E' nooutput
        stats csv using (here(p) ? column("backward") : NaN) name 'B' nooutput
        set label 1 panel[p] at graph 0, 1.13 left font 'DejaVu Sans Bold'
        set label 2 (q > n ? 'enlarged: ' : '').size_text(peak[p]).' at the peak' at graph 0, 1.06 left textcolor rgb '#666666'
        set label 3 'forward' at 0.5 * B_max, graph -0.06 center textcolor rgb '#666666'
        set label 4 'backward' at 0.5 * (B_max + E_max), graph -0.06 center textcolor rgb '#666666'
        set xrange [0:E_max]
        set yrange [0:1.05 * high]
        set ytics ('0' 0)
        do for [k = 1:4] { set ytics add (size_text(0.25 * k * high) 0.25 * k * high) }
        set arrow 1 from B_max, graph 0 to B_max, graph 1 nohead dt 2 lc rgb '#666666' front
        plot csv using (here(p) ? middle("first", "end") : NaN):(middle("from", "to")):(0.5 * (column("end") - column("first"))):(0.5 * (column("to") - column("from"))):(colour(column("place"))) with boxxyerror lc rgb variable, \
             csv using (here(p) && column("to") - column("from") > 0.04 * high && column("end") - column("first") > 0.07 * E_max ? middle("first", "end") : NaN):(middle("from", "to")):(strcol("buffer")) with labels font ',9'
    }
    unset multiplot
    unset output
}
