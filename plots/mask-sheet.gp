# Masks side by side, from a CSV with a line for each run of visible keys: mask, queries, keys (how many
# there are), query, first, end; a comma of the mask is a semicolon there.
#
#     gnuplot -e "name = 'masks'" plots/mask-sheet.gp      reads NAME.csv, writes NAME.svg and NAME.pdf

set encoding utf8
set datafile separator comma
set datafile columnheaders
csv = name.'.csv'
masks = ''
stats csv using (strstrt(masks, '<'.strcol("mask").'>') ? 0 : (masks = masks.'<'.strcol("mask").'>', 1)) nooutput
n = 0
array mask[99]
do for [i = 1:strlen(masks)] {
    if (masks[i:i] eq '<') { n = n + 1; mask[n] = '' } else { if (masks[i:i] ne '>') { mask[n] = mask[n].masks[i:i] } }
}
columns = 4
rows = (n + columns - 1) / columns
set border lc rgb '#666666'
unset tics
unset key
set size ratio -1
set style fill solid noborder
here(m) = strcol("mask") eq mask[m]
do for [t in 'svg pdf'] {
    if (t eq 'svg') { set terminal svg noenhanced size 840, 40 + 250 * rows font 'DejaVu Sans,11' background '#ffffff' }
    if (t eq 'pdf') { set terminal pdfcairo noenhanced size 8.75in, (40 + 250 * rows) / 96.0 font 'DejaVu Sans,8' }
    set output name.'.'.t
    set multiplot layout rows, columns margins 0.04, 0.98, 0.06, 0.94 spacing 0.03, 0.07
    do for [m = 1:n] {
        stats csv using (here(m) ? (queries = column("queries"), keys = column("keys"), 1) : NaN) nooutput
        set xlabel (m > n - columns ? 'keys' : '')
        set ylabel ((m - 1) % columns == 0 ? 'queries' : '')
        title = ''
        do for [i = 1:strlen(mask[m])] { c = mask[m][i:i]; title = title.(c eq ';' ? ',' : c) }
        set label 1 title at graph 0, 1.08 left
        set print $grid
        print 'x,y'
        do for [k = 1:int(keys) - 1] { print sprintf('%d,0', k); print sprintf('%d,%d', k, int(queries)); print '' }
        do for [k = 1:int(queries) - 1] { print sprintf('0,%d', k); print sprintf('%d,%d', int(keys), k); print '' }
        unset print
        set xrange [0:keys]
        set yrange [queries:0]
        plot csv using (here(m) ? 0.5 * (column("first") + column("end")) : NaN):(column("query") + 0.5):(0.5 * (column("end") - column("first"))):(0.5) with boxxyerror lc rgb '#0072B2', \
             $grid using 1:2 with lines lt 1 lw 0.6 lc rgb '#cccccc'
        set autoscale
    }
    unset multiplot
    unset output
}
