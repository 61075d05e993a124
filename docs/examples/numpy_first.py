# The smallest program that attnlab can judge: forward, float32, no LSE (docs/external.md; labs: docs/labs).
import json, os, sys
import numpy as np

def load(path):  # safetensors: length, JSON header, numbers
    data = open(path, "rb").read()
    start = 8 + int.from_bytes(data[:8], "little")
    types = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "U8": "u1"}
    tensors = {}
    for name, at in json.loads(data[8:start]).items():
        if name != "__metadata__":
            x = np.frombuffer(data[start:][slice(*at["data_offsets"])], types[at["dtype"]])
            if at["dtype"] == "BF16":  # the upper half of a float32
                x = (x.astype("<u4") << 16).view("<f4")
            tensors[name] = x.reshape(at["shape"])
    return tensors

def attention(case, t):
    s = np.float32(case["scale"]) * (t["q"] @ t["k"].swapaxes(-1, -2))
    if "mask" in t:
        s = np.where(t["mask"], s, -np.inf)
    p = np.exp(s - s.max(axis=-1, keepdims=True))
    return p @ t["v"] / p.sum(axis=-1, keepdims=True)

cases, out = sys.argv[1:]
for case in json.load(open(cases + "/manifest.json"))["cases"]:
    folder = f"{out}/{case['name']}"
    os.makedirs(folder, exist_ok=True)
    try:  # an error in one case need not cost the others
        o = attention(case, load(f"{cases}/{case['name']}/inputs.safetensors"))
        np.save(f"{folder}/o.npy", o)  # any type: it is judged as what it is
    except Exception as error:
        print(repr(error), file=open(f"{folder}/error.txt", "w"))
