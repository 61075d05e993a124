#!/usr/bin/env python3
"""Attention by a running softmax over tiles of keys, in numpy: numpy_flash.py TILE BASE ORDER ARITHMETIC CASES OUT.

BASE is e or 2 (exp2 of scores times log2 e, as kernels do it), ORDER up or down (tiles from the last key to the
first), ARITHMETIC f32 or fused-16: as kernels for 16 bits have it, P and dS are rounded to the type of the case before
their products, sums are float32, delta is that of the stored o, and results are returned in 16 bits.
Honest in all of them: tests/checker/test_vector_files.c runs it where nothing may be called wrong.
"""
import json
import os
import sys

import numpy as np

sys.dont_write_bytecode = True
sys.path.insert(0, "docs/examples")
from numpy_attention import load, save  # noqa: E402

LOG2E = 1.4426950408889634


def to_bf16(x):
    """The upper half of float32, to nearest even: uint16.  NaN stays NaN."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    near = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    return np.where(np.isnan(x), bits >> 16 | 0x40, near).astype("<u2")


def rounded(x, dtype):
    """To the numbers that this type has; float32 still."""
    if dtype == "bf16":
        return (to_bf16(x).astype(np.uint32) << 16).view(np.float32)
    return x.astype(np.float16).astype(np.float32) if dtype == "f16" else x


def save_16(folder, case, result):
    """result.safetensors, in the type of the case; lse, dbias and dsink are float32."""
    header, data = {}, b""
    for name in case["outputs"]:
        x, word = result[name].astype("<f4"), "F32"
        if name not in ("lse", "dbias", "dsink"):
            x, word = (to_bf16(x), "BF16") if case["dtype"] == "bf16" else (x.astype("<f2"), "F16")
        header[name] = {"dtype": word, "shape": x.shape, "data_offsets": [len(data), len(data) + x.nbytes]}
        data += x.tobytes()
    text = json.dumps(header).encode()
    with open(os.path.join(folder, "result.safetensors"), "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + data)


def visible(case, t):
    """[B,H,Lq,Lk] or less, True where the query sees the key."""
    if "mask" in t:
        return t["mask"] != 0
    i, j = np.ogrid[: case["n_query"], : case["n_key"]]
    seen = np.ones((1, 1, case["n_query"], case["n_key"]), bool)
    if case["mask"] == "band":
        at = j - i - case["offset"]
        if case["window_left"] >= 0:
            seen &= at >= -case["window_left"]
        if case["window_right"] >= 0:
            seen &= at <= case["window_right"]
    return seen


class Problem:
    def __init__(self, case, t, fused):
        self.case, self.t = case, t
        if "kv" in t:
            t.update(k=t["kv"], v=t["kv"][..., : case["dv_view"]])
        self.stored = case["dtype"] if fused else None  # what P, dS and o are rounded to
        self.real = t["q"].dtype.type
        self.group = case["heads"] // max(case["kv_heads"], 1)
        shape = (case["batch"], case["heads"], case["n_query"], case["n_key"])
        self.see = np.broadcast_to(visible(case, t), shape)
        # A key that no query sees may hold anything, and so may a query that sees nothing.
        used = self.see.any(axis=2).reshape(shape[0], case["kv_heads"], self.group, shape[3]).any(axis=2)
        self.alive = self.see.any(axis=3)[..., None]
        self.q = np.where(self.alive, t["q"], 0).astype(self.real)
        self.k, self.v = (np.repeat(np.where(used[..., None], t[n], 0), self.group, axis=1)
                          .astype(self.real) for n in ("k", "v"))
        self.z = t["sink"][:, None, None].astype(self.real) if "sink" in t else None
        if "do" in t:
            self.d_o = np.where(self.alive, t["do"], 0).astype(self.real)

    def scores(self, j0, j1):
        """Of the keys from j0 up to j1, -inf where hidden; and the slope of the softcap."""
        case, cap = self.case, self.real(self.case["softcap"])
        s = self.real(case["scale"]) * (self.q @ self.k[:, :, j0:j1].swapaxes(-1, -2))
        slope = 1
        if cap > 0:
            s = cap * np.tanh(s / cap)
            slope = 1 - (s / cap) ** 2
        if case["bias"] == "tensor":
            bias = self.t["bias"]
            s = s + (bias[..., j0:j1] if bias.shape[3] > 1 else bias)
        elif case["bias"] == "alibi":
            i, j = np.ogrid[: case["n_query"], j0:j1]
            far = np.abs(i + case["alibi_offset"] - j)
            s = s - (np.array(case["alibi_slopes"])[:, None, None] * far).astype(self.real)
        return np.where(self.see[..., j0:j1], s, self.real(-np.inf)), slope


def tiles(n, tile, order):
    starts = range(0, n, tile)
    return [(j, min(j + tile, n)) for j in (starts if order == "up" else reversed(starts))]


def forward(p, tile, base, order):
    two = p.real(LOG2E) if base == "2" else p.real(1)
    exp = np.exp2 if base == "2" else np.exp
    m = np.full(p.q.shape[:3] + (1,), -np.inf, p.real)
    if p.z is not None:  # a key that was seen before, with a value of 0
        m = np.broadcast_to(p.z * two, m.shape)
    l = (m > -np.inf).astype(p.real)
    o = np.zeros(p.q.shape[:3] + p.v.shape[3:], p.real)
    for j0, j1 in tiles(p.case["n_key"], tile, order):
        s = p.scores(j0, j1)[0] * two
        top = np.maximum(m, s.max(axis=-1, keepdims=True))
        safe = np.where(top == -np.inf, 0, top)  # nothing seen yet
        w, old = exp(s - safe), exp(m - safe)
        l = l * old + w.sum(axis=-1, keepdims=True)
        o = o * old + rounded(w, p.stored) @ p.v[:, :, j0:j1]
        m = top
    dead = l == 0
    o = np.where(dead, 0, o / np.where(dead, 1, l))
    log = np.log2 if base == "2" else np.log
    lse = np.where(dead, -np.inf, (m + log(np.where(dead, 1, l))) / two)
    return o, lse


def backward(p, o, lse, tile, order):
    case, n = p.case, p.case["n_key"]
    delta = (p.d_o * rounded(o, p.stored)).sum(axis=-1, keepdims=True)
    if "dlse" in p.t:
        delta = delta - np.where(p.alive | (p.z is not None), p.t["dlse"][..., None], 0)
    safe = np.where(lse == -np.inf, 0, lse)
    dq, dk, dv = np.zeros_like(p.q), np.zeros_like(p.k), np.zeros_like(p.v)
    db = np.zeros(p.q.shape[:3] + (n,), p.real)
    for j0, j1 in tiles(n, tile, order):
        s, slope = p.scores(j0, j1)
        see = p.see[..., j0:j1]  # NaN in a row stays with the keys that the row sees
        w = np.where(see, np.exp(s - safe), 0)
        ds = np.where(see, w * (p.d_o @ p.v[:, :, j0:j1].swapaxes(-1, -2) - delta), 0)
        db[..., j0:j1] = ds
        scale = p.real(case["scale"])
        w, ds = rounded(w, p.stored), rounded(ds * slope, p.stored)
        dq += scale * (ds @ p.k[:, :, j0:j1])
        dk[:, :, j0:j1] = scale * (ds.swapaxes(-1, -2) @ p.q)
        dv[:, :, j0:j1] = w.swapaxes(-1, -2) @ p.d_o
    grouped = (case["batch"], case["kv_heads"], p.group, n)
    result = {"dq": dq, "dk": dk.reshape(grouped + dk.shape[3:]).sum(axis=2),
              "dv": dv.reshape(grouped + dv.shape[3:]).sum(axis=2)}
    if "kv" in p.t:
        result["dk"][..., : case["dv_view"]] += result.pop("dv")
    if p.z is not None:
        weight = np.where(p.z == -np.inf, 0, np.exp(p.z - safe))
        result["dsink"] = -(weight * delta).sum(axis=(0, 2, 3))
    if "dbias" in case["outputs"]:
        axes = tuple(a for a in range(4) if p.t["bias"].shape[a] == 1)
        result["dbias"] = db.sum(axis=axes, keepdims=True)
    return result


def main(tile, base, order, arithmetic, cases, out):
    fused = arithmetic == "fused-16"
    np.seterr(all="ignore")
    with open(os.path.join(cases, "manifest.json")) as file:
        manifest = json.load(file)
    for case in manifest["cases"]:
        p = Problem(case, load(os.path.join(cases, case["name"], "inputs.safetensors")), fused)
        o, lse = forward(p, int(tile), base, order)
        result = {"o": o, "lse": lse[..., 0]}
        if case["pass"] == "bwd":
            result.update(backward(p, o, lse, int(tile), order))
        folder = os.path.join(out, case["name"])
        os.makedirs(folder, exist_ok=True)
        (save_16 if fused else save)(folder, case, result)


if __name__ == "__main__":
    main(*sys.argv[1:])
