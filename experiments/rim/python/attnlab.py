"""Is your attention right?  One call asks it a battery of cases, and judges every element.

    import attnlab

    def attention(q, k, v, *, scale, causal=None):
        return o                            # or o, lse

    attnlab.check(attention, claims="bf16 gqa causal", arithmetic="fused-16", device="cuda").require()

The judge is the program attnlab.  It runs as a child (`attnlab check --serve`), hands over inputs in
files and reads results from files, so that expected values are never in this process.  docs/python.md
is the manual.  Nothing but the standard library is needed; tensors are numpy's, torch's or jax's.
"""
import collections
import contextlib
import ctypes
import functools
import inspect
import json
import math
import mmap
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
import types

__all__ = ["check", "case", "assert_attention", "grade", "price", "explain", "records", "batch", "visible", "Refused",
           "Failed"]


class Refused(Exception):
    """Raised by a callable: there is no kernel for this case.  It says why; the case is no pass."""


class Failed(AssertionError):
    """The verdict is not PASS; the text is what the command prints."""


# ---- the program -----------------------------------------------------------------------------------

_HERE = os.path.dirname(os.path.realpath(__file__))


def program():
    """The path of attnlab: $ATTNLAB, beside this file (a wheel), on PATH, or built in this tree."""
    tree = os.path.join(_HERE, "../../../build/release/attnlab")
    for path in (os.environ.get("ATTNLAB"), os.path.join(_HERE, "attnlab_program/attnlab"),
                 os.path.join(_HERE, "../../../bin/attnlab"), tree, shutil.which("attnlab")):
        if path and os.access(path, os.X_OK) and os.path.isfile(path):
            return os.path.normpath(path)
    raise FileNotFoundError("the program attnlab is not found: put it on PATH, or set ATTNLAB to its path")


def _flags(values):
    """length=8, save="probs", longest=True become --length 8 --save probs --longest."""
    words = []
    for name, value in values.items():
        flag = "--" + name.rstrip("_").replace("_", "-")
        for one in value if isinstance(value, (list, tuple)) else [value]:
            words += [flag] if one is True else [] if one is None or one is False else [flag, str(one)]
    return words


def _run(*words, good=(0,), fds=()):
    """What a command prints; ValueError with its own words where it does not take them."""
    done = subprocess.run([program(), *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          pass_fds=fds)
    if done.returncode not in good:
        raise ValueError((done.stderr or done.stdout).strip() or f"attnlab ended with status {done.returncode}")
    return done


def price(spec, **flags):
    """What a call takes before it runs: flags of `attnlab price`.  .peak in bytes, .live, .flops, ...

    Of several ranks, passes or types it is the one with the largest peak; .rows has all."""
    rows = json.loads(_run("price", spec, "--format", "json", *_flags(flags), good=(0, 3)).stdout)
    rows = [types.SimpleNamespace(**row, peak=row.get("peak_bytes")) for row in rows]
    most = max(rows, key=lambda row: row.peak)
    return types.SimpleNamespace(**vars(most), rows=rows)


def explain(spec, **flags):
    """The steps of a textbook in numbers, as text: flags of `attnlab explain`."""
    return _run("explain", spec, *_flags(flags)).stdout


def records(path):
    """The records of `attnlab measure`, a dict each."""
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.strip()]


# ---- safetensors -----------------------------------------------------------------------------------

_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "U8": 1}
_WORD = {"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "int64": "I64",
         "int32": "I32", "uint8": "U8", "bool": "U8"}
_FORMAT = {"d": "F64", "f": "F32", "e": "F16", "B": "U8", "?": "U8", "q": "I64", "l": "I64", "i": "I32"}


def _load(path):
    """{name: (type, shape, bytes)}.  The bytes are a private mapping of the file: pages come in as they are read, and
    may be written."""
    with open(path, "rb") as file:
        data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
    start, found = 8 + int.from_bytes(data[:8], "little"), {}
    for name, x in json.loads(bytes(data[8:start])).items():
        if name != "__metadata__":
            first, last = (start + at for at in x["data_offsets"])
            aligned = first % _BYTES[x["dtype"]] == 0
            part = data[first:last] if aligned else memoryview(bytearray(data[first:last]))
            found[name] = x["dtype"], x["shape"], part
    return found


_FLIP = bytes([1, 0]) + bytes(range(2, 256))  # bytes of a mask in which 1 means hidden


def _differs(path, name, data, flip):
    """True: the bytes are no longer those of the file.  Read in pieces, so that it takes no memory."""
    with open(path, "rb") as file:
        start = 8 + int.from_bytes(file.read(8), "little")
        file.seek(start + json.loads(file.read(start - 8))[name]["data_offsets"][0])
        pieces = (data[at:at + 65536] for at in range(0, len(data), 65536))
        return any(x != (file.read(len(x)).translate(_FLIP) if flip else file.read(len(x))) for x in pieces)


