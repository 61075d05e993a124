#!/usr/bin/env python3
"""Attention as beginners write it: students.py STYLE CASES OUT.

tests/checker/test_vector_files.c has the claims of each style, and what attnlab must say of those at the end, which
are not right.
"""
import json
import os
import sys

import numpy as np


sys.dont_write_bytecode = True
sys.path.insert(0, "docs/examples")
from numpy_attention import load, save  # noqa: E402


def softmax(s):
    p = np.exp(s - s.max(axis=-1, keepdims=True))
    return p / p.sum(axis=-1, keepdims=True)


def one_line(case, t):
    """No lse, no mask."""
    return {"o": softmax(t["q"] @ t["k"].swapaxes(-1, -2) / np.float32(case["d_key"]) ** 0.5) @ t["v"]}


def tril(case, t):
    """Causal by numpy's own triangle, square problems only; every key of the case is looked at."""
    s = t["q"] @ t["k"].swapaxes(-1, -2) * np.float32(case["scale"])
    if case["causal"] and case["offset"] == 0 and case["alibi_slopes"] is None:
        s = np.where(np.tril(np.ones(s.shape[-2:], bool)), s, -np.inf)
    return {"o": softmax(s) @ t["v"]}


def minus_1e9(case, t):
    """Hidden scores lose 1e9: nearly a mask, and one as long as every row sees a key."""
    s = t["q"] @ t["k"].swapaxes(-1, -2) * np.float32(case["scale"])
    if "mask" in t:
        s = s + (1 - t["mask"].astype(np.float32)) * np.float32(-1e9)
    m = s.max(axis=-1)
    return {"o": softmax(s) @ t["v"],
            "lse": m + np.log(np.exp(s - m[..., None]).sum(axis=-1))}


def einsum(case, t):
    """GQA by repeating heads; causal and other masks by two paths of its own."""
    n = case["heads"] // case["kv_heads"]
    k, v = t["k"].repeat(n, axis=1), t["v"].repeat(n, axis=1)
    s = np.einsum("bhid,bhjd->bhij", t["q"], k) * case["scale"]
    if case["causal"]:
        i, j = np.ogrid[:s.shape[2], :s.shape[3]]
        s[..., j > i + case["offset"]] = -np.inf
    elif case["mask"] == "dense":
        s[t["mask"] == 0] = -np.inf
    p = softmax(s)
    o = np.einsum("bhij,bhjd->bhid", p, v)
    result = {"o": o, "lse": np.log(np.exp(s - s.max(-1, keepdims=True)).sum(-1)) + s.max(-1)}
    if case["pass"] == "bwd":
        d_o, shape = t["do"], k.shape[:1] + (case["kv_heads"], n) + k.shape[2:3] + (-1,)
        ds = p * (np.einsum("bhid,bhjd->bhij", d_o, v) - (d_o * o).sum(-1)[..., None])
        result["dq"] = np.einsum("bhij,bhjd->bhid", ds, k) * case["scale"]
        result["dk"] = np.einsum("bhij,bhid->bhjd", ds, t["q"]).reshape(shape).sum(2) * case["scale"]
        result["dv"] = np.einsum("bhij,bhid->bhjd", p, d_o).reshape(shape).sum(2)
    return result


def loops(case, t):
    """A head at a time, a row at a time, keys up to the query's own, in float64."""
    q, k, v = (t[n].astype(np.float64) for n in ("q", "k", "v"))
    o = np.zeros(q.shape[:3] + v.shape[3:])
    lse = np.zeros(q.shape[:3])
    for b in range(case["batch"]):
        for h in range(case["heads"]):
            g = h * case["kv_heads"] // case["heads"]
            for i in range(case["n_query"]):
                n = case["n_key"] if case["mask"] == "none" else i + case["offset"] + 1
                s = k[b, g, :n] @ q[b, h, i] * case["scale"]
                w = np.exp(s - s.max())
                o[b, h, i] = w @ v[b, g, :n] / w.sum()
                lse[b, h, i] = s.max() + np.log(w.sum())
    return {"o": o, "lse": lse}


# ---- not right ---------------------------------------------------------------------------------


def no_lse(case, t):
    """Writes o alone."""
    np.save(f"{case['folder']}/o.npy", one_line(case, t)["o"])


def stops(case, t):
    """Knows no mask, and has a mistake of its own in long cases."""
    if case["n_query"] > 40:
        raise KeyError("seq_len")
    return one_line(case, t)


def main(style, cases, out):
    with open(f"{cases}/manifest.json") as file:
        manifest = json.load(file)
    for case in manifest["cases"]:
        case["folder"] = f"{out}/{case['name']}"
        os.makedirs(case["folder"], exist_ok=True)
        result = globals()[style](case, load(f"{cases}/{case['name']}/inputs.safetensors"))
        if result is not None:
            save(case["folder"], case, result)


if __name__ == "__main__":
    main(*sys.argv[1:])
