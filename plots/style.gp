# Shared by all figures: how they read their CSV, looks, layout, terminals.  Loaded by NAME.gp, which
# before says of each panel p
#   draws(p)   the columns of the CSV on its y axis: ranges and the legend go by them
#   lines(p)   which lines of the CSV it has: those of this panel there, or '*'
# and, where it likes,
#   y_label    what y is: it stands over each panel; 'A; B': all that stands over the first, and the second
#   y_format   of its numbers, '%g'
#   exponent = 'NAME', for columns NAME and NAME_error that stand in the legend
#   single_remark   for the remark where column `single` has something
#   must = Y   within the range of y;  across_low, across_high: columns of the ends of a bar along x
#   legend = 0: none;  with_lines = 0: of marks alone;  marked(c): has its curve marks?
#   swatch = 0.5   the legend has areas of that tint;  bars = 'A|B|': of a figure of bars, below
#   x_margin, y_margin: factors of room beyond the outermost points
#   ends = 1: names at the ends of curves, where a panel says eval names
#   columns_most: panels beside each other at most;  widest_x, widest_y: numbers on the axes
# Texts come from records, so nothing in them is markup: noenhanced.  Lengths are pixels, 96 an inch.

set encoding utf8
set datafile separator comma
set datafile columnheaders
set datafile commentschars ''
csv = name.'.csv'

# ---- presets: as wide as the place that they are for, with letters of font_size points --------

if (!exists("preset")) preset = 'page'
if (strstrt(' column page slides ', ' '.preset.' ') == 0) { print "preset = '".preset."': there are column, page and slides"; exit status 2 }
millimetres = preset eq 'column' ? 88 : preset eq 'page' ? 180 : 254
if (!exists("font_size")) font_size = preset eq 'column' ? 8 : preset eq 'page' ? 9 : 16
em       = font_size * 96 / 72.0
canvas_x = ceil(millimetres * 96 / 25.4)
pad      = 0.6 * em
stroke   = em < 10 ? 0.75 : em > 20 ? 1.5 : em / 13.3 # of lines and marks; those of a page have 0.9
point    = stroke # a mark of 1; SVG draws larger ones, so start() sets it
# Which words stand above the panels.  Those that a paper has in its caption are not said twice.
if (!exists("above")) above = preset eq 'column' ? 'remark finding' : preset eq 'page' ? 'title subtitle remark finding' : 'title remark finding'

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
size(c)   = point * ((filled(c) > 3 ? 0.8 : 1.2) + 0.16 * (width(c) - 1.6)) # larger under another curve
large(c)  = size(c) + 0.6 * point                     # of an open one around a filled one
given(c, p) = words($curves[at_line[c]]) >= 6 + p     # its words in the legend are, by hand
is_curve  = ''
do for [c = 1:curves] { is_curve = is_curve.'<'.field(c, 1).'>' }

# ---- what the CSV has: ranges, panels with something in them, which curve has which numbers -------

if (!exists("exponent")) exponent = ''
if (!exists("x_base")) x_base = 0 # of the logarithm; 0: its own, which may begin at 0
if (!exists("across_low")) across_low = across
if (!exists("across_high")) across_high = across
if (!exists("x_margin")) x_margin = 1.15
if (!exists("y_margin")) y_margin = 1.4
is_of(p)    = lines(p) eq '*' || strcol("panel") eq lines(p)
counts(p)   = is_of(p) && strstrt(is_curve, '<'.strcol("curve").'>') > 0 # what is left out leaves no gap
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
        stats csv using (counts(p) && strcol(what) ne '' && column(what) > 0 ? see(p, column(what), column(across_low), column(across_high)) : 0) nooutput
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
if (x_range eq '[*:*]') { x_range = room(x_low, x_high, x_margin, across eq 'density' ? 100.0 : 8.0) }
if (!exists("ends")) ends = 0
if (!own_y) { y_range = room(y_low, ends && y_low < y_high ? y_high * (1.0 * y_high / y_low)**0.12 : y_high, y_margin, is_bytes ? 8.0 : 100.0) }
colon(r)  = strstrt(r, ':')
# gnuplot's real() refuses 1e-07, and takes 1.e-07.
number(s) = strstrt(s, '.') > 0 || strstrt(s, 'e') == 0 ? real(s) : real(s[1:strstrt(s, 'e') - 1].'.'.s[strstrt(s, 'e'):*])
low_of(r)  = r[2:2] eq '*' ? -1e300 : number(r[2:colon(r) - 1])
high_of(r) = r[colon(r) + 1:colon(r) + 1] eq '*' ? 1e300 : number(r[colon(r) + 1:strlen(r) - 1])
# An end that is left to the data, as a number: ticks go by it.
ended(r, low, high) = low > high ? r : sprintf('[%s:%s]', r[2:2] eq '*' ? sprintf('%.6g', low) : r[2:colon(r) - 1], high_of(r) == 1e300 ? sprintf('%.6g', high) : r[colon(r) + 1:strlen(r) - 1])
x_range = ended(x_range, x_low, x_high * 1.03)
y_range = ended(y_range, y_low, y_high * 1.07)
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

