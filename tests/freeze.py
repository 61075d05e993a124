#!/usr/bin/env python3
"""The answers of this build as files for `diff -r`, and one digest for each section.

    make && python3 tests/freeze.py OUT [quick|all] [SECTION...]

Run it before and after a change of mechanisms: verdicts, kills, prices and numbers must be the same.
`quick` takes half a minute of CPU, `all` ten minutes and more.  The sections are check, plugins,
commands, kills (needs `make mutants`; not in quick), price, report (needs stored records:
RECORDS=FILE.jsonl in the environment) and words (helps and lists).  The instruction set and the
number of threads are fixed.  Seconds, paths, versions, available memory and the texts of messages
are left out; of plug-ins and commands also the corners, which a slow implementation is spared.
"""
import hashlib, json, os, re, subprocess, sys

BUILD = os.environ.get("ATTN_BUILD", "build/release")
PROGRAM = BUILD + "/attnlab"
ENV = dict(os.environ, OMP_NUM_THREADS="2", LC_ALL="C", COLUMNS="80", NO_COLOR="1",
           ATTN_ISA="avx2" if os.uname().machine == "x86_64" else "portable")
SPECS = """dense dense:mask=int32 csr-textbook tiled-textbook tiled tiled:few=0,rescale=eager@portable
    tiled:p=bf16 chunked csr csr:passes=3 bsr gemm gemm:save=probs ring-textbook ulysses-textbook
    ulysses ulysses:sizes=pad,keys=whole ring ring:order=zigzag ring:ranks=6,inner=3,local=dense usp
    usp:ranks=8,heads=2,order=striped allgather allgather:save=kv video heads""".split()
QUICK_SPECS = ["tiled", "csr:passes=3", "ring:order=zigzag", "usp"]
MASKS = """none causal(br) causal(tl) window(255,0,br) causal(br)&window(511,0,br) window(63,63,br) documents
    causal(br)|random(0.01,3) spatial(4,8,8) temporal(4,8,8) keys(400) prefix(128)""".split()
LEFT_OUT = ("seconds", "again", "version", "available_bytes", "fits", "message", "warning", "notes", "cause", "why",
            "stands_for", "build", "machine")


