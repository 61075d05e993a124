# Lab 07: prices.  Closed forms for six implementations and two published incidents.
#
#     attnlab grade 07 --exec 'python3 lab.py'
#
# A problem is a dictionary: p["of"] says what is priced, p["n_query"], p["bytes"], ... are the page's letters.
import json, sys

def dense(p):
    return -1  # not written yet

forms = {"dense": dense}  # csr-textbook, tiled-textbook, gemm, chunked, ring-textbook, open-sora-peak, ...

for line in sys.stdin:
    p = json.loads(line)
    print(forms.get(p["of"], lambda p: -1)(p), flush=True)