# Where a curve ends: its last point; of equal ones that of the first column.  All its points, column by
# column, stand from path_from on in `path_x` and `path_y`.
end_of(c, p) = (c - 1) * words(panels) + p
array end_x[curves * words(panels) + 1]
array end_y[curves * words(panels) + 1]
array path_from[curves * words(panels) + 1]
array path_x[4000]
array path_y[4000]
paths = 0
is_drawn(c, p, what) = mine(c, p) && column(across) > 0 && strcol(what) ne '' && column(what) > 0 && inside(x_range, column(across)) && paths < 3999
go_on(k, a, b) = (paths = paths + 1, path_x[paths] = a, path_y[paths] = b, a > end_x[k] ? (end_x[k] = a, end_y[k] = b) : 0)
do for [c = 1:curves] { do for [p = 1:words(panels)] {
    k = end_of(c, p)
    path_from[k] = paths + 1
    path_from[k + 1] = paths + 1
    end_x[k] = 0
    if (ends && shown(c, p)) { do for [what in draws(p)] {
        stats csv using (is_drawn(c, p, what) ? go_on(k, column(across), column(what)) : 0) nooutput
    } }
    path_from[k + 1] = paths + 1
} }

# A point of curve c in panel p, by the column `what`: nothing in other rows, far away where there is
# none at all.
x(c, p, what) = !shown(c, p) || !has(c, p, what) ? 1e-99 : mine(c, p) ? column(across) : NaN
y(c, p, what) = !shown(c, p) || !has(c, p, what) ? 1e-99 : strcol(what) eq '' ? NaN : column(what)

# The remark ends with single_remark where a curve has numbers in the column `single`.
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
        slopes[k] = given(c, p) && field(c, 6 + p) ne '-' ? field(c, 6 + p) : ''
        if (exponent ne '' && !given(c, p) && shown(c, p)) {
            stats csv using (mine(c, p) && strcol(exponent) ne '' ? (slopes[k] = sprintf('%.2f ± %.2f', abs(column(exponent)) < 0.005 ? 0 : column(exponent), column(exponent.'_error')), 1) : 0) nooutput
            numbered = numbered || slopes[k] ne ''
        }
    }
}
if (numbered && remark ne '') {
    remark = remark.' Numbers: exponent of '.across
    if (words(panels) > 1) { do for [p = 1:words(panels)] { remark = remark.(p == 1 ? ', ' : ' | ').word(panels, p) } }
    remark = remark.'.'
}
# Its words there: the name, and a number for each panel where one of them has some.
legend_of(c) = field(c, 2).((sum [p = 1:words(panels)] slope(c, p) ne '') == 0 ? '' : '  '.numbers(c, 1))
slope(c, p)  = slopes[(c - 1) * words(panels) + p]
numbers(c, p) = (slope(c, p) eq '' ? '–' : slope(c, p)).(p < words(panels) ? ' | '.numbers(c, p + 1) : '')

# How it looks there: as where most of it is.
any(c, what)  = sum [p = 1:words(panels)] has(c, p, what)
is_shown(c)   = (sum [p = 1:words(panels)] shown(c, p)) > 0
only_priced(c) = any(c, 'beyond_bytes') + any(c, 'total_beyond_bytes') + any(c, 'sent_beyond_bytes') > 0 && \
    any(c, 'priced_bytes') + any(c, 'total_priced_bytes') + any(c, 'sent_priced_bytes') == 0
