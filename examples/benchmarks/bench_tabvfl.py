"""What TabVFL costs beside pytorch-tabnet, in one process.

Prints one JSON object per line. Speed: both sides of a ratio are measured in turns in
this process, in CPU seconds with one thread; an epoch is the difference of two numbers
of epochs, so that preparing the columns does not count; the figure is the median of the
repetitions. Memory: every side in a process of its own. Traffic: one iteration of every
design, from the log. Needs pytorch-tabnet (``pip install 'skvfl[bench]'``). A full run
also records the lines in ``docs/benchmarks/tabvfl.jsonl`` and writes the page of the
user guide that shows them.

    python bench_tabvfl.py [--quick | --profile | --write-docs]
"""

import argparse
import contextlib
import cProfile
import gc
import io
import json
import platform
import pstats
import re
import subprocess
import sys
import time
import warnings
from importlib import import_module
from pathlib import Path
from statistics import median

import numpy as np
import sklearn
import torch
from _page import listing, number

from skvfl import TabVFLClassifier

DOCS = Path(__file__).parents[2] / "docs"
RECORD = DOCS / "benchmarks" / "tabvfl.jsonl"
PAGE = DOCS / "user_guide" / "tabvfl_speed.rst"
N_COLUMNS = 53
SHAPE = {"n_d": 8, "n_a": 8, "n_steps": 3, "gamma": 1.3, "n_shared": 2}
BATCHES = {"batch_size": 1024, "virtual_batch_size": 128}
CENTRAL, ONE, FIVE = "pytorch-tabnet", "TabVFL, one party", "TabVFL, five guests"
BARS = {
    (ONE, "pretraining"): 0.7,
    (ONE, "finetuning"): 0.7,
    (FIVE, "pretraining"): 1.0,
    (FIVE, "finetuning"): 1.0,
    (FIVE, "fit"): 0.8,
}
MEMORY_BAR = 1.3
PAPER_MEGABYTES = {
    "joint": (30.38, 14.84),
    "local_encoder": (14.7, 3.5),
    "local": (0.0, 0.7),
}


def table(n_rows, n_columns=N_COLUMNS):
    """Normal columns, and labels that depend on all of them."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n_rows, n_columns)).astype(np.float32)
    return X, (X @ rng.standard_normal(n_columns) > 0).astype(np.int64)


def guests(n_columns, number=5):
    """A host without columns, and guests with as many each as can be."""
    dealt = np.array_split(np.arange(n_columns), number)
    return {"host": [], **{f"guest{i}": columns for i, columns in enumerate(dealt)}}


def ours(X, y, parties, pretraining, finetuning):
    """Fit TabVFL for so many epochs of each phase."""
    return TabVFLClassifier(
        **SHAPE,
        **BATCHES,
        n_independent=2,
        parties=parties,
        pretrain=pretraining > 0,
        pretraining_epochs=pretraining or None,
        max_epochs=finetuning,
        random_state=0,
    ).fit(X, y)


def central(X, y, pretraining, finetuning):
    """Fit pytorch-tabnet for so many epochs of each phase."""
    from pytorch_tabnet.pretraining import TabNetPretrainer
    from pytorch_tabnet.tab_model import TabNetClassifier

    settings = {**SHAPE, "n_independent": 2, "verbose": 0, "device_name": "cpu"}
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        pretrained = None
        if pretraining:
            pretrained = TabNetPretrainer(**settings)
            pretrained.fit(
                X,
                max_epochs=pretraining,
                pretraining_ratio=0.5,
                drop_last=False,
                **BATCHES,
            )
        if finetuning:
            TabNetClassifier(**settings).fit(
                X,
                y,
                max_epochs=finetuning,
                from_unsupervised=pretrained,
                drop_last=False,
                **BATCHES,
            )


def sides(X, y):
    """What is compared: functions of the epochs of pretraining and finetuning."""
    five = guests(X.shape[1])
    return {
        CENTRAL: lambda *epochs: central(X, y, *epochs),
        ONE: lambda *epochs: ours(X, y, 1, *epochs),
        FIVE: lambda *epochs: ours(X, y, five, *epochs),
    }


def seconds(function, *arguments):
    """CPU seconds of a call."""
    gc.collect()
    start = time.process_time()
    function(*arguments)
    return time.process_time() - start


def speed(n_rows, repetitions, more):
    """Epochs of both phases, and a whole fit, in turns."""
    X, y = table(n_rows)
    measured = {}
    for repetition in range(repetitions + 1):
        for name, run in sides(X, y).items():
            alone = int(name != CENTRAL)
            base = seconds(run, 1, alone)
            pretraining = (seconds(run, 1 + more, alone) - base) / more
            base = seconds(run, 0, 1)
            finetuning = (seconds(run, 0, 1 + more) - base) / more
            spent = {
                "pretraining": pretraining,
                "finetuning": finetuning,
                "fit": seconds(run, 1 + more, 1 + more),
            }
            if repetition:
                for what, each in spent.items():
                    measured.setdefault((name, what), []).append(each)
    for (name, what), ours_ in measured.items():
        theirs = measured[CENTRAL, what]
        ratios = [a / b for a, b in zip(ours_, theirs, strict=True)]
        yield {
            "what": "speed",
            "side": name,
            "of": what,
            "epochs": 1 + more if what == "fit" else 1,
            "seconds": round(median(ours_), 4),
            "ratio": round(median(ratios), 3),
            "spread": [round(min(ratios), 3), round(max(ratios), 3)],
            "bar": BARS.get((name, what)),
            "rows": n_rows,
            "columns": X.shape[1],
            "repetitions": repetitions,
            **BATCHES,
        }


def memory(n_rows):
    """Peak memory of a fit, every side in a process of its own."""
    peaks = {}
    for name in (CENTRAL, ONE, FIVE):
        command = [sys.executable, __file__, "--peak", name, str(n_rows)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        peaks[name] = json.loads(done.stdout.splitlines()[-1])
    for name, peak in peaks.items():
        yield {
            "what": "memory",
            "side": name,
            **peak,
            "ratio": round(peak["megabytes"] / peaks[CENTRAL]["megabytes"], 3),
            "ratio_added": round(peak["added"] / peaks[CENTRAL]["added"], 3),
            "bar": MEMORY_BAR if name == FIVE else None,
            "rows": n_rows,
        }


def megabytes(field):
    """What Linux says of this process's memory."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(re.search(rf"{field}:\s+(\d+) kB", status)[1]) / 1e3


