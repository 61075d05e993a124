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


def scores(q, k, scale, mask, bias, softcap, alibi, alibi_offset):
    """[B,H,Lq,Lk], -inf where hidden, and the slope of the softcap."""
    real, slope = q.dtype.type, 1
    s = real(scale) * (q @ k.swapaxes(-1, -2))
    if softcap is not None:
        s = real(softcap) * np.tanh(s / real(softcap))
        slope = 1 - (s / real(softcap)) ** 2
    if bias is not None:
        s = s + bias
    if alibi is not None:
        i, j = np.ogrid[: q.shape[2], : k.shape[2]]
        s = s - (np.array(alibi)[:, None, None] * np.abs(i + alibi_offset - j)).astype(real)
    return s if mask is None else np.where(mask, s, -np.inf), slope


def of_heads(x, q):
    """Query head h reads kv head h // group."""
    return np.repeat(x, q.shape[1] // max(x.shape[1], 1), axis=1)


def attention(q, k, v, *, scale, mask=None, bias=None, softcap=None, alibi=None, alibi_offset=0):
    s, _ = scores(q, of_heads(k, q), scale, mask, bias, softcap, alibi, alibi_offset)
    m = s.max(axis=-1, keepdims=True)
    p = np.exp(s - m)
    l = p.sum(axis=-1, keepdims=True)
    return p / l @ of_heads(v, q), (m + np.log(l))[..., 0]


def backward(do, q, k, v, o, lse, dlse=None, *, scale, mask=None, bias=None, softcap=None, alibi=None, alibi_offset=0):
    s, slope = scores(q, of_heads(k, q), scale, mask, bias, softcap, alibi, alibi_offset)
    p = np.exp(s - lse[..., None])
    delta = (do * o).sum(axis=-1) - (0 if dlse is None else dlse)
    ds = p * (do @ of_heads(v, q).swapaxes(-1, -2) - delta[..., None])
    wide = ds * slope * q.dtype.type(scale)
    dk, dv = (x.reshape(k.shape[:2] + (-1,) + x.shape[2:]).sum(axis=2)
              for x in (wide.swapaxes(-1, -2) @ q, p.swapaxes(-1, -2) @ do))
    found = wide @ of_heads(k, q), dk, dv
    if bias is None:
        return found
    return (*found, ds.sum(axis=tuple(a for a in range(4) if bias.shape[a] == 1), keepdims=True))


def compute(case, t):
    """The outputs that a case asks for, and the seconds of its pass."""
    words = {"scale": case["scale"], "mask": t.get("mask"), "bias": t.get("bias"), "softcap": case["softcap"] or None,
             "alibi": case["alibi_slopes"], "alibi_offset": case["alibi_offset"]}
    start = time.perf_counter()
    o, lse = attention(t["q"], t["k"], t["v"], **words)
    result = {"o": o, "lse": lse}
    if case["pass"] == "bwd":
        start = time.perf_counter()  # of a backward, its own time alone
        found = backward(t["do"], t["q"], t["k"], t["v"], o, lse, t.get("dlse"), **words)
        result.update(zip(("dq", "dk", "dv", "dbias"), found))
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
                result = compute(case, tensors)
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
