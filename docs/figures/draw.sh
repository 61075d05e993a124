#!/bin/bash
# Draws the figures of the chapters: NAME.csv, by attnlab, and NAME.svg and NAME.pdf of it, by
# plots/*.gp.  `make figures` puts them here, `make course` beside its pages.
#
#     docs/figures/draw.sh BUILD OUT [KEYS]
#
# KEYS is the largest number of keys that half-error judges (2048): a test asks for less.
set -eu -o pipefail
attnlab=$(realpath -- "$1/attnlab") out=$(realpath -m -- "$2") most=${3:-2048}
CDPATH="" cd -- "$(dirname -- "$0")/../.."
mkdir -p "$out"

# masks: pictures of attnlab, as runs of visible keys.
masks() {
    echo mask,queries,keys,query,first,end
    while read -r mask size; do
        # shellcheck disable=SC2086 # the size is two words or four
        "$attnlab" list masks --mask "$mask" $size | awk -v mask="$mask" '
            NR > 1 { row[NR - 2] = $0; n = NR - 1 }
            END {
                gsub(/,/, ";", mask)
                for (i = 0; i < n; i++)
                    for (end = 0; match(substr(row[i], end + 1), /#+/); end = first + RLENGTH) {
                        first = end + RSTART - 1
                        printf "%s,%d,%d,%d,%d,%d\n", mask, n, length(row[i]), i, first, first + RLENGTH
                    }
            }'
    done <<'MASKS'
causal(tl) --length 8 --keys 12
causal(br) --length 8 --keys 12
causal(br)&window(3,0,br) --length 12
causal(tl)|prefix(4) --length 12
documents(3,5,4)&causal(tl) --length 12
spatial(3,2,2) --length 12
temporal(3,2,2) --length 12
random(0.25,1) --length 12
MASKS
}

# ring-holders: the messages of a pass, followed from hop to hop.
ring_holders() {
    echo panel,across,down,number,text,across_name,down_name
    "$attnlab" price ring-textbook:ranks=4 --length 16 --log "$out/messages" >"$out/price"
    tr -d '{}"' <"$out/messages" | tr ':' ',' | awk -F, -v n=4 '
        $6 == "k" { gets[$4 "," $10] = $8; hops = $4 > hops ? $4 : hops }
        END {
            for (r = 0; r < n; r++) has[r] = r
            for (s = 0; s <= hops + 1; s++) {
                for (r = 0; r < n; r++)
                    printf "\"ring: K and V of a rank\",%d,%d,%d,K%d V%d,hop,rank\n", s, r, has[r], has[r], has[r]
                for (r = 0; r < n; r++) next_has[r] = has[gets[s "," r]]
                for (r = 0; r < n; r++) has[r] = next_has[r]
            }
        }'
    "$attnlab" price ulysses-textbook:ranks=4 --length 16 --heads 4 --log "$out/messages" >"$out/price"
    tr -d '{}"' <"$out/messages" | tr ':' ',' | awk -F, -v n=4 '
        BEGIN { for (t = 0; t < n; t++) to[t "," t] = t }
        $6 == "q" { to[$8 "," $10] = $10 }
        END {
            for (t = 0; t < n; t++) for (h = 0; h < n; h++)
                printf "\"Ulysses: at home\",%d,%d,%d,rank %d,head,quarter of the tokens\n", h, t, t, t
            for (t = 0; t < n; t++) for (h = 0; h < n; h++)
                printf "\"Ulysses: in attention\",%d,%d,%d,rank %d,head,quarter of the tokens\n", h, t, to[t "," h], to[t "," h]
        }'
    rm "$out/messages" "$out/price"
}

# layer-bytes: what the schemes around a layer send, counted, in bytes of x: a unit is (R - 1) / R^2.
layer_bytes() {
    echo curve,x,y
    local scheme ranks
    for scheme in fastseq ulysses ring; do
        for ranks in 2 4 8 16; do
            "$attnlab" layer "$scheme:ranks=$ranks" --pass fwd --length 64 --heads 16 --format json |
                awk -v s="$scheme" -v r="$ranks" '
                    $1 == "\"units\":" && !n++ { print s "," r "," $2 * (r - 1) / (r * r) }'
        done
    done
}

# online: a tile of queries meets its keys.
online() {
    echo key,name,query,value
    "$attnlab" explain tiled-textbook:br=4,bc=2 --length 16 --fill normal --only tile.update --format md |
        awk -F ' *[|] *' -v keys=2 '
            $2 == "i" { for (c = 4; c <= 7; c++) name[c] = $c; key = keys * tiles++ }
            $2 ~ /^[0-3]$/ { for (c = 4; c <= 7; c++) print key "," name[c] "," $2 "," $c }' # m to the first o
}

# live-bytes: what is taken and given back, each buffer on those that were there before it; a line for each
# buffer and height at which it lies, over the events first to end.
live_bytes() {
    echo panel,first,end,buffer,place,from,to,backward
    local spec
    for spec in dense gemm:save=probs@portable tiled-textbook; do
        "$attnlab" explain "$spec" --memory --length 1024 --heads 1 --dim 64 --mask 'causal(br)' --pass bwd --format md |
            awk -F ' *[|] *' -v spec="$spec" '
                BEGIN { events = lines = high = places = 0 }
                /^## Backward/ { backward = events }
                { bytes = $4; gsub(",", "", bytes) }
                bytes + 0 == 0 { next }
                bytes > 0 { name[++high] = $3; size[high] = bytes; if (!($3 in place)) place[$3] = places++ }
                bytes < 0 {
                    for (k = high; name[k] != $3; k--) continue
                    for (high--; k <= high; k++) { name[k] = name[k + 1]; size[k] = size[k + 1] }
                }
                {
                    split("", now); at = 0
                    for (k = 1; k <= high; k++) {
                        now[name[k] "," place[name[k]] "," at "," at + size[k]] = 1
                        at += size[k]
                    }
                    for (run in now) if (!(run in begun)) begun[run] = events
                    for (run in begun) if (!(run in now)) { line[lines++] = begun[run] "," events "," run; delete begun[run] }
                    events++
                }
                END {
                    for (run in begun) line[lines++] = begun[run] "," events "," run
                    for (k = 0; k < lines; k++) print spec "," line[k] "," backward
                }' | sort -t, -k2,2n -k6,6n
    done
}

# half-error: how much of its bound each arithmetic uses, each by its own bound.
half_error() {
    echo curve,x,y
    local output name spec type keys
    for output in o dk; do
        while IFS=, read -r name spec type; do
            for keys in 64 128 256 512 1024 2048; do
                [ "$keys" -le "$most" ] || break
                "$attnlab" check "$spec@portable" --case "q256k${keys}d64:none:$type:normal:s1:pass=bwd" |
                    awk -v o="$output" -v c="$name" -v k="$keys" '$1 == o { print c ": " o "," k "," $2 }'
            done
        done <<'SPECS'
f32,tiled,f32
bf16 widened,tiled,bf16
bf16 products,tiled:p=bf16,bf16
SPECS
    done
}

draw() { # NAME SCRIPT SETTINGS: from what the function of that name prints
    "${1//-/_}" >"$out/$1.csv"
    gnuplot -e "name = '$out/$1'; ${3:-}" "plots/$2.gp"
}
draw masks mask-sheet
draw ring-holders holders
draw layer-bytes curves "title = 'Bytes that a rank sends in a forward pass, counted'; x_label = 'ranks R'; y_label = 'bytes of x'"
draw online online "tile = 2"
draw live-bytes live-bytes
draw half-error curves "title = 'Largest error over its bound'; x_label = 'keys'; y_label = 'error / bound'"
