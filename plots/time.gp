# Time of a call against what the group varies: L, heads, layers, ...
load 'style.gp'
if (!exists("y_name")) y_name = 'time of a call'
eval axis
set format y '%.0s %cs'
set ylabel y_name
do for [t in formats] {
    eval start(t)
    do for [p = 1:words(panels)] {
        eval panel(p)
        plot for [c = 1:curves] csv using (x(c,p,"median_s")):(y(c,p,"median_s")) with lines lc rgb colour(c) lw width(c) dt dash(c) notitle, \
             for [c = 1:curves] csv using (x(c,p,"median_s")):(y(c,p,"median_s")):(y(c,p,"fastest_s")):(y(c,p,"slowest_s")) with yerrorbars lc rgb colour(c) pt filled(c) ps size(c) notitle, \
             for [c = 1:curves] csv using (x(c,p,"single_s")):(y(c,p,"single_s")) with linespoints lc rgb colour(c) dt 3 pt open(c) ps 1.2 notitle, \
             for [c = 1:curves] keyentry with linespoints lc rgb colour(c) lw key_width(c,p) dt key_dash(c,p) pt key_mark(c,p) ps key_size(c,p) title key(c,p)
    }
    unset multiplot
    unset output
}
