# Lab 02: masks: causal from either end, windows, bytes, and rows that see nothing.
#
#     attnlab grade 02 --exec 'python3 lab.py' --claims lab.json
#
# Copy this folder, write attention(), and declare the conventions of your task in lab.json.
import json, os, sys
import numpy as np

def attention(case, t):
    """o and lse of t["q"] [B,H,Lq,d], t["k"] [B,H,Lk,d], t["v"] [B,H,Lk,dv], in float32.

    case["scale"] is the scale.  lse is [B,H,Lq] whatever the layout.  case["mask"] is "none";
    "band": query i sees key j if i + offset - window_left <= j <= i + offset + window_right, numbers
    of the case, where -1 is no end; "dense": t["mask"] [B,H,Lq,Lk] has a byte for each pair.
    """
    raise NotImplementedError("attention() is not written yet")

# ---- from here on nothing is yours to change: files of attnlab (docs/external.md) ----

def load(path):  # safetensors: length, JSON header, numbers
    data = open(path, "rb").read()
    start = 8 + int.from_bytes(data[:8], "little")
    types, tensors = {"F32": "<f4", "U8": "u1"}, {}
    for name, at in json.loads(data[8:start]).items():
        if name != "__metadata__":
            x = np.frombuffer(data[start:][slice(*at["data_offsets"])], types[at["dtype"]])
            tensors[name] = x.reshape(at["shape"])
    return tensors

cases, out = sys.argv[1:]
for case in json.load(open(cases + "/manifest.json"))["cases"]:
    folder = f"{out}/{case['name']}"
    os.makedirs(folder, exist_ok=True)
    try:
        for name, x in zip(("o", "lse"), attention(case, load(f"{cases}/{case['name']}/inputs.safetensors"))):
            np.save(f"{folder}/{name}.npy", x)
    except Exception as error:
        print(repr(error), file=open(f"{folder}/error.txt", "w"))
