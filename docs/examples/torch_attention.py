#!/usr/bin/env python3
"""Attention by PyTorch, gradients by autograd, for `attnlab check --exec`.

    attnlab check --exec 'python3 docs/examples/torch_attention.py' \\
        --claims docs/examples/torch_attention.json

Uses torch.nn.functional.scaled_dot_product_attention where this PyTorch has it (2.0 and later) and
the case is one it can express (no softcap, the usual scale, nothing asked of LSE); else matmul and
softmax.  Prints which.  LSE is torch.logsumexp of the scores in either case.
The labs of docs/labs can be written in PyTorch too: this file shows how results are returned.
"""
import json
import os
import sys

import numpy as np
import torch

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from numpy_attention import load  # noqa: E402  (reads safetensors)

SDPA = getattr(torch.nn.functional, "scaled_dot_product_attention", None)


def scores(case, t, q, k):
    s = case["scale"] * (q @ k.transpose(-1, -2))
    if case["softcap"] > 0:
        s = case["softcap"] * torch.tanh(s / case["softcap"])
    return s if add_of(case, t) is None else s + add_of(case, t)


def add_of(case, t):
    """Everything that is added to the scores: a bias, -inf where the mask hides."""
    real = t["q"].dtype
    add = t.get("bias")
    if case["bias"] == "alibi":
        i = torch.arange(case["n_query"])[:, None]
        j = torch.arange(case["n_key"])[None, :]
        distance = (i + case["alibi_offset"] - j).abs().to(torch.float64)
        slopes = torch.tensor(case["alibi_slopes"], dtype=torch.float64)
        add = (-slopes[:, None, None] * distance).to(real)[None]
    if "mask" in t:
        hidden = torch.zeros(t["mask"].shape, dtype=real).masked_fill(t["mask"] == 0, -torch.inf)
        add = hidden if add is None else add + hidden
    return add


def attention(case, t):
    grad = case["pass"] == "bwd"
    names = ["q", "k", "v"] + (["bias"] if "dbias" in case["outputs"] else [])
    for name in names:
        t[name].requires_grad_(grad)
    group = case["heads"] // max(case["kv_heads"], 1)
    k, v = (t[n].repeat_interleave(group, dim=1) for n in ("k", "v"))
    s = scores(case, t, t["q"], k)
    lse = torch.logsumexp(s, dim=-1)
    usual = case["scale"] == case["d_key"] ** -0.5
    fused = SDPA is not None and usual and case["softcap"] == 0
    if fused:
        o = SDPA(t["q"], k, v, attn_mask=add_of(case, t))
    else:
        o = torch.softmax(s, dim=-1) @ v
    result = {"o": o, "lse": lse}
    if grad:
        heads, upstream = [o], [t["do"]]
        if "dlse" in t:
            heads, upstream = [o, lse], [t["do"], t["dlse"]]
        found = torch.autograd.grad(heads, [t[n] for n in names], upstream)
        result.update(zip(["d" + n for n in names], found))
    return result, fused


def main(cases, out):
    with open(os.path.join(cases, "manifest.json")) as file:
        manifest = json.load(file)
    n_fused = 0
    for case in manifest["cases"]:
        arrays = load(os.path.join(cases, case["name"], "inputs.safetensors"))
        tensors = {name: torch.from_numpy(x.copy()) for name, x in arrays.items()}
        folder = os.path.join(out, case["name"])
        os.makedirs(folder, exist_ok=True)
        try:  # an error in one case need not cost the others
            result, fused = attention(case, tensors)
        except Exception as error:  # noqa: BLE001
            with open(os.path.join(folder, "error.txt"), "w") as file:
                print(repr(error), file=file)
            continue
        n_fused += fused
        for name in case["outputs"]:
            np.save(os.path.join(folder, name + ".npy"), result[name].detach().numpy())
    print(f"torch {torch.__version__}: scaled_dot_product_attention in {n_fused} cases, "
          f"matmul and softmax in {len(manifest['cases']) - n_fused}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