only_open(c)  = any(c, 'single_s') + any(c, 'rank_single_s') + any(c, 'process_single_s') + any(c, 'first_bytes') + (sum [p = 1:words(panels)] has(c, p, word(panels, p).'_sample')) > 0 && \
    any(c, 'median_s') + any(c, 'rank_median_s') + any(c, 'process_median_s') + any(c, 'warm_bytes') + (sum [p = 1:words(panels)] has(c, p, word(panels, p))) == 0
priced_marks  = 0 # has what was not measured marks?
if (!exists("swatch")) swatch = 0
if (!exists("with_lines")) with_lines = swatch == 0
look_mark(c)   = only_open(c) || only_priced(c) ? open(c) : filled(c)
look_marked(c) = swatch == 0 && (!only_priced(c) || priced_marks) && (exists("GPFUN_marked") ? marked(c) : 1)
look_width(c)  = only_open(c) ? 0.8 : width(c)
look_dash(c)   = only_priced(c) ? 2 : dash(c)

# ---- texts: how wide they are, and their rows -----------------------------------------------------

# In DejaVu Sans, as parts of the size of its letters: rather too wide.
letter(c) = strstrt(' .,:;|!ijlI', c) ? 0.34 : strstrt("'()[]{}frt/-", c) ? 0.42 : strstrt('mwMW%@', c) ? 1 : \
    strstrt('ABCDEFGHJKLNOPQRSTUVXYZ&=+<>±×', c) ? 0.8 : 0.65
wide(s)   = strlen(s) == 0 ? 0 : (sum [i_ = 1:strlen(s)] letter(s[i_:i_]))
# gnuplot breaks no lines.  fill() puts a text into row[1] to row[n_rows], each at most `most` wide: cut
# at blanks, and within a word that is wider alone.
array row[99]
add(s)     = s eq '' ? 0 : (n_rows = n_rows + 1, row[n_rows] = s, n_rows)
blank(s)   = strstrt(s.' ', ' ')
head(s)    = s[1:blank(s) - 1]
rest(s)    = s[blank(s) + 1:*]
both(a, b) = a eq '' || b eq '' ? a.b : a.' '.b
fitting(s, k) = k < strlen(s) && wide(s[1:k + 1]) <= most ? fitting(s, k + 1) : k # letters of s
more(now, s)  = s eq '' ? add(now) : \
    wide(both(now, head(s))) <= most ? more(both(now, head(s)), rest(s)) : \
    now ne '' ? (add(now), more('', s)) : (add(s[1:fitting(s, 1)]), more('', s[fitting(s, 1) + 1:*]))
fill(text) = (n_rows = 0, more('', text), n_rows)
row_of(k)  = row[k]

# Texts of the canvas, by the pixels of the middle of their left ends from its left upper corner.
array words_at[600]
array text_x[600]
array text_y[600]
array text_size[600]
array text_colour[600]
array text_panel[600] # 0: of the canvas
grey = '#666666'
put_row(s) = (n_texts = n_texts + 1, words_at[n_texts] = s, text_x[n_texts] = left, text_y[n_texts] = top + 0.65 * letters * em, \
    text_size[n_texts] = letters, text_colour[n_texts] = ink, text_panel[n_texts] = of_panel, top = top + 1.3 * letters * em)
put_rows(k) = k > n_rows ? n_rows : (put_row(row[k]), put_rows(k + 1))
# The rows of a text from `left` and `top` down; top comes to be below them.
place(text) = (fill(text), put_rows(1))
said(n)    = words_at[n]
ink_of(n)  = text_colour[n]
font(t, k) = sprintf(',%.4g', font_size * k * (t eq 'svg' ? 96 / 72.0 : 1)) # as that terminal counts
words_of = "do for [n_ = 1:n_texts] { if (text_panel[n_] == of_panel) { \
    set label 1000 + n_ said(n_) at screen text_x[n_] / canvas_x, screen 1 - text_y[n_] / canvas_y left \
    font font(t, text_size[n_]) textcolor rgb ink_of(n_) } }"

# ---- axes ----------------------------------------------------------------------------------------

set border 3 lc rgb grey
set grid lt 1 lw 0.6 lc rgb '#dddddd'
set tics nomirror scale 0.6 textcolor rgb grey
set logscale xy
unset key
eval 'set xrange '.x_range
eval 'set yrange '.y_range
# From end to end in doublings, 35 where an end is left to gnuplot.
between = "high = 2.0**35; low = 1; if (strstrt(range, '*') == 0) { low = low_of(range); high = high_of(range) }; \
    if (low <= 0) { low = high / 2 }; \
    doublings = log(1.0 * high / low) / log(2)"
