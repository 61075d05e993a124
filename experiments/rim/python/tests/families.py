"""A test of pytest with a fault: causal masks with more keys than queries end at the first token, not at the last."""
import numpy as np


def attention(q, k, v, *, scale, causal=None):
    s = np.float32(scale) * (q @ k.swapaxes(-1, -2))
    if causal is not None:
        s = np.where(np.tril(np.ones(s.shape[2:], bool)), s, -np.inf)
    p = np.exp(s - s.max(axis=-1, keepdims=True))
    return p @ v / p.sum(axis=-1, keepdims=True)


def test_attention(attnlab):
    attnlab.check(attention, claims="f32 causal cross").require()
