# Time of one call against L.  Columns of the .dat: 1 L, 2 median of the rounds, 3 fastest,
# 4 slowest.  Loaded after style.gp.
eval begin
do for [p = 1:n_panels] {
    eval frame(p)
    do for [k = 1:n_slopes] { if (SLOPE_PANEL[k] == p) { eval slope(k) } }
    plot for [s = 1:n_series] name.'.dat' index (p-1)*n_series+s-1 using 1:2 with lines lw 1.6 lc rgb colour(s) dt dash(s), \
         for [s = 1:n_series] '' index (p-1)*n_series+s-1 using 1:2:3:4 with yerrorbars pt filled(s) ps 0.8*point lw 1.2 lc rgb colour(s)
    eval clean
}
eval end
