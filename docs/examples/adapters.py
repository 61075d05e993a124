"""Callables for attnlab.check() that call kernels of other libraries, each with the call that judges it.

Not run here: they need a GPU and the library.  Copy one, and take out of the claims what your version of it lacks.
"""
import attnlab
import torch


def flash_attention(q, k, v, *, scale, causal=None, window=None, softcap=None):
    """FlashAttention 2.  LSE comes with `return_attn_probs`; window_size is (left, right), -1 without end.

    attnlab.check(flash_attention, claims="bf16 f16 backward gqa cross causal scale", layout="blhd", causal="br",
                  arithmetic="fused-16", subnormals="flushed", declines=["scale-0", "nonfinite"], device="cuda",
                  shapes={"d": "8..256 step 8"}).require()
    """
    from flash_attn import flash_attn_func

    o, lse, _ = flash_attn_func(q, k, v, softmax_scale=scale, causal=causal is not None, window_size=window or (-1, -1),
                                softcap=softcap or 0.0, return_attn_probs=True)
    return o, lse


def flash_attention_packed(q, k, v, *, scale, causal=None, window=None, cu_seqlens_q=None, cu_seqlens_k=None):
    """The same on packed batches: what is above, but layout="thd", lse="absent"."""
    from flash_attn import flash_attn_varlen_func

    longest = [int((x[1:] - x[:-1]).max()) for x in (cu_seqlens_q, cu_seqlens_k)]
    return flash_attn_varlen_func(q, k, v, cu_seqlens_q, cu_seqlens_k, *longest, softmax_scale=scale,
                                  causal=causal is not None, window_size=window or (-1, -1))


def flashinfer(q, k, v, *, scale, causal=None, window=None, softcap=None):
    """FlashInfer's prefill of one sequence: no backward, and LSE is a logarithm to base 2.

    attnlab.check(flashinfer, claims="bf16 f16 gqa cross causal scale softcap", layout="blhd", causal="br", lse="2",
                  arithmetic="fused-16", device="cuda", shapes={"batch": "1", "d": "64 128 256"}).require()
    """
    from flashinfer import single_prefill_with_kv_cache

    if window is not None and (causal is None or window[1] > 0):
        raise attnlab.Refused("a window has a left end only, and is causal")
    o, lse = single_prefill_with_kv_cache(q[0], k[0], v[0], causal=causal is not None, sm_scale=scale, return_lse=True,
                                          window_left=window[0] if window else -1, logits_soft_cap=softcap)
    return o[None], lse.T[None]


def transformer_engine(q, k, v, *, scale, causal=None, bias=None):
    """TransformerEngine, which chooses among its back ends; features of all heads come side by side.

    attnlab.check(transformer_engine, claims="bf16 f16 backward gqa cross causal bias scale", layout="sbhd",
                  causal="br", lse="absent", arithmetic="fused-16", device="cuda",
                  shapes={"d": "8..128 step 8"}).require()
    """
    from transformer_engine.pytorch import DotProductAttention

    mask = "no_mask" if causal is None else "causal_bottom_right"
    attend = DotProductAttention(q.shape[2], q.shape[3], num_gqa_groups=k.shape[2], softmax_scale=scale,
                                 attention_dropout=0.0, qkv_format="sbhd", attn_mask_type=mask)
    more = {} if bias is None else {"core_attention_bias_type": "post_scale_bias", "core_attention_bias": bias}
    return attend(q, k, v, **more).unflatten(2, (q.shape[2], v.shape[3]))


def triton_shaped(q, k, v, *, scale, causal=None):
    """A kernel that is launched on a grid and writes to tensors which it is given: forward alone, causal="br"."""
    from my_kernels import attention_kernel, BLOCK  # yours

    o, lse = torch.empty_like(q), torch.empty(q.shape[:3], device=q.device)
    attention_kernel[(-(-q.shape[2] // BLOCK), q.shape[0] * q.shape[1])](
        q, k, v, o, lse, scale, *q.stride(), *k.stride(), *v.stride(), *o.stride(), *q.shape, *k.shape[1:3],
        CAUSAL=causal is not None)
    return o, lse


def flex(q, k, v, *, scale, causal=None):
    """flex_attention as it is written; compiled, each shape and mask takes seconds: causal="br", arithmetic="f32"."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    blocks = None if causal is None else create_block_mask(
        lambda b, h, i, j: j <= i + k.shape[2] - q.shape[2], None, None, q.shape[2], k.shape[2], device=q.device)
    return flex_attention(q, k, v, block_mask=blocks, scale=scale, enable_gqa=q.shape[1] != k.shape[1], return_lse=True)


def with_sink(attention):
    """A kernel that returns o and lse, with a learned sink: the merge with a part whose value is 0 and whose LSE is z.

    attnlab.check(with_sink(flex), claims="f32 backward gqa cross causal sink scale", causal="br").require()
    """
    def attention_with_sink(q, k, v, *, sink=None, offset=None, **words):
        o, lse = attention(q, k, v, **words)
        if sink is None:
            return o, lse
        both = torch.logaddexp(lse, sink[:, None])
        return (o * torch.exp(lse - both)[..., None]).to(o.dtype), both
    return attention_with_sink
