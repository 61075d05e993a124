# A lecture as slides: awk -f docs/course/slides.awk LECTURE.md, as Markdown for pandoc (make slides).  A
# heading begins a slide; so does each paragraph of "The idea", each sentence that announces a command
# and each question, under the same heading.  An answer is a slide of its own.
BEGIN { while ((getline line < "docs/course/formulas.txt") > 0) {
    name = line; sub(/ .*/, "", name); formula[name] = substr(line, length(name) + 2) } }
function slide(more) { print "\n## " heading more "\n"; filled = 0 }
/^# /                { print "% " substr($0, 3); next }
/^<!-- math/         { print "```{=html}\n<p>" formula[$3] "</p>\n```"; in_block = 1; next }
/^<!-- /             { next }
in_block             { if (/^    /) in_block = 2; else if (in_block == 2) in_block = 0; if (in_block) next }
/^## /               { heading = substr($0, 4); if (heading == "Reading") skips = 1; else { skips = 0; fresh = 1 } next }
skips                { next }
/^<details/          { slide(": answer"); next }
/^<\/details>/       { fresh = 1; next }
/^$/                 { if (filled) gap = 1; print; next }
{
    is_code = /^    /
    begins = fresh || gap && !is_code && !/^[*|]/ && heading ~ /^(The idea|Commands|Questions)$/ && (heading != "Questions" || /^[0-9]/)
    if (begins) slide("")
    fresh = gap = 0
    filled = 1
    print
}
