"""Callables for attnlab.check() that call the kernels of three libraries.  Not run here: they need a GPU and the library.

    attnlab.check(adapters.flash_attention, claims="bf16 f16 backward gqa cross causal scale", layout="blhd",
                  causal="br", arithmetic="fused-16", device="cuda", shapes={"d": "8..256 step 8"}).require()
"""
import attnlab


def flash_attention(q, k, v, *, scale, causal=None, window=None, softcap=None):
    """FlashAttention 2: layout="blhd", causal="br".  window is (left, right) as it is."""
    from flash_attn import flash_attn_func

    o, lse, _ = flash_attn_func(q, k, v, softmax_scale=scale, causal=causal is not None, window_size=window or (-1, -1),
                                softcap=softcap or 0.0, return_attn_probs=True)
    return o, lse


def flash_attention_packed(q, k, v, *, scale, causal=None, window=None, cu_seqlens_q=None, cu_seqlens_k=None):
    """The same on packed batches: layout="thd", lse="absent"."""
    from flash_attn import flash_attn_varlen_func

    longest = [int((x[1:] - x[:-1]).max()) for x in (cu_seqlens_q, cu_seqlens_k)]
    return flash_attn_varlen_func(q, k, v, cu_seqlens_q, cu_seqlens_k, *longest, softmax_scale=scale,
                                  causal=causal is not None, window_size=window or (-1, -1))


def flashinfer(q, k, v, *, scale, causal=None, window=None, softcap=None):
    """FlashInfer's prefill of one sequence: layout="blhd", causal="br", lse="2", shapes={"batch": "1"}; no backward."""
    from flashinfer import single_prefill_with_kv_cache

    if window is not None and (causal is None or window[1] > 0):
        raise attnlab.Refused("a window has a left end only, and is causal")
    o, lse = single_prefill_with_kv_cache(q[0], k[0], v[0], causal=causal is not None, sm_scale=scale, return_lse=True,
                                          window_left=window[0] if window else -1, logits_soft_cap=softcap)
    return o[None], lse.T[None]


def transformer_engine(q, k, v, *, scale, causal=None, bias=None):
    """TransformerEngine: layout="sbhd", lse="absent", causal="br"."""
    from transformer_engine.pytorch import DotProductAttention

    mask = "no_mask" if causal is None else "causal_bottom_right"
    attend = DotProductAttention(q.shape[2], q.shape[3], num_gqa_groups=k.shape[2], softmax_scale=scale,
                                 attention_dropout=0.0, qkv_format="sbhd", attn_mask_type=mask)
    more = {} if bias is None else {"core_attention_bias_type": "post_scale_bias", "core_attention_bias": bias}
    return attend(q, k, v, **more).unflatten(2, (q.shape[2], v.shape[3]))
