# Rate against flops a byte, under the measured roofs: roof_fma (GFLOP/s), roof_read and roof_l2
# (GB/s) have a word for each panel.
draws(p) = 'gflops slowest fastest roof_gflops'
lines(p) = word(panels, p)
with_lines = 0
widest_x = '0.001'
widest_y = '1000'
x_label  = x_name
y_label  = 'GFLOP/s'
if (remark eq '') { remark = 'Lines: the multiply-add unit, memory (black) and the second-level cache (grey).' }
load 'style.gp'
low(a, b) = a < b ? a : b
set samples 400
do for [t in formats] {
    eval start(t)
    do for [p = 1:words(panels)] {
        eval panel(p)
        fma = real(word(roof_fma, p))
        read = real(word(roof_read, p))
        l2 = real(word(roof_l2, p))
        guide_text = sprintf('%.4g GFLOP/s', fma)
        if (inner(guide_text)) { set label 8 guide_text at graph 0.98, first fma right offset 0,0.7 }
        guide_text = sprintf('memory %.3g GB/s', read)
        if (inner(guide_text)) { set label 9 guide_text at graph 0.02, graph 0.06 }
        plot low(fma, l2*x) with lines lc rgb '#999999' notitle, \
             low(fma, read*x) with lines lc rgb 'black' notitle, \
             for [c = 1:curves] csv using (x(c,p,"gflops")):(y(c,p,"gflops")):(y(c,p,"slowest")):(y(c,p,"fastest")) with yerrorbars pt filled(c) ps size(c) lc rgb colour(c) notitle
    }
    unset multiplot
    unset output
}
