# Lab 06, a solution in numpy.
import json, os, sys
import numpy as np

# t["q"] [B,H,Lq,d], t["k"] [B,G,Lk,d], t["v"] [B,G,Lk,dv], t["do"] [B,H,Lq,dv].  Query head h reads kv
# head h // case["group"].
BR, BC = 64, 64  # queries and keys of a tile


def tiles(n, size):  # [(0, size), (size, 2 size), ...]; the last one may be shorter
    return [(at, min(at + size, n)) for at in range(0, n, size)]


def tile_scores(case, t, b, h, i0, i1, j0, j1):  # [i1 - i0, j1 - j0], -inf where hidden
    g = h // case["group"]
    s = np.float32(case["scale"]) * (t["q"][b, h, i0:i1] @ t["k"][b, g, j0:j1].T)
    return np.where(sees(case, t, b, h, i0, i1, j0, j1), s, np.float32(-np.inf))


def forward(case, t, out):
    for b, h in np.ndindex(case["batch"], case["heads"]):
        g = h // case["group"]
        for i0, i1 in tiles(case["n_query"], BR):
            o = out["o"][b, h, i0:i1]  # a view: it is 0, and becomes the sum
            m = np.full((i1 - i0, 1), -np.inf, np.float32)
            l = np.zeros((i1 - i0, 1), np.float32)
            for j0, j1 in tiles(case["n_key"], BC):
                s = tile_scores(case, t, b, h, i0, i1, j0, j1)
                m_new = np.maximum(m, s.max(axis=1, keepdims=True))
                safe = np.where(m_new == -np.inf, 0, m_new)  # nothing seen so far: p = 0, not NaN
                p, alpha = np.exp(s - safe), np.exp(m - safe)
                l = alpha * l + p.sum(axis=1, keepdims=True)
                o[:] = alpha * o + p @ t["v"][b, g, j0:j1]
                m = m_new
            o /= np.where(l == 0, 1, l)
            out["lse"][b, h, i0:i1] = (m + np.log(l))[:, 0]


def backward(case, t, out):
    for b, h in np.ndindex(case["batch"], case["heads"]):
        g = h // case["group"]
        D = np.einsum("ic,ic->i", t["do"][b, h], out["o"][b, h])
        for j0, j1 in tiles(case["n_key"], BC):
            k, v = t["k"][b, g, j0:j1], t["v"][b, g, j0:j1]
            for i0, i1 in tiles(case["n_query"], BR):
                q, do, lse = t["q"][b, h, i0:i1], t["do"][b, h, i0:i1], out["lse"][b, h, i0:i1]
                s = tile_scores(case, t, b, h, i0, i1, j0, j1)
                p = np.exp(s - np.where(lse == -np.inf, 0, lse)[:, None])
                dx = p * (do @ v.T - D[i0:i1, None]) * np.float32(case["scale"])
                out["dv"][b, g, j0:j1] += p.T @ do
                out["dq"][b, h, i0:i1] += dx @ k
                out["dk"][b, g, j0:j1] += dx.T @ q


# ---- from here on nothing is yours to change: masks, and files of attnlab (docs/external.md) ----

ORDER = {"bhld": (0, 1, 2, 3), "blhd": (0, 2, 1, 3), "sbhd": (1, 2, 0, 3)}  # of the axes of a file
TYPES = {"F32": "<f4", "U8": "u1"}


def load(path):  # safetensors: length, JSON header, numbers, which stay in the file until they are read
    with open(path, "rb") as file:
        start = 8 + int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(start - 8))
    return {name: np.memmap(path, TYPES[x["dtype"]], "r", start + x["data_offsets"][0], tuple(x["shape"]))
            if 0 not in x["shape"] else np.zeros(x["shape"], TYPES[x["dtype"]])
            for name, x in header.items() if name != "__metadata__"}


def band(case, i):  # keys [lo, hi) of query i: those that the numbers of a band leave, or all
    lo, hi, n = 0, case["n_key"], case["n_key"]
    if case["mask"] == "band" and case["window_left"] >= 0:
        lo = i + case["offset"] - case["window_left"]
    if case["mask"] == "band" and case["window_right"] >= 0:
        hi = i + case["offset"] + case["window_right"] + 1
    return min(max(lo, 0), n), min(max(hi, 0), n)


def sees(case, t, b, h, i0, i1, j0, j1):  # [i1 - i0, j1 - j0]: whether a query sees a key
    if case["mask"] == "dense":
        return t["mask"][b, h, i0:i1, j0:j1] == (case["mask_one"] == "visible")
    seen, i, j = np.ones((i1 - i0, j1 - j0), bool), np.arange(i0, i1)[:, None], np.arange(j0, j1)
    if case["mask"] == "band" and case["window_left"] >= 0:
        seen &= j >= i + case["offset"] - case["window_left"]
    if case["mask"] == "band" and case["window_right"] >= 0:
        seen &= j <= i + case["offset"] + case["window_right"]
    return seen


def run(case, cases, out):
    t = load(f"{cases}/{case['name']}/inputs.safetensors")
    order = ORDER[case["layout"]]
    case["group"] = case["heads"] // max(case["kv_heads"], 1)
    size = {name: (case["batch"], case["heads" if name in "qo" else "kv_heads"],
                   case["n_query" if name in "qo" else "n_key"],
                   case["d_value" if name in "ov" else "d_key"]) for name in "qkvo"}
    for name in set(t) & {"q", "k", "v", "do"}:
        t[name] = t[name].transpose(order)  # [B,H,L,d] now, whatever the file has
    files = {"lse": np.full(size["o"][:3], -np.inf, np.float32)}
    for name in set(case["outputs"]) - {"lse"}:
        shape = size[name[-1]]  # of dq as of q
        files[name] = np.zeros([shape[axis] for axis in np.argsort(order)], np.float32)
    results = {name: x if name == "lse" else x.transpose(order) for name, x in files.items()}
    unit = np.float32(np.log(2) if case["lse"] == "2" else 1)  # LSE here is in natural logarithms
    with np.errstate(all="ignore"):
        forward(case, t, results)
        if case["pass"] == "bwd":
            backward(case, t, results)
    files["lse"] /= unit
    for name in case["outputs"]:
        np.save(f"{out}/{case['name']}/{name}.npy", files[name])


if __name__ == "__main__":
    cases, out = sys.argv[1:]
    for case in json.load(open(f"{cases}/manifest.json"))["cases"]:
        os.makedirs(f"{out}/{case['name']}", exist_ok=True)
        try:
            run(case, cases, out)
        except Exception as error:  # in one case: it need not cost the others
            print(repr(error), file=open(f"{out}/{case['name']}/error.txt", "w"))
