"""What TabVFL costs beside pytorch-tabnet, in one process.

Prints one JSON object per line. Speed: both sides of a ratio are measured in turns in
this process, in CPU seconds with one thread; an epoch is the difference of two numbers
of epochs, so that preparing the columns does not count; the figure is the median of the
repetitions. Memory: every side in a process of its own. Traffic: one iteration of every
design, from the log. Needs pytorch-tabnet (``pip install 'skvfl[bench]'``). A full run
also appends the lines to ``docs/benchmarks/tabvfl.jsonl``, leaves out what that record
has, and writes the page of the benchmarks that shows them.

    python bench_tabvfl.py [--quick | --profile | --write-docs]
"""

import argparse
import contextlib
import cProfile
import gc
import io
import json
import pstats
import re
import subprocess
import sys
import time
import warnings
from collections import defaultdict
from importlib import import_module
from pathlib import Path
from statistics import median

import numpy as np
import torch
from _measure import machine, ratio, timed
from _page import listing, met, number, spread, table, write
from _record import command, one, resume, select

from skvfl import TabVFLClassifier

N_COLUMNS = 53
SHAPE = {"n_d": 8, "n_a": 8, "n_steps": 3, "gamma": 1.3, "n_shared": 2}
BATCHES = {"batch_size": 1024, "virtual_batch_size": 128}
CENTRAL, ONE, FIVE = "pytorch-tabnet", "TabVFL, one party", "TabVFL, five guests"
# The rows of the paper's Table V: a side each, our design, and the paper's seconds of
# both phases and gigabytes.
CT, LT, LE, TABVFL = "CT", "LT", "TabVFL-LE", "TabVFL"
DESIGNS = {CT: "joint", LT: "local", LE: "local_encoder", TABVFL: "joint"}
PAPER_TABLE_V = {
    CT: (151, 116, 2.75),
    LT: (244, 187, 15.12),
    LE: (252, 204, 14.73),
    TABVFL: (194, 138, 14.73),
}
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


def normal(n_rows, n_columns=N_COLUMNS):
    """Normal columns, and labels that depend on all of them."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n_rows, n_columns)).astype(np.float32)
    return X, (X @ rng.standard_normal(n_columns) > 0).astype(np.int64)


def guests(n_columns, number=5):
    """A host without columns, and guests with as many each as can be."""
    dealt = np.array_split(np.arange(n_columns), number)
    return {"host": [], **{f"guest{i}": columns for i, columns in enumerate(dealt)}}


def ours(X, y, parties, pretraining, finetuning, design="joint"):
    """Fit TabVFL for so many epochs of each phase."""
    return TabVFLClassifier(
        **SHAPE,
        **BATCHES,
        n_independent=2,
        design=design,
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
    batches = {**BATCHES, "drop_last": False}
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        pretrained = None
        if pretraining:
            pretrained = TabNetPretrainer(**settings)
            pretrained.fit(X, max_epochs=pretraining, pretraining_ratio=0.5, **batches)
        if finetuning:
            classifier = TabNetClassifier(**settings)
            phase = {"max_epochs": finetuning, "from_unsupervised": pretrained}
            classifier.fit(X, y, **phase, **batches)


def sides(X, y):
    """What is compared: functions of the epochs of pretraining and finetuning."""
    five = guests(X.shape[1])
    return {
        CENTRAL: lambda *epochs: central(X, y, *epochs),
        ONE: lambda *epochs: ours(X, y, 1, *epochs),
        FIVE: lambda *epochs: ours(X, y, five, *epochs),
    } | by_design(X, y)


def by_design(X, y):
    """Return the paper's designs, in the same way."""
    parties = dict.fromkeys(DESIGNS, guests(X.shape[1])) | {CT: 1}
    return {
        name: lambda *epochs, name=name, design=design: ours(
            X, y, parties[name], *epochs, design=design
        )
        for name, design in DESIGNS.items()
    }


def seconds(function, *arguments):
    """CPU seconds of a call."""
    gc.collect()
    return timed(function, *arguments)[1]


def epochs_of(fit, more):
    """CPU seconds of an epoch of both phases."""
    pretraining = seconds(fit, 1 + more, 1) - seconds(fit, 1, 1)
    finetuning = seconds(fit, 0, 1 + more) - seconds(fit, 0, 1)
    return pretraining / more, finetuning / more


