"""Whether a sample of every record comes out again with the library as it is.

Reruns one cheap configuration of every record in ``docs/benchmarks``, compares what it
gives with the recorded line and prints a table. *Same* is equal to the last recorded
digit, *within* is within the stated tolerance, and what *differs* makes the command
fail. A tolerance is what other seeds would do to the number: twice the standard error
of a difference of two means. A full run also records the outcome and writes the page
that shows it. Needs the data sets in the folder that SKVFL_DATA names.

    python check_records.py [--quick | --write-docs] [RECORD ...]
"""

import sys
import traceback
import warnings
from collections.abc import Callable
from functools import partial
from importlib import import_module
from itertools import islice
from typing import NamedTuple

import numpy as np
from _data import halves
from _measure import machine, streams
from _page import table, write
from _record import command, one, printed, read, write_lines

SAME, WITHIN, DIFFERS = "same", "within", "differs"
OUTCOME = "checks"
# Of a difference of two means, each with the same standard error.
TWO_ERRORS = 2 * 2**0.5


class Check(NamedTuple):
    """A sample of a record: how to get its lines again, and what to compare.

    ``keys`` tell which recorded line a new one belongs to. ``fields`` are the numbers
    compared, with their tolerances: numbers, or functions of the recorded line and of
    the whole record.
    """

    record: str
    sample: str
    rerun: Callable
    keys: tuple
    fields: dict


def bench(name):
    """Return a script of this folder, which is imported only where it is needed."""
    return import_module(f"bench_{name}")


def of_mean(spread):
    """Tolerance of a mean over seeds whose standard deviation is recorded."""
    return lambda line, lines: TWO_ERRORS * line[spread] / line["seeds"] ** 0.5


def of_pairs(line, lines):
    """Tolerance of a mean whose rows are the same again, by the recorded pairs."""
    return TWO_ERRORS * line["standard_error"]


def of_seeds(*same, field):
    """Tolerance of one seed's number: the spread of the other seeds' numbers."""

    def tolerance(line, lines):
        others = [x for x in lines if all(x.get(k) == line.get(k) for k in same)]
        values = [np.mean(x[field]) for x in others]
        return float(TWO_ERRORS * np.std(values, ddof=1))

    return tolerance


def of_interval(line, lines):
    """Tolerance of a mean with its 95 % interval: that of a difference of two."""
    return 2**0.5 * line["score"]["half"]


def part_of(field, part):
    """Tolerance as a part of what is recorded."""
    return lambda line, lines: part * abs(number(line, field))


def number(line, field):
    """Return a number of a line; a dot leads into a nested one."""
    for name in field.split("."):
        line = line[name]
    return float(np.mean(line))


def compare(line, lines, check):
    """Yield what became of every field of a line that was made again."""
    found = [x for x in lines if all(x.get(k) == line.get(k) for k in check.keys)]
    if len(found) != 1:
        about = {k: line.get(k) for k in check.keys}
        raise LookupError(f"{check.record} has {len(found)} lines on {about}, not one")
    (old,) = found
    for field, tolerance in check.fields.items():
        allowed = tolerance(old, lines) if callable(tolerance) else tolerance
        recorded, again = number(old, field), number(line, field)
        gap = abs(again - recorded)
        verdict = SAME if gap <= 1e-12 * max(1, abs(recorded)) else DIFFERS
        if verdict == DIFFERS and gap <= allowed:
            verdict = WITHIN
        yield {
            "record": check.record,
            "sample": check.sample,
            "field": " ".join([*(str(line.get(k)) for k in check.keys[-2:]), field]),
            "recorded": recorded,
            "again": again,
            "tolerance": round(allowed, 4),
            "verdict": verdict,
        }


def streams_of(lines):
    """Name the streams of a record, as its lines do; of a resumed one there are two."""
    named = {line.get("streams") for line in lines}
    named |= {(line.get("machine") or {}).get("streams") for line in lines[:1]}
    return " and ".join(sorted(named - {None})) or "unnamed"


def outcomes(check, lines):
    """Yield the outcome of a check; one that cannot be made differs, and says why."""
    about = {"streams": streams_of(lines), "now": streams()}
    try:
        for line in check.rerun():
            yield from (x | about for x in compare(line, lines, check))
    except Exception as error:
        traceback.print_exc()
        yield {
            "record": check.record,
            "sample": check.sample,
            "field": f"{type(error).__name__}: {error}",
            "recorded": None,
            "again": None,
            "tolerance": None,
            "verdict": DIFFERS,
        } | about


# How a sample of each record is made again.


def covtype():
    """Columns and labels, in the order in which RAP's costs were measured."""
    bunch = bench("rap").load("covtype")
    X, y = bunch.data.to_numpy(dtype=np.float64), np.asarray(bunch.target)
    order = np.random.default_rng(0).permutation(len(X))
    return X[order], y[order]


