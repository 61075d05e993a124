#!/usr/bin/env python3
"""Packed batches in numpy, as variable-length kernels take them.

    attnlab check --exec 'python3 docs/examples/numpy_packed.py' --claims docs/examples/numpy_packed.json

q, k and v are [T,H,d]: documents one behind the other, without padding.  cu_seqlens_q and cu_seqlens_k [n+1] say where
each begins; lse is [H,T].  Offset and window of a band count inside each document.  Here every document goes through
numpy_attention.py by itself: what a real kernel avoids, and what it must agree with.
"""
import sys

sys.dont_write_bytecode = True  # no __pycache__ beside the examples
import attnlab  # noqa: E402
import numpy as np  # noqa: E402
import numpy_attention as dense  # noqa: E402


def documents(call, tensors, *, cu_seqlens_q, cu_seqlens_k, causal, window, offset, **words):
    """Of each: its queries, its keys, and the results of call() on tensors [1,H,L,d] of it alone."""
    for q0, q1, k0, k1 in zip(cu_seqlens_q, cu_seqlens_q[1:], cu_seqlens_k, cu_seqlens_k[1:]):
        i, j = slice(q0, q1), slice(k0, k1)
        if q0 < q1:  # without a query nothing flows into its keys
            see = attnlab.visible(0, 0, (0, q1 - q0), (0, k1 - k0), causal=causal, window=window, offset=offset)
            one = {name: x[None, :, i] if "lse" in name else x[j if name in "kv" else i].swapaxes(0, 1)[None]
                   for name, x in tensors.items()}
            yield i, j, [x[0].swapaxes(0, -2) for x in call(**one, mask=see, **words)]


def attention(q, k, v, **words):
    o, lse = np.zeros(q.shape[:2] + v.shape[2:], q.dtype), np.zeros(q.shape[1::-1], q.dtype)
    for i, _, found in documents(dense.attention, {"q": q, "k": k, "v": v}, **words):
        o[i], lse[:, i] = found
    return o, lse


def backward(do, q, k, v, o, lse, dlse=None, **words):
    dq, dk, dv = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
    given = {"do": do, "q": q, "k": k, "v": v, "o": o, "lse": lse, **({} if dlse is None else {"dlse": dlse})}
    for i, j, found in documents(dense.backward, given, **words):
        dq[i], dk[j], dv[j] = found
    return dq, dk, dv


if __name__ == "__main__":
    attnlab.batch(sys.argv[1], sys.argv[2], attention, backward=backward)
