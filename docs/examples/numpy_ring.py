#!/usr/bin/env python3
"""A ring of ranks in numpy, forward and backward, all ranks in one process; judged step by step.

    attnlab vectors --scheme ring:ranks=4,order=zigzag DIR \\
        --case 'b1h4g2q64k64d16:causal(br):f32:normal:s1:pass=bwd'
    python3 docs/examples/numpy_ring.py DIR OUT
    attnlab check --results OUT --vectors DIR

torch_ring.py runs the same ranks in processes; lab 08 (docs/labs) is this one, to be written.
"""
import functools
import sys

import attnlab
import numpy as np


def scores(case, q, k, i, j):
    """Of a block of pairs.  i, j: the tokens' places in the whole sequence, which the mask speaks of."""
    s = case["scale"] * (q @ k.swapaxes(-1, -2))
    if case["mask"] == "band":
        left, right = case["window_left"], case["window_right"]
        distance = j - i[:, None] - case["offset"]
        s = np.where((distance < -left) & (left >= 0) | (distance > right) & (right >= 0), -np.inf, s)
    return s


def weights(s, lse):
    """exp(s - lse); 0 where no key is visible."""
    return np.exp(s - np.where(np.isinf(lse), 0, lse))


def attend(s, v):
    """O and LSE of a block alone."""
    m = s.max(axis=-1, keepdims=True, initial=-np.inf)
    p = weights(s, m)
    l = p.sum(axis=-1, keepdims=True)
    return p @ v / np.where(l == 0, 1, l), m + np.log(l)


def merge(o, lse, part, part_lse):
    """Of two sets of keys.  The weights are divided by their sum, so that the rounding of LSE does not matter."""
    m = np.maximum(lse, part_lse)
    a, b = weights(lse, m), weights(part_lse, m)
    return (a * o + b * part) / np.where(a + b == 0, 1, a + b), m + np.log(a + b)


def rank(case, ranks, t, put):
    """The code of one of `ranks` ranks.  x = yield y: y goes to the next rank, x has come from the rank before."""
    q, i, group = t["q"], t["query_tokens"], case["heads"] // case["kv_heads"]
    wide = lambda x: np.repeat(x, group, axis=1)  # noqa: E731  (head h reads h // group)
    home = t["k"], t["v"], t["key_tokens"]
    o, lse = np.zeros(q.shape[:3] + t["v"].shape[3:], q.dtype), np.full(q.shape[:3] + (1,), -np.inf, q.dtype)
    kv = home
    for step in range(ranks):
        k, v, j = kv
        part = attend(scores(case, q, wide(k), i, j), wide(v))
        o, lse = merge(o, lse, *part)
        put(step, o=o, lse=lse[..., 0])
        kv = yield kv
    put(None, o=o, lse=lse[..., 0])
    if case["pass"] == "fwd":
        return
    kv, dq, dk, dv = home, np.zeros_like(q), np.zeros_like(t["k"]), np.zeros_like(t["v"])
    for step in range(ranks):
        k, v, j = kv
        p = weights(scores(case, q, wide(k), i, j), lse)
        delta = (t["do"] * o).sum(axis=-1, keepdims=True)
        ds = case["scale"] * p * (t["do"] @ wide(v).swapaxes(-1, -2) - delta)
        dq = dq + ds @ wide(k)
        for x, each in ((dk, ds.swapaxes(-1, -2) @ q), (dv, p.swapaxes(-1, -2) @ t["do"])):
            x += each.reshape(x.shape[:2] + (group,) + x.shape[2:]).sum(axis=2)
        put(step, dk=dk, dv=dv)
        *kv, dk, dv = yield (*kv, dk, dv)  # the last hop brings the gradients home
    put(None, dq=dq, dk=dk, dv=dv)


def ring(case, ranks, put):
    """Each rank runs up to its next hop, and takes on what the rank before it has sent."""
    running = [rank(case, len(ranks), t, functools.partial(put, r)) for r, t in enumerate(ranks)]
    with np.errstate(divide="ignore"):  # log(0) is -inf: no key is visible
        sent = [next(x) for x in running]
        while sent[0] is not None:
            sent = [next_of(x, y) for x, y in zip(running, sent[-1:] + sent[:-1])]


def next_of(running, arrived):
    """What a rank sends next, or None: it has ended."""
    try:
        return running.send(arrived)
    except StopIteration:
        return None


if __name__ == "__main__":
    attnlab.batch(sys.argv[1], sys.argv[2], ring)
