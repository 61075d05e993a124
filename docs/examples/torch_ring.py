#!/usr/bin/env python3
"""The ring of numpy_ring.py between processes, by torch.distributed (gloo: no GPU is needed).

    attnlab vectors --scheme ring:ranks=4,order=zigzag DIR \\
        --case 'b1h4g2q64k64d16:causal(br):f32:normal:s1:pass=bwd'
    python3 docs/examples/torch_ring.py DIR OUT
    attnlab check --results OUT --vectors DIR

It starts a process for each rank, which reads its own shards and no others.
"""
import json
import os
import sys
import tempfile

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from numpy_attention import load  # noqa: E402  (reads safetensors)


def hop(tensors, tokens):
    """Sends to the next rank; returns the `tokens` tokens (axis 2) of the previous one."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    if ranks == 1:
        return tensors
    out = [x.contiguous() for x in tensors]
    got = [x.new_empty(x.shape[:2] + (tokens,) + x.shape[3:]) for x in out]
    work = [dist.isend(x, (rank + 1) % ranks, tag=n) for n, x in enumerate(out)]
    work += [dist.irecv(x, (rank - 1) % ranks, tag=n) for n, x in enumerate(got)]
    for one in work:
        one.wait()
    return got


def scores(case, q, k, i, j):
    """Of a block of pairs.  i, j: the tokens' places in the whole sequence, which the mask speaks of."""
    s = case["scale"] * (q @ k.transpose(-1, -2))
    if case["mask"] == "band":
        left, right = case["window_left"], case["window_right"]
        distance = j.flatten() - i[:, None] - case["offset"]
        if left >= 0:
            s = s.masked_fill(distance < -left, -torch.inf)
        if right >= 0:
            s = s.masked_fill(distance > right, -torch.inf)
    return s


def weights(s, lse):
    """exp(s - lse); 0 where no key is visible."""
    return torch.exp(s - torch.where(torch.isinf(lse), torch.zeros_like(lse), lse))


def merge(o, lse, part, part_lse):
    m = torch.maximum(lse, part_lse)
    a, b = weights(lse, m), weights(part_lse, m)
    total = a + b
    return (a * o + b * part) / torch.where(total == 0, torch.ones_like(total), total), m + total.log()


def attend(s, v):
    """O and LSE of a block alone."""
    none = s.new_full(s.shape[:3] + (1,), -torch.inf)
    m = torch.cat([s, none], dim=-1).amax(dim=-1, keepdim=True)
    p = weights(s, m)
    total = p.sum(dim=-1, keepdim=True)
    return p @ v / torch.where(total == 0, torch.ones_like(total), total), m + total.log()


def ring(case, t, put):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    group = case["heads"] // case["kv_heads"]
    wide = lambda x: x.repeat_interleave(group, dim=1)  # noqa: E731  (head h reads h // group)
    sizes = [None] * ranks
    dist.all_gather_object(sizes, t["k"].shape[2])
    home = [t["k"], t["v"], t["key_tokens"].reshape(1, 1, -1)]
    q, i = t["q"], t["query_tokens"]
    o = q.new_zeros(q.shape[:3] + t["v"].shape[3:])
    lse = q.new_full(q.shape[:3] + (1,), -torch.inf)
    block = home
    for step in range(ranks):
        k, v, j = block
        o, lse = merge(o, lse, *attend(scores(case, q, wide(k), i, j), wide(v)))
        put(step, o=o, lse=lse[..., 0])
        if step + 1 < ranks:
            block = hop(block, sizes[(rank - step - 1) % ranks])
    put(None, o=o, lse=lse[..., 0])
    if case["pass"] == "fwd":
        return
    block, dq, sums = home, torch.zeros_like(q), [torch.zeros_like(x) for x in home[:2]]
    delta = (t["do"] * o).sum(dim=-1, keepdim=True)
    for step in range(ranks):
        k, v, j = block
        p = weights(scores(case, q, wide(k), i, j), lse)
        ds = case["scale"] * p * (t["do"] @ wide(v).transpose(-1, -2) - delta)
        dq = dq + ds @ wide(k)
        parts = ds.transpose(-1, -2) @ q, p.transpose(-1, -2) @ t["do"]
        sums = [x + y.unflatten(1, (-1, group)).sum(dim=2) for x, y in zip(sums, parts)]
        put(step, dk=sums[0], dv=sums[1])
        block = hop(block + sums, sizes[(rank - step - 1) % ranks])  # the last hop brings the sums home
        block, sums = block[:3], block[3:]
    put(None, dq=dq, dk=sums[0], dv=sums[1])


def run_rank(rank, manifest, cases, out, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=manifest["ranks"])
    for case in manifest["cases"]:
        name = os.path.join(case["name"], f"rank-{rank}")

        def put(step, **tensors):
            folder = os.path.join(out, name, "" if step is None else f"step-{step}")
            os.makedirs(folder, exist_ok=True)
            for key, x in tensors.items():
                np.save(os.path.join(folder, key + ".npy"), x.numpy())

        arrays = load(os.path.join(cases, name, "inputs.safetensors"))
        ring(case, {key: torch.from_numpy(x.copy()) for key, x in arrays.items()}, put)
    dist.destroy_process_group()


def main(cases, out):
    with open(os.path.join(cases, "manifest.json")) as file:
        manifest = json.load(file)
    with tempfile.TemporaryDirectory() as folder:
        store = os.path.join(folder, "store")
        torch.multiprocessing.spawn(run_rank, (manifest, cases, out, store), nprocs=manifest["ranks"])


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
