# Lab 06: attention in tiles, forward and backward.  docs/labs/06-tiled/README.md is its page.
#
#     attnlab grade 06 --exec 'python3 lab.py' --claims lab.json
#
# Copy this folder, write what is marked YOURS, and declare the conventions of your task in lab.json: plain=True brings
# layout, base of LSE and bytes of a mask to one form.
import sys

import attnlab
import numpy as np

BR, BC = 64, 64  # queries and keys of a tile


# q [B,H,Lq,d], k [B,G,Lk,d], v [B,G,Lk,dv], do [B,H,Lq,dv].  Query head h reads kv head h // (H / G).
def tiles(n, size):  # [(0, size), (size, 2 size), ...]; the last one may be shorter
    return [(at, min(at + size, n)) for at in range(0, n, size)]


def tile_scores(q, k, scale, b, h, i0, i1, j0, j1, mask):  # [i1 - i0, j1 - j0], -inf where hidden
    g = h // (q.shape[1] // k.shape[1])
    s = np.float32(scale) * (q[b, h, i0:i1] @ k[b, g, j0:j1].T)
    return np.where(attnlab.visible(b, h, (i0, i1), (j0, j1), **mask), s, np.float32(-np.inf))


def attention(q, k, v, *, scale, **mask):
    """YOURS: o [B,H,Lq,dv] and lse [B,H,Lq], -inf where a query sees no key.  No other array may have a row for each
    query or a place for each key."""
    raise NotImplementedError("attention() is not written yet")


def backward(do, q, k, v, o, lse, *, scale, **mask):
    """YOURS: dq as q, dk as k, dv as v.  o and lse are what attention() returned.  One number for each query is the
    only other array that may grow with the length."""
    raise NotImplementedError("backward() is not written yet")


if __name__ == "__main__":
    with np.errstate(all="ignore"):
        attnlab.batch(*sys.argv[1:], attention, backward=backward, plain=True)
