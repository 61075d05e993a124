# Work of each rank, as bars: one cluster for each scheme, whose name is in the legend.
draws(p) = 'of_mean'
lines(p) = word(panels, p)
widest_y = '0.5'
y_label  = 'work of a rank / mean of all ranks'
swatch   = 0.85
load 'style.gp'
unset logscale
set yrange [*:*]
stats csv using "rank" nooutput # of what is within the ranges
cluster = STATS_max + 3 # bars of a scheme, and the gap behind them
y_range = own_y ? y_range : sprintf('[0:%g]', 1.1 * y_high)
eval 'set yrange '.y_range
set xrange [-1.5:curves * cluster - 0.5]
x_last = 1
eval linear_axis
set xtics ('' 0) scale 0
set grid noxtics
set style fill solid swatch noborder
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
