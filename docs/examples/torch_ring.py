#!/usr/bin/env python3
"""The ring of numpy_ring.py by torch.distributed (gloo), a process for each rank.  Each reads its own shards alone.

    attnlab vectors --scheme ring:ranks=4,order=zigzag DIR --case 'b1h4g2q64k64d16:causal(br):f32:normal:s1:pass=bwd'
    python3 docs/examples/torch_ring.py DIR OUT
    attnlab check --results OUT --vectors DIR

A ring of your own takes the place of rank().
"""
import functools
import json
import sys
import tempfile

sys.dont_write_bytecode = True
import attnlab  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.multiprocessing  # noqa: E402
from numpy_ring import next_of, rank  # noqa: E402


def hop(arrays):
    """Sends to the next rank, and returns what the rank before has sent: shapes first, for shards differ in length."""
    me, ranks = dist.get_rank(), dist.get_world_size()
    shapes = [None] * ranks
    dist.all_gather_object(shapes, [(x.shape, x.dtype.str) for x in arrays])
    got = [torch.from_numpy(np.empty(*x)) for x in shapes[me - 1]]
    work = [dist.isend(torch.from_numpy(np.array(x)), (me + 1) % ranks, tag=n) for n, x in enumerate(arrays)]
    work += [dist.irecv(x, (me - 1) % ranks, tag=n) for n, x in enumerate(got)]
    for one in work:
        one.wait()
    return [x.numpy() for x in got]


def ring(case, ranks, put):
    me = dist.get_rank()
    running = rank(case, len(ranks), ranks[me], functools.partial(put, me))
    with np.errstate(divide="ignore"):
        sent = next(running)
        while sent is not None:
            sent = next_of(running, hop(sent))


def run_rank(me, ranks, cases, out, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + store, rank=me, world_size=ranks)
    attnlab.batch(cases, out, ring, device="numpy")
    dist.destroy_process_group()


if __name__ == "__main__":
    with open(sys.argv[1] + "/manifest.json") as file, tempfile.TemporaryDirectory() as folder:
        n = json.load(file)["ranks"]
        torch.multiprocessing.spawn(run_rank, (n, *sys.argv[1:3], folder + "/store"), nprocs=n)
