#!/usr/bin/env python3
"""Attention as beginners write it, each style right for what it claims: students.py STYLE CASES OUT.

tests/test_exchange.c has the claims of each style.  None of them may fail, or be told something else than
what is missing.
"""
import json
import os
import sys

import numpy as np


def load(path):
    with open(path, "rb") as file:
        data = file.read()
    start = 8 + int.from_bytes(data[:8], "little")
    types = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "U8": "u1"}
    tensors = {}
    for name, at in json.loads(data[8:start]).items():
        if name != "__metadata__":
            first, last = at["data_offsets"]
            x = np.frombuffer(data[start + first:start + last], types[at["dtype"]])
            if at["dtype"] == "BF16":  # the upper half of a float32
                x = (x.astype(np.uint32) << 16).view(np.float32)
            tensors[name] = x.reshape(at["shape"])
    return tensors


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


def half(case, t):
    """Reads 16 bits, computes in float32."""
    return one_line(case, {name: x.astype(np.float32) for name, x in t.items()})


def save(folder, case, result):
    """The type of the case; bf16 has no numpy type, so it goes as its 16 bits in a safetensors file."""
    if case["dtype"] != "bf16":
        types = {"f64": np.float64, "f32": np.float32, "f16": np.float16}
        for name, x in result.items():
            real = np.float32 if name == "lse" and case["dtype"] == "f16" else types[case["dtype"]]
            np.save(f"{folder}/{name}.npy", x.astype(real))
        return
    header, data = {}, b""
    for name, x in result.items():
        bits = x.astype(np.float32).view(np.uint32)
        bits = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("<u2")  # to nearest, ties to even
        header[name] = {"dtype": "BF16", "shape": x.shape, "data_offsets": [len(data), len(data) + bits.nbytes]}
        data += bits.tobytes()
    text = json.dumps(header).encode()
    with open(f"{folder}/result.safetensors", "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + data)


def main(style, cases, out):
    with open(f"{cases}/manifest.json") as file:
        manifest = json.load(file)
    for case in manifest["cases"]:
        folder = f"{out}/{case['name']}"
        os.makedirs(folder, exist_ok=True)
        result = globals()[style](case, load(f"{cases}/{case['name']}/inputs.safetensors"))
        save(folder, case, result)


if __name__ == "__main__":
    main(*sys.argv[1:])
