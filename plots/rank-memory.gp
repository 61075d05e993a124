# Peak extra memory of the fullest rank against the number of ranks P.  Columns of the .dat: 1 P,
# 2 priced, 3 ledger, 4 the value at P = 2 falling as 1/P.  Loaded after style.gp.
eval begin
do for [p = 1:n_panels] {
    eval frame(p)
    plot for [s = 1:n_series] name.'.dat' index (p-1)*n_series+s-1 using 1:4 with lines lw 1 lc rgb '#888888' dt 5, \
         for [s = 1:n_series] '' index (p-1)*n_series+s-1 using 1:2 with lines lw 1.6 lc rgb colour(s) dt dash(s), \
         for [s = 1:n_series] '' index (p-1)*n_series+s-1 using 1:3 with points pt filled(s) ps nested(s) lc rgb colour(s)
    eval clean
}
eval end
