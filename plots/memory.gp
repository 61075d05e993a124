# Peak extra memory of one rank or process against L.  Columns of the .dat: 1 L, 2 priced,
# 3 ledger, 4 resident, 5 resident where there is neither price nor ledger.  Loaded after style.gp.
eval begin
do for [p = 1:n_panels] {
    eval frame(p)
    do for [k = 1:n_slopes] { if (SLOPE_PANEL[k] == p) { eval slope(k) } }
    if (line > 0) {
        set arrow 800 from graph 0, first line to graph (n_slopes > 0 ? slope_from-0.02 : 1), first line nohead lw 1 dt 3 lc rgb ink
        set label 800 line_text at graph 0.01, first line offset 0, 0.5 left font small textcolor rgb ink
    }
    plot for [s = 1:n_series] name.'.dat' index (p-1)*n_series+s-1 using 1:2 with lines lw 1.6 lc rgb colour(s) dt dash(s), \
         for [s = 1:n_series] '' index (p-1)*n_series+s-1 using 1:3 with points pt filled(s) ps 0.8*point lc rgb colour(s), \
         for [s = 1:n_series] '' index (p-1)*n_series+s-1 using 1:4 with points pt open(s) ps 1.7*point lw 1.2 lc rgb colour(s), \
         for [s = 1:n_series] '' index (p-1)*n_series+s-1 using 1:5 with lines lw 1.6 lc rgb colour(s) dt dash(s)
    eval clean
}
eval end
