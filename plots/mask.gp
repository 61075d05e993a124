# The visible pairs of a mask: name, title, n_query and n_key, and in $runs a line "query first end"
# for each run of keys.  Numbers stand at the middle of their cells.
set encoding utf8
side = 600.0 / (n_query > n_key ? n_query : n_key)
wide = 90 + side * n_key
rows = ceil(7.5 * strlen(title) / (wide - 20)) # of the title, in letters of at most 7.5
rows = rows < 1 ? 1 : rows
high = 90 + 18 * rows + side * n_query
set terminal svg noenhanced size wide, high font 'DejaVu Sans,12' background rgb 'white'
set output name.'.svg'
letters = floor((wide - 20) / 7.5)
do for [r = 1:rows] {
    part = title[(r - 1) * letters + 1:r * letters]
    set label r part at screen 10.0 / wide, screen 1 - (14.0 + 18 * (r - 1)) / high left
}
set xlabel 'key'
set ylabel 'query'
set xrange [0:n_key]
set yrange [n_query:0]
set tmargin at screen 1 - (18.0 * rows + 12) / high
set bmargin at screen 1 - (18.0 * rows + 12 + side * n_query) / high
set lmargin at screen 65.0 / wide
set rmargin at screen (65.0 + side * n_key) / wide
# A number for each cell, for every 2nd, 5th, 10th, ... where they are smaller than their numbers.
step = 1
do for [s in '1 2 5 10 20 50 100 200 500 1000 2000'] { if (step * side < 34) { step = int(s) } }
set xtics () scale (side < 8 ? 1 : 0) nomirror out
set ytics () scale (side < 8 ? 1 : 0) nomirror out
do for [i = 0:n_key - 1:step] { set xtics add (sprintf('%d', i) i + 0.5) }
do for [i = 0:n_query - 1:step] { set ytics add (sprintf('%d', i) i + 0.5) }
set style fill solid noborder
plot $runs using (($2 + $3) / 2.0):($1 + 0.5):2:3:1:($1 + 1) with boxxyerror lc rgb '#0072B2' notitle
unset output
