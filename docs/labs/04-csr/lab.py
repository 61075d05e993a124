# Lab 04: compressed sparse rows.  docs/labs/04-csr/README.md is its page.
#
#     attnlab grade 04 --exec 'python3 lab.py' --claims lab.json
#
# Copy this folder, write what is marked YOURS, and declare the conventions of your task in lab.json: plain=True brings
# layout, base of LSE and bytes of a mask to one form.
import sys

import attnlab
import numpy as np


def band(i, n_key, *, causal, window, offset, mask):
    """Keys [lo, hi) of query i: those that the numbers of a band leave, or all."""
    left, right = window or (-1, -1 if causal is None else 0)
    lo, hi = 0 if left < 0 else i + offset - left, n_key if right < 0 else i + offset + right + 1
    return min(max(lo, 0), n_key), min(max(hi, 0), n_key)


# q [Lq,d], k [Lk,d], v [Lk,dv] of query head h of batch b, which reads kv head h // (H / G).
# band(i, n_key, **mask) gives keys lo and hi: those that numbers leave to query i are [lo, hi), or all.
# attnlab.visible(b, h, (i0, i1), (j0, j1), **mask) gives the rectangle [i1 - i0, j1 - j0] of the mask.
def build(b, h, n_query, n_key, mask):
    """YOURS: row_start [Lq + 1] and column [visible pairs] of query head h: the elements of row i are
    column[row_start[i] : row_start[i + 1]], the keys that query i sees."""
    raise NotImplementedError("build() is not written yet")


def rows(q, k, v, scale, row_start, column, o, lse):
    """YOURS: o [Lq,dv] and lse [Lq], from the listed pairs alone.  o is 0 and lse -inf."""
    raise NotImplementedError("rows() is not written yet")


def attention(q, k, v, *, scale, **mask):
    o = np.zeros(q.shape[:3] + v.shape[3:], np.float32)
    lse = np.full(q.shape[:3], -np.inf, np.float32)
    for b, h in np.ndindex(q.shape[:2]):
        g = h // (q.shape[1] // k.shape[1])
        lists = build(b, h, q.shape[2], k.shape[2], mask)
        rows(q[b, h], k[b, g], v[b, g], np.float32(scale), *lists, o[b, h], lse[b, h])
    return o, lse


if __name__ == "__main__":
    with np.errstate(all="ignore"):
        attnlab.batch(*sys.argv[1:], attention, plain=True)
