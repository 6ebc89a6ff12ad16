"""How time, traffic and memory grow with rows, columns, parties and classes.

Prints one JSON object per line. Growth: one epoch of every method on random columns, in
CPU seconds of one thread, and in bytes that cross; one of the numbers of rows, columns,
parties and classes varies. The exponent is the slope of the
logarithms over the largest two points: 1 is linear. Memory: what a fit on many rows
adds to a fresh process at its peak, beside the table in single precision. A full run
also records the lines in ``docs/benchmarks/growth.jsonl`` and writes the page.

    python bench_growth.py [--quick | --write-docs]
"""

import multiprocessing
import os
import threading
import time
import warnings
from functools import partial
from math import log

import numpy as np
from _measure import machine, timed
from _page import PAGES, listing, write
from _record import command, one, run, select
from sklearn.linear_model import LogisticRegression

from skvfl import (
    APCVFLClassifier,
    FedOnceClassifier,
    RandomProjectionVFL,
    SplitNNClassifier,
    TabVFLClassifier,
    VerticalPartitioner,
    VFedSecClassifier,
    VFLBoostingClassifier,
)

ONE_EPOCH = {"max_epochs": 1, "random_state": 0}


def tabvfl(parties):
    """TabVFL as wide as its parties need it."""
    width = max(8, parties)
    return TabVFLClassifier(
        parties=parties, n_d=width, pretraining_epochs=1, **ONE_EPOCH
    )


METHODS = {
    "partition": partial(VerticalPartitioner, random_state=0),
    "RAP": partial(
        RandomProjectionVFL, LogisticRegression(max_iter=20), random_state=0
    ),
    "FedOnce": partial(FedOnceClassifier, **ONE_EPOCH),
    "APC-VFL": partial(APCVFLClassifier, **ONE_EPOCH),
    "SplitNN": partial(SplitNNClassifier, **ONE_EPOCH),
    "vFedSec": partial(VFedSecClassifier, **ONE_EPOCH),
    "TabVFL": tabvfl,
}
# Of these the memory alone is measured, by another script.
OTHERS = {"Boosting": partial(VFLBoostingClassifier, max_iter=10, random_state=0)}
# What stays as it is while one number varies.
USUAL = {
    "rows": {"columns": 20, "parties": 4},
    "columns": {"rows": 500, "parties": 4},
    "parties": {"rows": 500, "columns": 400},
    "classes": {"rows": 5_000, "columns": 20, "parties": 4},
}
POINTS = {
    "rows": [2_000, 8_000, 32_000],
    "columns": [50, 500, 5_000],
    "parties": [10, 50, 200],
    "classes": [10, 100, 1_000],
}
QUICK_POINTS = {
    "rows": [500, 1_000],
    "columns": [20, 100],
    "parties": [2, 5],
    "classes": [2, 10],
}
BIG = {"rows": 1_000_000, "columns": 50, "parties": 4}
QUICK_BIG = {"rows": 20_000, "columns": 50, "parties": 4}
ON_MANY_ROWS = ("partition", "RAP", "SplitNN", "FedOnce")
# What its parties send is many times their columns.
WIDE, WIDE_BIG = "APC-VFL", {"rows": 100_000, "columns": 54, "parties": 4}
MEGABYTE = 1e6


def measure(quick):
    """Yield the lines of a run."""
    warnings.simplefilter("ignore")
    yield {"what": "machine", **machine(quick, "numpy", "scikit-learn", "torch")}
    for axis, points in (QUICK_POINTS if quick else POINTS).items():
        for method in METHODS:
            if axis == "classes" and method == "partition":
                continue
            curve = [grown(method, axis, n) for n in points]
            yield from curve
            yield {"what": "exponent", "method": method, "axis": axis} | slope(curve)
    for method in ON_MANY_ROWS:
        yield {"what": "memory", "method": method} | apart(
            method, QUICK_BIG if quick else BIG
        )
    yield {"what": "memory", "method": WIDE} | apart(
        WIDE, QUICK_BIG if quick else WIDE_BIG
    )


def grown(method, axis, n):
    """What one epoch costs at one point of a curve."""
    sizes = {"classes": 2} | USUAL[axis] | {axis: n}
    X, y = drawn(**sizes)
    estimator = METHODS[method](parties=sizes["parties"])
    estimator, seconds = timed(fitted, estimator, X, y)
    messages = getattr(estimator, "communication_", None)
    return {
        "what": "growth",
        "method": method,
        "axis": axis,
        "n": n,
        "seconds": seconds,
        "megabytes": messages and messages.n_bytes / MEGABYTE,
    }