def designs(n_rows, repetitions, more):
    """Epochs of the paper's designs, in turns: its Table V."""
    X, y = normal(n_rows)
    measured = defaultdict(list)
    for repetition in range(repetitions + 1):
        for name, fit in by_design(X, y).items():
            spent = epochs_of(fit, more)
            if repetition:
                measured[name].append(spent)
    for name, spent in measured.items():
        for of, each, joint in zip(
            ("pretraining", "finetuning"),
            zip(*spent, strict=True),
            zip(*measured[TABVFL], strict=True),
            strict=True,
        ):
            yield {
                "what": "design",
                "side": name,
                "of": of,
                "seconds": round(median(each), 4),
                **ratio(each, joint),
                "rows": n_rows,
                "repetitions": repetitions,
            }


def speed(n_rows, repetitions, more):
    """Epochs of both phases, and a whole fit, in turns."""
    X, y = normal(n_rows)
    measured = defaultdict(list)
    compared = sides(X, y)
    for repetition in range(repetitions + 1):
        for name in (CENTRAL, ONE, FIVE):
            fit = compared[name]
            alone = int(name != CENTRAL)
            base = seconds(fit, 1, alone)
            pretraining = (seconds(fit, 1 + more, alone) - base) / more
            base = seconds(fit, 0, 1)
            finetuning = (seconds(fit, 0, 1 + more) - base) / more
            whole = seconds(fit, 1 + more, 1 + more)
            if repetition:
                measured[name, "pretraining"].append(pretraining)
                measured[name, "finetuning"].append(finetuning)
                measured[name, "fit"].append(whole)
    for (name, what), spent in measured.items():
        yield {
            "what": "speed",
            "side": name,
            "of": what,
            "epochs": 1 + more if what == "fit" else 1,
            "seconds": round(median(spent), 4),
            **ratio(spent, measured[CENTRAL, what]),
            "bar": BARS.get((name, what)),
            "rows": n_rows,
            "columns": X.shape[1],
            "repetitions": repetitions,
            **BATCHES,
        }


