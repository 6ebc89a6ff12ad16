"""What split learning costs beside joint training, and whether it scores the same.

Prints one JSON object per line. Speed: both sides of a ratio are measured in turns in
this process, in CPU seconds with one thread; an epoch is the difference of two numbers
of epochs, so that preparing the columns does not count; the figure is the median of
the repetitions. Scores: every method of a seed has the same rows to train and to test
on. A full run also records the lines in ``docs/benchmarks/split.jsonl`` and writes the
page of the user guide that shows them. Needs the data sets in the folder that the
environment variable SKVFL_DATA names.

    python bench_split.py [--quick | --write-docs]
"""

import argparse
import gc
import json
import platform
import time
from itertools import pairwise
from pathlib import Path
from statistics import mean, median, stdev
from typing import NamedTuple

import numpy as np
import sklearn
import torch
from _page import listing, number
from sklearn.metrics import accuracy_score, roc_auc_score
from sklearn.model_selection import train_test_split
from torch import nn
from torch.nn.functional import cross_entropy

from skvfl import SplitNNClassifier, VerticalPartitioner, VFedSecClassifier
from skvfl.datasets import load

DOCS = Path(__file__).parents[2] / "docs"
RECORD = DOCS / "benchmarks" / "split.jsonl"
PAGE = DOCS / "user_guide" / "split_benchmarks.rst"

PARTIES = 4
SIZES = {
    "10-128-64, 256-128-2": {"bottom": (128,), "cut_width": 64, "top": (128,)},
    "10-64-32, 128-64-2 (the defaults)": {
        "bottom": (64,),
        "cut_width": 32,
        "top": (64,),
    },
}
SPEED_BARS = {128: 0.85, 1024: 1.0}
JOINT = {
    "fused": "``torch.optim.Adam(fused=True)``",
    "default": "``torch.optim.Adam()``",
}

SCORE_BAR = 0.2
BAR_SEEDS = 5
TRAINING = {"batch_size": 256, "lr": 0.01}


class Plan(NamedTuple):
    """A data set, how often it is split, and the networks: the paper's for images."""

    rows: int | None
    seeds: int
    epochs: int
    network: dict
    bar: bool = False


LINEAR = {"bottom": (), "cut_width": 64, "top": ()}
PLANS = {
    "adult": Plan(None, 10, 10, LINEAR, bar=True),
    "bank_marketing": Plan(None, 10, 10, LINEAR, bar=True),
    "covtype": Plan(20_000, 5, 20, LINEAR),
    "fashion_mnist": Plan(
        8_000, 5, 15, {"bottom": (32,), "cut_width": 128, "top": (256, 128, 64)}
    ),
}
CENTRALISED, CONCAT, SUM, OTHER, VFEDSEC = (
    "Centralised",
    "SplitNN, concat",
    "SplitNN, sum",
    "SplitNN, sum, other weights",
    "vFedSec",
)
DIFFERENCES = [(VFEDSEC, SUM), (OTHER, SUM), (SUM, CENTRALISED), (CONCAT, CENTRALISED)]


class JointNetwork(nn.Module):
    """All bottoms and the top in one autograd graph.

    Parameters
    ----------
    widths : list of int
        Number of columns of every party.
    n_outputs : int
        Number of outputs of the top.
    bottom, top : tuple of int
        Sizes of the hidden layers.
    cut_width : int
        Number of outputs of every bottom.
    combine : callable
        Makes the top's input of a list of the bottoms' outputs.
    """

    def __init__(self, widths, n_outputs, bottom, cut_width, top, combine):
        super().__init__()
        self.bottoms = nn.ModuleList(
            perceptron([width, *bottom, cut_width]) for width in widths
        )
        self.combine = combine
        n_inputs = cut_width if combine is sum else cut_width * len(widths)
        self.top = nn.Sequential(nn.ReLU(), *perceptron([n_inputs, *top, n_outputs]))

    def forward(self, blocks):
        """Outputs of the top."""
        cuts = [bottom(x) for bottom, x in zip(self.bottoms, blocks, strict=True)]
        return self.top(self.combine(cuts))


