#!/usr/bin/env bash
# make install into an empty folder: what is there, and that programs in C, C++ and Python which know
# nothing of the tree run with it.  A tool that is missing here is said and skipped.
#
#       tests/install.sh BUILD FOLDER
set -eu
build=$1 root=$(realpath -- "$2")/root prefix=/opt/attnlab
export PKG_CONFIG_PATH=$root$prefix/lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=$root
examples=$PWD/docs/examples

fail() {
    echo "tests/install.sh: $*"
    exit 1
}

mkdir -p "$root/opt/attnlab/lib" # these stay; nothing else does
before=$(find "$root")
make -s CONFIG="${build##*/}" PREFIX=$prefix DESTDIR="$root" install
there=$root$prefix
for file in bin/attnlab lib/libattn.a lib/libattn.so lib/pkgconfig/attnlab.pc \
    include/attnlab/ref/attn.h share/man/man1/attnlab-price.1 share/man/man1/attnlab.1 share/attnlab/plots/style.gp \
    share/bash-completion/completions/attnlab; do
    [ -s "$there/$file" ] || fail "$file is missing or empty"
done
if [ -e experiments/rim/python ] && command -v python3 >/dev/null; then
    ls "$there"/lib/python3*/*-packages/attnlab.py "$there"/lib/python3*/*-packages/attnlab-*/RECORD >/dev/null
fi
[ ! -e "$there/share/man/man1/attnlab-worker.1" ] || fail "a page for an internal command"
cd "${root%/root}" # away from the tree
read -ra flags < <(pkg-config --cflags --libs attnlab)
read -ra static < <(pkg-config --static --libs attnlab | sed "s/-lattn//")
read -ra cflags < <(pkg-config --cflags attnlab)

# Row 0 of causal attention sees key 0, whose value is 0.
want=
expect() { # COMMAND...
    local got
    got=$(LD_LIBRARY_PATH=$there/lib "$@") || fail "$*: status $?"
    [[ $got == 'o[0] 0.000000, '* ]] || fail "$*: $got"
    [ "$got" = "${want:=$got}" ] || fail "$* says $got, not $want"
}
gcc -Wall -Wextra -Werror -o call "$examples/call.c" "${flags[@]}"
expect ./call
gcc -o call-static "$examples/call.c" "${cflags[@]}" "$there/lib/libattn.a" "${static[@]}"
expect ./call-static
if command -v g++ >/dev/null; then
    g++ -std=c++11 -Wall -Wextra -Werror -o call-cpp "$examples/call.cpp" "${flags[@]}"
    expect ./call-cpp
    for header in $(cd "$there/include/attnlab" && find . -name '*.h'); do
        echo "#include \"$header\""
    done >all.cc
    g++ -std=c++11 -Wall -Wextra -Werror "${cflags[@]}" -fsyntax-only all.cc
else
    echo "skipped: C++"
fi
if command -v python3 >/dev/null; then
    expect python3 "$examples/call.py" "$there/lib/libattn.so"
else
    echo "skipped: Python"
fi

# Both libraries have what the headers declare and nothing else, but for what a plug-in is to define.
(cd "$there/include/attnlab" && find . -name '*.h') | sed 's/.*/#include "&"/' >all.c
CCACHE_DISABLE=1 gcc "${cflags[@]}" -fsyntax-only -aux-info prototypes all.c
sed -n 's/^[^(]* extern [^(]*[ *]\(attn_[a-z0-9_]*\) (.*/\1/p' prototypes |
    grep -vx attn_plugin_get | sort -u >declared
nm -D --defined-only "$there/lib/libattn.so" | awk '{ print $3 }' | sort | diff declared - || fail "libattn.so"
nm -g --defined-only "$there/lib/libattn.a" | awk 'NF == 3 { print $3 }' | sort | diff declared - || fail "libattn.a"

# A prefix off the search paths: what install says at its end is enough for the lines of README.md.
make -s -C "${examples%/docs/examples}" CONFIG="${build##*/}" PREFIX="$PWD/home" install >lines
(
    set +u
    unset PKG_CONFIG_PATH PKG_CONFIG_SYSROOT_DIR
    eval "$(cat lines)"
    cp "$examples"/call.c* .
    sed -n '/^## Use as a library/,/^## /s/^    \(\(cc\|c++\) call\..*\)/\1 \&\& .\/a.out/p' "${examples%/docs/examples}/README.md" >run
    [ "$(grep -c pkg-config run)" = 2 ] || fail "README.md has other lines"
    command -v c++ >/dev/null || sed -i '/^c++/d' run
    bash -e run | grep -c '^o\[0\] 0.000000, ' | grep -qx "$(grep -c . run)" && attnlab --version
) >said 2>&1 || fail "off the search paths: $(cat lines said)"

# A plug-in that compiles from anywhere, judged by the installed program.
gcc -shared -fPIC -o naive.so "$examples/plugin_naive.c" "${cflags[@]}" -lm
"$there/bin/attnlab" check --plugin ./naive.so --case q8d8:none:f32:normal:s1 >/dev/null 2>&1 || fail "the plug-in"
if command -v gnuplot >/dev/null; then
    printf '%s\n' 'rounds = 1' 'repeat = 1' 'group length-x' ' spec = dense' ' length = 8 16' >small.plan
    "$there/bin/attnlab" report --quiet --plan small.plan --out report >said 2>&1 || fail "report: $(cat said)"
else
    echo "skipped: report"
fi
# shellcheck source=/dev/null
. "$there/share/bash-completion/completions/attnlab"
COMP_WORDS=(attnlab price --pass b) COMP_CWORD=3
_attnlab
[ "${COMPREPLY[*]}" = "bwd both" ] || fail "completion of --pass b: ${COMPREPLY[*]}"
if command -v man >/dev/null && man --version 2>/dev/null | grep -q man-db; then
    LC_ALL=C man --warnings=w -l "$there/share/man/man1/attnlab-check.1" 2>warnings >/dev/null
    [ ! -s warnings ] || fail "$(head -3 warnings)"
fi

make -s -C "${examples%/docs/examples}" PREFIX=$prefix DESTDIR="$root" uninstall
diff <(echo "$before") <(find "$root") || fail "uninstall leaves other folders than there were"
