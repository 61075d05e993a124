# A page of HTML: the frame page.html with the style sheet page.css and a body, which cmark-gfm made of
# Markdown and which comes from standard input.
#
#     LC_ALL=C title=TITLE awk -f plots/page.awk plots/page.html <BODY >PAGE
#
# Two more variables of the environment: nav, a file that comes before the body; pictures, the folder of
# the page ("at/"), from which its pictures are put into it.
function file(name,    line) {
    while ((getline line < name) > 0) print line
    close(name)
}

# A heading with its name for links, as GitHub makes it (tests/manual.sh): small letters, '-' for blanks.
function heading(line,    name) {
    name = line
    gsub(/<[^>]*>/, "", name); gsub(/&[a-z]+;/, "", name)
    name = tolower(name); gsub(/[^a-z0-9 _-]/, "", name); gsub(/ /, "-", name)
    if (seen[name]++) name = name "-" (seen[name] - 1)
    sub(/^<h[1-6]/, "& id=\"" name "\"", line)
    return line
}

# A picture as it is, without what only a file has: all above its root, and names of namespaces.
function picture(tag,    path, label, root, line) {
    path = label = tag
    sub(/^<img src="/, "", path); sub(/".*/, "", path); path = ENVIRON["pictures"] path
    if (!sub(/.* alt="/, "", label)) label = ""
    sub(/".*/, "", label)
    while (root !~ /<svg[^>]*>/ && (getline line < path) > 0) root = root line "\n"
    if (!sub(/.*<svg/, "", root)) {
        print path ": no picture that can be read" > "/dev/stderr"
        exit 3
    }
    gsub(/[ \n]*xmlns[:a-z]*="[^"]*"/, "", root)
    printf "<svg role=\"img\" aria-label=\"%s\"%s", label, root
    file(path)
}

function body(    line, tag) {
    while ((getline line < "/dev/stdin") > 0) {
        if (line ~ /^<h[1-6]>/) line = heading(line)
        while (ENVIRON["pictures"] != "" && match(line, /<img src="[^>]*>/)) {
            printf "%s", substr(line, 1, RSTART - 1)
            tag = substr(line, RSTART, RLENGTH); line = substr(line, RSTART + RLENGTH)
            picture(tag)
        }
        print line
    }
}

$0 == "{{style}}" { style = FILENAME; sub(/html$/, "css", style); file(style); next }
$0 == "{{nav}}"   { if (ENVIRON["nav"] != "") file(ENVIRON["nav"]); next }
$0 == "{{body}}"  { body(); next }
(at = index($0, "{{title}}")) {
    title = ENVIRON["title"]
    gsub(/&/, "\\&amp;", title); gsub(/</, "\\&lt;", title)
    $0 = substr($0, 1, at - 1) title substr($0, at + 9)
}
{ print }
