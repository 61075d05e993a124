#!/usr/bin/env python3
"""Packed batches in numpy, as variable-length kernels take them, for `attnlab check --exec`.

    attnlab check --exec 'python3 docs/examples/numpy_packed.py' \\
        --claims docs/examples/numpy_packed.json

q, k and v are [T,H,d]: documents one behind the other, without padding.  cu_seqlens_q and
cu_seqlens_k [n+1] say where each begins; lse is [H,T].  Offset and window of a band count inside each
document.  Here every document goes through numpy_attention.py by itself: what a real kernel avoids,
and what it must agree with.
"""
import json
import os
import sys

import numpy as np

sys.dont_write_bytecode = True  # no __pycache__ beside the examples
from numpy_attention import attention, load


def band(case, n_query, n_key):
    """The visible pairs of one document, [Lq,Lk]."""
    i, j = np.ogrid[:n_query, :n_key]
    distance = j - i - case["offset"]
    visible = np.ones((n_query, n_key), bool)
    if case["window_left"] >= 0:
        visible &= distance >= -case["window_left"]
    if case["window_right"] >= 0:
        visible &= distance <= case["window_right"]
    return visible


def packed(case, t):
    """Every document by itself, and its results put back where its tokens are."""
    real = t["q"].dtype
    shape = {"o": t["q"].shape[:2] + t["v"].shape[2:], "lse": t["q"].shape[1::-1],
             "dq": t["q"].shape, "dk": t["k"].shape, "dv": t["v"].shape}
    result = {name: np.zeros(shape[name], real) for name in case["outputs"]}
    starts = zip(t["cu_seqlens_q"], t["cu_seqlens_q"][1:], t["cu_seqlens_k"], t["cu_seqlens_k"][1:])
    for q0, q1, k0, k1 in starts:
        rows = {"q": slice(q0, q1), "do": slice(q0, q1), "k": slice(k0, k1), "v": slice(k0, k1),
                "o": slice(q0, q1), "dq": slice(q0, q1), "dk": slice(k0, k1), "dv": slice(k0, k1)}
        if q0 == q1:  # no query: nothing flows into its keys
            continue
        one = {name: t[name][rows[name]].swapaxes(0, 1)[None] for name in ("q", "k", "v", "do")
               if name in t}
        if "dlse" in t:
            one["dlse"] = t["dlse"][None, :, q0:q1]
        if case["mask"] == "band":
            one["mask"] = band(case, q1 - q0, k1 - k0)
        single = dict(case, batch=1, n_query=int(q1 - q0), n_key=int(k1 - k0))
        found = attention(single, one)
        for name in case["outputs"]:
            if name == "lse":
                result[name][:, q0:q1] = found[name][0]
            else:
                result[name][rows[name]] = found[name][0].swapaxes(0, 1)
    return result


def main(cases, out):
    with open(os.path.join(cases, "manifest.json")) as file:
        manifest = json.load(file)
    for case in manifest["cases"]:
        tensors = load(os.path.join(cases, case["name"], "inputs.safetensors"))
        folder = os.path.join(out, case["name"])
        os.makedirs(folder, exist_ok=True)
        np.savez_compressed(os.path.join(folder, "result.npz"), **packed(case, tensors))
    print("numpy", np.__version__, "computed", len(manifest["cases"]), "packed batches")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
