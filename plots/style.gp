# What all figures share.  Loaded after NAME.set, before FIGURE.gp, by
#     gnuplot -e "terminal='svg'" NAME.set PLOTS/style.gp PLOTS/FIGURE.gp
# in the folder of NAME.set; terminal is svg, png or pdf.  docs/figures.md has more.

reset

# ---- the terminal: one size in pixels, three formats -------------------------------------------
# Texts come from records, so nothing in them is markup: noenhanced.

if (terminal eq 'svg') {
    set terminal svg size width,height noenhanced font 'sans-serif,13' linewidth 1.25 background '#ffffff'
}
if (terminal eq 'png') {
    set terminal pngcairo size 2*width,2*height noenhanced font 'DejaVu Sans,9.75' fontscale 2 linewidth 2 pointscale 2 background '#ffffff'
}
if (terminal eq 'pdf') {
    set terminal pdfcairo size width/96.0,height/96.0 noenhanced font 'DejaVu Sans,9.75' fontscale 0.72 linewidth 1.6 pointscale 0.75 background '#ffffff'
}
set output name.'.'.terminal
small = terminal eq 'svg' ? 'sans-serif,12' : 'DejaVu Sans,9'
large = terminal eq 'svg' ? 'sans-serif,17' : 'DejaVu Sans,12.75'

# ---- one look for each implementation, everywhere ----------------------------------------------
# IMPL[s] is its place in the registry, so the fifth has a style before it is written.  The
# palette is Okabe and Ito's without its yellow, which white paper swallows, and two of Tol's.  With
# 9 colours, 6 shapes and 5 dashes 90 places differ.

colours = '#D55E00 #0072B2 #009E73 #CC79A7 #E69F00 #56B4E9 #000000 #882255 #999933'
colour(s) = s < 1 ? '#444444' : word(colours, IMPL[s] % 9 + 1)
filled(s) = s < 1 ? 7 : 5 + 2 * (IMPL[s] % 6)
open(s) = filled(s) - 1
dash(s) = s < 1 ? 1 : (IMPL[s] + VARIANT[s]) % 5 + 1
# The svg terminal draws points larger than the others do.
point = terminal eq 'svg' ? 0.8 : 1.0
nested(s) = point * (s > 6 ? 0.6 : 1.4 - 0.13*s) # equal values stay visible: smaller on larger
set dashtype 2 (14, 4)
set dashtype 3 (5, 3)
set dashtype 4 (14, 4, 3, 4)
set dashtype 5 (2, 3)
ink = '#222222'
faint = '#d8d8d8'

# ---- axes --------------------------------------------------------------------------------------

set border 3 lc rgb '#666666'
set grid xtics ytics lt 1 dt 1 lw 0.7 lc rgb faint
set tics nomirror scale 0.5 textcolor rgb ink font small
set logscale xy
unset key
unset mxtics
unset mytics
set xrange [x_low:x_high]
set yrange [y_low:y_high]
eval 'set xtics ('.x_ticks.')'

# ---- the words around the panels: drawn with the first one ---------------------------------------

begin = "set multiplot; \
set label 1000 title at screen 0.012, title_at left font large textcolor rgb ink; \
do for [l = 1:n_SUBTITLE] { set label 1000+l SUBTITLE[l] at screen 0.012, subtitle_at-(l-1)*line_step left font small textcolor rgb '#444444' }; \
do for [l = 1:n_EXTRA] { set label 1010+l EXTRA[l] at screen 0.5, extra_at-(l-1)*line_step center font small textcolor rgb '#444444' }; \
do for [l = 1:n_NOTE] { set label 1020+l NOTE[l] at screen 0.012, note_at-(l-1)*line_step left font small textcolor rgb ink }; \
do for [s = 1:n_series] { \
set arrow 1000+s from screen KEY_X[s], screen KEY_Y[s] to screen KEY_X[s]+key_sample, screen KEY_Y[s] nohead lw 2 lc rgb colour(s) dt dash(s); \
set label 1100+s '' at screen KEY_X[s]+key_sample/2, screen KEY_Y[s] point pt filled(s) ps point lc rgb colour(s); \
set label 1200+s LABEL[s] at screen KEY_X[s]+key_sample+0.008, screen KEY_Y[s] left font small textcolor rgb ink }"

# After the first panel they must not be drawn again; slopes and marks belong to one panel each.
clean = 'unset label; unset arrow'
end = 'unset multiplot; unset output'

# ---- one panel -----------------------------------------------------------------------------------

frame(p) = sprintf("set lmargin at screen %.6f; set rmargin at screen %.6f; \
set bmargin at screen %.6f; set tmargin at screen %.6f; \
set label 900 PANEL[%d] at graph 0, 1 offset 0, 0.8 left textcolor rgb ink; \
set xlabel x_label offset 0, 0.4 textcolor rgb ink; ", \
PANEL_LEFT[p], PANEL_RIGHT[p], PANEL_BOTTOM[p], PANEL_TOP[p], p) \
. (PANEL_FIRST[p] ? "set ylabel y_label offset 0.8, 0 textcolor rgb ink; set ytics (".y_ticks.")" \
                  : "unset ylabel; set ytics (".y_bare.")")

# The slope beside the end of its curve, with a thin line from the one to the other.
slope(k) = sprintf("set arrow %d from first SLOPE_X[%d], first SLOPE_Y[%d] to graph slope_from, graph SLOPE_AT[%d] nohead lw 0.6 lc rgb colour(SLOPE_SERIES[%d]); \
set label %d SLOPE_TEXT[%d] at graph slope_from, graph SLOPE_AT[%d] offset 0.4, 0 left font small textcolor rgb ink", k, k, k, k, k, k, k, k)
