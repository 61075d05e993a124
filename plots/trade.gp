# Peak extra memory against the time of a call: a point for each option, with its name.
draws(p) = 'warm_bytes first_bytes'
lines(p) = word(panels, p)
single = 'first_bytes'; single_remark = ' Open: first calls.'
across_low = 'fastest_s'; across_high = 'slowest_s'
with_lines = 0
x_margin = 1.8; y_margin = 2.5 # names need room
if (preset eq 'slides') columns_most = 1
widest_x = '200 ms'; y_label = 'peak extra memory'
load 'style.gp'
x_base = 0; eval axis; eval bytes; eval time_axis
# Names stand beside their points, or at the end of a thin line where there is no room: all of a panel,
# or none.  In pixels from the lower left corner of the panel; those of the frontier come first.
x_log = log(low); x_long = log(1.0 * high / low)
range = y_range; eval between
y_log = log(low); y_long = log(1.0 * high / low)
set xrange [*:*]; set yrange [*:*] # stats looks at what is within the ranges
stats csv using (1) nooutput; n = STATS_records
array at_x[n]; array at_y[n]; array from_x[n]; array to_x[n]; array called[n]; array is_front[n]; array of[n]
array name_x[n]; array name_y[n]; array name_w[n]; array tip_x[n]; array tip_y[n] # no name: w 0; no thin line: x < 0
array step_end[n]; array step_low[n]; array is_first[n]
do for [i = 1:n] { of[i] = 0; is_front[i] = 0; name_w[i] = 0; tip_x[i] = -1 }
across_at(s) = plot_x * (log(s) - x_log) / x_long
height(i) = strcol("warm_bytes") ne '' ? column("warm_bytes") : column("first_bytes")
put(i, p) = (of[i] = p, at_x[i] = across_at(column(across)), at_y[i] = plot_y * (log(height(i)) - y_log) / y_long, \
    from_x[i] = across_at(column("fastest_s")), to_x[i] = across_at(column("slowest_s")), called[i] = strcol("note"), \
    is_front[i] = (strcol("frontier_bytes") ne ''), 1)
do for [p = 1:words(panels)] { stats csv using (counts(p) ? put(int(column(0)) + 1, p) : 1) nooutput }
h = 1.05 * em; gap = 0.15 * em; dot = 0.35 * em # of a name, beside it, of a mark
# Where a name meets another one, a bar, a point or a thin line.
on_name(j, a, b, c, d) = name_w[j] > 0 && a < name_x[j] + name_w[j] + gap && b > name_x[j] - gap && c < name_y[j] + h && d > name_y[j]
on_bar(j, a, b, c, d)  = smaller(from_x[j], at_x[j] - dot) < b && larger(to_x[j], at_x[j] + dot) > a && at_y[j] + dot > c && at_y[j] - dot < d
on_line(j, a, b, c, d) = tip_x[j] < 0 ? 0 : sum [s_ = 1:7] (inside_of(at_x[j] + (tip_x[j] - at_x[j]) * s_ / 7.0, at_y[j] + (tip_y[j] - at_y[j]) * s_ / 7.0, a, b, c, d))
inside_of(u, v, a, b, c, d) = u > a && u < b && v > c && v < d
on_step(j, a, b, c, d) = is_front[j] != 1 ? 0 : (a < step_end[j] && b > at_x[j] && c < at_y[j] && d > at_y[j]) + (a < step_end[j] && b > step_end[j] && c < at_y[j] && d > step_low[j]) + (is_first[j] && a < at_x[j] && b > at_x[j] && d > at_y[j])
taken(i, a, b, c, d) = a < 0 || b > plot_x + right_margin - gap || c < 0 || d > plot_y || \
    (sum [j_ = 1:n] (of[j_] == of[i] ? on_name(j_, a, b, c, d) + on_bar(j_, a, b, c, d) + on_line(j_, a, b, c, d) + on_step(j_, a, b, c, d) : 0)) > 0
