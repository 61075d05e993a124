#!/bin/bash
# Draws the figures of docs/figures, and those of the course at 16 and 32 tokens, and makes the pages of
# the course from them.
#
#     tests/figures.sh BUILD FOLDER
#
# A label or a column that has another name in the program, in draw.sh or in a script of gnuplot leaves
# a file that differs, or gnuplot complains.  Not compared: values that rounding leaves, and pictures of
# another gnuplot.  Test studies draws those of docs/studies, test peak the roofline.
set -eu -o pipefail
build=$(realpath -- "$1") out=$(realpath -- "$2")
said=$(bash docs/figures/draw.sh "$build" "$out/chapters" 128 2>&1) || { echo "$said"; exit 1; }
[ -z "$said" ] || { echo "$said"; exit 1; }
for csv in "$out"/chapters/*.csv; do
    name=$(basename "$csv" .csv) columns=1-
    [ "$name" = online ] && columns=1-3     # without the value
    [ "$name" = half-error ] && columns=1-2  # for fewer keys
    new=$(cut -d, -f$columns "$csv" | grep -vxF -f <(cut -d, -f$columns "docs/figures/$name.csv") || true)
    [ -z "$new" ] || { printf '%s.csv: not in docs/figures:\n%s\n' "$name" "$new"; exit 1; }
    [ $columns = 1- ] || continue
    cmp "$csv" "docs/figures/$name.csv"
    if grep -q "GNUPLOT $(gnuplot --version | cut -d' ' -f2-)<" "docs/figures/$name.svg"; then
        sed -E -z -f plots/small.sed "${csv%.csv}.svg" | cmp - "docs/figures/$name.svg"
    fi
done

sed -E 's/^(  length = ).*/\116 32/; s/^(rounds|repeat) .*/\1 = 1/; s/^(budget|timeout) .*/\1 = 3600/' \
    experiments/plans/course.plan >"$out/small.plan"
"$build/attnlab" report --plan "$out/small.plan" --out "$out/course" >"$out/said" 2>&1 || { cat "$out/said"; exit 1; }
while read -r name; do
    [ "$name" = roofline ] || [ -s "$out/course/figures/$name.svg" ] || { echo "no figure $name"; exit 1; }
done < <(grep -rhoE '^<!-- figure [a-z-]+' docs | cut -d' ' -f3)

cp docs/studies/*.svg docs/studies/*.csv "$out/chapters/"
touch "$out/course/figures/roofline.pdf" "$out/course/figures/roofline.svg"
ANSWERS=no bash docs/course/build.sh "$out/course" "$out/chapters" "$out/pages" >"$out/said" 2>&1 || { cat "$out/said"; exit 1; }
! grep -rl '<details' "$out/pages/docs" || { echo "pages without answers have some"; exit 1; }
