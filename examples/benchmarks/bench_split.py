"""What split learning costs beside joint training, and whether it scores the same.

Prints one JSON object per line. Speed: both sides of a ratio are measured in turns in
this process, in CPU seconds with one thread; an epoch is the difference of two numbers
of epochs, so that preparing the columns does not count; the figure is the median of
the repetitions. Scores: every method of a seed has the same rows to train and to test
on. A full run also records the lines in ``docs/benchmarks/split.jsonl`` and writes the
page of the benchmarks that shows them. Needs the data sets in the folder that the
environment variable SKVFL_DATA names.

    python bench_split.py [--quick | --write-docs]
"""

from collections import defaultdict
from functools import partial
from itertools import product
from statistics import median
from typing import NamedTuple

import numpy as np
import torch
from _data import halves, prepared
from _measure import machine, per_epoch, ratio, timed
from _page import MINUS, listing, met, number, signed, spread, table, write
from _record import command, one, run, select
from _seeds import standard_error
from _torch import perceptron, train
from sklearn.metrics import accuracy_score, roc_auc_score
from torch import nn

from skvfl import SplitNNClassifier, VerticalPartitioner, VFedSecClassifier
from skvfl.datasets import load

PARTIES = 4
SIZES = {
    f"10-{n}-{cut}, {4 * cut}-{n}-2{more}": {
        "bottom": (n,),
        "cut_width": cut,
        "top": (n,),
    }
    for n, cut, more in ((128, 64, ""), (64, 32, " (the defaults)"))
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

    ``combine`` makes the top's input of the bottoms' outputs.
    """

    def __init__(self, widths, n_outputs, bottom, cut_width, top, combine):
        super().__init__()
        self.bottoms = nn.ModuleList(
            perceptron([width, *bottom, cut_width]) for width in widths
        )
        self.combine = combine
        n_inputs = cut_width if combine is sum else cut_width * len(widths)
        self.top = nn.Sequential(nn.ReLU(), *perceptron([n_inputs, *top, n_outputs]))

    def forward(self, *blocks):
        """Outputs of the top."""
        cuts = [bottom(x) for bottom, x in zip(self.bottoms, blocks, strict=True)]
        return self.top(self.combine(cuts))


def speed(n_rows, repetitions, epochs):
    """SplitNN's epoch against the same network in one graph, in the same process."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n_rows, 10 * PARTIES)).astype(np.float32)
    y = (X @ rng.standard_normal(X.shape[1]) > 0).astype(np.int64)
    blocks = [torch.from_numpy(X[:, i::PARTIES].copy()) for i in range(PARTIES)]
    labels = torch.from_numpy(y)
    for (name, network), size in product(SIZES.items(), (128, 256, 1024)):
        split = SplitNNClassifier(
            parties=PARTIES, batch_size=size, random_state=0, **network
        )

        def train_joint(epochs, network=network, size=size, **options):
            joint = JointNetwork(
                [10] * PARTIES, 2, **network, combine=partial(torch.cat, dim=1)
            )
            optimizer = torch.optim.Adam(joint.parameters(), **options)
            train(joint, optimizer, blocks, labels, size, epochs)

        sides = {
            "split": lambda n, split=split: split.set_params(max_epochs=n).fit(X, y),
            "fused": partial(train_joint, fused=True),
            "default": train_joint,
        }
        seconds = per_epoch(repetitions, epochs, sides)
        for against in JOINT:
            yield {
                "what": "speed",
                "network": name,
                "batch_size": size,
                "against": against,
                **ratio(seconds["split"], seconds[against]),
                "bar": SPEED_BARS.get(size) if against == "fused" else None,
                "split_ms": round(1e3 * median(seconds["split"]), 1),
                "joint_ms": round(1e3 * median(seconds[against]), 1),
                "rows": n_rows,
                "repetitions": repetitions,
            }


def methods(plan, parties, seed):
    """Return the federated estimators of one seed."""
    settings = {"parties": parties, "max_epochs": plan.epochs, "random_state": seed}
    settings |= plan.network | TRAINING
    other = {**settings, "random_state": 1000 + seed}
    return {
        CONCAT: SplitNNClassifier(**settings),
        SUM: SplitNNClassifier(aggregation="sum", **settings),
        OTHER: SplitNNClassifier(aggregation="sum", **other),
        VFEDSEC: VFedSecClassifier(**settings),
    }


def centralised(plan, parties, seed, X_train, y_train, X_test):
    """Train the joint network that adds up; its probabilities, number of inputs."""
    torch.manual_seed(seed)
    partition = VerticalPartitioner(parties=parties, random_state=seed).fit(X_train)
    blocks, test = (
        [torch.from_numpy(block) for block in prepared(partition, X).values()]
        for X in (X_train, X_test)
    )
    classes, codes = np.unique(y_train, return_inverse=True)
    widths = [block.shape[1] for block in blocks]
    network = JointNetwork(widths, len(classes), **plan.network, combine=sum)
    optimizer = torch.optim.Adam(network.parameters(), lr=TRAINING["lr"], fused=True)
    labels, batch_size = torch.from_numpy(codes), TRAINING["batch_size"]
    train(network, optimizer, blocks, labels, batch_size, plan.epochs)

    def predict():
        with torch.inference_mode():
            return network(*test).softmax(dim=1).numpy()

    return predict, sum(widths)


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
    runs = defaultdict(list)
    for seed in range(plan.seeds):
        X_train, X_test, y_train, y_test = halves(bunch.data, bunch.target, seed)
        (predict, inputs), seconds = timed(
            centralised, plan, bunch.parties, seed, X_train, y_train, X_test
        )
        runs[CENTRALISED].append((metrics(y_test, classes, predict()), seconds, 0))
        for method, estimator in methods(plan, bunch.parties, seed).items():
            _, seconds = timed(estimator.fit, X_train, y_train)
            score = metrics(y_test, classes, estimator.predict_proba(X_test))
            runs[method].append((score, seconds, estimator.communication_.n_bytes))
    context = {"dataset": name, "seeds": plan.seeds, "epochs": plan.epochs}
    shape = {"rows": len(bunch.data), "inputs": inputs, "parties": len(bunch.parties)}
    measured = {}
    for method, of_seeds in runs.items():
        for metric in of_seeds[0][0]:
            values = np.array([score[metric] for score, _, _ in of_seeds])
            measured[method, metric] = values
            yield {
                "what": "score",
                **context,
                **shape,
                "method": method,
                "metric": metric,
                "mean": round(values.mean(), 3),
                "std": round(values.std(ddof=1), 3),
                "fit_seconds": round(median(run[1] for run in of_seeds), 2),
                "megabytes": round(of_seeds[0][2] / 1e6, 2),
            }
    for metric, (over, under) in product(runs[CENTRALISED][0][0], DIFFERENCES):
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
        "mean": round(gaps.mean(), 3),
        "standard_error": round(standard_error(gaps), 3),
        "signs": "".join("-0+"[int(sign) + 1] for sign in np.sign(gaps)),
    }


