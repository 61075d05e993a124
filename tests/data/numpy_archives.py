"""The .npz files beside this: written by numpy, read by tests/checker/test_files.c."""
import numpy as np, zipfile, io
def arrays():
    a = np.arange(24).reshape(2, 3, 4)
    return dict(q=a.astype('<f4'), k=np.asfortranarray(a.astype('>f8')), mask=(a % 2).astype('?'),
                n=np.int64(7), **{'deep/er': a.astype('i2'), 'é': np.zeros((0, 3), 'f2')})
np.savez('numpy-savez.npz', **arrays())
np.savez_compressed('numpy-compressed.npz', **arrays())
class Pipe:  # cannot seek: sizes come behind the data
    def __init__(self): self.file = open('numpy-piped.npz', 'wb')
    def write(self, b): return self.file.write(b)
    def flush(self): self.file.flush()
z = zipfile.ZipFile(Pipe(), 'w', zipfile.ZIP_DEFLATED)
for name, x in arrays().items():
    b = io.BytesIO(); np.save(b, x); z.writestr(name + '.npy', b.getvalue())
z.close()