def memory(n_rows, names=(CENTRAL, ONE, FIVE)):
    """Peak memory of a fit, every side in a process of its own."""
    peaks = {}
    for name in names:
        command = [sys.executable, __file__, "--peak", name, str(n_rows)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        peaks[name] = json.loads(done.stdout.splitlines()[-1])
    for name, peak in peaks.items():
        yield {
            "what": "memory",
            "side": name,
            **peak,
            "ratio": round(peak["megabytes"] / peaks[names[0]]["megabytes"], 3),
            "ratio_added": round(peak["added"] / peaks[names[0]]["added"], 3),
            "bar": MEMORY_BAR if name == FIVE else None,
            "rows": n_rows,
        }


def megabytes(field):
    """What Linux says of this process's memory."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(re.search(rf"{field}:\s+(\d+) kB", status)[1]) / 1e3


def peak(name, n_rows):
    """Peak memory of this process in a fit, and how much of it the fit added."""
    X, y = normal(n_rows)
    import_module("pytorch_tabnet.tab_model")  # which is then not part of the fit
    sides(X[:256], y[:256])[name](1, 1)
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # of the peak
    before = megabytes("VmRSS")
    sides(X, y)[name](1, 1)
    after = megabytes("VmHWM")
    return {"megabytes": round(after, 1), "added": round(after - before, 1)}


def traffic(batch_size=4096, n_columns=106):
    """Megabytes of one iteration of every design; the paper's widths and batch size."""
    X, y = normal(batch_size, n_columns)
    for design, paper in PAPER_MEGABYTES.items():
        vfl = TabVFLClassifier(
            design=design,
            parties=guests(n_columns),
            n_d=5,
            batch_size=batch_size,
            max_epochs=1,
            random_state=0,
        ).fit(X, y)
        sent = {"pretraining": 0, "finetuning": 0}
        for message in vfl.communication_.messages:
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
    X, y = normal(n_rows)
    fit = sides(X, y)[FIVE]
    fit(1, 1)
    profiler = cProfile.Profile(time.process_time)
    profiler.runcall(fit, 3, 3)
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


def key(line):
    """What a line is about."""
    names = ("what", "side", "design", "of", "function")
    return tuple(line.get(name) for name in names)


def measure(quick, done):
    """Run every measurement of which the record has no line; yield its lines."""
    n_rows = 4_096 if quick else 16_000
    few, size = ((3, 1), 2_048) if quick else ((3, 2), 8_000)
    have = {(what, side) for what, side, *_ in done}
    if ("machine", None) not in have:
        yield {"what": "machine", **machine(quick, "torch", "scikit-learn")}
    if ("design", CT) not in have:
        yield from designs(size, *few)
    if ("memory", CT) not in have:
        yield from memory(n_rows, (*DESIGNS,))
    if ("traffic", None) not in have:
        yield from traffic()
    if ("speed", CENTRAL) not in have:
        yield from speed(n_rows, *((3, 1) if quick else (5, 2)))
    if ("memory", CENTRAL) not in have:
        yield from memory(n_rows)
    if ("profile", None) not in have:
        yield from where(n_rows)


def design_rows(lines):
    """Table V: seconds of an epoch and memory, ours and the paper's."""
    for name in DESIGNS:
        cells = []
        for of in ("pretraining", "finetuning"):
            line = one(lines, what="design", side=name, of=of)
            cells += [
                number(line["seconds"]),
                f"{number(line['ratio'])} ({spread(line)})",
            ]
        peak = one(lines, what="memory", side=name)
        *paper, gigabytes = PAPER_TABLE_V[name]
        theirs = [n / p for n, p in zip(paper, PAPER_TABLE_V[TABVFL], strict=False)]
        memory = f"{number(peak['megabytes'], 0)} MB, {number(peak['added'], 0)} MB"
        said = [*map(number, theirs), memory, f"{gigabytes} GB"]
        yield [name, *cells, *said]


def bar_rows(lines):
    """What was asked for, and what was seen."""
    for line in lines:
        if line.get("bar") is None:
            continue
        seen, of = number(line["ratio"]), "peak memory"
        if line["what"] == "speed":
            seen, of = f"{seen} ({spread(line)})", line["of"]
        what = f"{line['side']}, {of} ÷ {CENTRAL}"
        yield [what, f"≤ {line['bar']}", seen, met(line["ratio"] <= line["bar"])]


def write_page(lines):
    """Write the page of the benchmarks."""
    write(
        "tabvfl_speed",
        machine=one(lines, what="machine"),
        bars=listing("Bars", ["What", "Bar", "Seen (range)", "Met"], bar_rows(lines)),
        speed=table(
            "CPU seconds, 16,000 rows of 53 columns",
            select(lines, what="speed"),
            {
                "Side": "{side}",
                "Of": "{of}",
                "Seconds": "{seconds:.2f}",
                "Ratio": "{ratio:.2f}",
            },
        ),
        memory=table(
            "Peak memory of a process in a fit of 16,000 rows",
            [x for x in select(lines, what="memory") if x["side"] not in DESIGNS],
            {
                "Side": "{side}",
                "In all": "{megabytes:,.0f} MB",
                "Of that, the fit": "{added:,.0f} MB",
            },
        ),
        designs=listing(
            "An epoch of either phase in CPU seconds, and times TabVFL's (range); the "
            "paper's, times TabVFL's; peak memory, and what of it the fit added",
            [
                "Design",
                "Pretraining, s",
                "÷ TabVFL",
                "Finetuning, s",
                "÷ TabVFL",
                "Paper's pretraining ÷ TabVFL",
                "Paper's finetuning ÷ TabVFL",
                "Memory",
                "Paper's memory",
            ],
            design_rows(lines),
        ),
        design_rows=one(lines, what="design", side=CT, of="pretraining")["rows"],
        traffic=table(
            "MB of one iteration, batch of 4,096, 106 columns, five guests, latent "
            "vectors of 5",
            select(lines, what="traffic"),
            {
                "Design": "{design}",
                "Pretraining": "{pretraining_megabytes:.2f}",
                "Finetuning": "{finetuning_megabytes:.2f}",
                "Paper": "{paper_megabytes[0]:.2f} / {paper_megabytes[1]:.2f}",
            },
        ),
        profile=table(
            "Functions in which a fit of five guests spends most",
            select(lines, what="profile"),
            {
                "Function": "``{function}``",
                "Share, %": lambda line: number(100 * line["share"], digits=0),
            },
        ),
    )


def main():
    """Measure, write the page, or look into one fit."""
    parser = command(__doc__)
    parser.add_argument("--profile", action="store_true", help="print where time goes")
    parser.add_argument("--peak", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.peak:
        print(json.dumps(peak(options.peak[0], int(options.peak[1]))))
    elif options.profile:
        profiled(16_000).print_stats(35)
    else:
        resume(options, "tabvfl", measure, key, write_page)


if __name__ == "__main__":
    main()
