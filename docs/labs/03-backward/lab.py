# Lab 03: the backward pass, with query heads that share keys and values.  docs/labs/03-backward/README.md is its page.
#
#     attnlab grade 03 --exec 'python3 lab.py' --claims lab.json
#
# Copy this folder, write backward(), and declare the conventions of your task in lab.json: plain=True brings layout,
# base of LSE and bytes of a mask to one form.
import sys

import attnlab
import numpy as np


# q [B,H,Lq,d], k [B,G,Lk,d], v [B,G,Lk,dv].  Query head h reads kv head h // (H / G).
def of_heads(x, q):  # [B,H,...]: each query head its own copy
    return np.repeat(x, q.shape[1] // max(x.shape[1], 1), axis=1)


def scores(q, k, scale, mask):  # [B,H,Lq,Lk], -inf where hidden
    s = np.float32(scale) * (q @ of_heads(k, q).swapaxes(-1, -2))
    return s if mask is None else np.where(mask, s, np.float32(-np.inf))


def attention(q, k, v, *, scale, mask=None):
    s = scores(q, k, scale, mask)
    m = s.max(axis=-1, keepdims=True, initial=-np.inf)
    p = np.exp(s - np.where(m == -np.inf, 0, m))  # 0 in a row that sees no key
    l = p.sum(axis=-1, keepdims=True)
    return p @ of_heads(v, q) / np.where(l == 0, 1, l), (m + np.log(l))[..., 0]


def backward(do, q, k, v, o, lse, *, scale, mask=None, dlse=None):
    """YOURS: dq as q, dk as k, dv as v.  do is [B,H,Lq,dv], dlse [B,H,Lq] if there is one.  o and lse are what
    attention() returned; a row of lse is -inf where a query sees no key."""
    raise NotImplementedError("backward() is not written yet")


if __name__ == "__main__":
    with np.errstate(all="ignore"):
        attnlab.batch(*sys.argv[1:], attention, backward=backward, plain=True)
