# The holders of parts: a grid for each panel of a CSV with the columns panel, across, down, number, text,
# across_name, down_name.  A cell has the colour of its number, and its text.
#
#     gnuplot -e "name = 'holders'" plots/holders.gp       reads NAME.csv, writes NAME.svg and NAME.pdf

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
here(p) = strcol("panel") eq panel[p]
colour(k) = int(word(colours, int(k) % 8 + 1))
set border 0
set tics scale 0 textcolor rgb '#666666'
unset key
set size ratio -1
set style fill solid border rgb '#ffffff'
do for [t in 'svg pdf'] {
    if (t eq 'svg') { set terminal svg noenhanced size 300 * n, 330 font 'DejaVu Sans,11' background '#ffffff' }
    if (t eq 'pdf') { set terminal pdfcairo noenhanced size 3.1 * n, 3.4 font 'DejaVu Sans,8' }
    set output name.'.'.t
    set multiplot layout 1, n margins 0.06, 0.99, 0.17, 0.88 spacing 0.07, 0
    do for [p = 1:n] {
        set xrange [*:*]
        set yrange [*:*] noreverse
        stats csv using (here(p) ? column("across") : NaN) name 'A' nooutput
        stats csv using (here(p) ? column("down") : NaN) name 'D' nooutput
        stats csv using (here(p) ? (across_name = strcol("across_name"), down_name = strcol("down_name"), 1) : NaN) nooutput
        set label 1 panel[p] at graph 0, 1.07 left
        set xlabel across_name
        set ylabel down_name
        set xtics 1
        set ytics 1
        set xrange [-0.5:A_max + 0.5]
        set yrange [D_max + 0.5:-0.5]
        plot csv using (here(p) ? column("across") : NaN):(column("down")):(0.5):(0.5):(colour(column("number"))) with boxxyerror lc rgb variable, \
             csv using (here(p) ? column("across") : NaN):(column("down")):(strcol("text")) with labels
    }
    unset multiplot
    unset output
}
