# Lab 04: compressed sparse rows.  docs/labs/04-csr/README.md is its page.
#
#     attnlab grade 04 --exec 'python3 lab.py' --claims lab.json
#
# Copy this folder, write what is marked YOURS, and declare the conventions of your task in lab.json:
# layout, base of LSE and bytes of a mask are brought to one form below.
import json, os, sys
import numpy as np

# t["q"] [B,H,Lq,d], t["k"] [B,G,Lk,d], t["v"] [B,G,Lk,dv].  Query head h reads kv head h // case["group"].
# band(case, i) gives keys lo and hi: those that numbers leave to query i are [lo, hi), or all.
# sees(case, t, b, h, i0, i1, j0, j1) gives the rectangle [i1 - i0, j1 - j0] of the mask.
def build(case, t, b, h):
    """YOURS: row_start [Lq + 1] and column [visible pairs] of query head h: the elements of row i are
    column[row_start[i] : row_start[i + 1]], the keys that query i sees."""
    raise NotImplementedError("build() is not written yet")


def rows(case, t, b, h, row_start, column, o, lse):
    """YOURS: o [Lq,dv] and lse [Lq] of query head h, from the listed pairs alone.  o is 0 and lse -inf."""
    raise NotImplementedError("rows() is not written yet")


def forward(case, t, out):
    for b, h in np.ndindex(case["batch"], case["heads"]):
        rows(case, t, b, h, *build(case, t, b, h), out["o"][b, h], out["lse"][b, h])


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
            raise NotImplementedError("there is no backward pass here")
    files["lse"] /= unit
    for name in case["outputs"]:
        np.save(f"{out}/{case['name']}/{name}.npy", files[name])


def main(cases, out):
    for case in json.load(open(f"{cases}/manifest.json"))["cases"]:
        os.makedirs(f"{out}/{case['name']}", exist_ok=True)
        try:
            run(case, cases, out)
        except Exception as error:  # in one case: it need not cost the others
            print(repr(error), file=open(f"{out}/{case['name']}/error.txt", "w"))


if __name__ == "__main__":
    main(*sys.argv[1:])