crossed(i, u, v) = (sum [s_ = 1:7] (sum [j_ = 1:n] (of[j_] == of[i] && on_name(j_, at_x[i] + (u - at_x[i]) * s_ / 7.0, at_x[i] + (u - at_x[i]) * s_ / 7.0, at_y[i] + (v - at_y[i]) * s_ / 7.0, at_y[i] + (v - at_y[i]) * s_ / 7.0)))) > 0
# Place k of a name: 0 to 5 beside the point, then 16 directions at growing distances.
way(k) = k < 6 ? 0 : 1.5 + (k - 6) / 16; turn(k) = pi / 8 * ((k - 6) % 16)
tip_u(i, k) = at_x[i] + 1.1 * em * way(k) * cos(turn(k))
tip_v(i, k) = at_y[i] + 1.1 * em * way(k) * sin(turn(k))
left_of(i, k, w) = k < 2 ? at_x[i] + gap : k < 4 ? at_x[i] - w - gap : k == 4 ? larger(to_x[i], at_x[i] + dot) + gap : k == 5 ? smaller(from_x[i], at_x[i] - dot) - w - gap : \
    cos(turn(k)) > 0.3 ? tip_u(i, k) + gap : cos(turn(k)) < -0.3 ? tip_u(i, k) - w - gap : tip_u(i, k) - 0.5 * w
low_of_name(i, k) = k == 0 || k == 2 ? at_y[i] + dot + 1 : k == 1 || k == 3 ? at_y[i] - dot - h - 1 : k < 6 ? at_y[i] - 0.5 * h : \
    tip_v(i, k) + (sin(turn(k)) > 0.9 ? 0 : sin(turn(k)) < -0.9 ? -h : -0.5 * h)
# Steps from each point of the frontier to the next, and on from its ends: more buys nothing there.
do for [i = 1:n] {
    if (of[i] == 0) { continue }
    is_first[i] = 1; step_end[i] = plot_x; step_low[i] = at_y[i]
    do for [j = 1:n] {
        if (of[j] != of[i] || is_front[j] != 1) { continue }
        if (at_x[j] < at_x[i]) { is_first[i] = 0 }
        if (at_x[j] > at_x[i] && at_x[j] < step_end[i]) { step_end[i] = at_x[j]; step_low[i] = at_y[j] }
    }
}
do for [front = 1:0:-1] {
    do for [i = 1:n] {
        if (of[i] == 0 || is_front[i] != front) { continue }
        w = 0.85 * wide(called[i]) * em
        do for [k = 0:117] {
            a = left_of(i, k, w); c = low_of_name(i, k)
            if (taken(i, a, a + w, c, c + h)) { continue }
            if (k > 5) { if (crossed(i, tip_u(i, k), tip_v(i, k))) { continue } }
            name_x[i] = a; name_y[i] = c; name_w[i] = w
            if (k > 5) { tip_x[i] = tip_u(i, k); tip_y[i] = tip_v(i, k) }
            break
        }
        if (name_w[i] == 0) { of_none = of[i]; do for [j = 1:n] { if (of[j] == of_none) { called[j] = '' } } }
    }
}
eval 'set xrange '.x_range.'; set yrange '.y_range
edge(part) = part < 0 ? 0 : part > 1 ? 1 : part
do for [t in formats] {
    eval start(t)
    do for [p = 1:words(panels)] {
        eval panel(p)
        do for [i = 1:n] {
            if (of[i] != p || called[i] eq '') { continue }
            now = called[i]
            set label 5000 + i now at graph name_x[i] / plot_x, graph (name_y[i] + 0.5 * h) / plot_y left font font(t, 0.85)
            if (tip_x[i] >= 0) { set arrow 5000 + i from graph at_x[i] / plot_x, graph at_y[i] / plot_y to graph tip_x[i] / plot_x, graph tip_y[i] / plot_y nohead back lw 0.6 lc rgb '#aaaaaa' }
        }
        do for [i = 1:n] {
            if (of[i] != p || is_front[i] != 1) { continue }
            u = edge(at_x[i] / plot_x); v = edge(at_y[i] / plot_y); w = edge(step_end[i] / plot_x)
            set arrow from graph u, graph v to graph w, graph v nohead back lc rgb '#999999' lw 1.2
            if (is_first[i]) { set arrow from graph u, graph v to graph u, graph 1 nohead back lc rgb '#999999' lw 1.2 }
            if (w < 1) { set arrow from graph w, graph v to graph w, graph edge(step_low[i] / plot_y) nohead back lc rgb '#999999' lw 1.2 }
        }
        plot for [c = 1:curves] csv using (x(c,p,"warm_bytes")):(y(c,p,"warm_bytes")):(column("fastest_s")):(column("slowest_s")) with xerrorbars lc rgb colour(c) pt filled(c) ps size(c) notitle, \
             for [c = 1:curves] csv using (x(c,p,"first_bytes")):(y(c,p,"first_bytes")) with points lc rgb colour(c) pt open(c) ps large(c) notitle
    }
    unset multiplot; unset output
}
