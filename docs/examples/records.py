#!/usr/bin/env python3
"""Reads records of attnlab and draws two figures of them again: memory and time against length.

    attnlab report --plan experiments/plans/quick.plan --out build/quick
    python3 docs/examples/records.py build/quick/records.csv memory.svg time.svg

records.csv has a line for each point and round (docs/measuring.md has the columns).  With matplotlib
the two files are pictures, of any type it knows.  Without it, or without file names, the numbers are
printed.  Standard library otherwise.
"""
import collections
import csv
import statistics
import sys


def number(text):
    """An empty field is no number: the record does not have it."""
    return float(text) if text else None


def read(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def curves(records, group, what, status):
    """{(spec, pass): {length: median over the rounds}} of the column `what`."""
    rounds = collections.defaultdict(list)
    for r in records:
        value = number(r[what])
        if r["group"] == group and r["status"] in status and value is not None:
            rounds[r["spec"], r["pass"], int(r["n_query"])].append(value)
    found = collections.defaultdict(dict)
    for (spec, way, length), values in sorted(rounds.items()):
        found[spec, way][length] = statistics.median(values)
    return found


def show(title, found):
    print(title)
    for (spec, way), points in found.items():
        print(f"  {spec} {way}: " + ", ".join(f"{x} {y:.6g}" for x, y in points.items()))


def draw(plt, path, title, label, found):
    figure, panels = plt.subplots(1, 2, figsize=(10, 4), sharey=True)
    for panel, way in zip(panels, ("fwd", "bwd")):
        for (spec, its_way), points in found.items():
            if its_way == way:
                panel.plot(points.keys(), points.values(), "o-", label=spec)
        panel.set(title=way, xscale="log", yscale="log", xlabel="sequence length L")
    panels[0].set_ylabel(label)
    if panels[0].lines:
        panels[0].legend()
    figure.suptitle(title)
    figure.savefig(path)


def main(path, *pictures):
    records = read(path)
    groups = [r["group"] for r in records if r["group"].startswith("length")]
    if not groups:
        sys.exit(f"{path}: no group of lengths; those of experiments/plans/quick.plan have one")
    # A point that was only priced has a peak too; times are of good points alone.
    figures = [
        ("Peak extra memory", "bytes", curves(records, groups[0], "priced_bytes", ("ok", "priced"))),
        ("Time of a call", "seconds", curves(records, groups[0], "warm_median_s", ("ok",))),
    ]
    plt = None
    try:
        import matplotlib

        matplotlib.use("agg")
        import matplotlib.pyplot as plt
    except ImportError:
        if pictures:
            print("no matplotlib here (Debian: python3-matplotlib): numbers instead", file=sys.stderr)
    for n, (title, label, found) in enumerate(figures):
        if plt is not None and n < len(pictures):
            draw(plt, pictures[n], f"{title}, {groups[0]}", label, found)
        else:
            show(f"{title}, {label}", found)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(*sys.argv[1:])
