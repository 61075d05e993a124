# What all figures share: how they read their CSV, looks, layout, terminals.  Loaded by NAME.gp,
# after its own lines.  Texts come from records, so nothing in them is markup: noenhanced.

set encoding utf8
set datafile separator comma
set datafile columnheaders
set datafile commentschars ''
csv = name.'.csv'

# ---- one line of $curves for each curve ----------------------------------------------------------

curves = |$curves|
field(c, k) = word($curves[c], k)
colour(c) = field(c, 3)
filled(c) = int(field(c, 4))                           # its mark
open(c)   = filled(c) > 4 ? filled(c) - 1 : filled(c)  # the same, not filled
dash(c)   = int(field(c, 5))
width(c)  = real(field(c, 6))
size(c)   = (filled(c) > 3 ? 0.7 : 1.2) + 0.12 * (width(c) - 1.6) # larger under another curve
slope(c, p) = field(c, 6 + p)
shown(c, p) = slope(c, p) ne '-'
key(c, p) = !shown(c, p) ? '' : field(c, 2).(slope(c, p) eq '' ? '' : '  '.slope(c, p))

# Column `what` in the rows of curve c in panel p, nothing elsewhere.
at(c, p, what) = strcol("curve") eq field(c, 1) && strcol("panel") eq word(panels, p) && shown(c, p) \
                 ? column(what) : NaN

# ---- axes ----------------------------------------------------------------------------------------

grey = '#666666'
set border 3 lc rgb grey
set grid lt 1 lw 0.6 lc rgb '#dddddd'
set tics nomirror
set logscale xy
eval 'set xrange '.x_range
eval 'set yrange '.y_range
tokens = "set logscale x 2; set format x '%.0f'; set xlabel 'sequence length L (tokens)'"
ranks  = "set logscale x 2; set format x '%.0f'; set xlabel 'ranks P'"
bytes  = "set logscale y 2; set format y '%.0b %BB'"

# ---- the page: panels beside each other, their words above, a legend below each ------------------

columns  = words(panels) < 3 ? words(panels) : 3
rows     = (words(panels) + columns - 1) / columns
longest  = 0
do for [c = 1:curves] {
    do for [p = 1:words(panels)] { if (strlen(key(c, p)) > longest) { longest = strlen(key(c, p)) } }
}
key_columns = longest > (columns == 1 ? 36 : columns == 2 ? 24 : 17) ? 1 : 2
key_rows    = (curves + key_columns - 1) / key_columns
canvas_x    = columns > 2 ? 1280 : columns > 1 ? 1180 : 840
head_y      = finding eq '' ? 66 : 84
canvas_y    = head_y + rows * (360 + 19 * key_rows)
set bmargin key_rows + 5
set tmargin 2
set rmargin 3
eval sprintf("set key bmargin center horizontal maxcols %d samplen 3 Left reverse", key_columns)

terminal(t) = t eq 'svg' ? sprintf("set terminal svg size %d,%d name '%s' noenhanced font 'DejaVu Sans,12' background '#ffffff'", canvas_x, canvas_y, svg_name) \
            : t eq 'png' ? sprintf("set terminal pngcairo size %d,%d noenhanced font 'DejaVu Sans,9' fontscale 2 linewidth 2 pointscale 2 background '#ffffff'", 2 * canvas_x, 2 * canvas_y) \
            : sprintf("set terminal pdfcairo size %.2fin,%.2fin noenhanced font 'DejaVu Sans,9' fontscale 0.8 background '#ffffff'", canvas_x / 96.0, canvas_y / 96.0)
svg_name = 'figure'

start(t) = terminal(t).sprintf("; set output '%s.%s'; set multiplot; \
set label 1 title at screen 0.012, 1 offset 0,-1.2 font ',15'; \
set label 2 subtitle at screen 0.012, 1 offset 0,-2.5 textcolor rgb grey; \
set label 3 remark at screen 0.012, 1 offset 0,-3.7; \
set label 4 finding at screen 0.012, 1 offset 0,-4.9", name, t)

panel(p) = sprintf("set origin %f,%f; set size %f,%f; set title '%s' offset 0,-0.5; %s", \
    ((p - 1) % columns) / (1.0 * columns), \
    (rows - 1 - (p - 1) / columns) * (canvas_y - head_y) / (1.0 * rows * canvas_y), \
    1.0 / columns, (canvas_y - head_y) / (1.0 * rows * canvas_y), word(panels, p), \
    p > 1 ? 'unset label' : '')