def peak(name, n_rows):
    """Peak memory of this process in a fit, and how much of it the fit added."""
    X, y = table(n_rows)
    import_module("pytorch_tabnet.tab_model")  # which is then not part of the fit
    sides(X[:256], y[:256])[name](1, 1)
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # of the peak
    before = megabytes("VmRSS")
    sides(X, y)[name](1, 1)
    after = megabytes("VmHWM")
    return {"megabytes": round(after, 1), "added": round(after - before, 1)}


def traffic(batch_size=4096, n_columns=106):
    """Megabytes of one iteration of every design; the paper's widths and batch size."""
    X, y = table(batch_size, n_columns)
    for design, paper in PAPER_MEGABYTES.items():
        log = (
            TabVFLClassifier(
                design=design,
                parties=guests(n_columns),
                n_d=5,
                batch_size=batch_size,
                max_epochs=1,
                random_state=0,
            )
            .fit(X, y)
            .communication_
        )
        sent = {"pretraining": 0, "finetuning": 0}
        for message in log.messages:
            if message.data_bearing:
                late = message.operation in ("forward", "backward")
                sent["finetuning" if late else "pretraining"] += message.bytes
        yield {
            "what": "traffic",
            "design": design,
            "pretraining_megabytes": round(sent["pretraining"] / 1e6, 3),
            "finetuning_megabytes": round(sent["finetuning"] / 1e6, 3),
            "paper_megabytes": paper,
            "batch_size": batch_size,
            "columns": n_columns,
        }


def profiled(n_rows):
    """Profile of a fit of five guests."""
    X, y = table(n_rows)
    run = sides(X, y)[FIVE]
    run(1, 1)
    profiler = cProfile.Profile(time.process_time)
    profiler.runcall(run, 3, 3)
    return pstats.Stats(profiler).sort_stats("tottime")


def where(n_rows, top=8):
    """Shares of the functions in which a fit of five guests spends most."""
    stats = profiled(n_rows)
    for function in stats.fcn_list[:top]:
        file, _, name = function
        yield {
            "what": "profile",
            "function": name if file == "~" else f"{Path(file).name}: {name}",
            "share": round(stats.stats[function][2] / stats.total_tt, 3),
        }


