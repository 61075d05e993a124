#!/usr/bin/env python3
"""A ring of ranks in numpy, forward and backward, all ranks in one process; judged step by step.

    attnlab vectors --scheme ring:ranks=4,order=zigzag DIR \\
        --case 'b1h4g2q64k64d16:causal(br):f32:normal:s1:pass=bwd'
    python3 docs/examples/numpy_ring.py DIR OUT
    attnlab check --results OUT --vectors DIR

torch_ring.py is the same ring between processes; lab 08 (docs/labs) is this one, to be written.
"""
import json
import os
import sys

import numpy as np

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from numpy_attention import load  # noqa: E402  (reads safetensors)


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


def ring(case, ranks, put):
    group, hop = case["heads"] // case["kv_heads"], lambda x: x[-1:] + x[:-1]  # r gets what r - 1 had
    wide = lambda x: np.repeat(x, group, axis=1)  # noqa: E731  (head h reads h // group)
    home = [(t["k"], t["v"], t["key_tokens"]) for t in ranks]
    o = [np.zeros(t["q"].shape[:3] + t["v"].shape[3:], t["q"].dtype) for t in ranks]
    lse = [np.full(t["q"].shape[:3] + (1,), -np.inf, t["q"].dtype) for t in ranks]
    kv = home
    for step in range(len(ranks)):
        for r, t in enumerate(ranks):
            k, v, j = kv[r]
            part = attend(scores(case, t["q"], wide(k), t["query_tokens"], j), wide(v))
            o[r], lse[r] = merge(o[r], lse[r], *part)
            put(r, step, o=o[r], lse=lse[r][..., 0])
        kv = hop(kv)
    for r in range(len(ranks)):
        put(r, None, o=o[r], lse=lse[r][..., 0])
    if case["pass"] == "fwd":
        return
    kv, dq = home, [np.zeros_like(t["q"]) for t in ranks]
    gradients = [(np.zeros_like(t["k"]), np.zeros_like(t["v"])) for t in ranks]
    for step in range(len(ranks)):
        for r, t in enumerate(ranks):
            (k, v, j), (dk, dv) = kv[r], gradients[r]
            p = weights(scores(case, t["q"], wide(k), t["query_tokens"], j), lse[r])
            delta = (t["do"] * o[r]).sum(axis=-1, keepdims=True)
            ds = case["scale"] * p * (t["do"] @ wide(v).swapaxes(-1, -2) - delta)
            dq[r] = dq[r] + ds @ wide(k)
            of_group = lambda x, y: x.reshape(y.shape[:2] + (group,) + y.shape[2:]).sum(axis=2)  # noqa: E731
            dk = dk + of_group(ds.swapaxes(-1, -2) @ t["q"], dk)
            dv = dv + of_group(p.swapaxes(-1, -2) @ t["do"], dv)
            gradients[r] = dk, dv
            put(r, step, dk=dk, dv=dv)
        kv, gradients = hop(kv), hop(gradients)  # the last hop brings the gradients home
    for r in range(len(ranks)):
        put(r, None, dq=dq[r], dk=gradients[r][0], dv=gradients[r][1])


def main(cases, out):
    np.seterr(divide="ignore")  # log(0) is -inf: no key is visible
    with open(os.path.join(cases, "manifest.json")) as file:
        manifest = json.load(file)
    for case in manifest["cases"]:
        names = [os.path.join(case["name"], f"rank-{r}") for r in range(manifest["ranks"])]

        def put(rank, step, **tensors):
            folder = os.path.join(out, names[rank], "" if step is None else f"step-{step}")
            os.makedirs(folder, exist_ok=True)
            for name, x in tensors.items():
                np.save(os.path.join(folder, name + ".npy"), x)

        ring(case, [load(os.path.join(cases, name, "inputs.safetensors")) for name in names], put)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
