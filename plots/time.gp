# Time of a call against what the group varies: L, heads, layers, ...
ranks = kind eq 'rank-time' ? 'rank_' : kind eq 'process-time' ? 'process_' : ''
median = ranks.'median_s'
single = ranks.'single_s'
draws(p) = median.' '.single.' fastest_s slowest_s'
lines(p) = word(panels, p)
exponent = 'time_exponent'
single_remark = ' Open: first calls.'
widest_y = '100 ms'
y_format = '%.0s %cs'
y_label = ranks eq 'rank_' ? 'CPU time of the slowest rank' : 'time of a call'
ends = 1
load 'style.gp'
eval axis
do for [t in formats] {
    eval start(t)
    do for [p = 1:words(panels)] {
        eval panel(p)
        eval names
        plot for [c = 1:curves] csv using (x(c,p,median)):(y(c,p,median)) with lines lc rgb colour(c) lw width(c) dt dash(c) notitle, \
             for [c = 1:curves] csv using (x(c,p,median)):(y(c,p,median)):(y(c,p,"fastest_s")):(y(c,p,"slowest_s")) with yerrorbars lc rgb colour(c) pt filled(c) ps size(c) notitle, \
             for [c = 1:curves] csv using (x(c,p,single)):(y(c,p,single)) with linespoints lc rgb colour(c) lw 0.8 dt dash(c) pt open(c) ps large(c) notitle, \
             @tips
    }
    unset multiplot
    unset output
}
