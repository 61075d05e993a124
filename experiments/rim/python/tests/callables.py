"""Callables, right and wrong, and what attnlab.py says of each: asserts, and nothing printed.

    python3 callables.py NAME...        the tests of these names; without one, all
"""
import functools
import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import attnlab  # noqa: E402
import numpy as np  # noqa: E402

FEW = ["reveal-all", "reveal-causal-br", "reveal-holes", "length-1-1", "ties"]
CLAIMS = "f32 cross dv dense scale"


def attention(q, k, v, *, scale, mask=None):
    s = q.dtype.type(scale) * (q @ k.swapaxes(-1, -2))
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    p = np.exp(s - s.max(axis=-1, keepdims=True))
    return p @ v / p.sum(axis=-1, keepdims=True)


def with_lse(q, k, v, *, scale, causal=None):
    s = q.dtype.type(scale) * (q @ k.swapaxes(-1, -2))
    if causal is not None:
        i, j = np.ogrid[: q.shape[2], : k.shape[2]]
        s = np.where(j <= i + (k.shape[2] - q.shape[2] if causal == "br" else 0), s, -np.inf)
    m = s.max(axis=-1, keepdims=True)
    l = np.exp(s - m).sum(axis=-1, keepdims=True)
    return np.exp(s - m) @ v / l, (m + np.log(l))[..., 0]


def backward(do, q, k, v, o, lse, *, scale, causal=None):
    s = q.dtype.type(scale) * (q @ k.swapaxes(-1, -2))
    i, j = np.ogrid[: q.shape[2], : k.shape[2]]
    if causal is not None:
        s = np.where(j <= i + (k.shape[2] - q.shape[2] if causal == "br" else 0), s, -np.inf)
    p = np.exp(s - lse[..., None])
    ds = q.dtype.type(scale) * p * (do @ v.swapaxes(-1, -2) - (do * o).sum(axis=-1, keepdims=True))
    return ds @ k, ds.swapaxes(-1, -2) @ q, p.swapaxes(-1, -2) @ do


def with_sink(q, k, v, *, scale, sink, forget=0):
    """A sink is one more score of every row, whose value is 0."""
    s = q.dtype.type(scale) * (q @ k.swapaxes(-1, -2))
    z = np.zeros_like(s[..., :1]) if sink is None else sink[:, None, None]
    if sink is None:
        z = z - np.inf
    m = np.maximum(s.max(axis=-1, keepdims=True), z)
    l = np.exp(s - m).sum(axis=-1, keepdims=True)
    lse = m + np.log(l + (1 - forget) * np.exp(z - m))
    return np.exp(s - m) @ v / (l + np.exp(z - m)), lse[..., 0]


def back_with_sink(do, q, k, v, o, lse, *, scale, sink):
    p = np.exp(q.dtype.type(scale) * (q @ k.swapaxes(-1, -2)) - lse[..., None])
    delta = (do * o).sum(axis=-1)
    ds = q.dtype.type(scale) * p * (do @ v.swapaxes(-1, -2) - delta[..., None])
    found = {"dq": ds @ k, "dk": ds.swapaxes(-1, -2) @ q, "dv": p.swapaxes(-1, -2) @ do}
    if sink is not None:
        found["dsink"] = -(np.exp(sink[:, None] - lse) * delta).sum(axis=(0, 2))
    return found


def wrong(change):
    """attention(), with its result changed."""
    def callable_(q, k, v, *, scale, mask=None):
        return change(attention(q, k, v, scale=scale, mask=mask), q=q, mask=mask)
    return callable_


def raising(error):
    def change(o, **_):
        raise error
    return wrong(change)


def in_place(o, q, **_):
    q += 1
    return o