def rap_papers():
    """A few seeds of RAP with two clients."""
    script = bench("rap_papers")
    where = {"table": "clients", "dataset": "susy", "model": "MLP", "method": "RAP"}
    old = one(read("rap_papers"), **where, clients=2)
    plan, splits, _ = script.context("susy", "MLP", quick=False)
    two = partial(script.dealt, 2)
    runs = script.by_clients(old, splits[: plan.figures], plan, two)
    yield old | {"mean": round(np.mean([run["test"] for run in runs]), 4)}


def split_scores():
    """Split learning that adds up, on adult."""
    script = bench("split")
    plan = script.PLANS["adult"]
    bunch = script.load("adult", n_rows=plan.rows)
    classes, found = np.unique(bunch.target), []
    for seed in range(plan.seeds):
        X_train, X_test, y_train, y_test = halves(bunch.data, bunch.target, seed)
        model = script.methods(plan, bunch.parties, seed)[script.SUM]
        model.fit(X_train, y_train)
        found.append(script.metrics(y_test, classes, model.predict_proba(X_test)))
    about = {"what": "score", "dataset": "adult", "method": script.SUM}
    for metric in found[0]:
        mean = round(np.mean([each[metric] for each in found]), 3)
        yield about | {"metric": metric, "mean": mean}


def tabvfl_papers():
    """TabVFL on rice, one seed."""
    script = bench("tabvfl_papers")
    rows, epochs = script.FULL.rows["rice"], script.FULL.epochs
    line = {"table": "quality", "dataset": "rice", "n_d": 5, "seed": 0}
    others = [m for m in script.DESIGNS if m != script.TABVFL]
    done = {script.key(line | {"method": method}) for method in others}
    yield from script.quality("rice", 5, rows, epochs, (0,), done)


def fedonce_papers():
    """FedOnce with guests that are trained, four hosts of one seed."""
    script = bench("fedonce_papers")
    name = "phishing, standardised"
    yield next(script.lines("hosts", name, script.PLANS[name], 0, ()))


def apc_aligned():
    """The paper's methods and the tuned encoder with 1,000 aligned rows, one seed."""
    script = bench("apc_aligned")
    ours = (script.PERCEPTRON, script.WIDE, script.SENT, script.LARGE)
    line = {"table": "aligned", "aligned": 1_000, "seed": 0}
    done = {script.key(line | {"method": method}) for method in ours}
    yield from script.table_two(1_000, 0, script.TRAINING, done)


def apc_papers():
    """Table III with 100 aligned rows, all seeds."""
    script = bench("apc_papers")
    yield from script.joint_inference(script.Plan(), (100,))


def preprocessing():
    """Columns of text, as our transformer reads them; no other package is needed."""
    script = bench("preprocessing")
    script.METHODS = [script.OURS]
    yield from islice(script.texts(), 5)


def privacy():
    """The cheapest defence, as the page on it has it."""
    script = bench("privacy")
    defence = script.DEFENCES[0]
    yield script.scored_defence(defence, "adult", defence.values[0], script.SEEDS)


def vfedsec():
    """Bytes with masks over bytes without, on adult."""
    script = bench("vfedsec")
    for line in script.by_party(script.tabular("adult"), 1):
        if line["what"] == "bytes secured / plain":
            yield line


def aliases():
    """Aliases that a server pairs, on digits."""
    script = bench("aliases")
    yield from script.pair("digits", *script.load_digits(return_X_y=True), 20)


def first(name, function, *arguments):
    """Return what makes the first line of a function of a script."""
    return lambda: [next(iter(getattr(bench(name), function)(*arguments)))]


def growth():
    """What an epoch of split learning sends."""
    yield bench("growth").grown("SplitNN", "rows", 2_000)


