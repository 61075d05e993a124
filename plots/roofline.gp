# Rate against flops a byte, under the measured peak (GFLOP/s) and bandwidth of memory (GB/s).
draws(p) = 'gflops slowest_gflops fastest_gflops peak_gflops'
lines(p) = word(panels, p)
with_lines = 0
widest_x = '0.001'
widest_y = '1000'
y_label  = 'GFLOP/s'
load 'style.gp'
low(a, b) = a < b ? a : b
most(a, b) = a > b ? a : b
eval axis
set samples 400
do for [t in formats] {
    eval start(t)
    do for [p = 1:words(panels)] {
        eval panel(p)
        fma = 0; read = 0
        stats csv using (is_of(p) && strcol("peak_gflops") ne '' ? (fma = most(fma, column("peak_gflops")), 1) : 0) nooutput
        stats csv using (is_of(p) && strcol("read_gbytes") ne '' ? (read = most(read, column("read_gbytes")), 1) : 0) nooutput
        guide_text = sprintf('%.4g GFLOP/s', fma)
        if (inner(guide_text)) { set label 8 guide_text at graph 0.98, first fma right offset 0,0.7 }
        guide_text = sprintf('memory %.3g GB/s', read)
        if (inner(guide_text)) { set label 9 guide_text at graph 0.02, graph 0.06 }
        plot low(fma, read*x) with lines lc rgb 'black' notitle, \
             for [c = 1:curves] csv using (x(c,p,"gflops")):(y(c,p,"gflops")):(y(c,p,"slowest_gflops")):(y(c,p,"fastest_gflops")) with yerrorbars pt filled(c) ps size(c) lc rgb colour(c) notitle
    }
    unset multiplot
    unset output
}