WRONG = [  # the callable, the verdict of every failure, words of the first one
    (lambda q, k, v, *, scale, mask=None: attention(q, k, v, scale=1, mask=mask), "FAIL(bound)", "scale missing"),
    (wrong(in_place), "FAIL(integrity)", "inputs were changed in place: q"),
    (wrong(lambda o, **_: None), "FAIL(status)", "it returned None: o, or o and lse, would work"),
    (wrong(lambda o, **_: o[:1, :1]), "FAIL(status)", "is wanted"),
    (wrong(lambda o, **_: o.astype("i8")), "FAIL(status)", "I64: F64, F32, BF16 and F16 would work"),
    (wrong(lambda o, **_: "o"), "FAIL(status)", "o is a str, not a tensor"),
    (wrong(lambda o, **_: (o, o, o)), "FAIL(status)", "it returned"),
    (raising(RuntimeError("first\nlast")), "FAIL(status)", "RuntimeError: first last"),
    (wrong(lambda o, **_: o * np.nan), "FAIL(finite)", "NaN"),
]


def judge(callable_, claims=CLAIMS, **how):
    how = {"cases": FEW, **({} if "tier" in how or "relation" in how else {"name": "it"}), **how}
    return attnlab.check(callable_, claims, **how)


def test_right():
    result = judge(attention).require()
    assert result.verdict == "PASS" and not result.failures and result.row["counts"]["PASS"] == 5, result
    assert "PASS: 5 pass, 0 fail" in str(result)
    judge(wrong(lambda o, **_: np.asfortranarray(o))).require()  # not contiguous: copied
    judge(wrong(lambda o, **_: o.astype("f8"))).require()  # a wider type is judged as what it is
    judge(with_lse, "f32 backward causal scale cross", backward=backward, lse="e", cases=[
        "q9k14d8:causal(br):f32:normal:s1:pass=bwd", "q9d8:none:f32:normal:s1:pass=bwd"]).require()


def test_wrong():
    for callable_, verdict, words in WRONG:
        result = judge(callable_, cases=["b2h2q9k14d8v4:dense(bqk50):f32:normal:s1:scale=0.7"])
        assert result.verdict == "FAIL" and len(result.failures) == 1, (words, result)
        failure = result.failures[0]
        assert failure.verdict == verdict and words in failure.message, failure
        assert failure.again.startswith("ATTNLAB_CASE='b2h2q9k14d8v4:"), failure.again
        try:
            result.require()
            raise SystemExit("require() let it pass")
        except attnlab.Failed as error:
            assert verdict in str(error), error
    assert judge(WRONG[0][0], cases=["q9d8:none:f32:normal:s1"]).failures[0].cause == "fits scale missing"


def test_refused():
    result = judge(raising(attnlab.Refused("no kernel for d = 4")), cases=["reveal-causal-br", "q8d8:none:f32:normal:s1"])
    said = [x["message"] for x in result.checks if x["verdict"] == "REFUSED"]
    assert result.verdict == "ERROR" and said == ["no kernel for d = 4"] * 2, result  # nothing was judged


def test_relations_and_repeats():
    def forgets(q, k, v, *, scale, mask=None, calls=[0]):
        calls[0] += 1
        return attention(q, k, v, scale=scale, mask=mask) * np.float32(calls[0] % 7 > 0)

    result = judge(attention, relation="R12", cases=())
    assert [x["verdict"] for x in result.checks] == ["PASS"], result
    result = judge(forgets, repeat=50, cases=["q8d8:none:f32:normal:s1"])
    assert result.failures[0].verdict == "INTERMITTENT(bound)", result
    result = judge(WRONG[0][0], soak=0.2, cases=())
    assert result.failures[0].cause == "fits scale missing", result


def test_bad_calls():
    for claims, how, words in (("bf16", {}, "numpy has no bf16"), ("causal", {}, "names no storage type"),
                               ("f32 causal", {}, "has no argument causal"), ("f32 dense backward", {}, "give backward="),
                               ("f32 blah dense", {}, 'claim "blah" does not exist'),
                               ("f32 dense", {"foo": 1}, 'key "foo" does not exist'),
                               ("f32 dense", {"cases": "nonsense"}, "is no case of the battery")):
        try:
            attnlab.check(attention, claims, **how)
            raise SystemExit(f"{claims} {how}: no error")
        except (ValueError, TypeError) as error:
            assert words in str(error), error


