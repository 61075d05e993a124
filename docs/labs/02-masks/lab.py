# Lab 02: masks: causal from either end, windows, bytes, and rows that see nothing.
#
#     attnlab grade 02 --exec 'python3 lab.py' --claims lab.json
#
# Copy this folder, write attention(), and declare the conventions of your task in lab.json.
import sys

import attnlab
import numpy as np


def attention(q, k, v, *, scale, causal=None, window=None, offset=0, mask=None):
    """o and lse of q [B,H,Lq,d], k [B,H,Lk,d], v [B,H,Lk,dv], in float32.  lse is [B,H,Lq] whatever the layout.

    window (left, right): query i sees key j if i + offset - left <= j <= i + offset + right, where -1 is no end.
    causal without a window: j <= i + offset.  mask [B,H,Lq,Lk]: True is visible.  All three None: every key.
    """
    raise NotImplementedError("attention() is not written yet")


if __name__ == "__main__":
    attnlab.batch(*sys.argv[1:], attention)
