#!/usr/bin/env python3
"""One back end of PyTorch's scaled_dot_product_attention, or flex_attention, for `attnlab check --exec`.

    attnlab check --exec 'python3 docs/examples/torch_sdpa.py --backend flash' \\
        --claims docs/examples/torch_flash.json

To judge a kernel of your own, put it in the place of attention(), and nothing else need change.
16-bit tensors are read and returned as they are.  docs/external.md explains the files.
"""
import argparse
import functools
import json
import math
import os
import time
import warnings

import torch
from torch.nn.functional import softmax

try:  # PyTorch 2.5 and later
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention
    from torch.nn.functional import scaled_dot_product_attention
except ImportError:
    sdpa_kernel = None

# `attnlab measure` asks for REPEAT calls after the first; they may stop after ENOUGH seconds.
REPEAT = int(os.environ.get("ATTNLAB_REPEAT", 0))
ENOUGH = float(os.environ.get("ATTNLAB_ENOUGH", 0))

# The name that sdpa_kernel() has for it, and how a warning about it begins.
BACKENDS = {
    "flash": ("FLASH_ATTENTION", "flash"),
    "efficient": ("EFFICIENT_ATTENTION", "memory efficient"),
    "cudnn": ("CUDNN_ATTENTION", "cudnn"),
    "math": ("MATH", "math"),  # computes 16 bits in float32
    "unfused": ("MATH", "math"),  # the same with every step stored in 16 bits
    "flex": (None, "flex"),
}

# ---- what is judged ------------------------------------------------------------------------------


def attention(backend, case, t):
    """o [B,H,Lq,dv], and lse [B,H,Lq] or None, from q [B,H,Lq,d], k [B,G,Lk,d], v [B,G,Lk,dv] in t.

    case: this case in manifest.json.  t["mask"] is there where case["mask"] is "dense", a bool
    [B,H,Lq,Lk], True where visible; t["bias"] where case["bias"] is "tensor".  All of t is on the
    device.  autograd gives the gradients, through a torch.autograd.Function if need be.
    """
    return flex(case, t) if backend == "flex" else sdpa(backend, case, t)


def sdpa(backend, case, t):
    q, k, v = t["q"], t["k"], t["v"]
    mask, causal = added(case, t)
    if sdpa_kernel is None:
        return spelled_out(backend, case["scale"], q, k, v, mask, causal), None
    groups = q.shape[1] != k.shape[1]
    with sdpa_kernel(getattr(SDPBackend, BACKENDS[backend][0])):
        o = scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal,
                                         scale=case["scale"], enable_gqa=groups)
    return o, kept_lse(o)


def added(case, t):
    """attn_mask and is_causal.  With a bias, hidden pairs are -inf in it: there is one attn_mask."""
    causal = case["mask"] == "band"  # claimed: "causal", aligned "tl"
    if "bias" not in t:
        return t.get("mask"), causal
    mask = t.get("mask")
    if causal:
        shape = case["n_query"], case["n_key"]
        mask = torch.ones(shape, dtype=torch.bool, device=t["q"].device).tril()
    return t["bias"] if mask is None else t["bias"].masked_fill(~mask, -math.inf), False


def kept_lse(o):
    """The LSE that the operator kept for its backward: [B,H,Lq], in places padded or with one more axis."""
    nodes = [o.grad_fn]
    while nodes:
        node = nodes.pop()
        for name in ("_saved_logsumexp", "_saved_log_sumexp"):
            if hasattr(node, name):
                return getattr(node, name).flatten(2)[..., : o.shape[2]]
        nodes += [before for before, _ in getattr(node, "next_functions", ())]
    return None


def spelled_out(backend, scale, q, k, v, mask, causal):
    """The computation of the back end math, where PyTorch is older than 2.5."""
    if backend != "math":
        raise NotImplementedError(f"PyTorch {torch.__version__} has no back end {backend} to choose")
    stored, root = q.dtype, math.sqrt(abs(scale))
    if stored != torch.float64:
        q, k, v = q.float(), k.float(), v.float()
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
    s = (q * math.copysign(root, scale)) @ (k * root).transpose(-1, -2)
    if causal:
        mask = torch.ones(s.shape[2:], dtype=torch.bool, device=s.device).tril()
    if mask is not None:
        s = s.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else s + mask
    return (softmax(s, dim=-1) @ v).to(stored)


@functools.lru_cache
def compiled_flex(device):
    if device == "cpu":
        return flex_attention  # runs as it is written there
    import torch._dynamo.config as config

    config.cache_size_limit = config.accumulated_cache_size_limit = 4096  # beyond it, not compiled
    return torch.compile(flex_attention, dynamic=True)


def flex(case, t):
    """flex_attention with a block mask: of the numbers of a band, or of the bytes of a dense mask."""
    if sdpa_kernel is None:
        raise NotImplementedError(f"PyTorch {torch.__version__} has no flex_attention")
    q, k, v, device = t["q"], t["k"], t["v"], t["q"].device
    blocks = None
    if case["mask"] == "band":  # tensors, not numbers: those would be compiled anew for each case
        offset, left, right = (torch.tensor(case[name], device=device)
                               for name in ("offset", "window_left", "window_right"))

        def visible(b, h, i, j):
            at = j - i - offset
            return ((left < 0) | (at >= -left)) & ((right < 0) | (at <= right))

        blocks = create_block_mask(visible, None, None, q.shape[2], k.shape[2], device=device)
    elif case["mask"] == "dense":
        blocks = create_block_mask(lambda b, h, i, j: t["mask"][b, h, i, j], q.shape[0], q.shape[1],
                                   q.shape[2], k.shape[2], device=device)
    return compiled_flex(device.type)(q, k, v, block_mask=blocks, scale=case["scale"],
                                      enable_gqa=q.shape[1] != k.shape[1], return_lse=True)


