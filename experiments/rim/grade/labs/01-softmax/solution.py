# Lab 01, a solution in numpy.
import json, os, sys
import numpy as np

def attention(case, t):
    s = np.float32(case["scale"]) * (t["q"] @ t["k"].swapaxes(-1, -2))
    m = s.max(axis=-1, keepdims=True)
    p = np.exp(s - m)
    l = p.sum(axis=-1, keepdims=True)
    return p @ t["v"] / l, (m + np.log(l))[..., 0]

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