range = x_range
eval between
x_first = low
x_last  = high
x_text(v) = x_base != 2 || x_last < 2e5 || v < 1024 ? sprintf('%g', v) : v < 2**20 ? sprintf('%gKi', v / 1024) : sprintf('%gMi', v / 2.0**20)
x_least = x_base > 0 ? ceil(log(x_first) / log(x_base) - 1e-9) : 0
x_most  = x_base > 0 ? floor(log(x_last) / log(x_base) + 1e-9) : 0
x_letters = exists("widest_x") ? wide(widest_x) : 0 # of the widest number on the axis
if (x_base > 0) { do for [e = x_least:x_most] { x_letters = larger(x_letters, wide(x_text(1.0 * x_base**e))) } }
if (!exists("widest_y")) widest_y = is_bytes ? '256 KiB' : '0.0001'
# Ticks of a logarithmic axis: as many as there is room for.
axis = "set logscale xy; if (x_base > 0) { set logscale x x_base; set xtics (); \
    step_x = ceil((x_letters + 1) * numeral * (x_most - x_least) / plot_x); step_x = step_x < 1 ? 1 : step_x; \
    do for [e = x_least:x_most] { if ((e - x_least) % step_x == 0) { set xtics add (x_text(1.0 * x_base**e) 1.0 * x_base**e) } } }; \
    range = y_range; eval between; decades = doublings * log10(2); step_y = ceil(1.6 * em * decades / plot_y); \
    set ytics (); do for [e = floor(log10(low)):ceil(log10(high))] { \
        if ((e + 120) % (step_y < 1 ? 1 : step_y) == 0) { \
            do for [m in (decades < 2 && 4.8 * em * decades < plot_y ? '1 2 5' : '1')] { set ytics add (gprintf(y_format, m * 10.0**e) m * 10.0**e) } } }"
if (!exists("y_format")) y_format = '%g'
# Bytes in powers of two, each with its unit.
unit(e)  = sprintf("%d %s", 2**(e % 10), word("B KiB MiB GiB TiB PiB EiB", e / 10 + 1))
bytes    = "eval between; step_y = ceil(larger(1.4 * em / plot_y, 0.11) * doublings); step_y = step_y < 1 ? 1 : step_y > 3 && step_y < 10 ? (step_y < 6 ? 5 : 10) : step_y; \
    set logscale y 2; set ytics (); do for [e = 0:69] { if (e % step_y == 0) { set ytics add (unit(e) 2.0**e) } }"
# Of one that is linear, from 0 to v: steps of 1, 2 or 5.
nice(v) = v <= 0 ? 1 : nice_of(v, 10.0**floor(log10(v)))
nice_of(v, p) = v <= p * 1.001 ? p : v <= 2.001 * p ? 2 * p : v <= 5.001 * p ? 5 * p : 10 * p
linear_axis = "set format '%g'; set xtics 0, nice((wide(sprintf('%g', x_last)) + 1) * numeral * x_last / plot_x); \
    range = y_range; eval between; set ytics 0, nice(1.6 * em * high / plot_y)"
# Of one of seconds: 1, 2 and 5 of each decade, or fewer where they would meet.
time_text(s) = s < 1e-6 ? sprintf('%g ns', s * 1e9) : s < 1e-3 ? sprintf('%g µs', s * 1e6) : s < 1 ? sprintf('%g ms', s * 1e3) : sprintf('%g s', s)
time_axis = "range = x_range; eval between; each = plot_x / ((x_letters + 1) * numeral) / (doublings * log10(2)); set xtics (); \
    do for [e = -9:4] { if ((e + 12) % ceil(larger(1, 1 / each)) == 0) { \
        do for [m in (each >= 3 ? '1 2 5' : each >= 2 ? '1 3' : '1')] { set xtics add (time_text(m * 10.0**e) m * 10.0**e) } } }"
set micro

# ---- the layout: words, panels beside and below each other, one legend ---------------------------