# ---- a case --------------------------------------------------------------------------------------

# Which axes of a file are batch, head, token, feature.
LAYOUTS = {"bhld": (0, 1, 2, 3), "blhd": (0, 2, 1, 3), "sbhd": (1, 2, 0, 3)}


def timed(call):
    """The results of the last call, and the seconds of each."""
    seconds = []
    while not seconds or (len(seconds) <= REPEAT and sum(seconds[1:]) < ENOUGH):
        result = None  # the last one must not be held while the next is made
        start = time.perf_counter()
        result = call()
        if REPEAT and torch.cuda.is_available():
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    return result, seconds


def compute(backend, case, t):
    """The tensors that case["outputs"] names, and the seconds of each call of its pass."""
    order, wants_grad = LAYOUTS[case["layout"]], case["pass"] == "bwd"
    for name in ("q", "k", "v", "do"):
        if name in t:
            t[name] = t[name].permute(order)
    if "bias" in t:
        t["bias"] = t["bias"].to(t["q"].dtype)
    if "mask" in t:
        t["mask"] = t["mask"] == 1
    names = ["q", "k", "v"] + ["bias"] * ("dbias" in case["outputs"])
    leaves = [t[name].requires_grad_(wants_grad) for name in names]  # inference has paths of its own
    forward = functools.partial(attention, backend, case, t)
    (o, lse), seconds = (forward(), None) if wants_grad else timed(forward)
    if lse is None and "lse" in case["outputs"]:  # not kept without a gradient
        leaves[0].requires_grad_()
        lse = forward()[1]
    result = {"o": o, "lse": lse}
    if wants_grad:
        ends, upstream = ([o, lse], [t["do"], t["dlse"]]) if "dlse" in t else ([o], [t["do"]])
        grads, seconds = timed(lambda: torch.autograd.grad(ends, leaves, upstream, retain_graph=REPEAT > 0))
        result.update(zip(("d" + n for n in names), grads))
    for name in ("o", "dq", "dk", "dv"):
        if name in result:
            result[name] = result[name].permute([order.index(axis) for axis in range(4)])
    return {name: result[name] for name in case["outputs"] if result[name] is not None}, seconds


# ---- files ---------------------------------------------------------------------------------------

TYPES = {"F64": torch.float64, "F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16,
         "U8": torch.uint8}
WORDS = {dtype: word for word, dtype in TYPES.items()}


def load(path, device):
    """A safetensors file: eight bytes of length, a JSON header, the numbers."""
    with open(path, "rb") as file:
        data = bytearray(file.read())
    start, t = 8 + int.from_bytes(data[:8], "little"), {}
    for name, at in json.loads(data[8:start]).items():
        if name != "__metadata__":
            x = torch.frombuffer(data, dtype=TYPES[at["dtype"]], count=math.prod(at["shape"]),
                                 offset=start + at["data_offsets"][0])
            t[name] = x.reshape(at["shape"]).to(device)
    return t


def save(path, result):
    """One copy from the device, the only wait for it in a case; one write."""
    header, end = {}, 0
    for name, x in result.items():
        begin, end = end, end + x.numel() * x.element_size()
        header[name] = {"dtype": WORDS[x.dtype], "shape": list(x.shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    flat = [x.detach().reshape(-1).contiguous().view(torch.uint8) for x in result.values()]
    numbers = torch.cat(flat).cpu().numpy().tobytes()
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + numbers)


def reason(backend, error, heard):
    """One line: what PyTorch says of this back end, where it says more than the error."""
    said = [str(warning.message).split(" (Triggered")[0] for warning in heard] + [str(error)]
    for title, why in zip(said, said[1:]):
        if title.lower().startswith(BACKENDS[backend][1]) and "because:" in title:
            return " ".join(why.split())
    return f"{type(error).__name__}: {str(error).strip()}".splitlines()[0]


def is_refusal(error):
    words = ("No available kernel", "No viable backend", "not implemented for")
    return isinstance(error, NotImplementedError) or any(word in str(error) for word in words)


def is_lost(device):
    """After an illegal access nothing more runs on the device for this process."""
    try:
        return torch.ones(1, device=device).item() != 1
    except RuntimeError:
        return True


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("cases")
    parser.add_argument("out")
    parser.add_argument("--backend", choices=BACKENDS, default="flash")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    if args.backend == "unfused" and sdpa_kernel is not None:
        torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(True)
    with open(os.path.join(args.cases, "manifest.json")) as file:
        cases = json.load(file)["cases"]
    count = {"result": 0, "refused": 0, "error": 0}
    for case in cases:
        folder = os.path.join(args.out, case["name"])
        os.makedirs(folder, exist_ok=True)
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            try:
                tensors = load(os.path.join(args.cases, case["name"], "inputs.safetensors"), args.device)
                result, seconds = compute(args.backend, case, tensors)
                save(os.path.join(folder, "result.safetensors"), result)
                with open(os.path.join(folder, "seconds.txt"), "w") as file:
                    print(*seconds, file=file)
                ended = "result"
            except Exception as error:  # in one case: it need not cost the others
                ended, why = "refused" if is_refusal(error) else "error", reason(args.backend, error, heard)
                with open(os.path.join(folder, ended + ".txt"), "w") as file:
                    print(why, file=file)
                if is_lost(args.device):  # attnlab starts this again, on the other cases
                    print(why, flush=True)
                    os._exit(1)
        count[ended] += 1
    print(f"torch {torch.__version__}, {args.backend} on {args.device}:",
          ", ".join(f"{n} {ended}" for ended, n in count.items()))


if __name__ == "__main__":
    main()
