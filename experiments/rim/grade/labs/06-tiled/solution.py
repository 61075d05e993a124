# Lab 06, a solution in numpy: what is YOURS in docs/labs/06-tiled/lab.py.
import os, sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../../../docs/labs/06-tiled"))
from lab import *


def attention(q, k, v, *, scale, **mask):
    o = np.zeros(q.shape[:3] + v.shape[3:], np.float32)
    lse = np.empty(q.shape[:3], np.float32)
    for b, h in np.ndindex(q.shape[:2]):
        g = h // (q.shape[1] // k.shape[1])
        for i0, i1 in tiles(q.shape[2], BR):
            x = o[b, h, i0:i1]  # a view: it is 0, and becomes the sum
            m = np.full((i1 - i0, 1), -np.inf, np.float32)
            l = np.zeros((i1 - i0, 1), np.float32)
            for j0, j1 in tiles(k.shape[2], BC):
                s = tile_scores(q, k, scale, b, h, i0, i1, j0, j1, mask)
                m_new = np.maximum(m, s.max(axis=1, keepdims=True))
                safe = np.where(m_new == -np.inf, 0, m_new)  # nothing seen so far: p = 0, not NaN
                p, alpha = np.exp(s - safe), np.exp(m - safe)
                l = alpha * l + p.sum(axis=1, keepdims=True)
                x[:] = alpha * x + p @ v[b, g, j0:j1]
                m = m_new
            x /= np.where(l == 0, 1, l)
            lse[b, h, i0:i1] = (m + np.log(l))[:, 0]
    return o, lse


def backward(do, q, k, v, o, lse, *, scale, **mask):
    dq, dk, dv = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
    for b, h in np.ndindex(q.shape[:2]):
        g = h // (q.shape[1] // k.shape[1])
        D = np.einsum("ic,ic->i", do[b, h], o[b, h])
        for j0, j1 in tiles(k.shape[2], BC):
            for i0, i1 in tiles(q.shape[2], BR):
                s = tile_scores(q, k, scale, b, h, i0, i1, j0, j1, mask)
                p = np.exp(s - np.where(lse[b, h, i0:i1] == -np.inf, 0, lse[b, h, i0:i1])[:, None])
                dx = p * (do[b, h, i0:i1] @ v[b, g, j0:j1].T - D[i0:i1, None]) * np.float32(scale)
                dv[b, g, j0:j1] += p.T @ do[b, h, i0:i1]
                dq[b, h, i0:i1] += dx @ k[b, g, j0:j1]
                dk[b, g, j0:j1] += dx.T @ q[b, h, i0:i1]
    return dq, dk, dv


with np.errstate(all="ignore"):
    attnlab.batch(*sys.argv[1:], attention, backward=backward, plain=True)