# Panels are words: a line in one stands for a blank.
array panel_title[words(panels)]
do for [p = 1:words(panels)] {
    panel_title[p] = ''
    do for [i = 1:strlen(word(panels, p))] { c = word(panels, p)[i:i]; panel_title[p] = panel_title[p].(c eq '_' ? ' ' : c) }
}
if (!exists("legend")) legend = 1
if (!exists("columns_most")) columns_most = 3
is_split   = 0
has_label  = exists("y_label") ? y_label ne '' : 0
array y_is[words(panels)] # one for all, or one for each behind a ;
do for [p = 1:words(panels)] { y_is[p] = '' }
if (has_label) {
    k = 1
    do for [i = 1:strlen(y_label)] {
        c = y_label[i:i]
        if (c eq ';') { k = k + 1 } else { if (k <= words(panels) && (c ne ' ' || y_is[k] ne '')) { y_is[k] = y_is[k].c } }
    }
    is_split = k > 1
    if (!is_split) { do for [p = 1:words(panels)] { y_is[p] = y_label } }
}
heading(p) = (is_split || panel_title[p] eq ' ' ? '' : panel_title[p].(has_label ? ': ' : '')).y_is[p]

# Bars lie, each of pieces from its left end, `from` and `to` of bar_end.  Their names stand at their
# left where that is little of the width, else above them; so does how large the bar is.  A piece has
# its name where it is wide enough; else the legend has it.
size_text(b) = b < 1024 ? sprintf('%d B', b) : b < 1024.0**2 ? sprintf('%.3g KiB', b / 1024) : \
    b < 1024.0**3 ? sprintf('%.3g MiB', b / 1024.0**2) : b < 1024.0**4 ? sprintf('%.3g GiB', b / 1024.0**3) : sprintf('%.3g TiB', b / 1024.0**4)
named(c, w)  = wide(field(c, 2)) * 0.85 * em < w - 2
array in_legend[curves + 1]
do for [c = 1:curves] { in_legend[c] = is_shown(c) }
if (exists("bars")) {
    unset logscale
    set xrange [*:*]
    set yrange [*:*]
    array bar_name[60]
    n_bars = 0
    longest = 0
    label = ''
    bars = bars.(bars[strlen(bars):strlen(bars)] eq '|' ? '' : '|')
    do for [i = 1:strlen(bars)] {
        if (bars[i:i] ne '|') { label = label.bars[i:i]; continue }
        n_bars = n_bars + 1
        bar_name[n_bars] = label
        longest = larger(longest, wide(label))
        label = ''
    }
    is_beside = longest * em + 2 * pad < 0.25 * canvas_x
    left_margin = is_beside ? 2 * pad + longest * em : pad
    right_margin = pad + (is_beside ? wide('999 MiB') + 0.5 : 0.5 * wide('100 %')) * em
    most = (canvas_x - 2 * pad) / em
    name_rows = 0
    if (!is_beside) { do for [b = 1:n_bars] { name_rows = larger(name_rows, fill(bar_name[b].': 999 MiB')) } }
    pitch  = (2 + 1.3 * name_rows) * em
    plot_y = n_bars * pitch
    array total[words(panels) * n_bars]
    do for [p = 1:words(panels)] {
        do for [b = 1:n_bars] { total[(p - 1) * n_bars + b] = 0 }
        stats csv using (is_of(p) ? (total[(p - 1) * n_bars + int(column("bar")) + 1] = column("of_bytes")) : 0) nooutput
    }
    pixel  = (canvas_x - left_margin - right_margin) / bar_end
    do for [c = 1:curves] {
        in_legend[c] = 0
        do for [p = 1:words(panels)] { stats csv using (mine(c, p) && (column("to") - column("from")) * pixel > 1 && !named(c, (column("to") - column("from")) * pixel) ? (in_legend[c] = 1) : 0) nooutput }
    }
    eval 'set xrange [0:'.sprintf('%.17g', bar_end).']'
    set yrange [n_bars:0]
    set grid noytics
    set style fill solid swatch border rgb '#ffffff'
}
bar_low(b)  = b + 1 - 0.25 * em / pitch # of bar b, from 0
bar_high(b) = b + 1 - 1.75 * em / pitch
bar_words = "set ytics () scale 0; \
    do for [b_ = 1:n_bars] { if (total[(p - 1) * n_bars + b_] > 0) { \
        if (is_beside) { set ytics add (bar_name[b_] b_ - em / pitch) } else { \
            most = (canvas_x - 2 * pad) / em; \
            do for [r_ = 1:fill(bar_name[b_].': '.size_text(total[(p - 1) * n_bars + b_]))] { set label 4000 + 20 * b_ + r_ row_of(r_) at screen pad / canvas_x, \
                screen 1 - (panel_top[p] + (b_ - 1) * pitch + (0.8 + 1.3 * (r_ - 1)) * em) / canvas_y left } } } }"