def _save(path, tensors, metadata=None):
    header, end = {"__metadata__": metadata} if metadata else {}, 0
    for name, (word, shape, data) in tensors.items():
        header[name] = {"dtype": word, "shape": list(shape), "data_offsets": [end, end + len(data)]}
        end += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.writelines([len(text).to_bytes(8, "little"), text, *(x[2] for x in tensors.values())])


def _raw(name, x):
    """(type, shape, bytes) of a tensor of any library, wherever it lies."""
    if x is None:
        raise TypeError(f"{name} is None")
    if hasattr(x, "data_ptr"):  # torch, without numpy: that has no bf16
        word = str(x.dtype).rpartition(".")[2]
        x = x.detach().contiguous().cpu()
        data = ctypes.string_at(x.data_ptr(), x.numel() * x.element_size()) if x.numel() else b""
        shape = tuple(x.shape)
    elif hasattr(x, "__array__") or hasattr(x, "__dlpack__"):
        import numpy as np

        x = np.asarray(x) if hasattr(x, "__array__") else np.from_dlpack(x)
        word, shape, data = x.dtype.name, x.shape, np.ascontiguousarray(x).reshape(-1).view("u1").data
    else:
        try:
            view = memoryview(x)
        except TypeError:
            raise TypeError(f"{name} is a {type(x).__name__}, not a tensor") from None
        word, shape, data = _FORMAT.get(view.format, view.format), view.shape, view.tobytes()
    word = _WORD.get(word, word)
    if word not in _BYTES:
        raise TypeError(f"{name} is {word}: float64, float32, float16 or bfloat16 would work")
    return word, shape, data


# ---- tensors of each library -------------------------------------------------------------------------


class _Numpy:
    name = "numpy"

    def __init__(self, device):
        import numpy

        self.np = numpy

    def make(self, word, shape, data):
        if word == "BF16":
            raise TypeError("numpy has no bf16: claim f16 or f32, or give device=\"cpu\" (torch) or \"jax\"")
        types_ = {"F64": "f8", "F32": "f4", "F16": "f2", "I64": "i8", "I32": "i4", "U8": "?"}
        return self.np.frombuffer(data, types_[word]).reshape(shape), None

    def gradients(self, call, leaves, upstream):
        raise TypeError("numpy has no autograd: give backward=, or do not claim backward")


class _Torch:
    name = "torch"

    def __init__(self, device):
        import torch

        self.torch, self.device = torch, torch.device(device)

    def make(self, word, shape, data):
        torch = self.torch
        types_ = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
                  "I64": torch.int64, "I32": torch.int32, "U8": torch.bool}
        if not data:
            return torch.empty(shape, dtype=types_[word], device=self.device), None
        here = torch.frombuffer(data, dtype=types_[word]).reshape(shape)
        there = here.to(self.device)
        return there, there.clone() if there is not here else None

    def same(self, x, copy):
        return self.torch.equal(x.detach().view(self.torch.uint8), copy.view(self.torch.uint8))

    def gradients(self, call, leaves, upstream):
        """The results, a function that gives the gradients, and what waits for the device."""
        for x in leaves:
            x.requires_grad_()
        o, lse = call()
        ends = [o] if len(upstream) == 1 else [o, lse]
        for name, end in zip(("o", "lse"), ends):
            if end is None or not end.requires_grad:
                raise TypeError(f"{name} has no gradient: it does not come from q, k and v by autograd")
        return (o, lse), functools.partial(self.torch.autograd.grad, ends, leaves, upstream,
                                           retain_graph=int(os.environ.get("ATTNLAB_REPEAT", 0)) > 0,
                                           allow_unused=True)

    def wait(self):
        if self.device.type == "cuda":
            self.torch.cuda.synchronize()

    def lost(self):
        """After an illegal access nothing more runs on a GPU for this process."""
        try:
            return self.torch.ones(1, device=self.device).item() != 1
        except RuntimeError:
            return True


class _Jax:
    name = "jax"

    def __init__(self, device):
        import jax
        import numpy

        self.jax, self.np = jax, numpy

    def make(self, word, shape, data):
        types_ = {"F64": "f8", "F32": "f4", "F16": "f2", "BF16": self.jax.numpy.bfloat16, "I64": "i8",
                  "I32": "i4", "U8": "?"}
        if word == "F64" and not self.jax.config.jax_enable_x64:
            raise TypeError("jax rounds f64 to f32: set jax_enable_x64, or do not claim f64")
        return self.jax.numpy.array(self.np.frombuffer(data, types_[word]).reshape(shape)), None

    def gradients(self, call, leaves, upstream):
        def ends(*x):
            o, lse = call(*x)
            return (o,) if len(upstream) == 1 else (o, lse)

        found, back = self.jax.vjp(ends, *leaves)
        return (found if len(found) == 2 else (found[0], None)), functools.partial(back, tuple(upstream))


