# Lab 08: a ring of 4 ranks, forward and backward, all ranks in one process; judged step by step.
#
#     attnlab grade 08 --exec 'python3 lab.py' --claims lab.json
#
# Copy this folder, write ring(), and declare the conventions of your task in lab.json.
import sys

import attnlab
import numpy as np


def ring(case, ranks, put):
    """ranks[r] has q, k, v (and do, backward) of rank r, [B,heads,tokens,width], and query_tokens, key_tokens: the
    places of its tokens in the whole sequence, of which the mask speaks (case["mask"] "none" or "band": offset,
    window_right).  case["scale"] is the scale, case["pass"] "fwd" or "bwd".  A rank may use what it has or has received
    from the rank before it, and nothing else.

    After each step:    put(r, step, o=..., lse=...)   of the keys met so far; lse is [B,H,tokens]
    in the end:         put(r, None, o=..., lse=...)
    backward, after:    put(r, step, dk=..., dv=...)   the travelling sums of the block that is here
    in the end:         put(r, None, dq=..., dk=..., dv=...)
    """
    raise NotImplementedError("ring() is not written yet")


if __name__ == "__main__":
    attnlab.batch(*sys.argv[1:], ring)
