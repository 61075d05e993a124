import attnlab
import numpy as np

def attention(q, k, v, *, scale, mask=None):
    s = np.float32(scale) * (q @ k.swapaxes(-1, -2))
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    p = np.exp(s - s.max(axis=-1, keepdims=True))
    return p @ v / p.sum(axis=-1, keepdims=True)

print(attnlab.check(attention, claims="f32 cross dv dense scale"))
