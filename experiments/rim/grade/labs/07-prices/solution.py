# Lab 07, a solution in Python: every buffer of a live set is a term.
import json, sys


def up(a, b):
    return -(-a // b)


def dense(p):
    pairs = p["batch"] * p["heads"] * p["n_query"] * p["n_key"]
    return pairs * (p["has_mask"] + 2 * p["bytes"]) + p["backward"] * p["n_key"] * p["bytes"]


def csr(p):
    values = 2 * p["batch"] * p["heads"] * p["pairs"] + p["backward"] * p["n_key"]
    return 8 * (p["n_query"] + 1) + 4 * p["pairs"] + values * p["bytes"]


def tiles(p, br, bc, n):
    d, dv = p["d_key"], p["d_value"]
    both = br * d + bc * (d + dv) + br * bc + br * dv
    return both + (br * bc + bc * (d + dv) + n if p["backward"] else 2 * br)


def tiled(p):
    return tiles(p, p["tile_query"], p["tile_key"], p["n_query"]) * p["bytes"]


def gemm(p):
    panels = p["batch"] * p["heads"] * up(p["n_query"], 12)
    return (1 + p["backward"]) * panels * 12 * (p["n_key"] + 8) * p["bytes"]


def chunked(p):
    return p["tile_query"] * (p["d_value"] + 1) * up(p["n_key"], p["tile_key"]) * p["bytes"]


def ring(p):
    n, keys = p["n_query"] // p["ranks"], p["n_key"] // p["ranks"]
    pair = p["batch"] * p["kv_heads"] * keys * (p["d_key"] + p["d_value"])
    block = n * (p["d_key"] if p["backward"] else p["d_value"] + 1)
    return ((min(2, p["ranks"] - 1) + 2 * p["backward"]) * pair + block + tiles(p, 64, 64, n)) * p["bytes"]


def mask(p):
    return 4 * p["batch"] * p["n_query"] * p["n_key"]


def xformers(p):
    numbers, square = 4 * p["batch"] * p["n_query"] * p["d_key"], p["n_query"] * p["n_key"]
    pairs = 4 * p["batch"] * square
    before = numbers * (2 - p["is_first"]) + square + p["workspace"]
    return before + max(numbers + 2 * pairs + p["flush"], pairs + numbers)


forms = {"dense": dense, "csr-textbook": csr, "tiled-textbook": tiled, "gemm": gemm, "chunked": chunked,
         "ring-textbook": ring, "open-sora-peak": lambda p: 2 * mask(p), "open-sora-kept": mask, "xformers": xformers}
for line in sys.stdin:
    problem = json.loads(line)
    print(forms[problem["of"]](problem), flush=True)
