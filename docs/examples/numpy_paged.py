import attnlab
import numpy as np


def attention(q, k_pages, v_pages, *, page_table, lengths, scale, causal=None):
    """q [B,Lq,H,d], pages [P,page,G,d]: key j of sequence b is slot j % page of page page_table[b, j // page]."""
    o = np.zeros(q.shape[:3] + v_pages.shape[3:], q.dtype)
    lse = np.full((q.shape[0], q.shape[2], q.shape[1]), -np.inf, q.dtype)
    group = q.shape[2] // max(k_pages.shape[2], 1)
    for b, n in enumerate(lengths):
        k, v = (np.concatenate(x[page_table[b]])[:n].repeat(group, axis=1) for x in (k_pages, v_pages))
        s = q.dtype.type(scale) * np.einsum("ihd,jhd->hij", q[b], k)
        if causal == "br":  # the last query stands at the last key of its own sequence
            i, j = np.ogrid[: q.shape[1], :n]
            s = np.where(j <= i + n - q.shape[1], s, -np.inf)
        m = np.maximum(s.max(axis=-1, keepdims=True, initial=-np.inf), np.finfo(q.dtype).min)
        p = np.exp(s - m)
        l = p.sum(axis=-1, keepdims=True)
        o[b] = np.einsum("hij,jhd->ihd", p / np.where(l > 0, l, 1), v)
        lse[b] = np.where(l > 0, m + np.log(np.where(l > 0, l, 1)), -np.inf)[..., 0]
    return o, lse


if __name__ == "__main__":
    print(attnlab.check(attention, claims="f32 gqa cross dv scale causal empty", layout="paged", causal="br"))