def tell_folders():
    """From now on the folder of each batch is printed: other programs have such folders at the same time."""
    batch = attnlab._Subject.batch
    def told(self, cases, out):
        print("folder", cases, flush=True)
        return batch(self, cases, out)
    attnlab._Subject.batch = told


def folders_that_stay(bad, call, within=(), **variables):
    """A process whose callable is `bad`: how it ended, and which of its folders are still there then."""
    me = "import callables as c, os, signal, time; c.tell_folders(); "
    done = subprocess.run([*within, sys.executable, "-c", me + f"bad = {bad}; " + call], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, cwd=os.path.dirname(os.path.abspath(__file__)),
                          env={**os.environ, **variables})
    told = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("folder ")]
    assert told and all("/attnlab-" in x for x in told), done
    roots = {x[: x.index("/", x.index("/attnlab-") + 1)] for x in told}
    return done, [x for x in roots if os.path.exists(x)]


def test_ends():
    """The caller dies: CRASH and the case on standard error, and no folder stays; it takes too long: TIMEOUT."""
    done, stay = folders_that_stay(
        "lambda o, q, **_: os.kill(os.getpid(), signal.SIGKILL) if q.shape[3] == 4 else o",
        "c.judge(c.wrong(bad), timeout=60, cases=['q8d8:none:f32:normal:s1', 'q8d4:none:f32:normal:s1'])")
    assert done.returncode == -signal.SIGKILL, done
    assert "attnlab: CRASH in case case-2, 'q8d4:none:f32:normal:s1': the caller is gone" in done.stderr, done
    assert stay == [], stay
    done, stay = folders_that_stay(
        "lambda o, **_: time.sleep(4.2) or o",
        "r = c.judge(c.wrong(bad), timeout=4, lse='absent', cases=['q8d8:none:f32:normal:s1']); "
        "assert [x.verdict for x in r.failures] == ['TIMEOUT'], r")
    assert done.returncode == 0, done
    assert stay == [], stay


def test_little_memory():
    """/dev/shm has no room (Docker gives 64 MiB): the folders lie below TMPDIR."""
    small = ["unshare", "-rm", "sh", "-c", 'mount -t tmpfs -o size=64k none /dev/shm && exec "$@"', "sh"]
    if subprocess.run(["sh", "-c", '"$@" 2>/dev/null', "sh", *small, "true"]).returncode:
        return  # no other view of the files may be made here
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        done, _ = folders_that_stay("lambda o, **_: o", "c.judge(c.wrong(bad)).require()", small, TMPDIR=folder)
        told = [line for line in done.stdout.splitlines() if line.startswith("folder ")]
        assert done.returncode == 0 and all(folder in x for x in told) and not os.listdir(folder), done


def test_tensors():
    rng = np.random.default_rng(1)
    q, k, v, do = (rng.standard_normal((1, 2, 40, 16)).astype("f4") for _ in range(4))
    o, lse = with_lse(q, k, v, scale=0.25, causal="br")
    dq, dk, dv = backward(do, q, k, v, o, lse, scale=0.25, causal="br")
    said = attnlab.assert_attention(o, q=q, k=k, v=v, causal="br", lse=lse, do=do, dq=dq, dk=dk, dv=dv, rows=16)
    assert "within the bound of f32" in said, said
    attnlab.assert_attention(o, q=q, k=k, v=v, mask=np.tril(np.ones((1, 2, 40, 40), bool)))
    for how, words in (({}, "fits causal(tl)"), ({"causal": 0, "window": (3, 0)}, "a window without its left end")):
        try:
            attnlab.assert_attention(o, q=q, k=k, v=v, **how)
            raise SystemExit("no error")
        except AssertionError as error:
            assert words in str(error) and "worst element" in str(error), error


