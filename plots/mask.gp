# The visible pairs of a mask: name, title, n_query and n_key, and in $runs a line "query first end"
# for each run of keys.
set encoding utf8
side = 600.0 / (n_query > n_key ? n_query : n_key)
set terminal svg noenhanced size 80 + side * n_key, 100 + side * n_query font 'sans,12' background rgb 'white'
set output name.'.svg'
set title title
set xlabel 'key'
set ylabel 'query'
set xrange [0:n_key]
set yrange [n_query:0]
set size ratio -1
set tics out nomirror
set style fill solid noborder
plot $runs using (($2 + $3) / 2.0):($1 + 0.5):2:3:1:($1 + 1) with boxxyerror lc rgb '#0072B2' notitle
unset output
