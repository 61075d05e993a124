#!/usr/bin/env bash
# Plant one mutant: plant.sh ID OUT.so, with CC, FLAGS, LDFLAGS, B and LIB_OBJ from the Makefile.
#
# The changed file goes to a folder of its own that is searched before the tree, the source that
# uses it is compiled again, and the library is linked around it as a shared object.  Some files are
# used by several sources: UNIT is optimized/simd/*.c for a template of the kernels, and has commas
# for a textbook, which is compiled in float and in double.
set -eu
id=$1 out=$2 dir=${2%.so}.src
def=tests/mutants/mutants.def
FLAGS_avx2=${FLAGS_avx2-} FLAGS_avx512=${FLAGS_avx512-} # of the kernels, from the Makefile

read -r _ _ unit file < <(grep "^$id " "$def"; echo)
file=${file:-$unit}
rm -rf "$dir"
# shellcheck disable=SC2206 # patterns
units=(${unit//,/ })
mkdir -p "$dir/$(dirname "$file")" "$dir/$(dirname "${units[0]}")"
[ "$file" = "$unit" ] || cp "${units[@]}" "$dir/$(dirname "${units[0]}")"

awk -v id="$id" -v file="$file" '
function fragment(line) { sub(/^  . /, "", line); gsub(/\\n/, "\n", line); return line }
FNR == NR {
    if ($1 == id) mine = 1
    else if (/^[A-Z]/) mine = 0
    else if (mine && /^  - /) from = fragment($0)
    else if (mine && /^  \+ /) to = fragment($0)
    next
}
{ text = text $0 "\n" }
END {
    at = index(text, from)
    rest = substr(text, at + length(from))
    if (from == "" || at == 0 || index(rest, from) > 0) {
        printf "mutant %s: its fragment must occur once in %s:\n%s\n", id, file, from > "/dev/stderr"
        exit 1
    }
    printf "%s%s%s", substr(text, 1, at - 1), to, rest
}' "$def" "$file" > "$dir/$file"

objects=" $LIB_OBJ "
for u in "${units[@]}"; do
    more=
    case $u in
    optimized/simd/avx2.c) more=$FLAGS_avx2 ;;
    optimized/simd/avx512.c) more=$FLAGS_avx512 ;;
    esac
    # shellcheck disable=SC2086
    $CC -I"$dir" ${FLAGS/-MMD -MP/} $more -O0 -g0 -w -c -o "$dir/$(basename "$u").o" "$dir/$u"
    objects=${objects/" $B/${u%.c}.o "/" $dir/$(basename "$u").o "}
done
# shellcheck disable=SC2086
$CC ${FLAGS/-MMD -MP/} $LDFLAGS -s -shared -Wl,-Bsymbolic -o "$out" $objects -lm
