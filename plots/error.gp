# Largest error over its bound against L, one panel for each output.  Columns of the .dat: 1 L,
# 2 error/bound.  Loaded after style.gp.
eval begin
do for [p = 1:n_panels] {
    eval frame(p)
    set arrow 800 from graph 0, first 1 to graph 1, first 1 nohead lw 1.6 lc rgb ink
    set label 800 line_text at graph 0.01, first 1 offset 0, 0.55 left font small textcolor rgb ink
    plot for [s = 1:n_series] name.'.dat' index (p-1)*n_series+s-1 using 1:2 with linespoints lw 1.4 pt filled(s) ps nested(s) lc rgb colour(s) dt dash(s)
    eval clean
}
eval end
