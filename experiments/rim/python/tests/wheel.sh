#!/bin/bash
# A wheel, unpacked by hand into an environment without pip, judges five lines of numpy.
#
#     wheel.sh BUILD FOLDER
set -eu -o pipefail
build=$1 at=$(realpath -- "$2")
python=/usr/bin/python3
for tool in ldd objdump dpkg; do
    command -v $tool >/dev/null || { echo "skipped: $tool"; exit 0; }
done
make -s CONFIG="${build##*/}" WHEEL="$at" wheel >"$at/said" 2>&1 || { cat "$at/said"; exit 1; }
cd "$at"
$python -m venv --without-pip --system-site-packages env
site=$(echo env/lib/python3*/site-packages)
$python -m zipfile -e attnlab-*.whl "$site"
chmod +x "$site/attnlab_program/attnlab" # zipfile forgets modes, which pip keeps
ldd "$site/attnlab_program/attnlab" | awk '$3 ~ /^\// && $3 !~ /attnlab_program\/lib/ { print $1 }' >outside
! grep -vE '^(lib(c|m|dl|rt|pthread|resolv)\.so|/?ld-)' outside || { echo "not in the wheel, above"; exit 1; }
$python - "$site" <<'RECORD'
import base64, csv, glob, hashlib, sys
rows = list(csv.reader(open(glob.glob(sys.argv[1] + "/attnlab-*/RECORD")[0])))
assert len(rows) > 12, rows
for name, digest, size in rows:
    data = open(sys.argv[1] + "/" + name, "rb").read()
    own = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    assert name.endswith("RECORD") or (digest, int(size)) == ("sha256=" + own, len(data)), name
RECORD
cat >five.py <<'LINES'
import attnlab
import numpy as np
def attention(q, k, v, *, scale):
    p = np.exp(np.float32(scale) * (q @ k.swapaxes(-1, -2)))
    return p @ v / p.sum(axis=-1, keepdims=True)
print(attnlab.program(), attnlab.check(attention, cases="q8d8:none:f32:normal:s1").require().verdict)
LINES
env -u PYTHONPATH -u ATTNLAB -u LD_LIBRARY_PATH env/bin/python five.py 2>&1 | grep -q "attnlab_program/attnlab PASS" ||
    { env -u PYTHONPATH -u ATTNLAB env/bin/python five.py; exit 1; }