def measure(quick):
    """Run every measurement; yield its lines."""
    yield {"what": "machine", **machine(quick, "torch", "scikit-learn")}
    yield from speed(16_000, *((5, (1, 3)) if quick else (7, (1, 6))))
    for name, plan in PLANS.items():
        if quick:
            plan = plan._replace(rows=2_000, seeds=2, epochs=2)
        yield from scores(name, plan)


def write_page(lines):
    """Write the page of the benchmarks."""
    methods = (CENTRALISED, CONCAT, SUM, VFEDSEC)
    groups = defaultdict(dict)
    for line in select(lines, what="score"):
        groups[line["dataset"], line["metric"]][line["method"]] = line
    groups = [{**group, "any": group[SUM]} for group in groups.values()]
    speed = {
        "Network": "{network}",
        "Batch": "{batch_size:,}",
        "Adam of the joint": lambda line: JOINT[line["against"]],
        "Ratio": "{ratio:.2f}",
        "Range": spread,
        "ms / ms": "{split_ms:.0f} / {joint_ms:.0f}",
    }
    differences = {
        "Data set": "{dataset}",
        "Metric": "{metric}",
        "Difference": f"{{over}} {MINUS} {{under}}",
        "Seeds": "{seeds}",
        "Mean": difference,
        "Signs": "``{signs}``",
    }
    scores = {"Data set": "{any[dataset]}", "Metric": "{any[metric]}"}
    scores |= {"Seeds": "{any[seeds]}"}
    costs = {"Data set": "{any[dataset]}", "Epochs": "{any[epochs]}"}
    costs |= {"Inputs": "{any[inputs]}"}
    for m in methods:
        scores[m] = f"{{{m}[mean]:.2f}} ± {{{m}[std]:.2f}}"
        costs[m] = f"{{{m}[fit_seconds]:.1f}} s"
        if m != CENTRALISED:
            costs[m] += f", {{{m}[megabytes]:.0f}} MB"
    write(
        "split_benchmarks",
        machine=one(lines, what="machine"),
        **TRAINING,
        bars=listing("Bars", ["What", "Bar", "Seen", "Met"], bars(lines)),
        speed=table(
            "One epoch of SplitNN against one of the joint network",
            select(lines, what="speed"),
            speed,
        ),
        scores=table("Mean ± standard deviation over the seeds, %", groups, scores),
        differences=table(
            "Paired differences in points: mean ± standard error, sign of every seed",
            select(lines, what="difference"),
            differences,
        ),
        costs=table(
            "CPU seconds of one fit, all parties together, and megabytes that cross",
            [group for group in groups if group["any"]["metric"] == "accuracy"],
            costs,
        ),
    )


def difference(line):
    """Write a mean difference ± its standard error."""
    return f"{signed(line['mean'])} ± {number(line['standard_error'])}"


def bars(lines):
    """Return what was asked for, and what was seen."""
    for line in lines:
        if not line.get("bar"):
            continue
        if line["what"] == "speed":
            what = "SplitNN epoch ÷ joint, batch {batch_size:,}, {network}"
            seen, verdict = "{ratio:.3f}", met(line["ratio"] <= line["bar"])
            asked = "≤ {bar}"
        else:
            what = (
                f"{{over}} {MINUS} {{under}}, {{metric}}, {{dataset}}, {{seeds}} seeds"
            )
            seen, verdict = f"{difference(line)}, ``{{signs}}``", judge(line)
            asked = "within {bar} points, sign not constant"
        yield [text.format_map(line) for text in (what, asked, seen, verdict)]


def judge(line):
    """Say whether a difference is within its bar, and how surely."""
    size, mixed = abs(line["mean"]), {"+", "-"} <= set(line["signs"])
    near = abs(size - line["bar"]) < 2 * line["standard_error"]
    return met(size <= line["bar"] and mixed, near)


if __name__ == "__main__":
    run(command(__doc__).parse_args(), "split", measure, write_page)
