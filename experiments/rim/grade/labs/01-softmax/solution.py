# Lab 01, a solution in numpy.
import sys

import attnlab
import numpy as np


def attention(q, k, v, *, scale):
    s = np.float32(scale) * (q @ k.swapaxes(-1, -2))
    m = s.max(axis=-1, keepdims=True)
    p = np.exp(s - m)
    l = p.sum(axis=-1, keepdims=True)
    return p @ v / l, (m + np.log(l))[..., 0]


attnlab.batch(*sys.argv[1:], attention)