def perceptron(sizes):
    """Return linear layers with a ReLU between each two."""
    layers = [nn.Linear(*pair) for pair in pairwise(sizes)]
    return nn.Sequential(layers[0], *(m for x in layers[1:] for m in (nn.ReLU(), x)))


def concatenate(cuts):
    """Return the bottoms' outputs side by side."""
    return torch.cat(cuts, dim=1)


def train_jointly(network, optimizer, blocks, labels, batch_size, epochs):
    """Train as a user's loop in torch does; the mean loss of every epoch."""
    curve = []
    for _ in range(epochs):
        total = 0.0
        for rows in torch.randperm(len(labels)).split(batch_size):
            optimizer.zero_grad()
            loss = cross_entropy(network([x[rows] for x in blocks]), labels[rows])
            loss.backward()
            optimizer.step()
            total += loss.item() * len(rows)
        curve.append(total / len(labels))
    return curve


def seconds_per_epoch(repetitions, epochs, sides):
    """CPU seconds of an epoch of every side, in turns after one warm-up each."""
    few, many = epochs
    seconds = {name: [] for name in sides}
    for repetition in range(repetitions + 1):
        for name, run in sides.items():
            spent = []
            for n_epochs in (few, many):
                gc.collect()
                start = time.process_time()
                run(n_epochs)
                spent.append(time.process_time() - start)
            if repetition:
                seconds[name].append((spent[1] - spent[0]) / (many - few))
    return seconds