MEGABYTES = {"megabytes": part_of("megabytes", 0.01)}
CHECKS = [
    Check(
        "rap_papers",
        "RAP, two clients, susy",
        rap_papers,
        ("table", "dataset", "model", "method", "clients"),
        {"mean": of_pairs},
    ),
    Check(
        "rap",
        "peak memory, covtype",
        lambda: bench("rap").peak_memory(*covtype()),
        ("what",),
        {"ratio": part_of("ratio", 0.1)},
    ),
    Check(
        "aliases",
        "digits, 20 fits",
        aliases,
        ("data", "aliases", "what"),
        {"share": 0.05},
    ),
    Check(
        "projection_kinds",
        "categories by their frequencies",
        lambda: islice(bench("projection_kinds").measure_frequencies(5), 10, 20),
        ("measurement", "dataset", "frequencies_of", "kind"),
        {"value": of_mean("sd")},
    ),
    Check(
        "split",
        "SplitNN, sum, adult",
        split_scores,
        ("what", "dataset", "method", "metric"),
        {"mean": of_mean("std")},
    ),
    Check(
        "vfedsec",
        "bytes, adult",
        vfedsec,
        ("what", "data", "phase", "who"),
        {"ratio": 0.01, **MEGABYTES},
    ),
    Check(
        "fedonce_papers",
        "FedOnce-L0, phishing",
        fedonce_papers,
        ("part", "dataset", "seed", "method"),
        {"scores": of_seeds("part", "dataset", "method", field="scores")},
    ),
    Check(
        "fedonce",
        "bytes, two parties",
        first("fedonce", "parties", 6_000, 3, (2,)),
        ("what", "parties"),
        MEGABYTES,
    ),
    Check(
        "private",
        "sum of clipped gradients",
        lambda: bench("private").sensitivity(300),
        ("rows", "trials", "what"),
        {
            field: part_of(field, 0.15)
            for field in (
                "sum_moved_with_assignment.median",
                "sum_moved_with_own_targets.median",
            )
        },
    ),
    Check(
        "apc_papers",
        "Table III, 100 aligned rows",
        apc_papers,
        ("table", "aligned", "method"),
        {"score.mean": of_interval},
    ),
    Check(
        "apc_aligned",
        "Table II, 1,000 aligned rows",
        apc_aligned,
        ("table", "aligned", "seed", "method"),
        {"micro": of_seeds("aligned", "method", field="micro")},
    ),
    Check(
        "tabvfl_papers",
        "TabVFL, rice",
        tabvfl_papers,
        ("table", "dataset", "n_d", "seed", "method"),
        {
            field: of_seeds("table", "dataset", "n_d", "method", field=field)
            for field in ("accuracy", "F1", "ROC-AUC")
        },
    ),
    Check(
        "tabvfl",
        "traffic of an iteration",
        first("tabvfl", "traffic"),
        ("what", "design"),
        {"pretraining_megabytes": 0.01, "finetuning_megabytes": 0.01},
    ),
    Check(
        "boosting",
        "five folds, breast cancer",
        first("boosting", "scores", False),
        ("what", "dataset"),
        {"shared": 0.003, "pooled": 0.003, **MEGABYTES},
    ),
    Check(
        "growth",
        "SplitNN, 2,000 rows",
        growth,
        ("what", "axis", "n", "method"),
        MEGABYTES,
    ),
    Check(
        "preprocessing",
        "columns of text",
        preprocessing,
        ("what", "method", "case"),
        {"accuracy": 0.0},
    ),
    Check(
        "privacy",
        "RAP's kind of matrix, adult",
        privacy,
        ("what", "data", "method", "defence", "value"),
        {
            "utility": lambda line, lines: 2**0.5 * line["utility_half"],
            "score": lambda line, lines: 2**0.5 * line["half"],
        },
    ),
    Check(
        "remote",
        "a federation's predictions, RAP",
        first("remote", "equal_bits"),
        ("what", "data", "method"),
        {"equal bits": 0.0},
    ),
]


def measure(quick, names):
    """Yield the outcome of the checks of these records, or of all."""
    warnings.simplefilter("ignore")
    yield {"what": "machine", **machine(quick, "numpy", "scikit-learn", "torch")}
    for check in CHECKS:
        if not names or check.record in names:
            yield from outcomes(check, read(check.record))


def write_page(lines):
    """Write the page that says what came out again."""
    write(
        "records",
        machine=lines[0],
        checks=table(
            "A sample of every record, made again",
            lines[1:],
            {
                "Record": "``{record}``",
                "Streams": "{streams}",
                "Sample": "{sample}: {field}",
                "Recorded": lambda line: shown(line["recorded"]),
                "Again": lambda line: shown(line["again"]),
                "Tolerance": lambda line: shown(line["tolerance"]),
                "Outcome": "{verdict}",
            },
        ),
    )


def shown(value):
    """Write a number with five digits, or nothing."""
    return "" if value is None else f"{value:.5g}"


def main(options):
    """Check, record a full run, and say whether something did not come out again."""
    if options.write_docs:
        lines = read(OUTCOME)
    else:
        lines = [*printed(measure, options.quick, options.parts)]
        print_table(lines[1:])
    if not (options.quick or options.parts or options.write_docs):
        write_lines(OUTCOME, lines)
    if not (options.quick or options.parts):
        write_page(lines)
    return any(line["verdict"] == DIFFERS for line in lines[1:])


def print_table(lines):
    """Print the outcome, a line each."""
    form = "{:17} {:22} {:40.40} {:>9} {:>9} {:>9} {}"
    print(form.format("record", "streams", "sample", "recorded", "again", "±", ""))
    for line in lines:
        values = (shown(line[name]) for name in ("recorded", "again", "tolerance"))
        about = line["record"], line["streams"], line["field"]
        print(form.format(*about, *values, line["verdict"]))


if __name__ == "__main__":
    every = [check.record for check in CHECKS]
    sys.exit(main(command(__doc__, parts=every).parse_args()))