def _library(attention, device):
    """Of the device; else the one that the callable's module has imported."""
    if device is None:
        code = inspect.unwrap(attention)
        known = getattr(code, "__globals__", None) or getattr(type(code).__call__, "__globals__", {})
        mine = {getattr(x, "__name__", "").partition(".")[0] for x in known.values()
                if isinstance(x, types.ModuleType)}
        device = "cpu" if "torch" in mine else "jax" if "jax" in mine else "numpy"
    return {"numpy": _Numpy, "jax": _Jax}.get(str(device), _Torch)(device)


# ---- a case for the callable -------------------------------------------------------------------------


def _needs(claims):
    """The keyword arguments that claims give, beside those that a callable may have: scale, offset."""
    pairs = {"causal": "causal", "band": "causal window", "dense": "mask", "softcap": "softcap", "bias": "bias",
             "alibi": "alibi alibi_offset", "scale": "scale", "sink": "sink"}
    return {word for claim in claims for word in pairs.get(claim, "").split()}


def _aligned(case, declared):
    """Which way a band lies: "tl", "br", or the key at which query 0 stands."""
    offset, end = case["offset"], case["n_key"] - case["n_query"]
    if offset is None:  # of pages: at the end of each sequence
        return "br"
    if case["layout"] == "thd":
        return declared if declared in ("tl", "br") and offset == 0 else "tl" if offset == 0 else offset
    return "br" if offset == end and declared != "tl" else "tl" if offset == 0 else offset


def _keywords(case, tensors, declared, takes):
    """The keyword arguments of a call."""
    words, band = {}, case["mask"] == "band"
    claims = declared["claims"]
    at = _aligned(case, declared.get("causal")) if band else None
    given = {"causal": at if case["causal"] else None, "mask": tensors.get("mask"), "bias": tensors.get("bias"),
             "softcap": case["softcap"] or None, "sink": tensors.get("sink"), "alibi": case["alibi_slopes"],
             "alibi_offset": case["alibi_offset"], "scale": case["scale"], "window": None}
    if band and (case["window_left"] >= 0 or not case["causal"]):
        given["window"] = case["window_left"], case["window_right"]
    for name in _needs(claims):
        words[name] = given[name]
    for name, value in (("scale", case["scale"]), ("offset", case["offset"] if band else 0)):
        if takes(name):
            words[name] = value
    for name in ("cu_seqlens_q", "cu_seqlens_k", "cu_seqlens_q_padded", "cu_seqlens_k_padded", "page_table", "lengths"):
        if name in tensors:
            words[name] = tensors[name]
    return words


def _shared(tensors, case, to=None):
    """One tensor for K and V: v is a view of k."""
    if "kv" in tensors:
        (tensors if to is None else to).update(k=tensors["kv"], v=tensors["kv"][..., :case["dv_view"]])
    return tensors


def _takes(attention):
    """Whether a keyword argument of this name is one of the callable's own."""
    try:
        parameters = inspect.signature(attention).parameters.values()
    except (TypeError, ValueError):
        return lambda name: name == "scale"
    any_ = any(p.kind == p.VAR_KEYWORD for p in parameters)
    names = {p.name for p in parameters}
    return lambda name: any_ or name in names


_AXES = {"bhld": (0, 1, 2, 3), "blhd": (0, 2, 1, 3), "sbhd": (1, 2, 0, 3)}  # where a layout has B, H, L and d


def _turned(tensors, axes):
    """Those that have the layout of the case, as views with their axes in another order."""
    names = ("q", "k", "v", "do", "o", "dq", "dk", "dv")
    return {name: getattr(x, "permute", x.transpose)(axes) if name in names else x for name, x in tensors.items()}


def _plain(case, tensors):
    return _turned(tensors, _AXES[case["layout"]])


def _declared(case, found):
    """What a callable found that knows [B,H,L,d] and natural logarithms alone, as the case has it."""
    found = _turned(found, [_AXES[case["layout"]].index(n) for n in range(4)])
    if case["lse"] == "2":
        found["lse"] = found["lse"] / math.log(2)
    return found


