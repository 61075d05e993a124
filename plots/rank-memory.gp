# Memory of the fullest rank against the number of ranks P, or against L.
load 'style.gp'
priced_size = 1.2 # few points, and curves that coincide: marks tell them apart
eval axis
eval bytes
set ylabel 'memory of a process or rank'

# With and without inputs and outputs is a factor of hundreds: unless y_range is given, each panel has
# a range of its own.
set yrange [*:*]
array range_of[words(panels)]
do for [p = 1:words(panels)] {
    low = 2.0**62
    high = 1.0
    do for [c = 1:curves] {
        do for [what in numbers] {
            if (has(c, p, what)) {
                stats csv using (mine(c, p) ? y(c, p, what) : NaN) nooutput
                if (STATS_min < low) { low = STATS_min }
                if (STATS_max > high) { high = STATS_max }
            }
        }
    }
    range_of[p] = y_range ne '[*:*]' ? y_range : sprintf('[%g:%g]', low / 1.7, high * 1.7)
}
do for [t in formats] {
    eval start(t)
    do for [p = 1:words(panels)] {
        eval panel(p)
        range = range_of[p]
        eval between
        step_y = doublings > 7 ? ceil(doublings / 7) : 1
        eval bytes
        eval 'set yrange '.range
        plot for [c = 1:curves] csv using (x(c,p,"ideal_bytes")):(y(c,p,"ideal_bytes")) with lines lc rgb '#999999' dt 3 notitle, \
             for [c = 1:curves] csv using (x(c,p,"beyond_bytes")):(y(c,p,"beyond_bytes")) with linespoints lc rgb colour(c) lw 1.6 dt 2 pt open(c) ps priced_size notitle, \
             for [c = 1:curves] csv using (x(c,p,"priced_bytes")):(y(c,p,"priced_bytes")) with lines lc rgb colour(c) lw width(c) dt dash(c) notitle, \
             for [c = 1:curves] csv using (x(c,p,"one_rank_bytes")):(y(c,p,"one_rank_bytes")) with points lc rgb colour(c) pt 2 notitle, \
             for [c = 1:curves] csv using (x(c,p,"ledger_bytes")):(y(c,p,"ledger_bytes")) with points lc rgb colour(c) pt filled(c) ps size(c) notitle, \
             for [c = 1:curves] keyentry with linespoints lc rgb colour(c) lw key_width(c,p) dt key_dash(c,p) pt key_mark(c,p) ps key_size(c,p) title key(c,p)
    }
    unset multiplot
    unset output
}
