#!/bin/bash
# Runs the commands of one page of the manual and compares what they print with what the page says.
#
#     tests/manual.sh BUILD PAGE [STUDIES]
#
# STUDIES is a folder for what studies print, which other pages show too.
# A command is an indented line that begins with "$ ", and goes on in the next line where it
# ends in a backslash.  Its output follows, as far as lines are indented; "..." stands for any
# lines.  Without output below it a command must only end with 0.
# Not compared: blanks, times, rates, what rounding leaves (below 1e-9: another instruction set
# leaves something else), and the memory that a machine has available.
# A command that ends in a comment "# takes ..." runs only under ATTN_FULL=1.
# Files of the tree that the page links to, or names in backquotes, must be there, and headings, commands
# and figures.
set -u
build=$(realpath -- "$1") page=$(realpath -- "$2")
root=$(realpath "$(dirname "$0")/..")
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
studies=${3:-$work}
mkdir "$work/at" "$work/at/build"
ln -s "$root"/{README.md,docs,experiments,optimized,plots,ref,tests} "$work/at"
cd "$work/at" || exit 4
export PATH="$build:$PATH"
ran=0 bad=0

plain() {
    sed -E -e 's/[0-9][0-9.]*(e[-+]?[0-9]+)? ?((n|u|m)?s|min|G(FLOP|B|exp)\/s|P)\b/# \2/g' \
        -e 's/[0-9.]+e-[1-9][0-9]\b/# of rounding/g' \
        -e 's/[0-9.]+ [KMGT]iB (available|\(VmHWM)/# \1/' -e 's/[[:blank:]]+/ /g; s/^ //; s/ $//' -e '/^$/d'
}

# A page (the first file) says what was printed (the second): "..." is any lines.
same() {
    awk 'NR == FNR { want[++n] = $0; next }
         { got[++m] = $0 }
         END {
             for (w = g = 1; w <= n; w++) {
                 if (want[w] == "...") { open = 1; continue }
                 while (open && g <= m && got[g] != want[w]) g++
                 if (g > m || got[g] != want[w]) exit 1
                 g++; open = 0
             }
             exit !(open || g > m)
         }' "$1" "$2"
}

# A study takes seconds: it runs once, whichever of its lines the pages show.
with_one_study() {
    local study=${1%% | *}
    if [[ $study =~ ^attnlab\ study\ [a-z0-9-]+$ && $study != "$1" ]]; then
        [ -e "$studies/$study" ] || $study >"$studies/$study" 2>&1 </dev/null
        echo "cat '$studies/$study' | ${1#* | }"
    else
        echo "$1"
    fi
}

run() {
    [[ $1 =~ \#\ takes\  && -z ${ATTN_FULL:-} ]] && return
    ran=$((ran + 1))
    bash -c "$(with_one_study "$1")" >"$work/printed" 2>&1 </dev/null
    local status=$?
    : >"$work/want"
    [ ! -s "$work/said" ] || plain <"$work/said" >"$work/want"
    if [ -s "$work/want" ] && [ "$status" -le 1 ]; then
        plain <"$work/printed" >"$work/got"
        same "$work/want" "$work/got" && return
    elif [ "$status" -eq 0 ]; then
        return
    fi
    bad=$((bad + 1))
    plain <"$work/printed" >"$work/got"
    printf '%s: status %d of\n  $ %s\n' "${page#"$root"/}" "$status" "$1"
    diff "$work/want" "$work/got"
}

while read -r path; do
    [ -e "$path" ] && continue
    bad=$((bad + 1))
    echo "${page#"$root"/}: no file ${path#"$root"/}"
done < <(
    grep -oE '\]\([^)#: ]+' "$page" | sed "s,^](,$(dirname "$page")/,"
    grep -oE '`(ref|optimized|tests|experiments|plots|docs)/[a-z0-9_./-]+`' "$page" | tr -d '`' | sed "s,^,$root/,"
)

# Commands that a sentence names, and figures that `make course` puts in.
while read -r name; do
    "$build/attnlab" "$name" --help >/dev/null 2>&1 && continue
    bad=$((bad + 1))
    echo "${page#"$root"/}: no command attnlab $name"
done < <(grep -oE '`attnlab [a-z]+' "$page" | cut -d' ' -f2 | sort -u)
kinds=$(sed -n 's/^FIGURE("\([a-z-]*\)".*/\1/p' "$root/plots/figures.def")
while read -r name; do
    for kind in roofline $kinds; do
        [[ $name == "$kind" || $name == "$kind"-* ]] && continue 2
    done
    bad=$((bad + 1))
    echo "${page#"$root"/}: no figure $name in plots/figures.def"
done < <(sed -n 's/^<!-- figure \([^ ]*\): .*-->$/\1/p' "$page")

# The names of the headings in links, a line each; of a file they are asked once.
declare -A anchors
while IFS='#' read -r path anchor; do
    path=${path:+${page%/*}/$path} path=${path:-$page}
    [ -e "$path" ] && [ -z "${anchors[$path]:-}" ] &&
        anchors[$path]=$(LC_ALL=C sed -n 's/^#\+ \(.*\)/\L\1/; T; s/[^a-z0-9 _-]//g; s/ /-/g; p' "$path")
    [[ -e $path && $'\n'${anchors[$path]}$'\n' == *$'\n'"$anchor"$'\n'* ]] && continue
    bad=$((bad + 1))
    echo "${page#"$root"/}: no heading #$anchor in ${path#"$root"/}"
done < <(grep -oE '\]\([^)#: ]*#[^) ]+' "$page" | sed 's,^](,,')

command=
while IFS= read -r line || [ -n "$line" ]; do
    text=${line#"${line%%[! ]*}"} # without its indentation
    indent=$((${#line} - ${#text}))
    if [[ $command == *\\ ]]; then
        command=${command%\\}$text
        continue
    fi
    if [ -n "$command" ] && { [[ -n $text && $indent -lt $depth ]] || [[ $text == '$ '* ]]; }; then
        run "$command"
        command=
    fi
    if [[ $indent -ge 4 && $text == '$ '* ]]; then
        command=${text#'$ '} depth=$indent
        : >"$work/said"
    elif [ -n "$command" ]; then
        printf '%s\n' "$line" >>"$work/said"
    fi
done <"$page"
[ -n "$command" ] && run "$command"
echo "${page#"$root"/}: $ran commands, $bad wrong"
[ "$bad" -eq 0 ]
