#!/usr/bin/env python3
"""Attention in numpy, forward and backward, for `attnlab check --exec`.

    attnlab check --exec 'python3 docs/examples/numpy_attention.py' \\
        --claims docs/examples/numpy_attention.json

Called once, with a folder of cases and a folder for results.  docs/external.md explains the files;
docs/labs begins with less: labs 01 to 06 are this program, one part after the other.
"""
import json
import os
import sys
import time

import numpy as np

# `attnlab measure` asks for n calls after the first, or for a number of seconds of them.
REPEAT = int(os.environ.get("ATTNLAB_REPEAT", 0))
ENOUGH = float(os.environ.get("ATTNLAB_ENOUGH", 0))

NAMES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "I32": "<i4", "U8": "u1"}


def load(path):
    """A safetensors file: eight bytes of length, a JSON header, the numbers; 16 bits become 32."""
    with open(path, "rb") as file:
        data = file.read()
    start = 8 + int.from_bytes(data[:8], "little")
    tensors = {}
    for name, at in json.loads(data[8:start]).items():
        if name != "__metadata__":
            first, last = at["data_offsets"]
            numbers = np.frombuffer(data[start + first : start + last], NAMES[at["dtype"]])
            if at["dtype"] == "BF16":  # the upper half of a float32
                numbers = (numbers.astype("<u4") << 16).view("<f4")
            elif at["dtype"] == "F16":
                numbers = numbers.astype("<f4")
            tensors[name] = numbers.reshape(at["shape"])
    return tensors


def save(folder, case, result):
    """Each output in a .npy of its own, in the type of the case.  Any type is judged as what it is: numpy
    has no bf16, so float32 stands for it.  lse and dbias are never narrower than float32."""
    for name in case["outputs"]:
        narrow = case["dtype"] == "f16" and name not in ("lse", "dbias")
        real = np.float16 if narrow else np.float64 if case["dtype"] == "f64" else np.float32
        with np.errstate(over="ignore"):  # beyond 65504 f16 is infinite
            np.save(os.path.join(folder, name + ".npy"), result[name].astype(real))


def attention(case, t):
    start = time.perf_counter()
    q, k, v = t["q"], t["k"], t["v"]
    real = q.dtype.type
    scale, cap = real(case["scale"]), real(case["softcap"])
    group = case["heads"] // max(case["kv_heads"], 1)
    k, v = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)  # head h reads h // group
    raw = scale * (q @ k.swapaxes(-1, -2))
    s = cap * np.tanh(raw / cap) if cap > 0 else raw
    slope = 1 - (s / cap) ** 2 if cap > 0 else 1
    if case["bias"] == "tensor":
        s = s + t["bias"]
    elif case["bias"] == "alibi":
        i, j = np.ogrid[: case["n_query"], : case["n_key"]]
        distance = np.abs(i + case["alibi_offset"] - j)
        s = s - (np.array(case["alibi_slopes"])[:, None, None] * distance).astype(real)
    if "mask" in t:
        s = np.where(t["mask"], s, -np.inf)
    m = s.max(axis=-1, keepdims=True)
    p = np.exp(s - m)
    l = p.sum(axis=-1, keepdims=True)
    p = p / l
    o = p @ v
    result = {"o": o, "lse": (m + np.log(l))[..., 0]}
    if case["pass"] == "bwd":
        start = time.perf_counter()  # of a backward, its own time alone
        d_o = t["do"]
        delta = (d_o * o).sum(axis=-1, keepdims=True)
        if "dlse" in t:
            delta = delta - t["dlse"][..., None]
        ds = p * (d_o @ v.swapaxes(-1, -2) - delta)
        if "dbias" in case["outputs"]:
            axes = tuple(a for a in range(4) if t["bias"].shape[a] == 1)
            result["dbias"] = ds.sum(axis=axes, keepdims=True)
        ds = ds * slope * scale
        shape = (case["batch"], case["kv_heads"], group, case["n_key"], -1)
        result["dq"] = ds @ k
        result["dk"] = (ds.swapaxes(-1, -2) @ q).reshape(shape).sum(axis=2)
        result["dv"] = (p.swapaxes(-1, -2) @ d_o).reshape(shape).sum(axis=2)
    result["seconds"] = time.perf_counter() - start
    return result


def main(cases, out):
    with open(os.path.join(cases, "manifest.json")) as file:
        manifest = json.load(file)
    for case in manifest["cases"]:
        tensors = load(os.path.join(cases, case["name"], "inputs.safetensors"))
        folder = os.path.join(out, case["name"])
        os.makedirs(folder, exist_ok=True)
        seconds = []
        try:
            while not seconds or (len(seconds) <= REPEAT and sum(seconds[1:]) < ENOUGH):
                result = None  # the last one must not be held while the next is made
                result = attention(case, tensors)
                seconds.append(result["seconds"])
        except Exception as error:  # in one case: it need not cost the others
            with open(os.path.join(folder, "error.txt"), "w") as file:
                print(repr(error), file=file)
            continue
        np.savetxt(os.path.join(folder, "seconds.txt"), seconds)
        save(folder, case, result)
    print("numpy", np.__version__, "computed", len(manifest["cases"]), "cases")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
