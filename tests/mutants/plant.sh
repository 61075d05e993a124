#!/usr/bin/env bash
# Plant one mutant: plant.sh ID OUT.so LIBRARY.o, with CC, FLAGS and LDFLAGS from the Makefile.
#
# The changed file goes to a folder of its own that is searched before the tree, the source that
# uses it is compiled again, and the library is linked behind it into a shared object: of two
# definitions the first counts.  Kernels are compiled in one arithmetic: float, or double for a
# UNIT that ends in :64.  Those of the other one are the library's.
set -eu
id=$1 out=$2 library=$3 dir=${2%.so}.src
def=$(grep -l "^$id " tests/mutants/mutants.def tests/mutants/layer.def)

read -r _ _ unit file < <(grep "^$id " "$def"; echo)
file=${file:-$unit}
bits=${unit#*:} unit=${unit%:*}
rm -rf "$dir"
mkdir -p "$dir/$(dirname "$file")" "$dir/$(dirname "$unit")"
[ "$file" = "$unit" ] || cp "$unit" "$dir/$unit"

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

only=''
if [ "$unit" = optimized/simd/portable.c ]; then
    [ "$bits" = 64 ] || bits=32
    only=-DONLY_BITS=$bits
fi
flags=${FLAGS/-MMD -MP/}
# shellcheck disable=SC2086
$CC -I"$dir" $flags $only -O0 -g0 -w -c -o "$dir/unit.o" "$dir/$unit"
# shellcheck disable=SC2086
$CC $flags $LDFLAGS -s -shared -Wl,-Bsymbolic,-z,muldefs -o "$out" "$dir/unit.o" "$library" -lm