def speed(n_rows, repetitions, epochs):
    """SplitNN's epoch against the same network in one graph, in the same process."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n_rows, 10 * PARTIES)).astype(np.float32)
    y = (X @ rng.standard_normal(X.shape[1]) > 0).astype(np.int64)
    blocks = [torch.from_numpy(X[:, i::PARTIES].copy()) for i in range(PARTIES)]
    labels = torch.from_numpy(y)
    for name, network in SIZES.items():
        for batch_size in (128, 256, 1024):
            split = SplitNNClassifier(
                parties=PARTIES, batch_size=batch_size, random_state=0, **network
            )

            def train_split(epochs, split=split):
                split.set_params(max_epochs=epochs).fit(X, y)

            def train_joint(epochs, network=network, size=batch_size, **options):
                joint = JointNetwork([10] * PARTIES, 2, **network, combine=concatenate)
                optimizer = torch.optim.Adam(joint.parameters(), **options)
                train_jointly(joint, optimizer, blocks, labels, size, epochs)

            seconds = seconds_per_epoch(
                repetitions,
                epochs,
                {
                    "split": train_split,
                    "fused": lambda n, run=train_joint: run(n, fused=True),
                    "default": train_joint,
                },
            )
            for against in JOINT:
                pairs = zip(seconds["split"], seconds[against], strict=True)
                ratios = [a / b for a, b in pairs]
                yield {
                    "what": "speed",
                    "network": name,
                    "batch_size": batch_size,
                    "against": against,
                    "ratio": round(median(ratios), 3),
                    "spread": [round(min(ratios), 3), round(max(ratios), 3)],
                    "bar": SPEED_BARS.get(batch_size) if against == "fused" else None,
                    "split_ms": round(1e3 * median(seconds["split"]), 1),
                    "joint_ms": round(1e3 * median(seconds[against]), 1),
                    "rows": n_rows,
                    "repetitions": repetitions,
                }


def methods(plan, parties, seed):
    """Return the federated estimators of one seed."""
    settings = {
        "parties": parties,
        "max_epochs": plan.epochs,
        "random_state": seed,
        **plan.network,
        **TRAINING,
    }
    other = {**settings, "random_state": 1000 + seed}
    return {
        CONCAT: SplitNNClassifier(**settings),
        SUM: SplitNNClassifier(aggregation="sum", **settings),
        OTHER: SplitNNClassifier(aggregation="sum", **other),
        VFEDSEC: VFedSecClassifier(**settings),
    }


def centralised(plan, parties, seed, X_train, y_train, X_test):
    """Probabilities of the joint network that adds up, and its training seconds."""
    torch.manual_seed(seed)
    start = time.process_time()
    partition = VerticalPartitioner(parties=parties, random_state=seed).fit(X_train)
    train, test = (
        [
            torch.from_numpy(
                np.asarray(partition.transformers_[name].transform(block), np.float32)
            )
            for name, block in partition.split(X).items()
        ]
        for X in (X_train, X_test)
    )
    classes, codes = np.unique(y_train, return_inverse=True)
    widths = [block.shape[1] for block in train]
    network = JointNetwork(widths, len(classes), **plan.network, combine=sum)
    optimizer = torch.optim.Adam(network.parameters(), lr=TRAINING["lr"], fused=True)
    labels, batch_size = torch.from_numpy(codes), TRAINING["batch_size"]
    train_jointly(network, optimizer, train, labels, batch_size, plan.epochs)
    seconds = time.process_time() - start
    with torch.inference_mode():
        return network(test).softmax(dim=1).numpy(), seconds, sum(widths)


def metrics(y_test, classes, probabilities):
    """Accuracy and, for two classes, the area under the ROC curve, in per cent."""
    predicted = classes[probabilities.argmax(axis=1)]
    scores = {"accuracy": 100 * accuracy_score(y_test, predicted)}
    if len(classes) == 2:
        scores["AUC"] = 100 * roc_auc_score(y_test, probabilities[:, 1])
    return scores


def scores(name, plan):
    """Score, seconds and traffic of every method; paired differences."""
    bunch = load(name, n_rows=plan.rows)
    classes = np.unique(bunch.target)
    records = {}
    for seed in range(plan.seeds):
        X_train, X_test, y_train, y_test = train_test_split(
            bunch.data,
            bunch.target,
            test_size=0.3,
            random_state=seed,
            stratify=bunch.target,
        )
        probabilities, seconds, inputs = centralised(
            plan, bunch.parties, seed, X_train, y_train, X_test
        )
        runs = {CENTRALISED: (probabilities, seconds, 0)}
        for method, estimator in methods(plan, bunch.parties, seed).items():
            start = time.process_time()
            estimator.fit(X_train, y_train)
            seconds = time.process_time() - start
            traffic = estimator.communication_.n_bytes
            runs[method] = estimator.predict_proba(X_test), seconds, traffic
        for method, (probabilities, *costs) in runs.items():
            score = metrics(y_test, classes, probabilities)
            records.setdefault(method, []).append((score, *costs))
    context = {"dataset": name, "seeds": plan.seeds, "epochs": plan.epochs}
    shape = {"rows": len(bunch.data), "inputs": inputs, "parties": len(bunch.parties)}
    measured = {}
    for method, runs in records.items():
        for metric in runs[0][0]:
            values = [score[metric] for score, _, _ in runs]
            measured[method, metric] = np.array(values)
            yield {
                "what": "score",
                **context,
                **shape,
                "method": method,
                "metric": metric,
                "mean": round(mean(values), 3),
                "std": round(stdev(values), 3),
                "fit_seconds": round(median(run[1] for run in runs), 2),
                "megabytes": round(runs[0][2] / 1e6, 2),
            }
    for metric in records[CENTRALISED][0][0]:
        for over, under in DIFFERENCES:
            gaps = measured[over, metric] - measured[under, metric]
            for n_seeds in sorted({min(BAR_SEEDS, len(gaps)), len(gaps)}):
                yield {
                    "what": "difference",
                    **context,
                    "seeds": n_seeds,
                    "metric": metric,
                    "over": over,
                    "under": under,
                    **paired(gaps[:n_seeds]),
                    "bar": SCORE_BAR if plan.bar and over == VFEDSEC else None,
                }


def paired(gaps):
    """Mean of paired differences, its standard error, and the signs."""
    return {
        "mean": round(float(np.mean(gaps)), 3),
        "standard_error": round(float(np.std(gaps, ddof=1) / len(gaps) ** 0.5), 3),
        "signs": "".join("-0+"[int(sign) + 1] for sign in np.sign(gaps)),
    }


def measure(quick):
    """Run every measurement; yield its lines."""
    yield {
        "what": "machine",
        "processor": platform.processor() or platform.machine(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "scikit-learn": sklearn.__version__,
        "threads": 1,
        "quick": quick,
    }
    yield from speed(16_000, *((5, (1, 3)) if quick else (7, (1, 6))))
    for name, plan in PLANS.items():
        if quick:
            plan = plan._replace(rows=2_000, seeds=2, epochs=2)
        yield from scores(name, plan)


def write_page(lines):
    """Write the page of the user guide."""
    (machine,) = (line for line in lines if line["what"] == "machine")
    context = (
        f"torch {machine['torch']},\nscikit-learn {machine['scikit-learn']}, Python "
        f"{machine['python']}, one thread of a shared {machine['processor']} machine"
    )
    tables = {
        "bars": listing("Bars", ["What", "Bar", "Seen", "Met"], bars(lines)),
        "speed": listing(
            "One epoch of SplitNN against one of the joint network",
            ["Network", "Batch", "Adam of the joint", "Ratio", "Range", "ms / ms"],
            [
                [
                    line["network"],
                    f"{line['batch_size']:,}",
                    JOINT[line["against"]],
                    number(line["ratio"]),
                    " to ".join(number(end) for end in line["spread"]),
                    f"{line['split_ms']:.0f} / {line['joint_ms']:.0f}",
                ]
                for line in lines
                if line["what"] == "speed"
            ],
        ),
        "scores": listing(
            "Mean ± standard deviation over the seeds, %",
            ["Data set", "Metric", "Seeds", *(CENTRALISED, CONCAT, SUM, VFEDSEC)],
            [*score_rows(lines)],
        ),
        "differences": listing(
            "Paired differences in points: mean ± standard error, sign of every seed",
            ["Data set", "Metric", "Difference", "Seeds", "Mean", "Signs"],
            [
                [
                    line["dataset"],
                    line["metric"],
                    f"{line['over']} \N{MINUS SIGN} {line['under']}",
                    line["seeds"],
                    difference(line),
                    f"``{line['signs']}``",
                ]
                for line in lines
                if line["what"] == "difference"
            ],
        ),
        "costs": listing(
            "CPU seconds of one fit, all parties together, and megabytes that cross",
            ["Data set", "Epochs", "Inputs", *(CENTRALISED, CONCAT, SUM, VFEDSEC)],
            [*cost_rows(lines)],
        ),
    }
    PAGE.write_text(
        TEXT.format(context=context, **TRAINING, **tables), encoding="utf-8"
    )


def difference(line):
    """Write a mean difference ± its standard error."""
    sign = "+" if line["mean"] > 0 else ""
    return f"{sign}{number(line['mean'])} ± {number(line['standard_error'])}"


def bars(lines):
    """Return what was asked for, and what was seen."""
    for line in lines:
        if not line.get("bar"):
            continue
        if line["what"] == "speed":
            yield [
                f"SplitNN epoch ÷ joint, batch {line['batch_size']:,}, "
                f"{line['network']}",
                f"≤ {line['bar']}",
                number(line["ratio"], digits=3),
                "yes" if line["ratio"] <= line["bar"] else "**no**",
            ]
        else:
            yield [
                f"{line['over']} \N{MINUS SIGN} {line['under']}, {line['metric']}, "
                f"{line['dataset']}, {line['seeds']} seeds",
                f"within {line['bar']} points, sign not constant",
                f"{difference(line)}, ``{line['signs']}``",
                verdict(line),
            ]


def verdict(line):
    """Say whether a difference is within its bar, and how surely."""
    within = abs(line["mean"]) <= line["bar"]
    mixed = {"+", "-"} <= set(line["signs"])
    answer = "yes" if within and mixed else "**no**"
    near = abs(abs(line["mean"]) - line["bar"]) < 2 * line["standard_error"]
    return f"{answer}, within the noise" if near else answer


def by_dataset(lines):
    """Return the lines of scores by data set and metric."""
    groups = {}
    for line in lines:
        if line["what"] == "score":
            group = groups.setdefault((line["dataset"], line["metric"]), {})
            group[line["method"]] = line
    return groups


def score_rows(lines):
    """Return a row of scores for every data set and metric."""
    for (dataset, metric), group in by_dataset(lines).items():
        cells = [
            f"{number(group[method]['mean'])} ± {number(group[method]['std'])}"
            for method in (CENTRALISED, CONCAT, SUM, VFEDSEC)
        ]
        yield [dataset, metric, group[SUM]["seeds"], *cells]


def cost_rows(lines):
    """Return a row of costs for every data set."""
    for (dataset, metric), group in by_dataset(lines).items():
        if metric == "accuracy":
            yield [
                dataset,
                group[SUM]["epochs"],
                group[SUM]["inputs"],
                f"{group[CENTRALISED]['fit_seconds']:.1f} s",
                *(
                    f"{group[m]['fit_seconds']:.1f} s, {group[m]['megabytes']:.0f} MB"
                    for m in (CONCAT, SUM, VFEDSEC)
                ),
            ]


TEXT = """\
..
   Written by examples/benchmarks/bench_split.py from its recorded run; change the
   script, not this page.