def test_sink():
    how = {"claims": "f32 backward sink scale", "backward": back_with_sink, "lse": "e", "cases": [
        "b2h4q9d8:none:f32:normal:s1:pass=bwd:sink=large", "q9d9:none:f32:reveal:s1:pass=bwd:sink=zero",
        "h2q9d16:none:f32:subsets:s1:sink=normal", "h3q9d8:none:f32:normal:s1:pass=bwd:sink=normal"]}
    judge(with_sink, **how).require()
    for callable_, words in (
            (lambda q, k, v, *, scale, sink: with_sink(q, k, v, scale=scale, sink=None), "fits the sink ignored"),
            (lambda q, k, v, *, scale, sink: with_sink(q, k, v, scale=scale, sink=sink, forget=1),
             "fits a sink in O alone, not in LSE")):
        result = judge(callable_, **{**how, "cases": how["cases"][-1:]})
        assert result.failures[0].cause == words, result
    rng = np.random.default_rng(1)
    q, k, v, do = (rng.standard_normal((2, 3, 20, 8)).astype("f4") for _ in range(4))
    sink = np.array([0.5, -np.inf, 3], "f4")
    o, lse = with_sink(q, k, v, scale=8 ** -0.5, sink=sink)
    grads = back_with_sink(do, q, k, v, o, lse, scale=8 ** -0.5, sink=sink)
    attnlab.assert_attention(o, q=q, k=k, v=v, sink=sink, lse=lse, do=do, **grads)
    grads["dsink"] *= 0
    try:
        attnlab.assert_attention(o, q=q, k=k, v=v, sink=sink, lse=lse, do=do, **grads)
        raise SystemExit("no error")
    except AssertionError as error:
        assert "dsink" in str(error), error


def test_shared():
    """V is a view of K: numpy by backward=, torch by autograd."""
    def back(do, q, k, v, o, lse, *, scale, add=1):
        assert np.shares_memory(k, v)
        dq, dk, dv = backward(do, q, k, v, o, lse, scale=scale)
        dk[..., : v.shape[-1]] += add * dv
        return dq, dk
    how = {"claims": "f32 backward kv-shared dv scale", "lse": "e", "cases": [
        "b2h3q9d8v5:none:f32:normal:s1:pass=bwd:kv=shared", "h2q9d8:none:f32:normal:s1:pass=bwd:kv=shared"]}
    judge(with_lse, backward=back, **how).require()
    result = judge(with_lse, backward=functools.partial(back, add=0), **how)
    assert len(result.failures) == 2 and "looks like: fits dK without dV" in str(result), result
    rng = np.random.default_rng(1)
    q, kv, do = (rng.standard_normal(x).astype("f4") for x in ((2, 3, 20, 8), (2, 3, 20, 8), (2, 3, 20, 5)))
    o, lse = with_lse(q, kv, kv[..., :5], scale=8 ** -0.5)
    dq, dk = back(do, q, kv, kv[..., :5], o, lse, scale=8 ** -0.5)
    given = {"q": q, "kv": kv, "dv_view": 5, "lse": lse, "do": do, "dq": dq}
    attnlab.assert_attention(o, dk=dk, **given)
    try:
        attnlab.assert_attention(o, dk=backward(do, q, kv, kv[..., :5], o, lse, scale=8 ** -0.5)[1], **given)
        raise SystemExit("no error")
    except AssertionError as error:
        assert "fits dK without dV" in str(error), error
    if importlib.util.find_spec("torch"):
        import torch

        def of_torch(q, k, v, *, scale):
            s = scale * (q @ k.transpose(-1, -2))
            return torch.softmax(s, -1) @ v, torch.logsumexp(s, -1)
        judge(of_torch, device="cpu", **how).require()
        far = judge(lambda q, k, v, *, scale: of_torch(q, k, v, scale=scale)[0].to("meta"), device="cpu",
                    cases=["q8d8:none:f32:normal:s1"], claims="f32 scale")
        assert "o lies on meta, the inputs on cpu" in far.failures[0].message, far


def padded(q, k, v, *, scale, cu_seqlens_q, cu_seqlens_k, cu_seqlens_q_padded, cu_seqlens_k_padded):
    """Documents with padding between them, each by itself."""
    o = np.zeros(q.shape[:2] + v.shape[2:], q.dtype)
    for t in range(len(cu_seqlens_q) - 1):
        i, j = cu_seqlens_q_padded[t], cu_seqlens_k_padded[t]
        rows, keys = slice(i, i + np.diff(cu_seqlens_q)[t]), slice(j, j + np.diff(cu_seqlens_k)[t])
        x, y, z = (x.swapaxes(0, 1) for x in (q[rows], k[keys], v[keys]))
        o[rows] = attention(x, y, z, scale=scale).swapaxes(0, 1)
    return o


