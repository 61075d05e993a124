# Lab 05, a solution in numpy: what is YOURS in docs/labs/05-merge/lab.py.
import os, sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../../../docs/labs/05-merge"))
import lab
from lab import *


def merge(o, lse, o2, lse2):
    m = np.maximum(lse, lse2)
    m[m == -np.inf] = 0  # both parts are empty: the weights are 0, not exp(-inf - -inf)
    w, w2 = np.exp(lse - m), np.exp(lse2 - m)
    l = w + w2
    safe = np.where(l == 0, 1, l)
    o[:] = (w / safe)[:, None] * o + (w2 / safe)[:, None] * o2
    lse[:] = m + np.log(l)


lab.merge = merge
with np.errstate(all="ignore"):
    attnlab.batch(*sys.argv[1:], attention, plain=True)
