#!/usr/bin/env python3
"""Reads records of attnlab and draws two figures of them again: memory and time against length.

    attnlab report --plan experiments/plans/quick.plan --out build/quick
    python3 docs/examples/records.py build/quick/records.csv memory.svg time.svg

records.csv has a line for each point and round (docs/measuring.md has the columns).  Without file names the numbers are
printed; pictures need matplotlib.
"""
import collections
import csv
import statistics
import sys


def curves(records, group, column, status):
    """{(spec, pass): {length: median over the rounds}} of a column; an empty field is no number."""
    rounds, found = collections.defaultdict(list), collections.defaultdict(dict)
    for r in records:
        if r["group"] == group and r["status"] in status and r[column]:
            rounds[r["spec"], r["pass"], int(r["n_query"])].append(float(r[column]))
    for (spec, way, length), values in sorted(rounds.items()):
        found[spec, way][length] = statistics.median(values)
    return found


def draw(path, title, found):
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, 2, figsize=(10, 4), sharey=True)
    for panel, way in zip(panels, ("fwd", "bwd")):
        for (spec, its_way), points in found.items():
            if its_way == way:
                panel.plot(points.keys(), points.values(), "o-", label=spec)
        panel.set(title=way, xscale="log", yscale="log", xlabel="sequence length L")
    if panels[0].lines:
        panels[0].legend()
    figure.suptitle(title)
    figure.savefig(path)


def main(path, *pictures):
    with open(path, newline="", encoding="utf-8") as file:
        records = list(csv.DictReader(file))
    group = next((r["group"] for r in records if r["group"].startswith("length")), None)
    if group is None:
        sys.exit(f"{path}: no group of lengths; those of experiments/plans/quick.plan have one")
    # A point that was only priced has a peak too; times are of good points alone.
    for picture, title, column, status in (
            (pictures[0] if pictures else None, "Peak extra memory, bytes", "priced_bytes", ("ok", "priced")),
            (pictures[1] if pictures[1:] else None, "Time of a call, seconds", "warm_median_s", ("ok",))):
        found = curves(records, group, column, status)
        if picture is not None:
            draw(picture, f"{title}, {group}", found)
            continue
        print(title)
        for (spec, way), points in found.items():
            print(f"  {spec} {way}: " + ", ".join(f"{x} {y:.6g}" for x, y in points.items()))


if __name__ == "__main__":
    main(*sys.argv[1:]) if sys.argv[1:] else sys.exit(__doc__)
