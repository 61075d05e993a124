#!/usr/bin/env bash
# Ranks that are processes: `run.sh build/release`, where attnlab, attnlab-mpi and mpi-tests are.
# Each line says what was found; the first that is not so ends the tests.  Several ranks share a core.
set -u
CDPATH="" cd -- "$(dirname -- "$0")/../../../.." || exit 4
B=$1
work=$(mktemp -d) || exit 4
trap 'rm -rf "$work"' EXIT
if [ "$(id -u)" = 0 ]; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi
on4() { mpirun --oversubscribe -n 4 "$@" 2>"$work/err"; }

fail() {
    echo "test-mpi: $1"
    head -20 "$work/err"
    exit 1
}
ok() { echo "ok    $1"; }

# Against the simulation, in one program: pieces, datatypes, schemes, failures.
on4 "$B/mpi-tests" || fail "mpi-tests"

# Rank 1 never posts: the others end the run, and say what they waited for.
on4 "$B/mpi-tests" lost && fail "a lost rank is not found"
line='1 of 4 ranks give no answer for 1.5 s: rank 1; rank 0 waits to send k (step 3) to rank 1; rank 2 waits to receive k (step 3) from rank 1'
grep -qF "$line" "$work/err" || fail "a lost rank: not the line '$line'"
ok "rank 1 never answers: $line"

# The program: the same bits in files, the same page of a layer, a case that is judged.
input=tests/data/gpt-causal.safetensors
echo '{"name": "kv", "claims": ["f32", "backward", "gqa", "cross", "dv", "causal", "scale", "kv-shared"]}' >"$work/kv.json"
"$B/attnlab" vectors "$work/vectors" --claims "$work/kv.json" --case kv-shared >"$work/out" || fail "vectors"
while read -r file n; do # n: tensors that are judged, those in the file too
    on4 "$B/attnlab-mpi" run usp:ranks=4 --input "$file" --out "$work/mpi" --compare >"$work/out" </dev/null || fail "run"
    "$B/attnlab" run usp:ranks=4 --input "$file" --out "$work/sim" || fail "run, simulated"
    cmp "$work/mpi/result.safetensors" "$work/sim/result.safetensors" || fail "run: other bits"
    [ "$(grep -c ' ok ' "$work/out")" = "$n" ] || fail "run --compare: not $n times ok"
done <<END
$work/vectors/kv-shared 4
$input 10
END
on4 "$B/attnlab-mpi" layer fastseq:ranks=4 >"$work/mpi.txt" || fail "layer"
"$B/attnlab" layer fastseq:ranks=4 >"$work/sim.txt" || fail "layer, simulated"
cmp "$work/mpi.txt" "$work/sim.txt" || fail "layer: another page"
ok "run and layer: the bits and the page of the simulation"
on4 "$B/attnlab-mpi" check zigzag 2>/dev/null && fail "a SPEC that is none"
on4 "$B/attnlab-mpi" check usp:ranks=4 --case ranks-causal --case sink-normal --case kv-shared >"$work/out" || fail "check"
grep -q '3 pass, 0 fail' "$work/out" || fail "check: no pass"
ok "check: $(tail -1 "$work/out")"

# Judged head by head, of very different sizes, and at once: the same errors and digests.  The home of
# video depends on the mask; with three tokens one of four ranks has none.
while read -r spec length mask; do
    for n in mpi sim; do
        run=on4; [ $n = sim ] && run=
        $run "$B/attnlab${run:+-mpi}" measure "$spec" --length "$length" --heads 4 --batch 2 --fill hetero --pass both \
            --mask "$mask" --rounds 1 --repeat 0 --quiet --out "$work/$n.jsonl" </dev/null || fail "measure of errors, $n"
        grep -oE '"(error_[a-z]*|digest)":[^,]*' "$work/$n.jsonl" >"$work/$n.errors"
        rm "$work/$n.jsonl"
    done
    cmp "$work/mpi.errors" "$work/sim.errors" || fail "$spec: other errors, or bits"
    [ "$(grep -c 'error.*:[0-9]' "$work/mpi.errors")" = 7 ] || fail "errors: not of o and lse, twice, and of dq dk dv"
    ok "errors of $spec: $(tail -7 "$work/mpi.errors" | tr '\n' ' ')"