.. _split_benchmarks:

Split learning against joint training
=====================================

What SplitNN costs beside the same network in one autograd graph, and whether SplitNN
and vFedSec score the same as that network. All numbers are ours, measured by ::

    python examples/benchmarks/bench_split.py

(the lines it printed are kept in ``docs/benchmarks/split.jsonl``; {context}).
The run is from before weights were drawn with 128 bits of entropy: the same seeds now
give other scores, and means over seeds should be the same within their errors.

What was asked for, and what was seen
-------------------------------------

{bars}

"Within the noise" says that the mean lies within two standard errors of the bar, so
that these seeds alone do not settle it. Five seeds were asked for; ten were run, so
that the standard error is well below the bar.

Speed
-----

{speed}

16,000 rows of 40 random columns, four parties of 10, two classes, ``"concat"``. A
network is written as the sizes of each bottom, then of the top. An epoch is the
difference of two numbers of epochs; CPU seconds, both sides in turns in one process;
the ratio is the median of seven repetitions.

The joint side is a plain loop in torch: rows in random order, each party's rows taken
from a table of its own, one autograd graph, one optimiser, and ``loss.item()`` for
every batch. SplitNN does the same work with an optimiser for every party, and in
addition copies, measures, checks and logs every message. The bars are against the
faster optimiser; torch's default is the one that users get without asking.

