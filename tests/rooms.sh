#!/bin/bash
# Deletes each room of the rim in a copy of the tree, with its lines in commands.def and with the rooms
# that include it, and builds the program and its tests from the objects of BUILD.
#
#     tests/rooms.sh BUILD FOLDER [ROOM...]
set -eu -o pipefail
build=$(realpath -- "$1") out=$(realpath -- "$2")
config=${build##*/}
cd -- "$(dirname -- "$0")/.."
shift 2
version=$(sed -n 's/.*ATTN_VERSION "\(.*\)"/\1/p' "$build/version.h")

# A room, and those that cannot be without it.
with_those_that_need() {
    local rooms=" $1 " room other
    for room in $1 $(ls experiments/rim) $(ls experiments/rim); do
        [[ $rooms == *" $room "* ]] || continue
        for other in $(grep -rlE "^ *# *include \"experiments/rim/$room/" experiments/rim | cut -d/ -f3 | sort -u); do
            [[ $rooms == *" $other "* ]] || rooms+="$other "
        done
    done
    echo "$rooms"
}

for room in "${@:-$(ls experiments/rim)}"; do
    for one in $room; do
        copy=$out/$one gone=$(with_those_that_need "$one")
        mkdir -p "$copy/build"
        git ls-files -z | xargs -0 tar c --ignore-failed-read 2>/dev/null | tar xC "$copy"
        cp -a "$build/../".ready* "$copy/build/"
        cp -a "$build" "$copy/build/$config"
        for other in $gone; do
            for command in "$copy/experiments/rim/$other"/cmd_*.c; do
                command=${command##*/cmd_} && sed -i "/ATTN_COMMAND(${command%.c})/d" "$copy/experiments/cli/commands.def"
            done
            rm -r "$copy/experiments/rim/$other"
            rm -rf "$copy/build/$config/experiments/rim/$other" # no objects where it was not built
        done
        make -s -C "$copy" CONFIG="$config" VERSION="$version" "build/$config/attnlab" "build/$config/attn-tests" \
            >"$out/said" 2>&1 || { echo "without $gone:"; tail -20 "$out/said"; exit 1; }
        make -n -C "$copy" CONFIG="$config" VERSION="$version" test >"$out/said" 2>&1 ||
            { echo "make test without $gone:"; tail -5 "$out/said"; exit 1; }
        "$copy/build/$config/attnlab" list implementations >/dev/null
        rm -r "$copy"
        echo "ok    without$gone"
    done
done
