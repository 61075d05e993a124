#!/usr/bin/env bash
# The words of the Makefile about itself, and that clones of one commit build one program, which names the
# build of a record (experiments/measure/machine.c): an object is the same in any folder, whatever it is
# called and whatever link led there, and a version is as long in any clone.
#
#       tests/make.sh BUILD FOLDER
set -eu
# Before git is given another setting: the program would be built again, beneath the tests that run.
make -s CONFIG="${1##*/}" check SPEC=dense CASE='q4d2:none:f32:normal:s1' | grep -q ' 1 pass, 0 fail'

tree=$PWD object=build/${1##*/}/experiments/measure/machine.o folder=$(realpath "$2")
export CCACHE_DISABLE=1 GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=core.abbrev GIT_CONFIG_VALUE_0

targets=$(make -s help | awk '$1 == "make" { print $2 }')
diff <(echo "$targets") <(sed -nE 's/^([^ :]+):.* ## .*/\1/p' Makefile) ||
    { echo "make help and the targets with ## differ" && exit 1; }
make -n $targets >"$folder/dry" 2>&1 || { tail -3 "$folder/dry" && exit 1; } # a target that needs what is gone

ln -s "an=other's clone" "$folder/link"
for clone in one "an=other's clone"; do
    mkdir -p "$folder/$clone/build"
    ln -s "$tree"/{.ci,CHANGELOG.md,LICENSE,Makefile,docs,experiments,optimized,plots,ref,tests} "$folder/$clone/"
    touch "$folder/$clone/build/.ready"
done
for at in one link; do
    (cd "$folder/$at" && make -s CONFIG="${1##*/}" "$object" >/dev/null)
done
cmp "$folder"/{one,link}/"$object"

# Students get each lab, and no answer.
(cd "$folder/one" && make -s student >/dev/null)
(cd "$folder/one/build/student" && ls docs/labs/*/lab.c && [ ! -e docs/answers.md ]) >"$folder/labs"
diff "$folder/labs" <(ls docs/labs/*/lab.c)

for GIT_CONFIG_VALUE_0 in 8 20; do
    make -s B="$folder/$GIT_CONFIG_VALUE_0" "$folder/$GIT_CONFIG_VALUE_0/version.h"
done
cmp "$folder"/{8,20}/version.h