class _Subject:
    """A callable that batches of cases are handed to.  plain: it knows [B,H,L,d] and natural logarithms alone."""

    def __init__(self, attention, backward, device, plain=False):
        self.attention, self.backward, self.given_device, self.plain = attention, backward, device, plain
        self.takes, self.lib, self.may_lack_lse = _takes(attention), None, False

    def check_signature(self, declared):
        name = getattr(self.attention, "__name__", "the callable")
        for word in sorted(_needs(declared["claims"])):
            if not self.takes(word):
                raise TypeError(f"{name}() has no argument {word}, which it must have for what is claimed: "
                                f"def {name}(q, k, v, *, scale, {word}=None)")
        if "band" in declared["claims"] and declared.get("causal", "any") == "any" and not self.takes("offset"):
            raise TypeError(f"{name}() claims band with any alignment: declare causal=\"br\" or \"tl\", or take "
                            "offset=0, the key at which query 0 stands")

    def open(self):
        if self.lib is None:
            self.lib = _library(self.attention, self.given_device)
        return self.lib

    def result(self, case, found):
        """o and lse of what the callable has returned."""
        o, lse = found if isinstance(found, (tuple, list)) and len(found) == 2 else (found, None)
        if isinstance(o, (tuple, list)):
            raise TypeError(f"it returned {len(o)} results: o, or o and lse, would work")
        if o is None:
            raise TypeError("it returned None: o, or o and lse, would work")
        if "lse" in case["outputs"] and lse is None and self.may_lack_lse:
            raise _NoLse
        self.may_lack_lse = False
        if "lse" in case["outputs"] and lse is None:
            raise TypeError("it returned o alone: lse is wanted too (declare lse=\"absent\"?)")
        return o, lse

    def call(self, case, tensors, words):
        """The tensors that the case asks for, and the seconds of each call of its pass."""
        lib, names = self.open(), ["q", "kv"] if "kv" in tensors else ["q", "k", "v"]
        q, k, v, main = tensors["q"], tensors["k"], tensors["v"], len(names)
        names += ["bias"] * ("dbias" in case["outputs"]) + ["sink"] * ("dsink" in case["outputs"])
        upstream = [tensors[name] for name in ("do", "dlse") if name in tensors]

        def forward(*x):
            leaf = dict(zip(names, x))
            if "kv" in tensors:  # the view is made of what has the gradient
                _shared({"kv": tensors["kv"], **leaf}, case, leaf)
            given = {**words, **{name: leaf[name] for name in names[main:] if name in leaf}}
            return self.result(case, self.attention(leaf.get("q", q), leaf.get("k", k), leaf.get("v", v), **given))

        if case["pass"] == "fwd":
            (o, lse), seconds = _timed(forward, lib)
            return {"o": o, "lse": _late(lse, case)}, seconds
        if self.backward is not None:
            o, lse = forward()
            more = {"dlse": tensors["dlse"]} if "dlse" in tensors else {}
            grads, seconds = _timed(lambda: self.backward(tensors["do"], q, k, v, o, lse, **words, **more), lib)
        else:
            (o, lse), gradients = lib.gradients(forward, [tensors[name] for name in names], upstream)
            grads, seconds = _timed(gradients, lib)
        if not isinstance(grads, dict):
            grads = dict(zip(["d" + name for name in names], grads))
        if "dkv" in grads:
            grads["dk"] = grads.pop("dkv")
        return {"o": o, "lse": _late(lse, case), **grads}, seconds

    def compute(self, case, path, declared):
        """A case, from its file to the files of its results: (NAME, contents)."""
        lib, kept, tensors = self.open(), {}, {}
        raw = _load(path)
        flipped = "mask" if case["mask_one"] == "hidden" else ""
        for name, (word, shape, data) in raw.items():
            if name == flipped:
                data = memoryview(bytearray(bytes(data).translate(_FLIP)))
                raw[name] = word, shape, data
            tensors[name], kept[name] = lib.make(word, shape, data)
        _shared(tensors, case)
        where = getattr(tensors["q"], "device", None)
        words = _keywords(case, tensors, declared, self.takes)
        try:
            found, seconds = self.call(case, _plain(case, tensors) if self.plain else tensors, words)
            found = _declared(case, found) if self.plain else found
        finally:
            changed = [name for name in raw if _differs(path, name, raw[name][2], name == flipped)
                       or kept[name] is not None and not lib.same(tensors[name], kept[name])]
            if changed:
                raise _Changed(" ".join(changed))
        for name in case["outputs"]:
            if found.get(name) is None:
                raise TypeError(f"{name} is None: no gradient reaches it" if name[0] == "d" else f"{name} is None")
            if lib.name == "torch" and getattr(found[name], "device", where) != where:
                raise TypeError(f"{name} lies on {found[name].device}, the inputs on {where}")
        return {name: _raw(name, found[name]) for name in case["outputs"]}, seconds

    def ranks(self, case, folder, n, out):
        """A case of ranks, each in a folder of its own: the callable puts down what each holds after each step."""
        found, ranks = collections.defaultdict(dict), []
        for r in range(n):
            raw = _load(os.path.join(folder, f"rank-{r}/inputs.safetensors"))
            ranks.append({name: self.open().make(*x)[0] for name, x in raw.items()})

        def put(rank, step, **tensors):
            where = f"rank-{rank}" if step is None else f"rank-{rank}/step-{step}"
            for name, x in tensors.items():
                word, shape, data = _raw(name, x)
                found[where][name] = word, shape, bytes(data)

        start = time.perf_counter()
        self.attention(case, ranks, put)
        for where, tensors in found.items():
            os.makedirs(os.path.join(out, where), exist_ok=True)
            _save(os.path.join(out, where, "result.safetensors"), tensors)
        return [time.perf_counter() - start]

    def one(self, case, cases, out, manifest):
        """A case and what it leaves; never an exception."""
        folder, inputs = os.path.join(out, case["name"]), os.path.join(cases, case["name"])
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder)  # its parent is the judge's: gone when the time was up
        try:
            if "ranks" in manifest:
                seconds = self.ranks(case, inputs, manifest["ranks"], folder)
            else:
                found, seconds = self.compute(case, os.path.join(inputs, "inputs.safetensors"), manifest["claims"])
                _save(os.path.join(folder, "result.safetensors"), found)
            with open(os.path.join(folder, "seconds.txt"), "w", encoding="utf-8") as file:
                print(*seconds, file=file)
            return
        except _Changed as error:
            file, said = "changed.txt", str(error)
        except Refused as error:
            file, said = "refused.txt", str(error) or "refused, without a reason"
        except Exception as error:  # in one case: it need not cost the others
            file, said = "error.txt", traceback.format_exception_only(type(error), error)[-1]
        with open(os.path.join(folder, file), "w", encoding="utf-8") as words:
            print(" ".join(said.split()), file=words)
        if file == "error.txt" and hasattr(self.lib, "lost") and self.lib.lost():
            raise _Lost(" ".join(said.split()))

    def batch(self, cases, out):
        with open(os.path.join(cases, "manifest.json"), encoding="utf-8") as file:
            manifest = json.load(file)
        for case in manifest["cases"]:
            self.one(case, cases, out, manifest)
        return len(manifest["cases"])


