"""The same from Python, without anything but the shared library:

    python3 call.py [PATH/libattn.so]
"""
import ctypes
import sys


class Shape(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64) for name in
                ("batch", "heads", "kv_heads", "n_query", "n_key", "d_key", "d_value")]
    _fields_ += [("scale", ctypes.c_double)]


attn = ctypes.CDLL(sys.argv[1] if len(sys.argv) > 1 else "libattn.so")
HEADS, LENGTH, D = 2, 100, 16
N = HEADS * LENGTH * D
tensor = ctypes.c_float * N
q = tensor(*(n % 7 - 3 for n in range(N)))
k = tensor(*(n % 5 - 2 for n in range(N)))
v = tensor(*(n // D % LENGTH for n in range(N)))
o, lse = tensor(), (ctypes.c_float * (HEADS * LENGTH))()
error = ctypes.create_string_buffer(512)
shape = Shape(1, HEADS, HEADS, LENGTH, LENGTH, D, D, 0)
if attn.attn_simple_forward(b"tiled", b"causal(br)", ctypes.byref(shape), q, k, v, o, lse, error):
    sys.exit(error.value.decode())
print(f"o[0] {o[0]:.6f}, o of the last row {o[N - 1]:.6f}, its lse {lse[HEADS * LENGTH - 1]:.6f}")
