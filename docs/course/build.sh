#!/bin/bash
# Writes the course as pages to read and to print: `make course`.
#
#     docs/course/build.sh REPORT FIGURES OUT
#
# REPORT is a report of this machine (attnlab report), FIGURES the figures of the chapters drawn again;
# OUT gets the folders of the tree, with an .html for each page of Markdown and for each source file
# that one links to, so that links between them stand as they are.  ANSWERS=no leaves out what is
# folded away and docs/answers.md.  A link to a page that OUT has not is an error.
set -eu -o pipefail
report=$(realpath -- "$1") figures=$(realpath -- "$2") out=$(realpath -m -- "$3")
CDPATH="" cd -- "$(dirname -- "$0")/../.."
answers=${ANSWERS:-yes}
case $answers in yes | no) ;; *)
    echo "course: ANSWERS=$answers is neither yes nor no" >&2
    exit 2
    ;;
esac
rm -rf "$out" && mkdir -p "$out"
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT

# ---- a page --------------------------------------------------------------------------------------

# PATH (of the page, from OUT)  TITLE; its body comes from stdin.
page() {
    local file=$out/$1 up
    up=$(sed 's,[^/]*/,../,g; s,[^/]*$,,' <<<"$1")
    mkdir -p "$(dirname "$file")"
    sed "s,@UP@,$up,g" "$work/nav" >"$work/nav-here"
    LC_ALL=C title=$2 nav=$work/nav-here awk -f plots/page.awk plots/page.html >"$file"
}

