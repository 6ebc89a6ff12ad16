"""The RAP paper's Tables 3 and 4 and figures 4 to 7 on the data at hand.

Prints one JSON object per line. A full run also records the lines in
``docs/benchmarks/rap_papers.jsonl`` and writes the page of the user guide that shows
them. Needs the data sets in the folder that the environment variable SKVFL_DATA names.

    python bench_rap_papers.py [--quick | --write-docs]
"""

import argparse
import json
import math
import platform
import time
import warnings
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import numpy as np
import sklearn
from sklearn.compose import TransformedTargetRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import accuracy_score, root_mean_squared_error
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

import skvfl
from skvfl import (
    CommunicationLog,
    GaussianProjection,
    RandomProjectionVFL,
    RoundRobin,
)
from skvfl.datasets import available, load

DOCS = Path(__file__).parents[2] / "docs"
RECORD = DOCS / "benchmarks" / "rap_papers.jsonl"
PAGE = DOCS / "user_guide" / "rap_benchmarks.rst"

CLIENTS = 4
RATES = (0.001, 0.003, 0.01)
HIDDEN = {"MLP": (128,), "LR": ()}
RAP = {
    "RAP, labels unprotected": ("orthogonal", False),
    "RAP": ("orthogonal", True),
    'RAP, kind="gaussian", labels unprotected': ("gaussian", False),
}
METHODS = ("Centralised", "Single", *RAP)
NETWORKS = {
    "10 Gbit/s, 0.1 ms": {"bandwidth": 10e9, "latency": 0.0001},
    "100 Mbit/s, 20 ms": {"bandwidth": 100e6, "latency": 0.02},
}


class Plan(NamedTuple):
    """How much is run on one data set."""

    rows: int | None
    epochs: int
    seeds: int
    searched: int = 3
    single: int = 3
    figures: int = 0


PLANS = {
    "covtype": Plan(50_000, epochs=30, seeds=5, searched=2),
    "susy": Plan(None, epochs=20, seeds=15, figures=5),
    "higgs": Plan(None, epochs=20, seeds=15),
    "digits": Plan(None, epochs=30, seeds=30),
    "superconduct": Plan(None, epochs=40, seeds=8, figures=4),
    "california_housing": Plan(None, epochs=30, seeds=10),
    "yearprediction": Plan(None, epochs=20, seeds=10),
}
QUICK = Plan(2000, epochs=5, seeds=2, searched=1, single=1, figures=1)


class Parts(NamedTuple):
    """One split of a data set: 70 % to train on, 10 % to choose by, 20 % to test on."""

    train: tuple
    valid: tuple
    test: tuple
    classes: bool


def split(bunch, seed):
    """Draw the three parts, stratified by class."""
    X, y = bunch.data.to_numpy(dtype=np.float64), np.asarray(bunch.target)
    classes = bunch.task == "classification"
    rest, test = train_test_split(
        np.arange(len(y)),
        test_size=0.2,
        stratify=y if classes else None,
        random_state=seed,
    )
    train, valid = train_test_split(
        rest, test_size=1 / 8, stratify=y[rest] if classes else None, random_state=seed
    )
    return Parts(*((X[part], y[part]) for part in (train, valid, test)), classes)