# Numbers on axes are as large as other letters, unless little would be left of the panel.
numeral = em
if (!exists("left_margin")) {
    beside = wide(widest_y) + 0.9 + 0.5 * x_letters
    if (canvas_x - 2 * pad - beside * em < 5 * em) { numeral = larger(0.5 * em, (canvas_x - 2 * pad - 5 * em) / beside) }
    left_margin  = pad + (wide(widest_y) + 0.9) * numeral + (exists("y_label") ? 0 : 1.7 * em)
    right_margin = larger(pad, (0.5 * x_letters + 0.2) * numeral)
}
columns = preset eq 'column' ? 1 : words(panels) < 3 ? words(panels) : preset eq 'slides' || words(panels) == 4 ? 2 : 3
columns = columns > columns_most ? columns_most : columns
do for [i = 1:2] { if (columns > 1 && 1.0 * canvas_x / columns - left_margin - right_margin < 9 * em) { columns = columns - 1 } }
rows    = (words(panels) + columns - 1) / columns
panel_x = 1.0 * canvas_x / columns
plot_x  = larger(2 * em, panel_x - left_margin - right_margin)
if (!exists("plot_y")) plot_y = larger(7 * em, smaller(0.62 * plot_x, 0.4 * canvas_x))
panel_left(p) = ((p - 1) % columns) * panel_x
is_last(p)    = p + columns > words(panels) # what x is stands below the last of each column
array panel_top[words(panels)]

# The legend has as many columns as there is room for.
sample      = 2.4 * em
key_letters = 0
n_keys      = 0
do for [c = 1:curves] { if (legend && in_legend[c]) { key_letters = larger(key_letters, wide(legend_of(c))); n_keys = n_keys + 1 } }
array key_at[curves + 1]
array key_x[curves + 1]
array key_y[curves + 1]
key_columns = floor((canvas_x - 2 * pad + em) / (sample + (key_letters + 1.6) * em))
key_columns = key_columns < 1 ? 1 : key_columns > n_keys ? larger(1, n_keys) : key_columns
key_rows    = (n_keys + key_columns - 1) / key_columns

do for [attempt = 1:2] { # a slide is at least as high as a screen
    n_texts  = 0
    of_panel = 0
    top      = 0.4 * pad
    left     = pad
    do for [what in above] {
        letters = what eq 'title' ? 1.25 : 1
        ink     = what eq 'subtitle' ? grey : '#000000'
        most    = (canvas_x - 2 * pad) / em / letters
        long    = what eq 'title' ? title : what eq 'subtitle' ? subtitle : what eq 'remark' ? remark : finding
        end     = what eq 'finding' ? ';' : "\n" # of a text; each finding begins a row
        while (strstrt(long, end)) { i = place(long[1:strstrt(long, end) - 1]); long = long[strstrt(long, end) + 1:*] }
        i = place(long)
    }
    letters = 1
    ink     = '#000000'
    do for [r = 1:rows] {
        top   = top + 0.5 * em
        above_it = top
        below = top
        do for [p = (r - 1) * columns + 1:r * columns] {
            if (p > words(panels)) { continue }
            of_panel = p
            top  = above_it
            left = panel_left(p) + pad
            most = (panel_x - 2 * pad) / em
            i = place(heading(p))
            below = larger(below, top)
        }
        below = below + 0.6 * em
        do for [p = (r - 1) * columns + 1:r * columns] { if (p <= words(panels)) { panel_top[p] = below } }
        above_it = below + plot_y + 2.1 * em
        below = above_it
        do for [p = (r - 1) * columns + 1:r * columns] {
            if (p > words(panels) || !exists("x_label")) { continue }
            if (!is_last(p)) { continue }
            of_panel = p
            top  = above_it
            widest = 0
            do for [i = 1:fill(x_label)] { widest = larger(widest, wide(row[i]) * em) }
            left = larger(panel_left(p) + pad, smaller(panel_left(p) + left_margin + 0.5 * plot_x - 0.46 * widest, panel_left(p) + panel_x - pad - widest))
            i = put_rows(1)
            below = larger(below, top)
        }
        top = below
    }
    top      = top + 0.5 * em
    above_it = top
    below    = top
    of_panel = 0
    most     = (canvas_x - 2 * pad - sample) / em - 0.6
    k        = 0
    do for [c = 1:curves] {
        if (!legend || !in_legend[c]) { key_at[c] = 0; continue }
        if (k % key_rows == 0) { top = above_it }
        key_at[c] = 1
        key_x[c]  = pad + (k / key_rows) * (canvas_x - 2 * pad) / key_columns
        key_y[c]  = top + 0.65 * em
        left = key_x[c] + sample + 0.6 * em
        i = place(legend_of(c))
        below = larger(below, top)
        k = k + 1
    }
    canvas_y = ceil(below + 0.7 * em)
    if (preset ne 'slides' || canvas_y >= 540) { break }
    plot_y = plot_y + (540.0 - canvas_y) / rows
}
keys = "do for [c_ = 1:curves] { if (key_at[c_]) { \
    if (swatch > 0) { set object 1000 + c_ rectangle from screen (key_x[c_] + 0.5 * em) / canvas_x, screen 1 - (key_y[c_] - 0.45 * em) / canvas_y \
        to screen (key_x[c_] + sample) / canvas_x, screen 1 - (key_y[c_] + 0.45 * em) / canvas_y fc rgb colour(c_) fs solid swatch noborder }; \
    if (with_lines) { set arrow 1000 + c_ from screen key_x[c_] / canvas_x, screen 1 - key_y[c_] / canvas_y \
        to screen (key_x[c_] + sample) / canvas_x, screen 1 - key_y[c_] / canvas_y nohead lc rgb colour(c_) lw look_width(c_) dt look_dash(c_) }; \
    if (look_marked(c_)) { set label 3000 + c_ '' at screen (key_x[c_] + 0.5 * sample) / canvas_x, screen 1 - key_y[c_] / canvas_y \
        point pt look_mark(c_) ps size(c_) lc rgb colour(c_) } } }"

