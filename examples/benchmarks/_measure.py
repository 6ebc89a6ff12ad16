"""How time is measured, and where: CPU seconds of this process."""

import gc
import hashlib
import platform
import time
from importlib.metadata import version
from statistics import median

from skvfl._random import deal, int_seed, seed_sequence


def machine(quick, *packages):
    """Return where and with which versions a run is made."""
    return {
        "processor": platform.processor() or platform.machine(),
        "python": platform.python_version(),
        **{package: version(package) for package in packages},
        "threads": 1,
        "quick": quick,
        "streams": streams(),
    }


def streams():
    """Name the random streams that a seed leads to, by a digest of some of them.

    A record holds what one version of the library drew. Where it deals other streams,
    the same seed gives other numbers, and a reader has to know that.
    """
    root = seed_sequence(0)
    dealt = deal({"purpose": root}, ["bank", "shop"])
    words = [dealt[name]["purpose"].generate_state(4).tolist() for name in dealt]
    return hashlib.sha256(repr((words, int_seed(root))).encode()).hexdigest()[:8]


def timed(function, *arguments, **options):
    """Return what a function returns, and its CPU seconds."""
    start = time.process_time()
    result = function(*arguments, **options)
    return result, time.process_time() - start


def interleave(repetitions, sides, calls=None, *, collect=True):
    """CPU seconds per call of every side, in turns after one warm-up each.

    In turns, because what else the machine does then hits all sides alike. ``collect``
    keeps one side from collecting another one's garbage.
    """
    seconds = {name: [] for name in sides}
    for repetition in range(repetitions + 1):
        for name, run in sides.items():
            n_calls = (calls or {}).get(name, 1)
            if collect:
                gc.collect()
            start = time.process_time()
            for _ in range(n_calls):
                run()
            if repetition:
                seconds[name].append((time.process_time() - start) / n_calls)
    return seconds


def per_epoch(repetitions, epochs, sides):
    """CPU seconds of an epoch of every side, as ``interleave``.

    An epoch is the difference of two numbers of epochs, so that what precedes the
    training does not count.
    """
    few, many = epochs
    runs = {
        (name, n): (lambda n=n, run=run: run(n))
        for name, run in sides.items()
        for n in epochs
    }
    seconds = interleave(repetitions, runs)
    return {
        name: [
            (b - a) / (many - few)
            for a, b in zip(seconds[name, few], seconds[name, many], strict=True)
        ]
        for name in sides
    }


def ratio(over, under, rounded=lambda value: round(value, 3)):
    """Median and range of the ratios of one repetition each."""
    ratios = [a / b for a, b in zip(over, under, strict=True)]
    return {
        "ratio": rounded(median(ratios)),
        "spread": [rounded(min(ratios)), rounded(max(ratios))],
    }