def _late(lse, case):
    """An lse may be a function without arguments: it is called when the time of o is taken."""
    return lse() if callable(lse) and "lse" in case["outputs"] else lse


class _Changed(Exception):
    pass


class _Lost(Exception):
    pass


class _NoLse(BaseException):
    """The callable returns o alone, and nothing else is declared."""


def _timed(call, lib):
    """The results of the last call, and the seconds of each.  `attnlab measure` asks for more than one."""
    repeat, enough = int(os.environ.get("ATTNLAB_REPEAT", 0)), float(os.environ.get("ATTNLAB_ENOUGH", 0))
    seconds = []
    while not seconds or (len(seconds) <= repeat and sum(seconds[1:]) < enough):
        result = None  # the last one must not be held while the next is made
        start = time.perf_counter()
        result = call()
        if repeat and hasattr(lib, "wait"):
            lib.wait()
        seconds.append(time.perf_counter() - start)
    return result, seconds


def batch(cases, out, attention, *, backward=None, device=None, plain=False):
    """For programs that `attnlab check --exec` or `attnlab measure --exec` starts: CASES, OUT, the callable.

    plain: it works on [B,H,L,d] and natural logarithms, whatever is declared.  With --scheme it is called once for all
    ranks: attention(case, ranks, put), where ranks[r] has the tensors of rank r and put(r, step, o=..., lse=...) leaves
    what it holds after a step; step None, at the end."""
    os.makedirs(out, exist_ok=True)
    try:
        n = _Subject(attention, backward, device, plain).batch(cases, out)
    except _Lost as error:  # attnlab starts the program again, on the other cases
        print(error, flush=True)
        os._exit(1)
    print(getattr(attention, "__name__", "it"), "computed", n, "cases")


# ---- the judge ---------------------------------------------------------------------------------------

Failure = collections.namedtuple("Failure", "case name verdict message cause again")
Failure.__doc__ = """A check that failed: its case string ("" of a relation), its name, the verdict as FAIL(bound), what
is wrong, the likely cause (or ""), and the line that asks it again.  attnlab.case(failure.case) has its tensors."""


class Result:
    """What `attnlab check` says.  print() shows it as the command does."""

    def __init__(self, row, status):
        self.text, self.exit_status = row.pop("text", ""), status
        self.checks = row.pop("checks", [])
        self.row = row  # verdict, counts, cause
        self.verdict = row.get("verdict", "ERROR") if status <= 1 else "ERROR"

    @property
    def failures(self):
        def words(x):
            named = x["verdict"] in ("FAIL", "INTERMITTENT") and "failure" in x
            return f"{x['verdict']}({x['failure']})" if named else x["verdict"]

        good = ("PASS", "REFUSED", "SKIPPED", "WEAK")
        return [Failure(x["text"] if x["kind"] in ("case", "soak") else "", x["name"], words(x), x.get("message", ""),
                        x.get("looks_like", ""), x["again"])
                for x in self.checks if x["verdict"] not in good]

    def require(self):
        """Failed where the verdict is not PASS, else this result."""
        __tracebackhide__ = True  # of pytest
        if self.verdict != "PASS" or self.exit_status != 0:
            raise Failed(self.verdict + "\n" + self.text)
        return self

    def __str__(self):
        return self.text.rstrip("\n")

    def __repr__(self):
        return f"<attnlab: {self.verdict} {self.row.get('counts', {})}>"


_last = {}  # how check() was called, for case()


def _declaration(name, claims, arithmetic, declared):
    words = claims.split() if isinstance(claims, str) else list(claims)
    if not any(word in ("f64", "f32", "bf16", "f16") for word in words):
        raise ValueError(f"claims={claims!r} names no storage type: f64, f32, bf16 or f16 is needed")
    found = {"name": name, "claims": words, **declared}
    if arithmetic is not None:
        found["arithmetic"] = arithmetic
    return found


