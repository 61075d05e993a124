# Peak extra memory against the time of a call: a point for each option, with its name.
draws(p) = 'warm_bytes first_bytes'
lines(p) = word(panels, p)
single = 'first_bytes'
single_remark = ' Open: first calls.'
across_low = 'fastest_s'
across_high = 'slowest_s'
load 'style.gp'
eval axis
eval bytes
set ylabel 'peak extra memory'
time_text(s) = s < 1e-6 ? sprintf('%g ns', s * 1e9) : s < 1e-3 ? sprintf('%g µs', s * 1e6) : s < 1 ? sprintf('%g ms', s * 1e3) : sprintf('%g s', s)
set xtics ()
do for [e = -9:4] { do for [m in '1 2 5'] { set xtics add (time_text(m * 10.0**e) m * 10.0**e) } }

# Names stand beside their points where there is room: those of the frontier first.  All in parts of a
# panel; the sizes of letters are about those of its font.
range = x_range
eval between
x_low = log(low)
x_long = log(1.0 * high / low)
range = y_range
eval between
y_low = log(low)
y_long = log(1.0 * high / low)
letter_x = big * 6.0 / (canvas_x / columns - 110)
letter_y = big * 14.0 / 300
set xrange [*:*] # stats looks at what is within the ranges
set yrange [*:*]
stats csv using (1) nooutput
n = STATS_records
array at_x[n]; array at_y[n]; array called[n]; array is_front[n]
array from_x[n]; array to_x[n] # of its bar
array box[n]    # "left right low high" of a name
here(p)   = strcol("panel") eq word(panels, p)
part(s)   = (log(s) - x_low) / x_long
height(i) = strcol("warm_bytes") ne '' ? column("warm_bytes") : column("first_bytes")
put(i)    = (at_x[i] = part(column(across)), at_y[i] = (log(height(i)) - y_low) / y_long, from_x[i] = part(column("fastest_s")), \
             to_x[i] = part(column("slowest_s")), called[i] = strcol("note"), is_front[i] = (strcol("frontier_bytes") ne ''), 1)
edge(part) = part < 0 ? 0 : part > 1 ? 1 : part
# The corner of a name at place k of point i: above and below to the right, above, below, right, left.
left_of(i, k) = at_x[i] + (k < 3 ? 0.5 * letter_x : k < 5 ? -0.5 * strlen(called[i]) * letter_x : k == 5 ? 1.2 * letter_x : -(strlen(called[i]) + 1.2) * letter_x)
bottom_of(i, k)  = at_y[i] + (k == 1 || k == 3 ? 0.3 * letter_y : k == 2 || k == 4 ? -1.3 * letter_y : -0.5 * letter_y)
end_of(i, k)  = left_of(i, k) + strlen(called[i]) * letter_x
meets(a, b, c, d, i) = a < real(word(box[i], 2)) && b > real(word(box[i], 1)) && c < real(word(box[i], 4)) && d > real(word(box[i], 3))
crosses(a, b, c, d, i) = from_x[i] < b && to_x[i] > a && at_y[i] > c && at_y[i] < d
do for [t in formats] {
    eval start(t)
    do for [p = 1:words(panels)] {
        eval panel(p)
        do for [i = 1:n] { called[i] = ''; box[i] = '9 9 9 9'; at_x[i] = 9; at_y[i] = 9; from_x[i] = 9; to_x[i] = 9; is_front[i] = 0; unset label 100 + i }
        set xrange [*:*]
        set yrange [*:*]
        stats csv using (here(p) ? put(int(column(0)) + 1) : 1) nooutput
        eval 'set xrange '.x_range
        eval 'set yrange '.y_range
        do for [rank = 1:0:-1] {
            do for [i = 1:n] {
                if (called[i] eq '' || is_front[i] != rank) { continue }
                do for [k = 1:6] {
                    a = left_of(i, k)
                    b = end_of(i, k)
                    c = bottom_of(i, k)
                    d = c + letter_y
                    taken = a < 0 || b > 1.02 || c < 0 || d > 1
                    do for [j = 1:n] { taken = taken || meets(a, b, c, d, j) || crosses(a, b, c, d, j) }
                    if (taken) { continue }
                    box[i] = sprintf('%g %g %g %g', a, b, c, d)
                    set label 100 + i called[i] at graph 0.5 * (a + b), graph 0.5 * (c + d) center font sprintf(',%g', 9 * big * (t eq 'svg' ? 1 : 0.75))
                    break
                }
            }
        }
        # Steps from each point of the frontier to the next; from its ends it goes on: more memory, or
        # more time, buys nothing.
        unset arrow
        do for [i = 1:n] {
            if (is_front[i] != 1) { continue }
            first = 1
            next = 0
            do for [j = 1:n] {
                if (is_front[j] == 1 && at_x[j] < at_x[i]) { first = 0 }
                if (is_front[j] == 1 && at_x[j] > at_x[i] && (next == 0 || at_x[j] < at_x[next])) { next = j }
            }
            to_next = next > 0 ? edge(at_x[next]) : 1
            if (first) { set arrow from graph edge(at_x[i]), graph edge(at_y[i]) to graph edge(at_x[i]), graph 1 nohead back lc rgb '#999999' lw 1.6 }
            set arrow from graph edge(at_x[i]), graph edge(at_y[i]) to graph to_next, graph edge(at_y[i]) nohead back lc rgb '#999999' lw 1.6
            if (next > 0) { set arrow from graph to_next, graph edge(at_y[i]) to graph to_next, graph edge(at_y[next]) nohead back lc rgb '#999999' lw 1.6 }
        }
        plot for [c = 1:curves] csv using (x(c,p,"warm_bytes")):(y(c,p,"warm_bytes")):(column("fastest_s")):(column("slowest_s")) with xerrorbars lc rgb colour(c) pt filled(c) ps size(c) notitle, \
             for [c = 1:curves] csv using (x(c,p,"first_bytes")):(y(c,p,"first_bytes")) with points lc rgb colour(c) pt open(c) ps 1.2 notitle, \
             for [c = 1:curves] keyentry with points lc rgb colour(c) pt (has(c,p,'warm_bytes') ? filled(c) : open(c)) ps size(c) title key(c,p)
    }
    unset multiplot
    unset output
}
