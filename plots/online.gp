# The state that online softmax keeps of queries 0 to 3, tile by tile, from a CSV with the columns key
# (the first of the tile), name, query, value.
#
#     gnuplot -e "name = 'online'; tile = 2" plots/online.gp     (keys of a tile)
#
# reads NAME.csv, writes NAME.svg and NAME.pdf.

set encoding utf8
set datafile separator comma
set datafile columnheaders
set datafile missing NaN # a line goes on over other queries' rows
csv = name.'.csv'
array title[4] = ["m, the maximum so far", "exp(m − m'), what multiplies l and o", "l, the sum so far", "o, not divided yet (first feature)"]
array what[4] = ["m'", "exp(m-m')", "l'", "o'[0]"]
colours = '#D55E00 #0072B2 #009E73 #CC79A7'
is(p) = strcol("name") eq what[p]
stats csv using (is(1) ? column("key") : NaN) name 'K' nooutput
set border 3 lc rgb '#666666'
set tics nomirror scale 0.6 textcolor rgb '#666666'
set grid lt 1 lw 0.6 lc rgb '#dddddd'
set xrange [0:K_max + tile + 0.5]
set xtics 2 * tile
set offsets 0, 0, graph 0.08, graph 0.05
set key left top Left reverse samplen 2
do for [t in 'svg pdf'] {
    if (t eq 'svg') { set terminal svg noenhanced size 840, 560 font 'DejaVu Sans,12' background '#ffffff' }
    if (t eq 'pdf') { set terminal pdfcairo noenhanced size 8.75in, 5.8in font 'DejaVu Sans,9' }
    set output name.'.'.t
    set multiplot layout 2, 2 spacing 0.08, 0.14 margins 0.06, 0.98, 0.11, 0.93
    do for [p = 1:4] {
        set label 1 title[p] at graph -0.09, 1.08 left
        set xlabel (p > 2 ? 'keys met so far' : '')
        if (p == 3) { set key } else { unset key }
        plot for [r = 0:3] csv using (is(p) && column("query") == r ? column("key") + tile : NaN):(column("value")) with linespoints lw 1.8 pt 7 ps 0.5 lc rgb word(colours, r + 1) title sprintf('query %d', r)
    }
    unset multiplot
    unset output
}
