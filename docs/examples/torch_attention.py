#!/usr/bin/env python3
"""All that numpy_attention.py does, by PyTorch, its gradients by autograd.

    python3 docs/examples/torch_attention.py
    attnlab check --exec 'python3 docs/examples/torch_attention.py' \\
        --claims docs/examples/torch_attention.json
"""
import json
import sys

import attnlab
import torch


def attention(q, k, v, *, scale, mask=None, bias=None, softcap=None, alibi=None, alibi_offset=None):
    group = q.shape[1] // max(k.shape[1], 1)
    k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)  # head h reads h // group
    s = scale * (q @ k.transpose(-1, -2))
    if softcap is not None:
        s = softcap * torch.tanh(s / softcap)
    if bias is not None:
        s = s + bias
    if alibi is not None:
        i, j = torch.arange(q.shape[2])[:, None], torch.arange(k.shape[2])
        s = s - torch.tensor(alibi, dtype=s.dtype)[:, None, None] * (i + alibi_offset - j).abs()
    if mask is not None:
        s = s.masked_fill(~mask, -torch.inf)
    return torch.softmax(s, dim=-1) @ v, torch.logsumexp(s, dim=-1)


if __name__ == "__main__" and len(sys.argv) == 3:  # as a command, with folders of cases and of results
    attnlab.batch(sys.argv[1], sys.argv[2], attention)
elif __name__ == "__main__":
    with open(__file__.replace(".py", ".json")) as file:
        print(attnlab.check(attention, **json.load(file)))
