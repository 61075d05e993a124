# Rate against flops a byte, under the measured roofs: roof_fma (GFLOP/s), roof_read and roof_l2
# (GB/s) have a word for each panel.
draws(p) = 'gflops slowest fastest roof_gflops'
lines(p) = word(panels, p)
load 'style.gp'
low(a, b) = a < b ? a : b
set samples 400
set xlabel x_name
set ylabel 'GFLOP/s'
do for [t in formats] {
    eval start(t)
    do for [p = 1:words(panels)] {
        eval panel(p)
        fma = real(word(roof_fma, p))
        read = real(word(roof_read, p))
        l2 = real(word(roof_l2, p))
        set label 8 sprintf('%.4g GFLOP/s', fma) at graph 0.98, first fma right offset 0,0.6
        set label 9 sprintf('memory %.3g GB/s', read) at graph 0.02, graph 0.04
        plot low(fma, l2*x) with lines dt 3 lc rgb 'black' title 'second-level cache', \
             low(fma, read*x) with lines dt 1 lc rgb 'black' title 'memory', \
             for [c = 1:curves] csv using (x(c,p,"gflops")):(y(c,p,"gflops")):(y(c,p,"slowest")):(y(c,p,"fastest")) with yerrorbars pt filled(c) ps size(c) lc rgb colour(c) notitle, \
             for [c = 1:curves] keyentry with points lc rgb colour(c) pt filled(c) ps size(c) title key(c,p)
    }
    unset multiplot
    unset output
}