def test_pages():
    """The example, the same with mistakes of servers, and documents with padding between them."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../../docs/examples/numpy_paged.py")
    with open(path, encoding="utf-8") as file:
        text = file.read()

    def pages(*edits):
        space, edited = {"__name__": "example"}, text
        for old, new in edits:
            assert old in edited, old
            edited = edited.replace(old, new)
        exec(edited, space)
        return space["attention"]
    how = {"claims": "f32 gqa cross dv scale causal", "layout": "paged", "causal": "br", "cases": [
        "b3h4g2q4k300d16v8:causal(ends,300,40,17):f32:normal:s3", "b2h2q3k40d8:keys(40,21):f32:normal:s1",
        "b2h2q3k100d8:causal(ends,100,70):f32:normal:s1:layout=broadcast", "b2q1k33d8:keys(33,1):f32:normal:s2"]}
    judge(pages(), **how).require()
    assert [x["verdict"] for x in judge(pages(), **{**how, "relation": "R16", "cases": ()}).checks] == ["PASS"]
    past = (("[:n].repeat", ".repeat"), (", :n]", ", :k.shape[0]]"))
    for edits, words in ((past, "keys past the length read"),
                         ((("page_table[b]]", "page_table[0]]"),), "batch 0 in place of every batch in K and V"),
                         ((("i + n - q", "i + int(max(lengths)) - q"),), "see keys that the mask hides"),
                         ((("enumerate(lengths)", "enumerate(lengths - 1)"),), "1 keys too far to the left")):
        result = judge(pages(*edits), **how)
        assert any(words in x.cause for x in result.failures), (words, result)
    result = judge(pages(("(x[page_table[b]])", "(x.reshape(-1, 16, *x.shape[2:])[page_table[b]])")), **how)
    assert 0 < len(result.failures) < 4, result  # pages are not of 16
    judge(pages(("(x[page_table[b]])", "(x.reshape(-1, 16, *x.shape[2:])[page_table[b]])")), **how, page=16).require()
    how = {"claims": "f32 cross dv scale", "layout": "thd-padded", "cases": [
        "b3q9k14d8v4:none:f32:normal:s3", "h2q20d8:documents(3,1,9,7):f32:normal:s4"]}
    judge(padded, **how).require()

    def unpadded(q, k, v, *, scale, **x):
        x = {name: x[name] for name in x if name.startswith("cu_")}
        return padded(q, k, v, scale=scale, **{**x, "cu_seqlens_k_padded": x["cu_seqlens_k"]})
    result = judge(unpadded, **how)
    assert len(result.failures) == 2 and any("padding read" in x.cause for x in result.failures), result


def test_values():
    assert attnlab.price("dense", length=4096, heads=8).peak == 1 << 30
    assert "tile" in attnlab.explain("tiled-textbook:br=2,bc=2")
    judge(attention, layout="blhd", cases=["q8d8:none:f32:normal:s1"])
    assert attnlab.case("h2q9d8:none:f32:normal:s1").q.shape == (1, 9, 2, 8)


def without_scale(q, k, v, *, scale):
    return with_lse(q, k, v, scale=1)


def test_grade():
    if "ATTN_FULL" in os.environ:  # a grade takes four seconds
        assert attnlab.grade("01", with_lse).total == 100
    sheet = attnlab.grade("01", without_scale)
    assert (sheet.total, sheet.of) == (5, 100) and "likely: fits scale missing" in sheet.text, sheet.text
    for lab, words in (("01", "at the top of a file"), ("07", "more than a function"), ("08", "more than a function")):
        try:
            attnlab.grade(lab, lambda q, k, v, *, scale: q)
        except ValueError as error:
            assert words in str(error), error
        else:
            raise AssertionError(lab)


if __name__ == "__main__":
    for name in sys.argv[1:] or [x for x in dict(globals()) if x.startswith("test_")]:
        globals()[name]()
