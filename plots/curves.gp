# Plain curves from a CSV with the columns curve, x, y: one line with points for each curve, in the
# order of the file.
#
#     gnuplot -e "name = 'layers'; title = '...'; x_label = '...'; y_label = '...'" plots/curves.gp
#
# reads NAME.csv, writes NAME.svg and NAME.pdf.

set encoding utf8
set datafile separator comma
set datafile columnheaders
csv = name.'.csv'
curves = ''
stats csv using (strstrt(curves, '<'.strcol("curve").'>') ? 0 : (curves = curves.'<'.strcol("curve").'>', 1)) nooutput
n = 0
array curve[99]
do for [i = 1:strlen(curves)] {
    if (curves[i:i] eq '<') { n = n + 1; curve[n] = '' } else { if (curves[i:i] ne '>') { curve[n] = curve[n].curves[i:i] } }
}
colours = '#D55E00 #0072B2 #009E73 #CC79A7 #E69F00 #56B4E9 #332288 #666666'
set border 3 lc rgb '#666666'
set tics nomirror scale 0.6 textcolor rgb '#666666'
set grid lt 1 lw 0.6 lc rgb '#dddddd'
set label 1 title at screen 0.015, 0.95 left font ',15'
set label 2 y_label at screen 0.015, 0.87 left
set xlabel x_label
set yrange [0:*]
set lmargin at screen 0.07
set tmargin at screen 0.82
set key outside right center Left reverse
do for [t in 'svg pdf'] {
    if (t eq 'svg') { set terminal svg noenhanced size 760, 360 font 'DejaVu Sans,12' background '#ffffff' }
    if (t eq 'pdf') { set label 1 font ',11'; set terminal pdfcairo noenhanced size 7.9in, 3.75in font 'DejaVu Sans,9' }
    set output name.'.'.t
    plot for [c = 1:n] csv using (strcol("curve") eq curve[c] ? column("x") : NaN):(column("y")) with linespoints lw 2 pt 4 + c ps 0.8 lc rgb word(colours, c) title curve[c]
    unset output
}