def batch_size(n_rows):
    """One per cent of the training rows, at least 32."""
    return max(n_rows // 100, 32)


def network(parts, model, rate, epochs, seed):
    """Return the paper's perceptron, or the same without its hidden layer."""
    kind = MLPClassifier if parts.classes else MLPRegressor
    return kind(
        hidden_layer_sizes=HIDDEN[model],
        learning_rate_init=rate,
        batch_size=batch_size(len(parts.train[0])),
        max_iter=epochs,
        tol=1e-4,
        n_iter_no_change=5,
        random_state=seed,
    )


def measure(estimator, parts, columns=slice(None)):
    """Fit once; score on the validation and the test part, and count the cost."""
    start = time.process_time()
    estimator.fit(parts.train[0][:, columns], parts.train[1])
    seconds = time.process_time() - start
    score = accuracy_score if parts.classes else root_mean_squared_error
    unit = 100 if parts.classes else 1
    valid, test = (
        unit * score(y, estimator.predict(X[:, columns]))
        for X, y in (parts.valid, parts.test)
    )
    log = getattr(estimator, "communication_", CommunicationLog())
    return {
        "valid": valid,
        "test": test,
        "seconds": seconds,
        "epochs": fitted_network(estimator).n_iter_,
        "rounds": log.n_rounds,
        "bytes": log.n_bytes,
    }


def fitted_network(estimator):
    """Return the network inside whatever was fitted."""
    if isinstance(estimator, RandomProjectionVFL):
        return estimator.estimator_
    return getattr(estimator, "regressor_", estimator)[-1]


def plain(parts, net):
    """Return the network for columns, and a target, in their own units."""
    pipeline = make_pipeline(StandardScaler(), net)
    if parts.classes:
        return pipeline
    return TransformedTargetRegressor(pipeline, transformer=StandardScaler())


def dealt(n_parties, seed):
    """Deal the permuted columns round-robin, as the paper does."""
    return RoundRobin(n_parties, shuffle=True, random_state=seed)


def better(run, parts, part):
    """Return a figure of which more is better."""
    return run[part] if parts.classes else -run[part]


def single(parts, net, seed):
    """Return the client that is best on the test part, as the paper reports it."""
    parties = dealt(CLIENTS, seed).split_columns(parts.train[0])
    runs = [
        measure(plain(parts, net), parts, columns) for columns in parties.values()
    ]
    return max(runs, key=lambda run: better(run, parts, "test"))


def rap(net, parties, seed, kind="orthogonal", label_protection=True):
    """Return the federated estimator."""
    return RandomProjectionVFL(
        net,
        parties=parties,
        projection=GaussianProjection(kind=kind),
        label_protection=label_protection,
        random_state=seed,
    )


def run(method, parts, net, seed):
    """Fit and measure one method."""
    if method == "Centralised":
        return measure(plain(parts, net), parts)
    if method == "Single":
        return single(parts, net, seed)
    return measure(rap(net, dealt(CLIENTS, seed), seed, *RAP[method]), parts)


def search(runs, method, splits, n_seeds, rates):
    """Choose the learning rate of the best mean on the validation parts."""
    return max(
        rates,
        key=lambda rate: np.mean(
            [
                better(runs[method, seed, rate], splits[seed], "valid")
                for seed in range(n_seeds)
            ]
        ),
    )


def main_table(splits, model, plan, rates):
    """Tables 3 and 4: every method at the learning rate that suits it best.

    Returns the chosen rates, and the runs at them by method.
    """
    runs, chosen = {}, {}
    for seed, parts in enumerate(splits):
        for method in METHODS:
            if method == "Single" and seed >= plan.single:
                continue
            for rate in [chosen[method]] if method in chosen else rates:
                net = network(parts, model, rate, plan.epochs, seed)
                runs[method, seed, rate] = run(method, parts, net, seed)
            if seed == min(plan.searched, plan.single) - 1 and method == "Single":
                chosen[method] = search(runs, method, splits, seed + 1, rates)
            elif seed == plan.searched - 1:
                chosen[method] = search(runs, method, splits, seed + 1, rates)
    at_chosen = {
        method: [
            runs[method, seed, chosen[method]]
            for seed in range(len(splits))
            if (method, seed, chosen[method]) in runs
        ]
        for method in METHODS
    }
    return chosen, at_chosen


def one_feature_parties(n_columns, n_single, n_parties, seed):
    """Give `n_single` clients one column each and deal the others in turn."""
    order = np.random.default_rng(seed).permutation(n_columns)
    alone = [[column] for column in order[:n_single]]
    shared = [order[n_single + i :: n_parties - n_single] for i in range(n_parties)]
    shared = shared[: n_parties - n_single]
    return {f"client{i}": columns for i, columns in enumerate([*alone, *shared])}


def figures(splits, model, plan, rate):
    """Figures 4 to 7: RAP by the number of clients and of one-feature clients."""
    splits = splits[: plan.figures]
    for n in (2, 4, 6, 8, 10):
        yield (
            {"table": "clients", "clients": n},
            [
                measure(
                    rap(
                        network(parts, model, rate, plan.epochs, seed),
                        dealt(n, seed),
                        seed,
                    ),
                    parts,
                )
                for seed, parts in enumerate(splits)
            ],
        )
    for k in (1, 2, 3, 4, 5):
        yield (
            {"table": "one-feature clients", "clients": 10, "one_feature": k},
            [
                measure(
                    rap(
                        network(parts, model, rate, plan.epochs, seed),
                        one_feature_parties(parts.train[0].shape[1], k, 10, seed),
                        seed,
                    ),
                    parts,
                )
                for seed, parts in enumerate(splits)
            ],
        )


def summary(runs, baseline, classes):
    """Mean, spread and cost over seeds, and the paired difference to centralised.

    The difference is in points of accuracy, or in per cent of the centralised RMSE.
    """
    scores = np.array([run["test"] for run in runs])
    paired = np.array([run["test"] for run in baseline[: len(runs)]])
    difference = scores - paired if classes else 100 * (scores - paired) / paired.mean()
    n = len(scores)
    spread = {"ddof": 1} if n > 1 else {}
    return {
        "seeds": n,
        "metric": "accuracy %" if classes else "RMSE",
        "mean": round(scores.mean(), 4),
        "std": round(scores.std(**spread), 4),
        "difference": round(difference.mean(), 4),
        "standard_error": round(difference.std(**spread) / math.sqrt(n), 4),
        "seconds": round(np.mean([run["seconds"] for run in runs]), 4),
        "seconds_std": round(np.std([run["seconds"] for run in runs], **spread), 4),
        "epochs": round(np.mean([run["epochs"] for run in runs]), 1),
        "rounds": runs[0]["rounds"],
        "bytes": round(np.mean([run["bytes"] for run in runs])),
    }


def splitnn_epoch(n_rows, widths, size):
    """Return the traffic of one epoch of SplitNN.

    In every mini-batch each client sends activations, one float32 per column it holds,
    and receives as large a gradient; the two are one request and reply.
    """
    log = CommunicationLog()
    for start in range(0, n_rows, size):
        log.begin_round()
        rows = min(size, n_rows - start)
        for client, width in enumerate(widths):
            log.record(f"client{client}", "server", "forward", 4 * rows * width, True)
            log.record("server", f"client{client}", "backward", 4 * rows * width, True)
    return log


def transfer(parts, central, federated):
    """SplitNN's estimated training time against RAP's.

    Both are seconds of computing plus seconds of transfer; SplitNN computes, and
    repeats its epochs, as the centralised model did.
    """
    n_rows, n_columns = parts.train[0].shape
    widths = [len(range(i, n_columns, CLIENTS)) for i in range(CLIENTS)]
    splitnn = splitnn_epoch(n_rows, widths, batch_size(n_rows))
    once = CommunicationLog()
    once.record("clients", "server", "fit_transform", federated["bytes"], True)
    epochs = central["epochs"]
    for name, link in NETWORKS.items():
        slow = epochs * splitnn.transfer_time(**link)
        fast = once.transfer_time(**link)
        yield {
            "network": name,
            "splitnn_rounds": round(epochs * splitnn.n_rounds),
            "splitnn_bytes": round(epochs * splitnn.n_bytes),
            "splitnn_transfer": round(slow, 4),
            "rap_bytes": federated["bytes"],
            "rap_transfer": round(fast, 4),
            "splitnn_seconds": round(central["seconds"] + slow, 4),
            "rap_seconds": round(federated["seconds"] + fast, 4),
            "speed_up": round(
                (central["seconds"] + slow) / (federated["seconds"] + fast), 1
            ),
        }


def measurements(quick):
    """Yield every line."""
    rates = RATES[1:] if quick else RATES
    yield {
        "table": "machine",
        "processor": platform.processor() or platform.machine(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scikit-learn": sklearn.__version__,
        "skvfl": skvfl.__version__,
        "threads": 1,
        "clients": CLIENTS,
        "rates": rates,
        "seeds": "0, 1, ... of each data set",
        "quick": quick,
    }
    for name in PLANS:
        if name not in available():
            continue
        plan = PLANS[name]
        if quick:
            plan = QUICK._replace(figures=min(plan.figures, 1))
        bunch = load(name)
        rows = min(plan.rows or len(bunch.data), len(bunch.data))
        if rows < len(bunch.data):
            bunch = load(name, n_rows=rows)
        splits = [split(bunch, seed) for seed in range(plan.seeds)]
        context = {
            "dataset": name,
            "rows": rows,
            "columns": bunch.data.shape[1],
            "task": bunch.task,
        }
        classes = bunch.task == "classification"
        for model in HIDDEN:
            chosen, runs = main_table(splits, model, plan, rates)
            base = runs["Centralised"]
            lines = {}
            for method in METHODS:
                lines[method] = summary(runs[method], base, classes)
                yield {
                    "table": "main",
                    **context,
                    "model": model,
                    "method": method,
                    "max_epochs": plan.epochs,
                    "batch_size": batch_size(len(splits[0].train[0])),
                    "rate": chosen[method],
                    **lines[method],
                }
            for line in transfer(splits[0], lines["Centralised"], lines["RAP"]):
                yield {"table": "transfer", **context, "model": model, **line}
            if plan.figures:
                for what, group in figures(splits, model, plan, chosen["RAP"]):
                    yield {
                        **what,
                        **context,
                        "model": model,
                        "method": "RAP",
                        "rate": chosen["RAP"],
                        **summary(group, base, classes),
                    }
