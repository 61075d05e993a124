#!/usr/bin/env bash
# run.sh BUILD TARGET SECONDS: fuzz one target, from the corpus in the tree and what earlier runs
# found.  One line when all is well; else the finding, the way to see it again, and status 1.
set -u
build=$1 target=$2 seconds=$3
CDPATH="" cd -- "$(dirname -- "$0")/../.." || exit 4

mkdir -p "$build/corpus/$target" "$build/findings" || exit 3
log=$build/fuzz-$target.log
"$build/attn-fuzz" "$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=1024 \
    -print_final_stats=1 -use_value_profile=1 -artifact_prefix="$build/findings/$target-" \
    "$build/corpus/$target" "tests/fuzz/corpus/$target" >"$log" 2>&1
status=$?
runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
edges=$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$log" | tail -1)
if [ "$status" -eq 0 ] && [ -n "$runs" ]; then
    printf 'fuzz %-12s %10s inputs in %s s, %s edges, no finding\n' "$target" "$runs" "$seconds" "$edges"
    exit 0
fi
found=$(sed -n 's/.*Test unit written to //p' "$log" | tail -1)
printf 'fuzz %-12s FINDING after %s inputs; see %s\n' "$target" "${runs:-?}" "$log"
grep -E "^attn-fuzz|runtime error|ERROR: |SUMMARY: " "$log" | head -5
[ -n "$found" ] && echo "again: $build/attn-fuzz $target $found"
exit 1