svg_name = ''
do for [i = 1:strlen(name)] { svg_name = svg_name.(name[i:i] eq '-' ? '_' : name[i:i]) }
looks(t) = sprintf("noenhanced font 'DejaVu Sans%s' background '#ffffff'", font(t, 1))
terminal(t) = t eq 'svg' ? sprintf("set terminal svg size %d,%d name '%s' linewidth %g dashlength 1.4 %s", canvas_x, canvas_y, svg_name, stroke, looks(t)) \
            : t eq 'png' ? sprintf("set terminal pngcairo size %d,%d fontscale 3 linewidth %g dashlength 0.7 pointscale 3 %s", 3 * canvas_x, 3 * canvas_y, 3 * stroke, looks(t)) \
            : sprintf("set terminal pdfcairo size %.4fin,%.4fin fontscale 0.75 linewidth %g dashlength 0.7 %s", canvas_x / 96.0, canvas_y / 96.0, stroke, looks(t))

start(t) = terminal(t).sprintf("; set output '%s.%s'; set multiplot; t = '%s'; unset label; unset arrow; unset object; point = stroke * (t eq 'svg' ? 0.7 : 1); of_panel = 0; eval words_of; eval keys", name, t, t)
panel(p) = sprintf("set xtics font '%s'; set ytics font '%s'; set lmargin at screen %f; set rmargin at screen %f; set tmargin at screen %f; set bmargin at screen %f; ", \
    font(t, numeral / em), font(t, numeral / em), (panel_left(p) + left_margin) / canvas_x, (panel_left(p) + left_margin + plot_x) / canvas_x, \
    1 - panel_top[p] / canvas_y, 1 - (panel_top[p] + plot_y) / canvas_y). \
    (p > 1 ? 'unset label; unset arrow; unset object; ' : '').sprintf('of_panel = %d; eval words_of', p)
# A line across a panel at guide_at, where that is within its range; its text where there is room.
guide = "if (inside(y_range, guide_at)) { set arrow 1 from graph 0, first guide_at to graph 1, first guide_at nohead back lw 1 lc rgb '#000000'; \
    if (wide(guide_text) * em < plot_x) { set label 9 guide_text at graph 0, first guide_at offset character 0.4,-0.6 left } }"