def run(*words, env={}, status=None):
    done = subprocess.run([PROGRAM, *words], env=dict(ENV, **env), stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
    if status is not None:
        status.append(done.returncode)
    return done.stdout.decode("utf-8", "replace")


def bare(x):
    """Without what differs from run to run; numbers to 12 digits."""
    if isinstance(x, dict):
        return {k: k == "refused" or bare(v) for k, v in x.items() if k not in LEFT_OUT}
    if isinstance(x, list):
        return [bare(v) for v in x]
    return float("%.12g" % x) if isinstance(x, float) else x


def line(key, x):
    return key + "\t" + json.dumps(bare(x), sort_keys=True, separators=(",", ":")) + "\n"


def is_drawn(text, every):
    return int(hashlib.sha256(text.encode()).hexdigest(), 16) % every == 0


def some_cases(every, args=()):
    """All cases of the tier, or the same few of it in each tree: drawn by their text."""
    cases = json.loads(run("list", "cases", "--format", "json", *args))
    return [w for c in cases if is_drawn(c["case"], every) for w in ("--case", c["case"])]


def judged(words, every, without=None, env={}):
    status = []
    out = run("check", *words, "--format=json", "--budget", "0", *(some_cases(every) if every > 1 else []),
              env=env, status=status)
    text = ""
    for one in json.loads(out)["specs"] if out.lstrip().startswith("{") else []:
        checks = [c for c in one["checks"] if not (without and c["name"].startswith(without))]
        text += "".join(sorted(line(c["kind"] + " " + c["text"], c) for c in checks))
        text += line("verdict", one["verdict"])
    return text + line("status", status[0])


def check(every):
    for spec in SPECS if every == 1 else QUICK_SPECS:
        yield spec, judged([spec], every)


def copy_of(kind, switches, folder):
    path = os.path.join(folder, kind + ".so")
    with open(BUILD + "/plugins/" + kind + ".so", "rb") as f, open(path, "wb") as to:
        to.write(f.read() + b"\n" + switches.encode())
    return path


def plugins(every):
    folder = os.path.join(OUT, "made")
    os.makedirs(folder, exist_ok=True)
    for name, kind, switches in (("honest", "full", ""), ("broken", "slips", "NOT_LAST"),
                                 ("crashes", "bad", "CRASH FROM=16"), ("ranks", "bad", "RANKS"),
                                 ("writes", "bad", "WRITE_NEAR FROM=16")):
        words = ["--plugin", copy_of(kind, switches, folder), "--timeout", "100"]
        yield name, judged(words, every, "corners-")


def commands(every):
    claims = os.path.join(OUT, "claims.json")
    with open(claims, "w") as f:
        json.dump({"name": "dense in C", "claims": ["f32", "cross", "dv", "gqa", "scale"]}, f)
    for name in "honest", "WRONG", "CRASH":
        yield name.lower(), judged(["--exec", BUILD + "/faults/dense", "--claims", claims], every, "corners-",
                                   {"DOES": name, "PID_FILE": os.devnull})
    os.remove(claims)


def kills(every):
    table = subprocess.run([BUILD + "/mutant-table", "kills", BUILD + "/mutants"], env=ENV, stdout=subprocess.PIPE)
    yield "kills", re.sub(r"(?m)^(- [^:]*):.*", r"\1", table.stdout.decode())


def price(every):
    text, seed = "", 1
    for i in range(500 if every == 1 else 100):
        pick = []
        for n in (len(SPECS), len(MASKS), 5, 4, 3, 3, 4):
            seed = (seed * 6364136223846793005 + 1442695040888963407) % 2**64
            pick.append((seed >> 33) % n)
        spec, mask = SPECS[pick[0]], MASKS[pick[1]]
        length = 256 if mask.startswith(("spatial", "temporal")) else (512, 1000, 4096, 777, 16384)[pick[2]]
        if mask == "documents":
            mask += "(%d,%d)" % (length // 3, length - length // 3)
        fields = ["--dtype", ("f32", "bf16", "f64", "f16")[pick[3]], "--pass", ("fwd", "bwd", "both")[pick[4]]]
        fields += (["--heads", "4"], ["--heads", "8", "--kv-heads", "2"], ["--heads", "12", "--batch", "2"])[pick[5]]
        fields += ([], ["--dim", "128", "--dv", "64"], ["--layers", "3", "--save", "all"], ["--dim", "80"])[pick[6]]
        words, status = [spec, "--length", str(length), "--mask", mask, *fields], []
        out = run("price", *words, "--format", "json", status=status)
        text += line(" ".join(words), [status[0], json.loads(out) if out.lstrip().startswith("[") else None])
    yield "prices", text


def report(every):
    if "RECORDS" not in os.environ:
        return
    yield "records.csv", run("measure", "--from", os.environ["RECORDS"], "--csv", "-")
    where = os.path.join(OUT, "made", "report")
    run("report", "--from", os.environ["RECORDS"], "--out", where, "--quiet")
    for folder in where, where + "/figures":
        for name in sorted(os.listdir(folder)):
            if name.endswith(".csv"):
                with open(os.path.join(folder, name)) as f:
                    yield "report-" + name, f.read()


def words(every):
    commands = re.findall(r"(?m)^  ([a-z]+) ", run("--help"))
    yield "help", run("--help")
    for command in commands:
        yield "help-" + command, run("help", command)
    for what in "implementations cases factors relations fills bugs masks models".split():
        yield "list-" + what, run("list", what)


SECTIONS = (check, plugins, commands, kills, price, report, words)
if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit("usage: make && python3 tests/freeze.py OUT [quick|all] [SECTION...]")
    made = [BUILD + "/" + m for m in ("attnlab", "plugins/full.so", "plugins/slips.so", "plugins/bad.so", "faults/dense")]
    if not all(os.path.exists(m) for m in made):
        sys.exit("not all of it is built: make -s " + " ".join(made))
    OUT = sys.argv[1]
    rest = sys.argv[2:]
    full = "all" in rest
    chosen = [w for w in rest if w not in ("quick", "all")]
    unknown = [w for w in chosen if w not in [s.__name__ for s in SECTIONS]]
    if unknown:
        sys.exit("there is no section %s: %s" % (unknown[0], " ".join(s.__name__ for s in SECTIONS)))
    for section in SECTIONS:
        if (chosen and section.__name__ not in chosen) or (section is kills and not full and not chosen):
            continue
        digest, n = hashlib.sha256(), 0
        os.makedirs(os.path.join(OUT, section.__name__), exist_ok=True)
        for name, text in section(1 if full else 12):
            with open(os.path.join(OUT, section.__name__, re.sub(r"[^\w.=-]", "_", name)), "w") as f:
                f.write(text)
            digest.update(name.encode() + b"\0" + text.encode())
            n += text.count("\n")
        print("%s  %-8s %d lines" % (digest.hexdigest()[:16], section.__name__, n), flush=True)
    subprocess.run(["rm", "-rf", os.path.join(OUT, "made")])
