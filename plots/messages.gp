# An animation of the messages between ranks, from a log of `attnlab run --log` or `price --log`:
#
#     gnuplot -e "log = 'ring.jsonl'; title = 'ring of 8 ranks'; name = 'ring'" plots/messages.gp
#
# writes NAME.gif, or with `still = N` only frame N (from 1), as NAME.png.  All messages of a step
# leave together; a dot is a message, its area is its bytes, its colour its tensor.  Bars: what each
# rank has sent so far.

if (!exists("title")) { title = log }
if (!exists("name")) { name = 'messages' }
if (!exists("still")) { still = 0 }
moving  = 12 # frames of a step in which messages travel
resting = 4  # frames in which they have arrived

# {"pass":"fwd","step":0,"tensor":"k","source":0,"destination":1,"bytes":64,...}: values are the
# columns 2, 4, 6, 8, 10, 12.
set datafile separator comma
set print $messages
do for [line in system("tr -d '{}\"' < '".log."' | tr ':' ','")] { print line }
set print
stats $messages using 8:12 name 'M' nooutput
ranks = M_max_x + 1
stats $messages using 4 name 'S' nooutput
set print $each
do for [r = 0:ranks - 1] { print r }
set print

tensors = 'q k v o lse do delta dq dk dv'
colours = '0x332288 0x0072B2 0xE69F00 0x009E73 0x999999 0x44AA99 0x666666 0x882255 0x56B4E9 0xD55E00'
place(tensor, list) = sum [i = 1:words(list)] (word(list, i) eq tensor ? i : 0)
colour(tensor) = int(word(colours, place(tensor, tensors)))

# ---- steps ---------------------------------------------------------------------------------------

array pass[2 * (int(S_max) + 1)]
array step[2 * (int(S_max) + 1)]
array moved[2 * (int(S_max) + 1)] # the tensors of a step
steps = 0
do for [p in 'fwd bwd'] {
    do for [n = 0:int(S_max)] {
        found = ''
        stats $messages using (strcol(2) eq p && $4 == n && !place(strcol(6), found) ? (found = found.' '.strcol(6), 1) : 0) nooutput
        if (found ne '') { steps = steps + 1; pass[steps] = p; step[steps] = n; moved[steps] = found }
    }
}
now(s) = strcol(2) eq pass[s] && $4 == step[s]

# ---- where things are ----------------------------------------------------------------------------

angle(r) = pi / 2 - 2 * pi * r / ranks
at_x(r) = cos(angle(r))
at_y(r) = sin(angle(r))
# A message keeps to the right of its way, so that opposite ones pass each other; tensors go side by
# side.  From the rim of one rank to the rim of the other.
rim = 0.17
way(a, b) = sqrt((at_x(b) - at_x(a))**2 + (at_y(b) - at_y(a))**2)
along(a, b, t) = (rim + t * (way(a, b) - 2 * rim)) / way(a, b)
lane(a, b, tensor, s) = (0.035 + 0.06 * (place(tensor, moved[s]) - 1)) / way(a, b)
x(a, b, tensor, s, t) = at_x(a) + along(a, b, t) * (at_x(b) - at_x(a)) + lane(a, b, tensor, s) * (at_y(b) - at_y(a))
y(a, b, tensor, s, t) = at_y(a) + along(a, b, t) * (at_y(b) - at_y(a)) - lane(a, b, tensor, s) * (at_x(b) - at_x(a))

# ---- what was sent -------------------------------------------------------------------------------

array before[ranks] # before this step
array during[ranks]
do for [r = 1:ranks] { before[r] = 0; during[r] = 0 }
most = 0
do for [r = 1:ranks] {
    stats $messages using ($8 == r - 1 ? $12 : 0) nooutput
    most = STATS_sum > most ? STATS_sum : most
}
power = int(log(most) / log(2) / 10) # of 1,024
unit = 1024.0**power

# ---- frames --------------------------------------------------------------------------------------

if (still == 0) {
    set terminal gif animate delay 8 size 900,520 font 'DejaVu Sans,11' background '#ffffff' noenhanced
    set output name.'.gif'
} else {
    set terminal pngcairo size 1800,1040 font 'DejaVu Sans,11' fontscale 2 pointscale 2 linewidth 2 background '#ffffff' noenhanced
    set output name.'.png'
}
set style fill solid 0.85 noborder
array height[ranks]
frame = 0
do for [s = 1:steps] {
    do for [r = 1:ranks] {
        before[r] = before[r] + during[r]
        stats $messages using (now(s) && $8 == r - 1 ? $12 : 0) nooutput
        during[r] = STATS_sum
    }
    do for [f = 1:moving + resting] {
        frame = frame + 1
        if (still != 0 && still != frame) { continue }
        t = f < moving ? (f - 1.0) / (moving - 1) : 1
        set multiplot
        unset label
        unset key
        set label 1 title at screen 0.02, 0.955 font ',15'
        set label 2 sprintf('%s, step %d of %d:', pass[s] eq 'fwd' ? 'forward' : 'backward', step[s] + 1, S_max + 1) at screen 0.02, 0.895
        do for [i = 1:words(moved[s])] {
            set label 2 + i word(moved[s], i) at screen 0.18 + 0.045 * i, 0.895 textcolor rgb colour(word(moved[s], i)) font ',13'
        }
        set origin 0, 0; set size 0.56, 0.88
        set lmargin 0; set rmargin 0; set tmargin 0; set bmargin 0
        unset border; unset tics; unset grid; unset xlabel; set size ratio -1
        set xrange [-1.35:1.35]; set yrange [-1.25:1.25]
        plot $messages using (now(s) && place(strcol(6), moved[s]) == 1 ? x($8, $10, strcol(6), s, 0) : NaN):(y($8, $10, strcol(6), s, 0)):(x($8, $10, strcol(6), s, 1) - x($8, $10, strcol(6), s, 0)):(y($8, $10, strcol(6), s, 1) - y($8, $10, strcol(6), s, 0)) with vectors nohead lw 0.7 lc rgb '#d0d0d0', \
             $each using (at_x($1)):(at_y($1)):(0.13) with circles lc rgb '#e8e8e8' fs solid border lc rgb '#666666', \
             $messages using (now(s) ? x($8, $10, strcol(6), s, t) : NaN):(y($8, $10, strcol(6), s, t)):(0.5 + 1.3 * sqrt($12 / M_max_y)):(colour(strcol(6))) with points pt 7 ps variable lc rgb variable, \
             $each using (at_x($1)):(at_y($1)):(sprintf('%d', $1)) with labels
        unset label
        set origin 0.58, 0.02; set size noratio 0.4, 0.84
        set lmargin 9; set rmargin 2; set tmargin 1; set bmargin 3.5
        set border 3 lc rgb '#666666'; set xtics nomirror 1 scale 0; set ytics nomirror auto
        set grid ytics lt 1 lw 0.6 lc rgb '#dddddd'
        set xlabel 'rank'; set title 'sent so far, '.word('B KiB MiB GiB TiB', power + 1) offset 0,-0.5
        set xrange [-0.6:ranks - 0.4]; set yrange [0:1.05 * most / unit]
        plot $each using ($1):((before[int($1) + 1] + t * during[int($1) + 1]) / unit):(0.7) with boxes lc rgb '#0072B2'
        unset title
        unset multiplot
    }
}
set output
