# A picture of gnuplot's, the same and smaller: sed -E -z -f small.sed NAME.svg.  Without what is SVG's
# own preset, groups that hold nothing, and filters that the figure does not use; the font is said once.
s/ stroke-(linecap="butt"|linejoin="miter"|width="1\.00")//g
s/ (font-family="DejaVu Sans"|class="gridline")//g
s/<g id="gnuplot_canvas"/& font-family="DejaVu Sans"/
/filter:url/!s/\n\t*<filter.*<\/filter>//
s/[ \t]*\n[ \t]*/\n/g
s/<g [^>]*>\n*<\/g>\n//g
s/\n+/\n/g
s/[ \t]+(<|'\/>)/\1/g
s/  +/ /g
s/(fill|fill-opacity|points) = '/\1='/g
s/<g fill="none" color="black" stroke="currentColor">\n(<g stroke='none'[^>]*>\n<polygon[^>]*>\n<\/g>\n)<\/g>/\1/g
s/<g ([^>]*)>\n(<(text|polygon)[^\n]*)\n<\/g>/<g \1>\2<\/g>/g
s/<title>[^<]*_plot_[^<]*<\/title>\n//g
s/<g [^>]*>\n*<\/g>\n//g
s/<g fill="none" color="black" stroke="currentColor"( stroke-width="0.60")?>\n(<path)( stroke='[^']*' d='[^']*'\/>)<\/g>/\2 fill="none"\1\3/g
