# gnuplot's hypertext, which a script of its own shows, as titles, which every viewer shows (sed -E).
s/ onmousemove="gnuplot_svg[.]showHypertext\(evt,'([^"]*)'\)" onmouseout="gnuplot_svg[.]hideHypertext\(\)"><title> <\/title>/><title>\1<\/title>/g