@contextlib.contextmanager
def _file(text):
    """A file without a name, which a crash does not leave behind: its descriptor, and its path for a child."""
    with os.fdopen(os.memfd_create("claims"), "w") as file:
        json.dump(text, file)
        file.flush()
        yield file.fileno(), f"/proc/self/fd/{file.fileno()}"


def _serve(subject, declared, words):
    """Start the judge, and answer its batches.  The result."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)  # python3 -m pytest
    start = ["-m", spec.name.replace(".__main__", "")] if spec else sys.argv[:1]
    again = shlex.join([os.path.basename(sys.executable or "python3"), *start, *sys.argv[1:]])
    with _file(declared) as (number, claims):
        child = subprocess.Popen([program(), "check", "--serve", again, "--claims", claims, "--format", "json", *words],
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, pass_fds=[number])
        try:
            line = child.stdout.readline()
            while line.startswith('{"cases"'):
                at, answer = json.loads(line), "done"
                try:
                    subject.batch(at["cases"], at["out"])
                except _Lost as error:
                    answer = str(error)
                except OSError:
                    if os.path.isdir(at["out"]):
                        raise
                    # else its time was up, and the folder went
                with contextlib.suppress(BrokenPipeError):  # it has given up: its report says why
                    child.stdin.write(answer + "\n")
                    child.stdin.flush()
                line = child.stdout.readline()
            said = line + child.stdout.read()
        except BaseException:
            child.terminate()
            raise
        finally:
            with contextlib.suppress(BrokenPipeError):
                child.stdin.close()
            child.stdout.close()
            child.wait()
    if not said.startswith("{"):
        raise ValueError(f"attnlab check ended with status {child.returncode}: its words are on standard error")
    row = json.loads(said)["specs"][0]
    if row["checks"] and row["checks"][0]["kind"] == "setup":
        raise ValueError(row["checks"][0]["message"].replace(claims + ": ", ""))
    return Result(row, child.returncode)


def check(attention, claims="f32", *, arithmetic=None, device=None, backward=None, name=None, tier="quick", cases=(),
          relation=None, soak=0, repeat=0, seed=None, timeout=0, strict=False, verbose=False, refusals=False,
          report=None, **declared):
    """Judge a callable on every case that is claimed; a Result.

    attention(q, k, v, *, scale, ...) returns o, or o and lse.  Tensors are [B,H,L,d], of the library that its
    module imports; device: "numpy", "jax", or a device of torch.  It gets those of causal, window, mask, bias,
    softcap, sink that are claimed, and no others.  Gradients come by autograd, or from
    backward(do, q, k, v, o, lse, ...), which returns dq, dk, dv; dq, dkv where v is a view of k (kv-shared).
    Every other field of a declaration (docs/external.md) is a keyword: lse="2", causal="br", layout="blhd",
    shapes={"d": "8..128 step 8"}.
    """
    subject = _Subject(attention, backward, device)
    declared = _declaration(name or getattr(attention, "__name__", type(attention).__name__), claims, arithmetic,
                            declared)
    subject.check_signature(declared)
    library = subject.open().name
    if library == "numpy" and "bf16" in declared["claims"]:
        raise ValueError('numpy has no bf16: claim f16 or f32, or give device="cpu" (torch) or device="jax"')
    if library == "numpy" and "backward" in declared["claims"] and backward is None:
        raise ValueError("numpy has no autograd: give backward=, or do not claim backward")
    subject.may_lack_lse = "lse" not in declared
    _last.update(declared=declared, subject=subject)
    cases = [cases] if isinstance(cases, str) else list(cases)
    cases = [os.environ["ATTNLAB_CASE"]] if "ATTNLAB_CASE" in os.environ else cases
    relation = os.environ.get("ATTNLAB_RELATION", relation)
    words = _flags({"tier": None if cases or relation or soak else tier, "case": cases,
                    "relation": None if cases else relation, "soak": soak or None, "repeat": repeat or None,
                    "seed": seed, "timeout": timeout or None, "strict": strict, "verbose": verbose,
                    "refusals": refusals, "report": report})
    try:
        return _serve(subject, declared, words)
    except _NoLse:
        subject.may_lack_lse, declared["lse"] = False, "absent"
        return _serve(subject, declared, words)


_ALL = ("f64 f32 bf16 f16 backward gqa cross dv causal band dense hard empty scale softcap alibi bias dbias dlse "
        "sink kv-shared")


def case(text, device=None):
    """The tensors of a case as the callable of the last check() gets them, for a debugger.

    .q .k .v .do ...; .words: its keyword arguments; .info: all numbers of the case."""
    declared = dict(_last.get("declared") or {"claims": _ALL.split()})
    subject = _last.get("subject")
    lib = subject.open() if device is None and subject else _library(case, device)
    with tempfile.TemporaryDirectory() as folder, _file(declared) as (number, claims):
        _run("vectors", folder, "--claims", claims, "--case", text, fds=[number])
        with open(os.path.join(folder, "manifest.json"), encoding="utf-8") as file:
            manifest = json.load(file)
        if not manifest["cases"]:
            raise ValueError(f"{text}: the claims of the last check leave it out")
        info = manifest["cases"][0]
        raw = _load(os.path.join(folder, info["name"], "inputs.safetensors"))
    tensors = _shared({name: lib.make(*x)[0] for name, x in raw.items()}, info)
    takes = subject.takes if subject else lambda name: name == "scale"
    return types.SimpleNamespace(**tensors, words=_keywords(info, tensors, manifest["claims"], takes), info=info)


# ---- tensors that are there --------------------------------------------------------------------------


def _mask_words(causal, window):
    """In the language of masks."""
    def at(x):
        return x if isinstance(x, str) else f"{x:+d}"

    is_causal = causal is not None and causal is not False
    words = [f"causal({at('br' if causal is True else causal)})"] if is_causal else []
    if window is not None:
        left, right = (x if x is not None and x >= 0 else 1 << 30 for x in window)
        side = causal if is_causal and causal is not True else "br"
        words.append(f"window({left},{0 if is_causal else right},{at(side)})")
    return words


def assert_attention(o, *, q, k=None, v=None, kv=None, dv_view=None, lse=None, do=None, dlse=None, dq=None, dk=None,
                     dv=None, dbias=None, dsink=None, causal=None, window=None, mask=None, bias=None, softcap=None,
                     sink=None, scale=None, layout="bhld", arithmetic="f32", rows=None):
    """AssertionError where a result is beyond the bound of `arithmetic`; else the line that says what it fits.

    causal: "tl", "br", or the key at which query 0 stands.  window: (left, right) keys beside the query's own.
    mask: [B,H,Lq,Lk], True is visible.  kv: in the place of k and v, where v is a view of k, its first dv_view features
    (all of them); dk is then its gradient.  rows: that many rows and keys are compared (all up to 2,048, else 64).
    """
    words = _mask_words(causal, window)
    if (kv is None and dv_view is not None) or [k is None, v is None] != [kv is not None] * 2:
        raise TypeError("k and v are needed, or kv alone (and dv_view)")
    inputs = {"q": q, "k": k, "v": v, "kv": kv, "bias": bias, "do": do, "dlse": dlse, "sink": sink}
    results = {"o": o, "lse": lse, "dq": dq, "dk": dk, "dv": dv, "dbias": dbias, "dsink": dsink}
    inputs = {name: _raw(name, x) for name, x in inputs.items() if x is not None}
    if mask is not None:
        inputs["visible"] = _raw("mask", mask)
        words.append("dense(visible)")
    settings = {"mask": "&".join(words) or "none", "layout": layout,
                "scale": repr(float(1 / math.sqrt(inputs["q"][1][-1]) if scale is None else scale)),
                "softcap": repr(float(softcap)) if softcap else None, "dv_view": str(dv_view) if dv_view else None}
    with tempfile.TemporaryDirectory() as folder:
        _save(os.path.join(folder, "inputs.safetensors"), inputs, {x: y for x, y in settings.items() if y})
        os.mkdir(os.path.join(folder, "given"))
        _save(os.path.join(folder, "given/result.safetensors"),
              {name: _raw(name, x) for name, x in results.items() if x is not None})
        done = subprocess.run([program(), "compare", "given", "inputs.safetensors", "--arithmetic",
                               arithmetic, *_flags({"rows": rows})], cwd=folder, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True)
    said = [line for line in done.stdout.splitlines() if not line.startswith("the file:")]
    if done.returncode == 2 and not said:
        raise ValueError(done.stderr.strip())
    if done.returncode != 0:
        raise Failed("\n".join(said) + ("\n" + done.stderr.strip() if done.returncode > 1 else ""))
    return said[-1]


# ---- labs --------------------------------------------------------------------------------------------


class _Answering(BaseException):
    """A file that a grader reads has come to its own grade()."""


_answering = False


def visible(b, h, queries, keys, *, causal=None, window=None, offset=0, mask=None):
    """Which of the keys (j0, j1) the queries (i0, i1) see, [i1 - i0, j1 - j0], by the arguments that a callable has."""
    import numpy as np

    if mask is not None:
        return mask[b, h, slice(*queries), slice(*keys)]
    left, right = window or (-1, -1 if causal is None else 0)
    distance = np.arange(*keys) - np.arange(*queries)[:, None] - offset
    return (distance >= (-left if left >= 0 else -np.inf)) & (distance <= (right if right >= 0 else np.inf))


def _answer(file, name, backward, device, plain):
    """The program that grade() hands in: the functions of a file, without what stands behind its grade()."""
    global _answering
    _answering, space = True, {"__name__": "attnlab_graded", "__file__": file}
    sys.path.insert(0, os.path.dirname(file))
    with contextlib.suppress(_Answering), open(file, encoding="utf-8") as source:
        exec(compile(source.read(), file, "exec"), space)
    batch(*sys.argv[1:3], space[name], backward=space.get(backward), device=device, plain=plain)


def _place(function):
    """The file of a function, and its name at the top of it."""
    file = inspect.getsourcefile(function) if inspect.isfunction(function) else None
    if file is None or not os.path.isfile(file) or function.__globals__.get(function.__name__) is not function:
        raise ValueError(f"{getattr(function, '__name__', function)} is no function at the top of a file: labs measure "
                         "it in processes of its own, which read that file")
    return os.path.abspath(file), function.__name__


def grade(lab, attention, *, backward=None, device=None, plain=False, seed="", **declared):
    """Points of a function in a lab, out of 100: .total, .of, .criteria, and as text what the command prints.

    It is asked what the lab claims, in processes of its own: attention and backward stand at the top of a file.
    plain: it works on [B,H,L,d] and natural logarithms, whatever the task declares."""
    if _answering:
        raise _Answering
    task = json.loads(_run("grade", lab, "--format", "json", "--seed", seed).stdout)
    claims = [word for word in task["claims"].split() if word != "block"]
    if not claims or "ranks=4" in claims:
        raise ValueError(f"lab {task['lab']} asks for more than a function on tensors: see docs/labs/{task['lab']}")
    subject = _Subject(attention, backward, device)
    declared = _declaration("submission", claims, None, {**task["declare"], **declared})
    subject.check_signature(declared)
    (file, name), back = _place(attention), _place(backward)[1] if backward else None
    call = f"import sys; sys.path.append({_HERE!r}); import attnlab; attnlab._answer({file!r}, {name!r}, {back!r}, " \
           f"{device!r}, {plain!r})"
    with _file(declared) as (number, path):
        done = _run("grade", lab, "--format", "json", "--seed", seed, "--claims", path, "--exec",
                    shlex.join([sys.executable, "-c", call]), good=(0, 1), fds=[number])
    sheet = json.loads(done.stdout)
    lost = [f"{x['earned']:2} of {x['points']:2}  {x['criterion']}" + "".join(
        f"\n    {word}: {x[word]}" for word in ("first", "likely", "read") if x[word] and x["earned"] < x["points"])
        for x in sheet["criteria"] if x["points"]]
    text = f"lab {sheet['lab']}: {sheet['total']} of {sheet['of']}\n" + "\n".join(lost)
    return types.SimpleNamespace(**sheet, text=text)


# ---- pytest ------------------------------------------------------------------------------------------


def pytest_addoption(parser):
    group = parser.getgroup("attnlab")
    group.addoption("--attnlab-tier", default="quick", choices=("quick", "full"), help="cases of attnlab.check()")
    group.addoption("--attnlab-seed", default=1, type=int, help="of what is random in attnlab.check()")


@functools.lru_cache(None)
def _families(tier):
    names = [x["name"] for x in json.loads(_run("list", "cases", "--tier", tier, "--format", "json").stdout)]
    return [*sorted({name.partition("-")[0] for name in names}), "relations", "other"]


class _Family:
    """The fixture `attnlab`: this module, but that check() judges all and answers for one family of cases."""

    done = {}

    def __init__(self, family, config):
        self.family, self.config = family, config

    def __getattr__(self, name):
        return getattr(sys.modules[__name__], name)

    def check(self, attention, claims="f32", **how):
        import pytest

        how = {"tier": self.config.getoption("--attnlab-tier"), "seed": self.config.getoption("--attnlab-seed"), **how}
        key = attention, str(claims), repr(how)
        is_first, is_one = key not in self.done, {"ATTNLAB_CASE", "ATTNLAB_RELATION"} & set(os.environ)
        if is_first:
            self.done[key] = check(attention, claims, **how)
        result = self.done[key]
        if is_one and is_first:  # the line `again`: the first family that is selected answers
            return result
        if is_one:
            pytest.skip("one case alone is asked, and answered by another test")
        known = _families(how["tier"])
        of = [x for x in result.checks if self.of(x, known) == self.family]
        part = Result({**result.row, "checks": of, "text": ""}, 0)
        part.verdict = "FAIL" if part.failures else "PASS"
        part.text = "\n".join(f"{x.verdict} {x.case or x.name}\n  {x.message}\n  again: {x.again}"
                              for x in part.failures[:3]) + f"\n{len(part.failures)} of {len(of)} in this family"
        if not any(x["verdict"] not in ("REFUSED", "SKIPPED") for x in of):
            pytest.skip(f"no case of {self.family} is claimed")
        return part

    @staticmethod
    def of(x, known):
        family = "relations" if x["kind"] == "relation" else x["name"].partition("-")[0]
        return family if family in known else "other"


def pytest_generate_tests(metafunc):
    if "attnlab" in metafunc.fixturenames:
        families = _families(metafunc.config.getoption("--attnlab-tier"))
        metafunc.parametrize("attnlab", [_Family(x, metafunc.config) for x in families], ids=families)


def _main():
    """The command `attnlab` of a wheel."""
    os.execv(program(), ["attnlab", *sys.argv[1:]])
