# What all figures share: how they read their CSV, looks, layout, terminals.  Loaded by NAME.gp, which
# before says of each panel p
#   draws(p)   the columns of the CSV on its y axis: ranges and the legend go by them
#   lines(p)   which lines of the CSV it has: those of this panel there, or '*'
# and, where it likes, exponent = 'NAME', for columns NAME and NAME_error that stand in the legend;
# single_remark, for the remark where column `single` has something; must = Y, within the range of y;
# across_low and across_high, columns of the ends of a bar along x.
# Texts come from records, so nothing in them is markup: noenhanced.

set encoding utf8
set datafile separator comma
set datafile columnheaders
set datafile commentschars ''
csv = name.'.csv'
if (!exists("font_size")) font_size = 12 # larger for slides: the layout follows
big = font_size / 12.0

# ---- one line of $curves for each curve; one that begins with # is none ---------------------------

array at_line[|$curves| + 1]
curves = 0
do for [i = 1:|$curves|] { if ($curves[i][1:1] ne '#') { curves = curves + 1; at_line[curves] = i } }
field(c, k) = word($curves[at_line[c]], k)
colour(c) = field(c, 3)
filled(c) = int(field(c, 4))                           # its mark
open(c)   = filled(c) > 4 ? filled(c) - 1 : filled(c)  # the same, not filled
dash(c)   = int(field(c, 5))
width(c)  = real(field(c, 6))
size(c)   = (filled(c) > 3 ? 0.7 : 1.2) + 0.08 * (width(c) - 1.6) # larger under another curve
given(c, p) = words($curves[at_line[c]]) >= 6 + p     # its words in the legend are, by hand

# ---- what the CSV has: ranges, panels with something in them, which curve has which numbers -------

if (!exists("exponent")) exponent = ''
if (!exists("x_base")) x_base = 0 # of the logarithm; 0: its own, which may begin at 0
if (!exists("across_low")) across_low = across
if (!exists("across_high")) across_high = across
is_of(p)    = lines(p) eq '*' || strcol("panel") eq lines(p)
# Room beyond the outermost values, and never less than a factor `least`: one tick is no axis.
room(low, high, margin, least) = low <= 0 || low > high ? '[*:*]' : \
    high * margin**2 / low < least ? sprintf('[%.6g:%.6g]', sqrt(low * high / least), sqrt(low * high * least)) : \
    sprintf('[%.6g:%.6g]', low / margin, high * margin)
smaller(a, b) = a < b ? a : b
larger(a, b)  = a > b ? a : b
x_low = 1e300
x_high = 0
y_low = exists("must") ? must : 1e300
y_high = exists("must") ? must : 0
array panel_low[words(panels)]
array panel_high[words(panels)]
found = ''
see(p, v, a, b) = (panel_low[p] = smaller(panel_low[p], v), panel_high[p] = larger(panel_high[p], v), \
    a > 0 || x_base == 0 ? (x_low = smaller(x_low, a), x_high = larger(x_high, b)) : 0, 1)
do for [p = 1:words(panels)] {
    panel_low[p] = 1e300
    panel_high[p] = 0
    do for [what in draws(p)] {
        stats csv using (is_of(p) && strcol(what) ne '' && column(what) > 0 ? see(p, column(what), column(across_low), column(across_high)) : 0) nooutput
    }
    if (panel_high[p] > 0) { found = found.' '.word(panels, p) }
    y_low = smaller(y_low, panel_low[p])
    y_high = larger(y_high, panel_high[p])
}
if (found ne '' && words(found) < words(panels)) {
    k = 0
    do for [p = 1:words(panels)] { if (panel_high[p] > 0) { k = k + 1; panel_low[k] = panel_low[p]; panel_high[k] = panel_high[p] } }
    panels = found[2:]
}
is_bytes = strstrt(draws(1), '_bytes') > 0
own_y = y_range ne '[*:*]'
if (x_range eq '[*:*]') { x_range = room(x_low, x_high, 1.15, across eq 'density' ? 100.0 : 8.0) }
if (!own_y) { y_range = room(y_low, y_high, 1.4, is_bytes ? 8.0 : 100.0) }
colon(r)  = strstrt(r, ':')
# gnuplot's real() refuses 1e-07, and takes 1.e-07.
number(s) = strstrt(s, '.') > 0 || strstrt(s, 'e') == 0 ? real(s) : real(s[1:strstrt(s, 'e') - 1].'.'.s[strstrt(s, 'e'):*])
low_of(r)  = r[2:2] eq '*' ? -1e300 : number(r[2:colon(r) - 1])
high_of(r) = r[colon(r) + 1:colon(r) + 1] eq '*' ? 1e300 : number(r[colon(r) + 1:strlen(r) - 1])
inside(r, v) = v >= low_of(r) && v <= high_of(r)
there = ''
note(p, what) = (there = there.sprintf('<%s|%d|%s>', strcol("curve"), p, what). \
    (column(what) > 0 && inside(x_range, column(across)) && inside(y_range, column(what)) ? sprintf('<%s|%d|>', strcol("curve"), p) : ''), 1)