def slope(curve):
    """Exponents of seconds and bytes over the largest two points."""
    first, last = curve[-2:]
    step = log(last["n"] / first["n"])
    return {
        f"of_{what}": log(last[what] / first[what]) / step
        for what in ("seconds", "megabytes")
        if first[what]
    }


def drawn(rows, columns, classes=2, **_):
    """A table of random columns in single precision, and classes that they tell."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((rows, columns), dtype=np.float32)
    scores = X @ rng.standard_normal(columns, dtype=np.float32)
    # Of equal sizes, so that every class occurs.
    return X, scores.argsort().argsort() * classes // rows


def fitted(estimator, X, y):
    """Fit on a table; a partitioner also gives its outputs."""
    if isinstance(estimator, VerticalPartitioner):
        estimator.fit_transform(X)
        return estimator
    return estimator.fit(X, y)


def apart(method, sizes):
    """Seconds and memory of a fit in a fresh process."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(added, (method, sizes))


def added(method, sizes):
    """What a fit adds to this process at its peak."""
    import torch

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    X, y = drawn(**sizes)
    estimator = (METHODS | OTHERS)[method](parties=sizes["parties"])
    # What is loaded at the first fit is there before, and no part of what it adds.
    fitted(estimator, X[:1_000], y[:1_000])
    before, peak, ends = resident(), [0], threading.Event()

    def watch():
        while not ends.is_set():
            peak[0] = max(peak[0], resident())
            time.sleep(0.005)

    watcher = threading.Thread(target=watch)
    watcher.start()
    _, seconds = timed(fitted, estimator, X, y)
    ends.set()
    watcher.join()
    return {
        **sizes,
        "table": X.nbytes / MEGABYTE,
        "added": (peak[0] - before) / MEGABYTE,
        "seconds": seconds,
    }


def resident():
    """Bytes of memory that this process has."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def write_page(lines):
    """Write the page, and draw the curves."""
    draw(lines)
    write(
        "growth_benchmarks",
        machine=one(lines, what="machine"),
        exponents=listing(
            "Exponents of CPU seconds, and of megabytes, over the largest two points",
            ["Method", *map(str.capitalize, POINTS)],
            [
                [method, *(exponents(lines, method, axis) for axis in POINTS)]
                for method in METHODS
            ],
        ),
        points=listing(
            "CPU seconds at the points of the curves",
            ["Method", *(f"{n:,} {axis}" for axis in POINTS for n in POINTS[axis])],
            [
                [
                    method,
                    *(
                        seconds(lines, method, axis, n)
                        for axis in POINTS
                        for n in POINTS[axis]
                    ),
                ]
                for method in METHODS
            ],
        ),
        memory=listing(
            "A table of many rows, four parties",
            ["Method", "Rows", "Columns", "Table, MB", "Added, MB", "CPU seconds"],
            [
                [
                    x["method"],
                    f"{x['rows']:,}",
                    x["columns"],
                    f"{x['table']:.0f}",
                    f"{x['added']:.0f}",
                    f"{x['seconds']:.1f}",
                ]
                for x in select(lines, what="memory")
            ],
        ),
    )


def exponents(lines, method, axis):
    """Write the exponents of one curve."""
    found = select(lines, what="exponent", method=method, axis=axis)
    each = [f"{x[key]:.2f}" for x in found for key in x if key.startswith("of_")]
    return ", ".join(each) or "-"


def seconds(lines, method, axis, n):
    """Write the seconds of one point."""
    found = select(lines, what="growth", method=method, axis=axis, n=n)
    return f"{found[0]['seconds']:.2f}" if found else "-"


def draw(lines):
    """Draw seconds against every number that varies."""
    # Only here: a quick run needs no plots.
    import matplotlib

    matplotlib.use("svg")
    # Names of parts that do not differ from run to run.
    matplotlib.rcParams["svg.hashsalt"] = "skvfl"
    import matplotlib.pyplot as plt

    figure, places = plt.subplots(2, 2, figsize=(10, 8), layout="constrained")
    for axis, ax in zip(POINTS, places.flat, strict=True):
        for method in METHODS:
            curve = select(lines, what="growth", method=method, axis=axis)
            if curve:
                points = [x["n"] for x in curve], [x["seconds"] for x in curve]
                ax.loglog(*points, marker="o", label=method)
        ax.set(xlabel=axis, ylabel="CPU seconds of a fit")
    places.flat[0].legend()
    figure.savefig(PAGES / "growth.svg", metadata={"Date": None})


if __name__ == "__main__":
    run(command(__doc__).parse_args(), "growth", measure, write_page)