# Links get the names of pages: NAME.html of NAME.md, NAME.c.html of a source file, NAME/index.html of a
# folder.
linked() {
    awk '
    function target(href,    at, anchor, last) {
        if (href ~ /^[a-z]+:/ || href ~ /^#/) return href
        at = index(href, "#"); anchor = at ? substr(href, at) : ""
        if (at) href = substr(href, 1, at - 1)
        last = href; sub(/\/$/, "", last); sub(/.*\//, "", last)
        if (last ~ /\.md$/) { sub(/md$/, "html", href); return href anchor }
        if (last ~ /\.(svg|png|pdf|csv|html)$/) return href anchor
        if (last ~ /\./ && last != ".." || last ~ /^(LICENSE|Makefile)$/) return href ".html"
        sub(/\/$/, "", href); return href "/index.html"
    }
    { done = ""
      while (match($0, /href="[^"]*"/)) {
          done = done substr($0, 1, RSTART - 1) "href=\"" target(substr($0, RSTART + 6, RLENGTH - 7)) "\""
          $0 = substr($0, RSTART + RLENGTH)
      }
      print done $0 }'
}

# Figures of this machine: <!-- figure NAME: caption --> in a line of its own.  Formulas: <!-- math NAME -->
# before the block of text that the formula of formulas.txt replaces.
with_figures() { # UP
    report=$report up=$1 awk '
        BEGIN { while ((getline line < "docs/course/formulas.txt") > 0) {
            name = line; sub(/ .*/, "", name); formula[name] = substr(line, length(name) + 2) } }
        /^<!-- math [a-z-]+ -->$/ {
            if (!($3 in formula)) { print "course: no formula " $3 > "/dev/stderr"; exit 3 }
            print "<div class=math>" formula[$3] "</div>"
            in_block = 1
            names = ""
            next
        }
        in_block { # functions stand at the right of a line
            if (match($0, /   +([a-z]+_[a-z_]+|delta|merge)[^<]*/)) {
                name = substr($0, RSTART, RLENGTH); sub(/^ +/, "", name)
                names = names (names != "" ? "; " : "") name
            }
            if (!/<\/pre>$/) next
            in_block = 0
            if (names != "") print "<p class=math><code>" names "</code></p>"
            next
        }
        /^<!-- figure [a-z0-9-]+: .* -->$/ {
            name = $3; sub(/:$/, "", name)
            text = substr($0, index($0, ": ") + 2); sub(/ -->$/, "", text)
            if ((getline line < (ENVIRON["report"] "/figures/" name ".svg")) <= 0) {
                print "course: no figure " name " in " ENVIRON["report"] ": none of its points was good (index.html " \
                    "there says why).  Remove that folder and make course again, on an idle machine." > "/dev/stderr"
                exit 3
            }
            at = ENVIRON["up"] "report/figures/" name
            printf "<figure><img src=\"%s.svg\" alt=\"%s\">\n<figcaption>%s (<a href=\"%s.pdf\">PDF</a>, " \
                "<a href=\"%s.csv\">numbers</a>)</figcaption></figure>\n", at, name, text, at, at
            next
        }
        { print }'
}

# Markdown without the answers, where they are not wanted.
whole() {
    awk -v answers="$answers" '
        /^<details/ && answers == "no" { off = 1 }
        !off { print }
        /^<\/details>/ { off = 0 }'
}

markdown() { # PATH of the page; its Markdown comes from stdin
    local up
    up=$(sed 's,[^/]*/,../,g; s,[^/]*$,,' <<<"$1")
    whole >"$work/source"
    cmark-gfm --unsafe -e table -e autolink "$work/source" | linked | with_figures "$up" |
        page "$1" "$(sed -n '/^# /{s///p;q}' "$work/source")"
}

# Files that solve a lab (docs/labs/README.md, Examples that give a lab away).
is_answer() { # FILE
    case $1 in
    experiments/rim/grade/labs/* | docs/examples/*_attention.py | docs/examples/*_ring.py | \
        docs/examples/numpy_*.py | docs/examples/cpp_attention.cpp | docs/examples/plugin_naive.c | \
        docs/examples/rows.c) [ "$answers" = no ] ;;
    *) false ;;
    esac
}

source_file() { # FILE, with its lines numbered
    if is_answer "$1"; then
        printf '<h1><code>%s</code></h1>\n<p>It is with your lecturer.</p>\n' "$1" | page "$1.html" "$1"
        return
    fi
    {
        printf '<h1><code>%s</code></h1>\n<pre><code>' "$1"
        awk '{ gsub(/&/, "\\&amp;"); gsub(/</, "\\&lt;"); printf "%4d  %s\n", NR, $0 }' "$1"
        printf '</code></pre>\n'
    } | page "$1.html" "$1"
}

folder() { # FOLDER: what it has in the tree; what has a page here is a link
    local name
    mkdir -p "$out/$1"
    {
        printf '<h1><code>%s/</code></h1>\n<ul>\n' "$1"
        for name in "$1"/*; do
            for page in "$out/$name.html" "$out/${name%.md}.html" "$out/$name/index.html"; do
                [ -e "$page" ] && break
                page=
            done
            name=${name#"$1"/}
            printf '<li>%s</li>\n' "${page:+<a href=\"${page#"$out/$1"/}\">}$name${page:+</a>}"
        done
        printf '</ul>\n'
    } | page "$1/index.html" "$1"
}

# ---- all pages -----------------------------------------------------------------------------------

lectures=(docs/course/[0-9]*.md)
studies=(docs/studies/*.md)
{
    printf '<nav><a href="@UP@index.html">Course</a> Lectures'
    for f in "${lectures[@]}"; do
        n=${f#docs/course/0}
        printf ' <a href="@UP@%s">%s</a>' "${f%.md}.html" "${n%%-*}"
    done
    printf ' <a class=after href="@UP@docs/labs/README.html">Labs</a> <a href="@UP@docs/studies/handouts.html">Handouts</a>'
    printf ' <a href="@UP@report/index.html">This machine</a></nav>\n'
} >"$work/nav"

cp -r "$report" "$out/report"
mkdir -p "$out/docs"
cp -r docs/figures "$out/docs/figures"
cp -r docs/studies "$out/docs/studies" && rm "$out"/docs/studies/*.md
for f in "$figures"/*.{svg,pdf,csv}; do # those of this machine, and as PDF
    n=${f##*/} to=figures
    [ -e "docs/studies/${n%.*}.md" ] && to=studies
    cp "$f" "$out/docs/$to/"
done

for f in README.md docs/*.md docs/course/*.md docs/labs/README.md docs/labs/*/README.md "${studies[@]}"; do
    if [ "$answers" = no ] && [ "$f" = docs/answers.md ]; then
        printf '# Answers\n\nThey are with your lecturer.\n' | markdown docs/answers.html
    elif [ -e "$f" ]; then
        markdown "${f%.md}.html" <"$f"
    fi
done
# The first page is that of the course; all studies are one page too, to be printed.
sed -E 's,\]\(([^:)]*)\),](docs/course/\1),g' docs/course/README.md | markdown index.html
{
    printf '# Case studies\n\n'
    for f in "${studies[@]}"; do
        printf '* [%s](%s)\n' "$(sed -n 's/^# //p;/^# /q' "$f")" "${f##*/}"
    done
    echo
    for f in "${studies[@]}"; do
        printf '<div style="break-before:page"></div>\n\n' && sed 's/^# /## /' "$f" && echo
    done
} | markdown docs/studies/handouts.html

# ---- links ---------------------------------------------------------------------------------------

# "PAGE LINK TARGET" of each link within OUT whose file, or heading, is not there.
broken() {
    (cd "$out" && find . -name '*.html' | sort | xargs awk '
        function plain(path,    part, n, i, k, kept) {
            n = split(path, part, "/"); k = 0
            for (i = 1; i <= n; i++) {
                if (part[i] == "." || part[i] == "") continue
                if (part[i] == ".." && k > 0) k--; else kept[++k] = part[i]
            }
            path = ""
            for (i = 1; i <= k; i++) path = path (i > 1 ? "/" : "") kept[i]
            return path
        }
        FNR == 1 { here = plain(FILENAME); folder = here; sub(/[^\/]*$/, "", folder); page[here] = 1 }
        {
            gsub(/<use xlink:href=/, "") # inside a picture
            while (match($0, /(href|src|id)="?[^" >]*/)) {
                text = substr($0, RSTART, RLENGTH); $0 = substr($0, RSTART + RLENGTH)
                kind = text; sub(/=.*/, "", kind); sub(/^[a-z]*="?/, "", text)
                if (kind == "id") { heading[here "#" text] = 1; continue }
                if (text ~ /^[a-z]+:/) continue
                at = index(text, "#")
                to = at == 1 ? here : plain(folder (at ? substr(text, 1, at - 1) : text))
                n++; from[n] = here; link[n] = text; file[n] = to; anchor[n] = at ? substr(text, at + 1) : ""
            }
        }
        END {
            for (i = 1; i <= n; i++) {
                is = file[i] in page
                if (!is) { is = (getline line < file[i]) >= 0; close(file[i]) }
                if (!is || anchor[i] != "" && !(file[i] "#" anchor[i] in heading))
                    print from[i], link[i], file[i]
            }
        }')
}

# Pages of what is linked to and is not Markdown: files, then folders, those within others first.
broken | sort -u -k3,3 >"$work/broken"
while read -r _ _ target; do
    [ -f "${target%.html}" ] && source_file "${target%.html}"
done <"$work/broken"
sed -n 's,^[^ ]* [^ ]* \(.*\)/index\.html$,\1,p' "$work/broken" | awk -F/ '{ print NF, $0 }' | sort -rn |
    while read -r _ target; do
        [ -d "$target" ] && folder "$target"
    done

if [ -n "$(broken | tee "$work/broken")" ]; then
    sed 's/^\([^ ]*\) \([^ ]*\) .*/course: \1 links to \2, which is not there/' "$work/broken" >&2
    exit 1
fi
echo "$out/index.html"
