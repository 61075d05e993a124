# Lab 08: a ring of 4 ranks, forward and backward, all ranks in one process; judged step by step.
#
#     attnlab grade 08 --exec 'python3 lab.py' --claims lab.json
#
# Copy this folder, write ring(), and declare the conventions of your task in lab.json.
import json, os, sys
import numpy as np

def ring(case, ranks, put):
    """ranks[r] has q, k, v (and do, backward) of rank r, [B,heads,tokens,width], and query_tokens, key_tokens: the
    places of its tokens in the whole sequence, of which the mask speaks (case["mask"] "none" or "band": offset,
    window_right).  A rank may use what it has or has received from the rank before it, and nothing else.

    After each step:    put(r, step, o=..., lse=...)   of the keys met so far; lse is [B,H,tokens]
    in the end:         put(r, None, o=..., lse=...)
    backward, after:    put(r, step, dk=..., dv=...)   the travelling sums of the block that is here
    in the end:         put(r, None, dq=..., dk=..., dv=...)
    """
    raise NotImplementedError("ring() is not written yet")

# ---- from here on nothing is yours to change: files of attnlab (docs/external.md) ----

def load(path):  # safetensors: length, JSON header, numbers
    data = open(path, "rb").read()
    start = 8 + int.from_bytes(data[:8], "little")
    types, tensors = {"F32": "<f4", "I64": "<i8"}, {}
    for name, at in json.loads(data[8:start]).items():
        if name != "__metadata__":
            x = np.frombuffer(data[start:][slice(*at["data_offsets"])], types[at["dtype"]])
            tensors[name] = x.reshape(at["shape"])
    return tensors

cases, out = sys.argv[1:]
manifest = json.load(open(cases + "/manifest.json"))
for case in manifest["cases"]:
    names = [f"{case['name']}/rank-{r}" for r in range(manifest["ranks"])]

    def put(rank, step, **tensors):
        folder = f"{out}/{names[rank]}" + ("" if step is None else f"/step-{step}")
        os.makedirs(folder, exist_ok=True)
        for name, x in tensors.items():
            np.save(f"{folder}/{name}.npy", x)

    try:
        ring(case, [load(f"{cases}/{name}/inputs.safetensors") for name in names], put)
    except Exception as error:
        os.makedirs(f"{out}/{case['name']}", exist_ok=True)
        print(repr(error), file=open(f"{out}/{case['name']}/error.txt", "w"))
