# Rate against flops a byte, under the measured roofs.  Columns of the .dat: 1 flops a byte, 2 median
# GFLOP/s, 3 slowest, 4 fastest sample.  The .set also has, for each panel, ROOF_FMA (GFLOP/s),
# ROOF_READ and ROOF_L2 (GB/s).  Loaded after style.gp.

low(a, b) = a < b ? a : b
high(a, b) = a > b ? a : b
word_x(p) = high(0.09 * ROOF_FMA[p] / ROOF_READ[p], 1.15 * x_low) # below the slope
set samples 400

eval begin
do for [p = 1:n_panels] {
    eval frame(p)
    set label 801 sprintf('P = %.4g GFLOP/s', ROOF_FMA[p]) at graph 0.98, first ROOF_FMA[p] right offset 0, 0.6 font small textcolor rgb ink
    set label 802 sprintf('memory %.3g GB/s', ROOF_READ[p]) at first word_x(p), first 0.72*ROOF_READ[p]*word_x(p) left font small textcolor rgb ink
    plot low(ROOF_FMA[p], ROOF_L2[p]*x) with lines lw 1.2 dt 3 lc rgb ink, \
         low(ROOF_FMA[p], ROOF_READ[p]*x) with lines lw 1.6 dt 1 lc rgb ink, \
         for [s = 1:n_series] name.'.dat' index (p-1)*n_series+s-1 using 1:2:3:4 with yerrorbars pt filled(s) ps 0.9*point lw 1.2 lc rgb colour(s)
    eval clean
}
eval end