# The name of a curve that stands out is over its end or below it, where the panel has room for it and no
# other curve passes.  low and high: the range of y; side: 1, -1, or 0 where neither is free.
across_px(v) = log(v / x_first) / log(x_last / x_first) * plot_x
up_px(v)     = log(v / low) / log(high / low) * plot_y
up_at(i, v)  = across_px(path_x[i]) == v ? up_px(path_y[i]) : up_px(path_y[i - 1]) + (v - across_px(path_x[i - 1])) * \
    (up_px(path_y[i]) - up_px(path_y[i - 1])) / (across_px(path_x[i]) - across_px(path_x[i - 1]))
meets(x0, x1, u, v) = x0 <= x1 && larger(u, v) > box_low && smaller(u, v) < box_high
# The point i, and the line to it.
point_runs(i, is_first) = meets(larger(box_left, across_px(path_x[i])), smaller(box_right, across_px(path_x[i])), up_px(path_y[i]), up_px(path_y[i])) || \
    (!is_first && path_x[i - 1] < path_x[i] && line_runs(i, larger(box_left, across_px(path_x[i - 1])), smaller(box_right, across_px(path_x[i]))))
line_runs(i, x0, x1) = x0 <= x1 && meets(x0, x1, up_at(i, x0), up_at(i, x1))
# A thin curve, and its own, may come as near as its end.
is_close(c, d) = c == d || width(d) <= 1
runs_in(c, p, close) = sum [d = 1:curves] (is_close(c, d) == close ? met_by(end_of(d, p)) : 0)
nearer(side)  = (box_low = box_low + (side > 0 ? 0.5 * em : 0), box_high = box_high - (side < 0 ? 0.5 * em : 0), 1)
met_by(k)     = sum [i = path_from[k]:path_from[k + 1] - 1] point_runs(i, i == path_from[k])
is_free(c, p, side) = (box_right = across_px(end_x[end_of(c, p)]) + 0.3 * em, box_left = box_right - wide(field(c, 2)) * em - 0.6 * em, \
    box_low = up_px(end_y[end_of(c, p)]) + (side > 0 ? -0.3 : -1.4) * em, box_high = box_low + 1.7 * em, \
    box_left > 0 && box_low > 0.3 * em && box_high < plot_y && runs_in(c, p, 0) == 0 && (sum [i = 1:n_placed] meets_box(i)) == 0 && \
    nearer(side) && runs_in(c, p, 1) == 0)
meets_box(i) = meets(larger(box_left, placed_left[i]), smaller(box_right, placed_right[i]), placed_low[i], placed_high[i])
array placed_left[curves + 1]
array placed_right[curves + 1]
array placed_low[curves + 1]
array placed_high[curves + 1]
placed = "n_placed = n_placed + 1; placed_left[n_placed] = box_left; placed_right[n_placed] = box_right; placed_low[n_placed] = box_low; placed_high[n_placed] = box_high"
side_of(c, p) = width(c) <= 1 || end_x[end_of(c, p)] <= 0 ? 0 : is_free(c, p, 1) ? 1 : is_free(c, p, -1) ? -1 : 0
names = "set style textbox opaque fillcolor rgb '#ffffff' noborder margins 0.3,0.3; n_placed = 0; do for [c_ = 1:curves] { side = side_of(c_, p); if (side) { eval placed; set label 5000 + c_ field(c_, 2) at first end_x[end_of(c_, p)], first end_y[end_of(c_, p)] \
    right front boxed offset character 0,0.8 * side font font(t, 0.9) textcolor rgb colour(c_) } }"
inner(s) = wide(s) * em < 0.9 * plot_x # is there room for this text?

# The value under the pointer, in SVG alone, where draw.c makes the text a <title>: plot ..., @tips
tip_value(v) = is_bytes ? gprintf('%.1b %BB', v) : y_format eq '%.0s %cs' ? gprintf('%.2s %cs', v) : sprintf('%.3g', v)
tip_name(what) = strlen(what) > 6 && what[strlen(what) - 5:*] eq '_bytes' ? what[1:strlen(what) - 6] : what
tip(c, what) = sprintf('%s, %s = %g, %s: %s', field(c, 2), across, column(across), tip_name(what), tip_value(column(what)))
tips = "for [c = 1:(t eq 'svg' ? curves : 0)] for [what in draws(p)] csv using (x(c,p,what)):(y(c,p,what)):(tip(c,what)) \
    with labels hypertext point pt 7 ps large(c) lc rgb '#ff000000' notitle"