do for [p = 1:words(panels)] {
    do for [what in draws(p)] {
        stats csv using (is_of(p) && strcol(what) ne '' ? note(p, what) : 0) nooutput
    }
}
has(c, p, what) = strstrt(there, sprintf('<%s|%d|%s>', field(c, 1), p, what)) > 0
hidden(c, p)    = given(c, p) && field(c, 6 + p) eq '-'
shown(c, p)     = has(c, p, '') && !hidden(c, p) # what has no point within the ranges is not in the legend
mine(c, p)      = strcol("curve") eq field(c, 1) && is_of(p)

# What the remark says where a curve has numbers in the column `single`.
if (exists("single_remark")) {
    has_single = 0
    do for [c = 1:curves] { do for [p = 1:words(panels)] { has_single = has_single || has(c, p, single) } }
    if (has_single) { remark = remark.single_remark }
}

# The exponent of a curve in the legend: the columns say it in each of its lines.
array slopes[curves * words(panels) + 1]
numbered = 0
do for [c = 1:curves] {
    do for [p = 1:words(panels)] {
        k = (c - 1) * words(panels) + p
        slopes[k] = given(c, p) ? field(c, 6 + p) : ''
        if (exponent ne '' && !given(c, p) && shown(c, p)) {
            stats csv using (mine(c, p) && strcol(exponent) ne '' ? (slopes[k] = sprintf('%.2f ± %.2f', abs(column(exponent)) < 0.005 ? 0 : column(exponent), column(exponent.'_error')), 1) : 0) nooutput
        }
        if (slopes[k] ne '' && slopes[k] ne '-') { numbered = 1 }
    }
}
if (numbered && remark ne '') { remark = remark.' Numbers: exponent of '.across.'.' }
slope(c, p) = slopes[(c - 1) * words(panels) + p]
key(c, p)   = !shown(c, p) ? '' : field(c, 2).(slope(c, p) eq '' ? '' : '  '.slope(c, p))

# How it looks in the legend: as in the plot.
only(c, p, some, others) = has(c, p, some) && !has(c, p, others)
only_priced(c, p) = only(c, p, 'beyond_bytes', 'priced_bytes') || only(c, p, 'total_beyond_bytes', 'total_priced_bytes') || only(c, p, 'sent_beyond_bytes', 'sent_priced_bytes')
only_open(c, p)   = only(c, p, 'single_s', 'median_s') || only(c, p, 'rank_single_s', 'rank_median_s') || only(c, p, 'process_single_s', 'process_median_s') || only(c, p, word(panels, p).'_sample', word(panels, p))
key_mark(c, p)    = only_open(c, p) || only_priced(c, p) ? open(c) : filled(c)
priced_size       = 0                                  # of marks where nothing was measured
key_size(c, p)    = only_priced(c, p) ? priced_size : size(c)
key_width(c, p)   = only_priced(c, p) ? 1.6 : width(c)
key_dash(c, p)    = only_priced(c, p) ? 2 : only_open(c, p) ? 3 : dash(c)

# A point of curve c in panel p, by the column `what`: nothing in other rows, far away where there is
# none at all.
x(c, p, what) = !shown(c, p) || !has(c, p, what) ? 1e-99 : mine(c, p) ? column(across) : NaN
y(c, p, what) = !shown(c, p) || !has(c, p, what) ? 1e-99 : strcol(what) eq '' ? NaN : column(what)

# ---- axes ----------------------------------------------------------------------------------------

grey = '#666666'
set border 3 lc rgb grey
set grid lt 1 lw 0.6 lc rgb '#dddddd'
set tics nomirror
set logscale xy
eval 'set xrange '.x_range
eval 'set yrange '.y_range
# From end to end in doublings, 35 where an end is left to gnuplot.
between = "high = 2.0**35; low = 1; if (strstrt(range, '*') == 0) { low = low_of(range); high = high_of(range) }; \
    if (low <= 0) { low = high / 2 }; \
    doublings = log(1.0 * high / low) / log(2)"