done <<'END'
ring:ranks=4 64 none
ring:ranks=4 3 causal(br)
video:ranks=4,exchange=axis 64 temporal(8,8,1)
heads:ranks=4 64 none
END

# A process that ends by itself ends the run, and its reason is printed.
on4 sh -c "[ \$OMPI_COMM_WORLD_RANK != 1 ] || cd /; exec $(realpath "$B")/attnlab-mpi run ring:ranks=4 --input $input --compare" \
    >/dev/null && fail "a process that ends by itself"
grep -q 'rank 1 ended by itself: .*cannot be opened' "$work/err" || fail "a process that ends by itself: no reason"
ok "$(grep 'ended by itself' "$work/err")"

# Times decide nothing: that both are there, and the lines of a .cluster file.
on4 "$B/attnlab-mpi" cluster here ring:ranks=4 ulysses:ranks=3 --length 512 --heads 4 --pass both \
    >"$work/out" || fail "cluster here"
[ "$(grep -cE '^(exchange|hop|inside-latency|inside-bandwidth) = [0-9.e+-]+ ; source ' "$work/out")" = 4 ] ||
    fail "cluster here: $(cat "$work/out")"
[ "$(grep -cE 'measured [0-9.]+ [mu]?s, by the model [0-9.]+ [mu]?s, ratio [0-9.]+$' "$work/out")" = 6 ] ||
    fail "cluster here: $(cat "$work/out")"
"$B/attnlab" cluster here ring --length 64 >"$work/out" 2>"$work/err" && fail "cluster here of one process"
grep -q 'mpirun -n 4 attnlab-mpi cluster here' "$work/err" || fail "cluster here of one process: $(cat "$work/err")"
ok "cluster here: times of messages beside the model's"

# Numbers of a record, of ranks 0 to 3: shards, price, resident in the call, resident of all.
numbers() { grep -o "\"$1\":\[[^]]*" "$work/point" | sed 's/.*\[//; s/,/ /g'; }
number() { grep -o "\"$1\":[0-9]*" "$work/point" | sed 's/.*://'; }
on4 "$B/attnlab-mpi" measure ring:ranks=4 --length 14336 --heads 32 --kv-heads 4 --mask 'window(63,63,br)' \
    --rounds 1 --repeat 0 --quiet --out "$work/records.jsonl" || fail "measure"
grep '"record":"point"' "$work/records.jsonl" >"$work/point"
grep -q '"status":"ok".*"verdict":"PASS"' "$work/point" || fail "measure: $(cat "$work/point")"
[ "$(number hwm_reset)" = 1 ] || { echo "skip  resident memory: VmHWM cannot be reset here"; exit 0; }
whole=$(number floor_bytes)
for share in $(numbers rank_process_bytes); do
    [ $((2 * share)) -lt "$whole" ] || fail "a process had $share bytes of $whole: half of the whole"
done
ok "of $whole bytes of tensors, judged by $(grep -o '[0-9]* rows' "$work/point"), processes have had $(numbers rank_process_bytes)"
paste <(numbers rank_priced_bytes | tr ' ' '\n') <(numbers rank_resident_bytes | tr ' ' '\n') |
    awk '{ off = $2 - $1; most = 0.02 * $1 + 262144 # pages of the library of MPI
           if (off > most || off < -most) exit 1 }' ||
    fail "priced $(numbers rank_priced_bytes), resident $(numbers rank_resident_bytes)"
ok "priced $(numbers rank_priced_bytes), resident $(numbers rank_resident_bytes)"
