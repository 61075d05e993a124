# Live bytes over the course of a pass, buffer on buffer: from a CSV with the columns panel, first, end
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
colours = '0x9ecae1 0xfdd0a2 0xa1d99b 0xdadaeb 0xfbb4b9 0xffffb3 0xd9d9d9 0xccebc5'
colour(k) = int(word(colours, int(k) % 8 + 1))
here(p) = strcol("panel") eq panel[p]
size_text(b) = b < 2048 ? sprintf('%d B', b) : b < 1024.0**2 ? sprintf('%.3g KiB', b / 1024) : sprintf('%.3g MiB', b / 1024.0**2)
set border 3 lc rgb '#666666'
unset xtics
unset key
set style fill solid border rgb '#ffffff'
do for [t in 'svg pdf'] {
    if (t eq 'svg') { set terminal svg noenhanced size 920, 380 font 'DejaVu Sans,12' background '#ffffff' }
    if (t eq 'pdf') { set terminal pdfcairo noenhanced size 9.6in, 3.95in font 'DejaVu Sans,9' }
    set output name.'.'.t
    set multiplot layout 1, n spacing 0.09, 0 margins 0.08, 0.98, 0.1, 0.88
    do for [p = 1:n] {
        set xrange [*:*]
        set yrange [*:*]
        stats csv using (here(p) ? column("end") : NaN) name 'E' nooutput
        stats csv using (here(p) ? column("to") : NaN) name 'L' nooutput
        stats csv using (here(p) ? column("backward") : NaN) name 'B' nooutput
        set title panel[p]
        set xlabel 'forward, then backward'
        set xrange [0:E_max]
        set yrange [0:1.12 * L_max]
        set ytics (('0') 0, size_text(0.25 * L_max) 0.25 * L_max, size_text(0.5 * L_max) 0.5 * L_max, size_text(0.75 * L_max) 0.75 * L_max, size_text(L_max) L_max) nomirror
        set arrow 1 from B_max, graph 0 to B_max, graph 1 nohead dt 2 lc rgb '#666666' front
        middle(a, b) = 0.5 * (column(a) + column(b))
        plot csv using (here(p) ? middle("first", "end") : NaN):(middle("from", "to")):(0.5 * (column("end") - column("first"))):(0.5 * (column("to") - column("from"))):(colour(column("place"))) with boxxyerror lc rgb variable, \
             csv using (here(p) && column("to") - column("from") > 0.04 * L_max && column("end") - column("first") > 0.07 * E_max ? middle("first", "end") : NaN):(middle("from", "to")):(strcol("buffer")) with labels font ',9'
    }
    unset multiplot
    unset output
}