Scores
------

{scores}

{differences}

Seventy per cent of the rows to train on, the rest to test on; every method of a seed
has the same rows, {batch_size} rows a batch, Adam with a learning rate of {lr}, and the
number of epochs of the table below; nothing is stopped early or searched for. The
vFedSec paper's networks: one linear layer of 64 units at every party and one to the
classes (two outputs where the paper has one), and for Fashion-MNIST 196-32-128 at every
party and 128-256-128-64-10 on top.

*Centralised* is the network that adds up, as one graph with weights and an order of
rows of its own: nothing is shared with the federated methods but the rows. For the same
weights and order, SplitNN would equal it bit for bit, which a test shows.

SplitNN and vFedSec of one seed have the same ``random_state``. Their bottom models then
start from the same weights, but those of vFedSec's passive parties have no bias, and
the weights of the top and the order of the rows are others. How much that alone moves
the score is in the rows of *other weights*: SplitNN against itself with another
``random_state``.

Costs
-----

{costs}
"""


def main():
    """Measure, or write the page from the recorded lines."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    modes = parser.add_mutually_exclusive_group()
    modes.add_argument("--quick", action="store_true", help="few rows, nothing kept")
    modes.add_argument(
        "--write-docs", action="store_true", help="only write the page, from the record"
    )
    arguments = parser.parse_args()
    if arguments.write_docs:
        record = RECORD.read_text(encoding="utf-8")
        write_page([json.loads(line) for line in record.splitlines()])
        return
    torch.set_num_threads(1)
    lines = []
    for line in measure(arguments.quick):
        lines.append(line)
        print(json.dumps(line), flush=True)
    if not arguments.quick:
        record = "".join(f"{json.dumps(line)}\n" for line in lines)
        RECORD.write_text(record, encoding="utf-8")
        write_page(lines)


if __name__ == "__main__":
    main()