def measure(quick):
    """Run every measurement; yield its lines."""
    yield {
        "what": "machine",
        "processor": platform.processor() or platform.machine(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "scikit-learn": sklearn.__version__,
        "threads": torch.get_num_threads(),
        "quick": quick,
    }
    yield from traffic()
    if quick:
        yield from speed(4_096, 3, 1)
        yield from memory(4_096)
        yield from where(4_096)
    else:
        yield from speed(16_000, 5, 2)
        yield from memory(16_000)
        yield from where(16_000)


def spread(line):
    """Write a ratio and its range over the repetitions."""
    return " to ".join(number(end) for end in line["spread"])


def bar_rows(lines):
    """What was asked for, and what was seen."""
    for line in lines:
        if line.get("bar") is None:
            continue
        seen = number(line["ratio"])
        if line["what"] == "memory":
            what = f"{line['side']}, peak memory ÷ {CENTRAL}"
        else:
            what = f"{line['side']}, {line['of']} ÷ {CENTRAL}"
            seen += f" ({spread(line)})"
        met = "yes" if line["ratio"] <= line["bar"] else "**no**"
        yield [what, f"≤ {line['bar']}", seen, met]


def write_page(lines):
    """Write the page of the user guide."""
    (machine,) = (line for line in lines if line["what"] == "machine")

    def rows(what, *columns):
        return [[c(line) for c in columns] for line in lines if line["what"] == what]

    PAGE.write_text(
        TEXT.format(
            context=f"torch {machine['torch']},\nscikit-learn "
            f"{machine['scikit-learn']}, Python {machine['python']}, one thread of a "
            f"shared {machine['processor']} machine",
            bars=listing(
                "Bars", ["What", "Bar", "Seen (range)", "Met"], bar_rows(lines)
            ),
            speed=listing(
                "CPU seconds, 16,000 rows of 53 columns",
                ["Side", "Of", "Seconds", "Ratio"],
                rows(
                    "speed",
                    lambda line: line["side"],
                    lambda line: line["of"],
                    lambda line: number(line["seconds"]),
                    lambda line: number(line["ratio"]),
                ),
            ),
            memory=listing(
                "Peak memory of a process in a fit of 16,000 rows",
                ["Side", "In all", "Of that, the fit"],
                rows(
                    "memory",
                    lambda line: line["side"],
                    lambda line: f"{number(line['megabytes'], digits=0)} MB",
                    lambda line: f"{number(line['added'], digits=0)} MB",
                ),
            ),
            traffic=listing(
                "MB of one iteration, batch of 4,096, 106 columns, five guests, latent "
                "vectors of 5",
                ["Design", "Pretraining", "Finetuning", "Paper"],
                rows(
                    "traffic",
                    lambda line: line["design"],
                    lambda line: number(line["pretraining_megabytes"]),
                    lambda line: number(line["finetuning_megabytes"]),
                    lambda line: " / ".join(map(number, line["paper_megabytes"])),
                ),
            ),
            profile=listing(
                "Functions in which a fit of five guests spends most",
                ["Function", "Share, %"],
                rows(
                    "profile",
                    lambda line: f"``{line['function']}``",
                    lambda line: number(100 * line["share"], digits=0),
                ),
            ),
        ),
        encoding="utf-8",
    )


TEXT = """\
..
   Written by examples/benchmarks/bench_tabvfl.py from its recorded run; change the
   script, not this page.

.. _tabvfl_speed:

What TabVFL costs
=================

All numbers are ours, measured by ::

    python examples/benchmarks/bench_tabvfl.py

(the lines it printed are kept in ``docs/benchmarks/tabvfl.jsonl``; {context}).
*pytorch-tabnet* has all columns in one place and the same hyperparameters.

{bars}

Speed
-----

{speed}

Batches of 1,024 and virtual batches of 128; medians of five repetitions in turns. A fit
is three epochs of either phase, and for pytorch-tabnet the importances that it computes
at the end.

Memory
------

{memory}

Every side in a process of its own, after a fit of 256 rows.

Traffic
-------

{traffic}

The paper's Table V has the last column, pretraining and finetuning; its rice data are
not at hand, only their number of columns. Here masks cross as a byte for each cell,
and everything else in single precision.

Where the time goes
-------------------

{profile}

By cProfile, own time, which counts what is called from Python in its favour.
"""


def main():
    """Measure, print, and record a full run."""
    parser = argparse.ArgumentParser(description=__doc__)
    modes = parser.add_mutually_exclusive_group()
    modes.add_argument("--quick", action="store_true")
    modes.add_argument("--profile", action="store_true")
    modes.add_argument(
        "--write-docs", action="store_true", help="write the page from the record"
    )
    modes.add_argument("--peak", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.write_docs:
        text = RECORD.read_text(encoding="utf-8")
        write_page([json.loads(line) for line in text.splitlines()])
        return
    torch.set_num_threads(1)
    if options.peak:
        print(json.dumps(peak(options.peak[0], int(options.peak[1]))))
        return
    if options.profile:
        profiled(16_000).print_stats(35)
        return
    lines = []
    for line in measure(options.quick):
        lines.append(line)
        print(json.dumps(line), flush=True)
    if not options.quick:
        text = "".join(f"{json.dumps(line)}\n" for line in lines)
        RECORD.write_text(text, encoding="utf-8")
        write_page(lines)


if __name__ == "__main__":
    main()
