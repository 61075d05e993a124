"""jax.nn.dot_product_attention, or a Pallas kernel: python3 docs/examples/jax_attention.py [pallas]"""
import sys

import attnlab
import jax
import jax.numpy as jnp

jax.config.update("jax_default_matmul_precision", "highest")  # or products of float32 are tf32 on a GPU


@jax.jit
def by_xla(q, k, v, scale, mask):
    o = jax.nn.dot_product_attention(*(x.swapaxes(1, 2) for x in (q, k, v)), scale=scale, mask=mask)
    return o.swapaxes(1, 2)


def attention(q, k, v, *, scale, causal=None):
    i, j = jnp.arange(q.shape[2])[:, None], jnp.arange(k.shape[2])
    mask = None if causal is None else j <= i + (k.shape[2] - q.shape[2] if causal == "br" else 0)
    return by_xla(q, k, v, scale, mask)


def pallas(q, k, v, *, scale, causal=None):
    from jax.experimental.pallas.ops.gpu.attention import mha

    o = mha(*(x.swapaxes(1, 2) for x in (q, k, v)), segment_ids=None, sm_scale=scale, causal=causal is not None)
    return o.swapaxes(1, 2)


if sys.argv[1:] == ["pallas"]:
    print(attnlab.check(pallas, claims="f16 bf16 backward causal", causal="square", arithmetic="fused-16", device="jax",
                        shapes={"d": "64 128", "queries": "128..1024 step 128"}))
else:
    print(attnlab.check(attention, claims="f32 backward gqa cross causal scale", device="jax", declines=["few-shapes"]))
