#!/usr/bin/env python3
"""One back end of PyTorch's scaled_dot_product_attention, or flex_attention, judged by attnlab.

    python3 docs/examples/torch_sdpa.py --backend flash
    attnlab check --exec 'python3 docs/examples/torch_sdpa.py --backend flash' --claims docs/examples/torch_flash.json

Claims are those of docs/examples/torch_BACKEND.json.  `attnlab measure` needs the second form.  To judge a kernel of
your own, put it in the place of attention().
"""
import argparse
import json
import warnings

import attnlab
import torch
import torch_attention

try:  # PyTorch 2.5 and later
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention
    from torch.nn.functional import scaled_dot_product_attention
except ImportError:
    sdpa_kernel = None

# The name that sdpa_kernel() has for it.  math computes 16 bits in float32, unfused stores every step in 16 bits.
BACKENDS = {"flash": "FLASH_ATTENTION", "efficient": "EFFICIENT_ATTENTION", "cudnn": "CUDNN_ATTENTION", "math": "MATH",
            "unfused": "MATH", "flex": None}


def attention(q, k, v, *, scale, causal=None, window=None, offset=None, mask=None, bias=None):
    if sdpa_kernel is None:
        return spelled_out(q, k, v, scale, causal, mask, bias)
    if backend == "flex":
        return flex(q, k, v, scale, causal, window, offset, mask)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            return sdpa(q, k, v, scale, causal, mask, bias)
        except RuntimeError as error:
            words = ("No available kernel", "No viable backend", "not implemented for")
            if any(word in str(error) for word in words):
                raise attnlab.Refused(reason(error, heard)) from None
            raise


def sdpa(q, k, v, scale, causal, mask, bias):
    if bias is not None:  # there is one attn_mask: hidden pairs are -inf in it
        mask = lower(q, k) if causal else mask
        bias = bias.to(q.dtype)
        mask, causal = bias if mask is None else bias.masked_fill(~mask, -torch.inf), None

    def run(q):
        with sdpa_kernel(getattr(SDPBackend, BACKENDS[backend])):
            return scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal is not None, scale=scale,
                                                enable_gqa=q.shape[1] != k.shape[1])

    o = run(q)
    kept = kept_lse(o)  # without a gradient it is not: a second call does it, when the time of this one is taken
    return o, kept if kept is not None else lambda: kept_lse(run(q.detach().requires_grad_()))


def lower(q, k):
    return torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).tril()


def kept_lse(o):
    """The LSE that the operator kept for its backward: [B,H,Lq], in places padded or with one more axis."""
    nodes = [o.grad_fn]
    for node in nodes:
        for name in ("_saved_logsumexp", "_saved_log_sumexp"):
            if hasattr(node, name):
                return getattr(node, name).flatten(2)[..., : o.shape[2]]
        nodes += [before for before, _ in getattr(node, "next_functions", ())]


def spelled_out(q, k, v, scale, causal, mask, bias):
    """The computation of the back end math, where PyTorch is older than 2.5."""
    if backend != "math":
        raise attnlab.Refused(f"PyTorch {torch.__version__} has no back end {backend} to choose")
    x = (y if y.dtype == torch.float64 else y.float() for y in (q, k, v))
    return torch_attention.attention(*x, scale=scale, mask=lower(q, k) if causal else mask, bias=bias)[0].to(q.dtype)


def flex(q, k, v, scale, causal, window, offset, mask):
    blocks = None
    if causal is not None or window is not None:  # tensors: numbers would be compiled anew for each case
        left, right = window or (-1, 0)
        at, left, right = (torch.tensor(x, device=q.device) for x in (offset, left, right))
        blocks = create_block_mask(lambda b, h, i, j: ((left < 0) | (j - i - at >= -left)) & (
            (right < 0) | (j - i - at <= right)), None, None, q.shape[2], k.shape[2], device=q.device)
    elif mask is not None:
        blocks = create_block_mask(lambda b, h, i, j: mask[b, h, i, j], *mask.shape, device=q.device)
    run = compiled_flex if q.device.type == "cuda" else flex_attention  # on a CPU it runs as it is written
    return run(q, k, v, block_mask=blocks, scale=scale, enable_gqa=q.shape[1] != k.shape[1], return_lse=True)


def reason(error, heard):
    """One line: what PyTorch says of this back end, where it says more than the error."""
    said = [str(warning.message).split(" (Triggered")[0] for warning in heard] + [f"{type(error).__name__}: {error}"]
    return next((why for title, why in zip(said, said[1:]) if "because:" in title and
                 title.lower().startswith((backend, "memory " + backend))), said[-1].strip().splitlines()[0])


parser = argparse.ArgumentParser()
parser.add_argument("folders", nargs="*")
parser.add_argument("--backend", choices=BACKENDS, default="flash")
parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
args = parser.parse_args()
backend = args.backend
if backend == "flex" and sdpa_kernel is not None:
    import torch._dynamo.config
    torch._dynamo.config.cache_size_limit = torch._dynamo.config.accumulated_cache_size_limit = 4096
    compiled_flex = torch.compile(flex_attention, dynamic=True)
if backend == "unfused" and sdpa_kernel is not None:
    torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(True)
if args.folders:
    attnlab.batch(*args.folders, attention, device=args.device)
else:
    with open(__file__.replace("sdpa.py", backend + ".json")) as file:
        print(attnlab.check(attention, **json.load(file), device=args.device, timeout=3600))
