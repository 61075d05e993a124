# Work of each rank, as bars: one cluster for each scheme.
draws(p) = 'of_mean'
lines(p) = word(panels, p)
load 'style.gp'
unset logscale
unset key
set yrange [*:*]
stats csv using "rank" nooutput # of what is within the ranges
cluster = STATS_max + 3 # bars of a scheme, and the gap behind them
eval 'set yrange '.(own_y ? y_range : sprintf('[0:%g]', 1.1 * y_high))
set xrange [-1.5:curves * cluster - 0.5]
set bmargin 5
set xtics () scale 0 rotate by 20 right
do for [c = 1:curves] { set xtics add (field(c, 2) ((c - 1) * cluster + (cluster - 3) / 2)) }
set ytics auto
set grid noxtics
set style fill solid 0.85 noborder
set ylabel 'work of a rank / mean of all ranks'
do for [t in formats] {
    eval start(t)
    do for [p = 1:words(panels)] {
        eval panel(p)
        set arrow 1 from graph 0, first 1 to graph 1, first 1 nohead front lw 1.2 lc rgb grey
        plot for [c = 1:curves] csv using ((c - 1) * cluster + x(c,p,"of_mean")):(y(c,p,"of_mean")):(0.85) with boxes lc rgb colour(c) notitle
    }
    unset multiplot
    unset output
}
