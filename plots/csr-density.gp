# Peak extra memory against the density of the mask at one L.  Columns of the .dat: 1 density,
# 2 priced, 3 ledger, 4 resident, 5 resident where there is neither price nor ledger.  The marks
# are where a curve crosses dense.  Loaded after style.gp.
eval begin
do for [p = 1:n_panels] {
    eval frame(p)
    do for [k = 1:n_marks] {
        if (MARK_PANEL[k] == p) {
            set arrow 700+k from first MARK_X[k], graph 0 to first MARK_X[k], first MARK_Y[k] nohead lw 1 dt 3 lc rgb ink
            set label 700+k '' at first MARK_X[k], first MARK_Y[k] point pt 6 ps 2.2*point lw 1.6 lc rgb ink
            set label 750+k MARK_TEXT[k] at graph 1, 1 offset 0, 0.8 right font small textcolor rgb ink
        }
    }
    plot for [s = 1:n_series] name.'.dat' index (p-1)*n_series+s-1 using 1:2 with lines lw 1.6 lc rgb colour(s) dt dash(s), \
         for [s = 1:n_series] '' index (p-1)*n_series+s-1 using 1:3 with points pt filled(s) ps 0.8*point lc rgb colour(s), \
         for [s = 1:n_series] '' index (p-1)*n_series+s-1 using 1:4 with points pt open(s) ps 1.7*point lw 1.2 lc rgb colour(s), \
         for [s = 1:n_series] '' index (p-1)*n_series+s-1 using 1:5 with lines lw 1.6 lc rgb colour(s) dt dash(s)
    eval clean
}
eval end