range = x_range
eval between
long_x = words(panels) > 2 && doublings > 7
axis   = "set xlabel x_label; if (x_base == 2) { set logscale x 2; set format x '%.0f' } else { set format x '%g' }; \
    if (x_base == 2 && long_x) { set xtics 1,4 }"
# Bytes in powers of two: about six ticks over the range, each with its unit.
unit(e)  = sprintf("%d %s", 2**(e % 10), word("B KiB MiB GiB TiB PiB EiB", e / 10 + 1))
range = y_range
eval between
step_y   = doublings > 7 ? ceil(doublings / 7) : 1
bytes    = "set logscale y 2; set ytics (); do for [e = 0:69] { if (e % step_y == 0) { set ytics add (unit(e) 2.0**e) } }"
set micro

# ---- the page: panels beside each other, their words above, a legend below each ------------------

columns  = words(panels) < 3 ? words(panels) : words(panels) == 4 ? 2 : 3
rows     = (words(panels) + columns - 1) / columns
longest  = 0
do for [c = 1:curves] {
    do for [p = 1:words(panels)] { if (strlen(key(c, p)) > longest) { longest = strlen(key(c, p)) } }
}
key_columns = big * longest > (columns == 1 ? 36 : columns == 2 ? 24 : 17) ? 1 : 2
key_rows    = (curves + key_columns - 1) / key_columns
canvas_x    = columns > 2 ? 1280 : columns > 1 ? 1180 : 840
# One line for each finding.
found       = ''
found_rows  = finding ne ''
do for [i = 1:strlen(finding)] {
    c = finding[i:i]
    found = found.(c eq ';' ? "\n" : c eq ' ' && i > 1 && finding[i-1:i-1] eq ';' ? '' : c)
    found_rows = found_rows + (c eq ';')
}
head_y      = big * (30 + 18 * ((subtitle ne '') + (remark ne '') + found_rows))
canvas_y    = head_y + rows * (300 + big * (60 + 19 * key_rows))
set bmargin key_rows + 5
set tmargin 2
set rmargin 3
eval sprintf("set key bmargin center horizontal maxcols %d samplen 3 Left reverse", key_columns)

terminal(t) = t eq 'svg' ? sprintf("set terminal svg size %d,%d name '%s' noenhanced font 'DejaVu Sans,%g' background '#ffffff'", canvas_x, canvas_y, svg_name, 12 * big) \
            : t eq 'png' ? sprintf("set terminal pngcairo size %d,%d noenhanced font 'DejaVu Sans,%g' fontscale 2 linewidth 2 pointscale 2 background '#ffffff'", 2 * canvas_x, 2 * canvas_y, 9 * big) \
            : sprintf("set terminal pdfcairo size %.2fin,%.2fin noenhanced font 'DejaVu Sans,%g' fontscale 0.8 background '#ffffff'", canvas_x / 96.0, canvas_y / 96.0, 9 * big)

# Panels are words: a line in one stands for a blank.
array panel_title[words(panels)]
do for [p = 1:words(panels)] {
    panel_title[p] = ''
    do for [i = 1:strlen(word(panels, p))] { c = word(panels, p)[i:i]; panel_title[p] = panel_title[p].(c eq '_' ? ' ' : c) }
}

svg_name = ''
do for [i = 1:strlen(name)] { svg_name = svg_name.(name[i:i] eq '-' ? '_' : name[i:i]) }

start(t) = terminal(t).sprintf("; set output '%s.%s'; set multiplot; \
set label 1 title at screen 0.012, 1 offset 0,-1.2 font ',%g'; \
set label 2 subtitle at screen 0.012, 1 offset 0,-2.5 textcolor rgb grey; \
set label 3 remark at screen 0.012, 1 offset 0,%g; \
set label 4 found at screen 0.012, 1 offset 0,%g", name, t, 15 * big * (t eq 'svg' ? 1 : 0.75), \
    subtitle eq '' ? -2.5 : -3.7, -2.5 - 1.2 * ((subtitle ne '') + (remark ne '')))

panel(p) = sprintf("set origin %f,%f; set size %f,%f; set title '%s' offset 0,-0.5; %s", \
    ((p - 1) % columns) / (1.0 * columns), \
    (rows - 1 - (p - 1) / columns) * (canvas_y - head_y) / (1.0 * rows * canvas_y), \
    1.0 / columns, (canvas_y - head_y) / (1.0 * rows * canvas_y), panel_title[p], \
    p > 1 ? 'unset label' : '')
