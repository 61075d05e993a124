# Time of a call against what the group varies: L, heads, layers, ...
ranks = kind eq 'rank-time' ? 'rank_' : kind eq 'process-time' ? 'process_' : ''
median = ranks.'median_s'
single = ranks.'single_s'
draws(p) = median.' '.single.' fastest_s slowest_s'
lines(p) = word(panels, p)
exponent = 'time_exponent'
single_remark = ' Open, dotted: first calls.'
load 'style.gp'
eval axis
set format y '%.0s %cs'
set ylabel ranks eq 'rank_' ? 'CPU time of the slowest rank' : 'time of a call'
do for [t in formats] {
    eval start(t)
    do for [p = 1:words(panels)] {
        eval panel(p)
        plot for [c = 1:curves] csv using (x(c,p,median)):(y(c,p,median)) with lines lc rgb colour(c) lw width(c) dt dash(c) notitle, \
             for [c = 1:curves] csv using (x(c,p,median)):(y(c,p,median)):(y(c,p,"fastest_s")):(y(c,p,"slowest_s")) with yerrorbars lc rgb colour(c) pt filled(c) ps size(c) notitle, \
             for [c = 1:curves] csv using (x(c,p,single)):(y(c,p,single)) with linespoints lc rgb colour(c) dt 3 pt open(c) ps 1.2 notitle, \
             for [c = 1:curves] keyentry with linespoints lc rgb colour(c) lw key_width(c,p) dt key_dash(c,p) pt key_mark(c,p) ps key_size(c,p) title key(c,p)
    }
    unset multiplot
    unset output
}
