#!/bin/bash
# Writes a repository for students: `make student`.
#
#     docs/labs/student.sh OUT
#
# OUT gets the pages and skeletons of the labs, what these include and import, the chapters, and a
# workflow for GitHub Classroom; no solution, no answer and no example.
set -eu -o pipefail
out=$(realpath -m -- "$1")
CDPATH="" cd -- "$(dirname -- "$0")/../.."
rm -rf "$out" && mkdir -p "$out/.github/workflows"
cp --parents -r LICENSE docs/*.md docs/labs ref "$out"
rm "$out/docs/answers.md" "$out/docs/teaching.md" "$out/docs/labs/student.sh" "$out/docs/labs/classroom.yml"
cp experiments/rim/python/attnlab.py "$out"
cp docs/labs/classroom.yml "$out/.github/workflows/labs.yml"
mv "$out/docs/labs/README.md" "$out/README.md"
sed -i -E 's,\]\(\.\./,](docs/,g; s,\]\(([0-9]),](docs/labs/\1,g' "$out/README.md"
echo "$out"
