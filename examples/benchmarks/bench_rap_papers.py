"""The RAP paper's Tables 1, 3 and 4 and figures 4 to 7 on the data at hand.

Prints one JSON object per line. A full run also appends the lines to
``docs/benchmarks/rap_papers.jsonl``, goes on where that record ends, and writes the
page of the benchmarks that shows them. Needs the data sets in the folder that the
environment variable SKVFL_DATA names; homomorphic encryption is measured where tenseal
is installed.

    python bench_rap_papers.py [--quick | --write-docs]
"""

import os
import warnings
from collections import defaultdict
from functools import partial
from itertools import product
from typing import NamedTuple

import numpy as np
import torch
from _data import draw
from _measure import machine, streams, timed
from _page import MINUS, listing, met, number, rows_of, signed, table, write
from _record import command, keep_newest, newest, one, read, resume, select
from _seeds import half_interval, standard_error
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from sklearn.compose import TransformedTargetRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import accuracy_score, root_mean_squared_error
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from skorch.callbacks import EarlyStopping
from torch import nn

from skvfl import (
    CommunicationLog,
    GaussianProjection,
    RandomProjectionVFL,
    RoundRobin,
    SplitNNClassifier,
    SplitNNRegressor,
)
from skvfl.datasets import available, load

CLIENTS = 4
RAP = {
    "RAP, labels unprotected": ("orthogonal", False),
    "RAP": ("orthogonal", True),
    'RAP, kind="gaussian", labels unprotected': ("gaussian", False),
}
SPLITNN = "SplitNN"
METHODS = ("Centralised", "Single", SPLITNN, *RAP)
RECORD = "rap_papers"
NETWORKS = {
    "10 Gbit/s, 0.1 ms": {"bandwidth": 10e9, "latency": 0.0001},
    "100 Mbit/s, 20 ms": {"bandwidth": 100e6, "latency": 0.02},
}


class Model(NamedTuple):
    """One of the paper's two models; logistic regression has no hidden layer.

    The linear model takes more epochs, and needs fewer seeds.
    """

    hidden: tuple
    max_seeds: int
    epochs_factor: int = 1
    max_epochs: int = 100
    rate: float | None = None

    def epochs(self, plan):
        """Return the cap on epochs."""
        return min(plan.epochs * self.epochs_factor, self.max_epochs)


MODELS = {
    "MLP": Model((128,), max_seeds=30),
    "LR": Model((), max_seeds=3, epochs_factor=2, max_epochs=40, rate=0.003),
}


class Plan(NamedTuple):
    """How much is run on one data set, and the perceptron's learning rate."""

    rows: int | None
    epochs: int
    seeds: int
    rate: float
    single: int = 3
    splitnn: int = 3
    figures: int = 0

    def seeds_of(self, method):
        """Return on how many of the seeds a method is fitted."""
        few = {"Single": self.single, SPLITNN: self.splitnn}
        return min(self.seeds, few.get(method, self.seeds))


# All methods take the rate that an earlier search, among four on up to five seeds,
# chose for the centralised network; that of higgs was chosen for RAP.
PLANS = {
    "susy": Plan(None, 20, seeds=8, rate=0.001, splitnn=4, figures=3),
    "superconduct": Plan(None, 40, seeds=5, rate=0.001, figures=3),
    "covtype": Plan(20_000, 60, seeds=3, rate=0.003, single=2),
    "higgs": Plan(None, 20, seeds=5, rate=0.003),
    "yearprediction": Plan(None, 20, seeds=5, rate=0.003),
    "california_housing": Plan(None, 30, seeds=5, rate=0.003),
    "digits": Plan(None, 30, seeds=5, rate=0.001),
}
EPSILONS = (1.0, 4.0, 8.0)
SKEWED = {"california_housing": ["Population", "AveRooms", "AveBedrms", "AveOccup"]}
QUICK = Plan(2000, epochs=5, seeds=2, rate=0.003, single=2, figures=2)


class Parts(NamedTuple):
    """One split of a data set: 70 % to train on, 10 % to choose by, 20 % to test on."""

    train: tuple
    valid: tuple
    test: tuple
    classes: bool


def split(bunch, seed):
    """Draw the three parts, stratified by class.

    Float32 is what RAP's server trains on, so that all methods compute alike.
    """
    X, y = bunch.data.to_numpy(dtype=np.float32), np.asarray(bunch.target)
    classes = bunch.task == "classification"
    rest, test = draw(np.arange(len(y)), y, 0.2, seed, classes)
    train, valid = draw(rest, y, 1 / 8, seed, classes)
    return Parts(*((X[part], y[part]) for part in (train, valid, test)), classes)


def batch_size(n_rows):
    """One per cent of the training rows, at least 32."""
    return max(n_rows // 100, 32)


def network(parts, model, rate, plan, seed):
    """Return the paper's perceptron, or the same without its hidden layer."""
    kind = MLPClassifier if parts.classes else MLPRegressor
    return kind(
        hidden_layer_sizes=MODELS[model].hidden,
        learning_rate_init=rate,
        batch_size=batch_size(len(parts.train[0])),
        max_iter=MODELS[model].epochs(plan),
        tol=1e-4,
        n_iter_no_change=5,
        random_state=seed,
    )


def fit_and_score(estimator, parts, columns=slice(None)):
    """Fit once; score on the test part, and count the cost."""
    _, seconds = timed(estimator.fit, parts.train[0][:, columns], parts.train[1])
    score = accuracy_score if parts.classes else root_mean_squared_error
    unit = 100 if parts.classes else 1
    X, y = parts.test
    return {
        "test": unit * score(y, estimator.predict(X[:, columns])),
        "seconds": seconds,
        "epochs": fitted_network(estimator).n_iter_,
        **traffic(getattr(estimator, "communication_", CommunicationLog())),
    }


def traffic(log):
    """Return what crossed, and the seconds that it takes on the networks."""
    return {
        "rounds": log.n_rounds,
        "bytes": log.n_bytes,
        "transfer": {
            name: log.transfer_time(**link) for name, link in NETWORKS.items()
        },
    }


def fitted_network(estimator):
    """Return the network inside whatever was fitted."""
    if isinstance(estimator, RandomProjectionVFL):
        return estimator.estimator_
    if hasattr(estimator, "n_iter_"):
        return estimator
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


def single(parts, net, seed):
    """Return the client that is best on the test part, as the paper reports it."""
    runs = [
        fit_and_score(plain(parts, net), parts, columns)
        for columns in dealt(CLIENTS, seed).split_columns(parts.train[0]).values()
    ]
    best = max if parts.classes else min
    return best(runs, key=lambda run: run["test"])


def rap(net, parties, seed, method="RAP"):
    """Return the federated estimator."""
    kind, label_protection = RAP[method]
    return RandomProjectionVFL(
        net,
        parties=parties,
        projection=GaussianProjection(kind=kind),
        label_protection=label_protection,
        random_state=seed,
    )


class Signed(nn.Module):
    """A linear bottom for a linear model: its outputs, and the same negated."""

    def __init__(self, n_inputs, n_outputs):
        super().__init__()
        self.linear = nn.Linear(n_inputs, n_outputs // 2)

    def forward(self, x):
        """Outputs and their negatives."""
        outputs = self.linear(x)
        return torch.cat([outputs, -outputs], dim=1)


class Difference(nn.Module):
    """Undo the ReLU between the bottoms' sum and the top: its halves' difference."""

    def __init__(self, n_inputs, n_outputs):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(n_outputs))

    def forward(self, x):
        """Return the sum as it was, and a constant."""
        kept, negated = x.chunk(2, dim=1)
        return kept - negated + self.bias


def cut(model, parts):
    """Return the centralised network, cut: its first layer is the parties' sum."""
    if MODELS[model].hidden:
        (width,) = MODELS[model].hidden
        return {"bottom": (), "cut_width": width, "top": ()}
    n_outputs = len(np.unique(parts.train[1])) if parts.classes else 1
    return {"bottom": Signed, "cut_width": 2 * n_outputs, "top": Difference}


def splitnn(model, parts, rate, plan, seed, n_clients=CLIENTS):
    """Return SplitNN: clients with columns, and a host that has the labels alone.

    Training ends as the perceptrons of the other methods end theirs.
    """
    kind = SplitNNClassifier if parts.classes else SplitNNRegressor
    clients = dealt(n_clients, seed).split_columns(parts.train[0])
    stalled = EarlyStopping("train_loss", 5, 1e-4, "abs", sink=lambda text: None)
    return kind(
        parties={"host": [], **clients},
        active="host",
        aggregation="sum",
        **cut(model, parts),
        lr=rate,
        batch_size=batch_size(len(parts.train[0])),
        max_epochs=MODELS[model].epochs(plan),
        callbacks=[stalled],
        random_state=seed,
    )


def fit_method(method, parts, model, rate, plan, seed):
    """Fit and measure one method."""
    if method == SPLITNN:
        return fit_and_score(splitnn(model, parts, rate, plan, seed), parts)
    net = network(parts, model, rate, plan, seed)
    if method == "Centralised":
        return fit_and_score(plain(parts, net), parts)
    if method == "Single":
        return single(parts, net, seed)
    return fit_and_score(rap(net, dealt(CLIENTS, seed), seed, method), parts)


def main_table(splits, model, plan, rate):
    """Tables 3 and 4: the runs of every method."""
    return {
        method: [
            fit_method(method, parts, model, rate, plan, seed)
            for seed, parts in enumerate(splits[: plan.seeds_of(method)])
        ]
        for method in METHODS
    }


def with_one_feature_clients(n_single, n_parties, n_columns, seed):
    """Give `n_single` clients one column each and deal the others in turn."""
    order = np.random.default_rng(seed).permutation(n_columns)
    n_others = n_parties - n_single
    held = [order[i : i + 1] for i in range(n_single)]
    held += [order[n_single + i :: n_others] for i in range(n_others)]
    return {f"client{i}": columns for i, columns in enumerate(held)}


SPLITNN_SETTINGS = [{"table": "clients", "clients": n} for n in (2, 10)]


def client_settings(n_columns):
    """Figures 4 to 7: what a line says of the clients, and who holds which columns."""
    for n in (2, 4, 6, 8, 10):
        yield {"table": "clients", "clients": n}, partial(dealt, n)
    for k in (1, 2, 3, 4, 5):
        about = {"table": "one-feature clients", "clients": 10, "one_feature": k}
        yield about, partial(with_one_feature_clients, k, 10, n_columns)


def summary(runs, baseline, classes):
    """Mean, spread and cost over seeds, and the paired difference to centralised.

    The difference is in points of accuracy, or in per cent of the centralised RMSE.
    """
    scores = np.array([run["test"] for run in runs])
    paired = np.array(baseline[: len(runs)])
    difference = scores - paired if classes else 100 * (scores - paired) / paired.mean()
    seconds = [run["seconds"] for run in runs]
    return {
        "seeds": len(runs),
        "metric": "accuracy %" if classes else "RMSE",
        "mean": round(scores.mean(), 4),
        "std": round(scores.std(ddof=1), 4),
        "difference": round(difference.mean(), 4),
        "standard_error": round(standard_error(difference), 4),
        "half": round(half_interval(difference), 4),
        "seconds": round(np.mean(seconds), 4),
        "seconds_std": round(np.std(seconds, ddof=1), 4),
        "epochs": round(np.mean([run["epochs"] for run in runs]), 1),
        "rounds": round(np.mean([run["rounds"] for run in runs])),
        "bytes": round(np.mean([run["bytes"] for run in runs])),
        "transfer": {
            name: round(np.mean([run["transfer"][name] for run in runs]), 4)
            for name in NETWORKS
        },
        "scores": scores.round(4).tolist(),
    }


def protections():
    """Table 1: ways to encrypt a block, each with what decrypts it and its size.

    CKKS is left out where tenseal is not installed.
    """
    aes = AESGCM(AESGCM.generate_key(256))

    def encrypt(block):
        nonce = os.urandom(12)
        return nonce + aes.encrypt(nonce, block.tobytes(), None)

    yield (
        "AES-256-GCM",
        encrypt,
        lambda sent: np.frombuffer(aes.decrypt(sent[:12], sent[12:], None), np.float32),
        len,
    )
    try:
        import tenseal
        from bench_vfedsec import CHAINS, SLOTS, Packed
    except ImportError:
        return
    scheme = Packed(tenseal, CHAINS["packed"])
    yield (
        "CKKS",
        lambda block: [
            scheme.encrypt(block[i : i + SLOTS]) for i in range(0, len(block), SLOTS)
        ],
        lambda sent: [each.decrypt().tolist() for each in sent],
        lambda sent: sum(len(each.serialize()) for each in sent),
    )


def list_of(function, each):
    """Call a function on each."""
    return [*map(function, each)]


def sending(parts, repetitions=3):
    """Table 1: what one client spends to protect its training rows, and sends.

    The median of some repetitions, for each of the four clients together.
    """
    X = parts.train[0]
    columns = dealt(CLIENTS, 0).split_columns(X).values()
    blocks = [StandardScaler().fit_transform(X[:, own]) for own in columns]
    cells = sum(block.size for block in blocks)

    def line(way, seconds, undone, sent):
        seconds, undone = (round(float(np.median(s)), 6) for s in (seconds, undone))
        about = {"way": way, "cells": cells, "clients": len(blocks)}
        return {**about, "seconds": seconds, "undone": undone, "bytes": sent}

    def project():
        for seed, block in enumerate(blocks):
            kind = GaussianProjection(random_state=seed).fit(block)
            kind.transform(block).astype(np.float32)

    plain = sum(4 * block.size for block in blocks)
    seconds = [timed(project)[1] for _ in range(repetitions)]
    yield line("RAP", seconds, [0.0], plain)
    for way, protect, undo, size in protections():
        seconds, undone = [], []
        for _ in range(repetitions):
            sent, spent = timed(list_of, protect, blocks)
            seconds.append(spent)
            undone.append(timed(list_of, undo, sent)[1])
        yield line(way, seconds, undone, sum(map(size, sent)))


CLIPPED = 3.0


def privatised(parts, epsilon, seed):
    """Return parts whose cells are standardised, clipped and made noisy.

    Laplace noise for each cell, so that a cell's release is epsilon-differentially
    private by itself: a clipped cell moves by at most twice the bound. A row's release
    spends epsilon for each of its columns.
    """
    rng = np.random.default_rng([seed, 77])
    scaler = StandardScaler().fit(parts.train[0])

    def noisy(part):
        X = np.clip(scaler.transform(part[0]), -CLIPPED, CLIPPED)
        noise = rng.laplace(scale=2 * CLIPPED / epsilon, size=X.shape)
        return (X + noise).astype(np.float32), part[1]

    return Parts(*map(noisy, parts[:3]), parts.classes)


def locally_private(splits, plan, rate, epsilon):
    """Table 1: the centralised network on noisy cells, a run for every split."""
    for seed, parts in enumerate(splits):
        net = network(parts, "MLP", rate, plan, seed)
        noisy = privatised(parts, epsilon, seed)
        yield fit_and_score(plain(noisy, net), noisy)


def sized(name, quick):
    """Return the data set and its plan; a quick run takes little of both.

    Columns whose few huge values would decide the error on the test rows are logged.
    """
    plan = PLANS[name]
    if quick:
        plan = QUICK._replace(figures=min(plan.figures, QUICK.figures))
    bunch = load(name)
    if plan.rows and plan.rows < len(bunch.data):
        bunch = load(name, n_rows=plan.rows)
    for column in SKEWED.get(name, ()):
        bunch.data[column] = np.log(bunch.data[column])
    return bunch, plan


FIELDS = ("table", "dataset", "model", "method", "clients", "one_feature", "way")


def key(line):
    """What a line is about, and the streams that it is made with."""
    about = map(line.get, (*FIELDS, "epsilon"))
    return (*about, line.get("streams") or streams())


def measure(quick, done):
    """Yield every line that is not done, the paper's tables before its figures."""
    warnings.simplefilter("ignore", ConvergenceWarning)
    names = [name for name in PLANS if name in available()]
    first = {
        "table": "machine",
        **machine(quick, "numpy", "scikit-learn", "torch", "skvfl"),
        "clients": CLIENTS,
        "models": {name: model._asdict() for name, model in MODELS.items()},
        "plans": {name: (QUICK if quick else PLANS[name])._asdict() for name in names},
    }
    if key(first) not in done:
        yield first
    mains = {}
    for model, name in product(MODELS, names):
        for line in tables(name, model, quick, done):
            mains.setdefault((name, model), {})[line["method"]] = line
            yield line
    shown = [name for name in names if PLANS[name].figures]
    for method, model, name in product(("RAP", SPLITNN), MODELS, shown):
        main = mains.get((name, model)) or recorded(name, model)
        if method == "RAP" and model == "MLP":
            yield from protected(name, quick, done, main)
        yield from figures(name, model, method, quick, done, main)


def recorded(name, model):
    """Return the recorded lines of the main tables by method."""
    lines = newest(read(RECORD), key)
    lines = select(lines, table="main", dataset=name, model=model)
    return {line["method"]: line for line in lines}


def context(name, model, quick):
    """Return the plan, the splits, and what every line says of the data."""
    bunch, plan = sized(name, quick)
    seeds = min(plan.seeds, MODELS[model].max_seeds)
    splits = [split(bunch, seed) for seed in range(seeds)]
    shape = {"rows": len(bunch.data), "columns": bunch.data.shape[1]}
    return plan, splits, {"dataset": name, **shape, "model": model}


def tables(name, model, quick, done):
    """Tables 3 and 4 of one data set and model, in one go."""
    what = {"table": "main", "dataset": name, "model": model}
    if all(key({**what, "method": method}) in done for method in METHODS):
        return
    plan, splits, about = context(name, model, quick)
    rate = MODELS[model].rate or plan.rate
    runs = main_table(splits, model, plan, rate)
    baseline = [run["test"] for run in runs["Centralised"]]
    for method in METHODS:
        line = {
            "table": "main",
            **about,
            "method": method,
            "max_epochs": MODELS[model].epochs(plan),
            "batch_size": batch_size(len(splits[0].train[0])),
            "rate": rate,
            **summary(runs[method], baseline, splits[0].classes),
        }
        if key(line) not in done:
            yield line


def figures(name, model, method, quick, done, main):
    """Figures 4 to 7 of one data set and model: RAP, or SplitNN beside it."""
    plan, splits, about = context(name, model, quick)
    splits, central = splits[: plan.figures], main["Centralised"]
    about |= {"method": method, "rate": main[method]["rate"]}
    for what, parties in client_settings(splits[0].train[0].shape[1]):
        line = {**what, **about}
        # Four clients are in the main table; SplitNN is not in the other figures.
        shown = method == "RAP" or what in SPLITNN_SETTINGS
        if shown and key(line) not in done:
            runs = by_clients(line, splits, plan, parties)
            yield {**line, **summary(runs, central["scores"], splits[0].classes)}


def by_clients(line, splits, plan, parties):
    """Fit the method of a line of the figures, a run for every split."""
    model, rate, runs = line["model"], line["rate"], []
    for seed, parts in enumerate(splits):
        if line["method"] == SPLITNN:
            vfl = splitnn(model, parts, rate, plan, seed, line["clients"])
        else:
            vfl = rap(network(parts, model, rate, plan, seed), parties(seed), seed)
        runs.append(fit_and_score(vfl, parts))
    return runs


def protected(name, quick, done, main):
    """Table 1: what protection costs, and how a network learns from noisy cells."""
    plan, splits, about = context(name, "MLP", quick)
    central = main["Centralised"]
    if key({"table": "sending", **about, "way": "RAP"}) not in done:
        for line in sending(splits[0]):
            yield {"table": "sending", **about, **line}
    about["rate"] = central["rate"]
    for epsilon in EPSILONS:
        line = {"table": "locally private", **about, "epsilon": epsilon}
        if key(line) not in done:
            runs = locally_private(splits, plan, central["rate"], epsilon)
            scored = summary([*runs], central["scores"], splits[0].classes)
            yield {**line, **scored}


# The paper's tables: its set, ours, and figures of the methods.
PAPER_TABLE_3 = """
CO | covtype | 87.67 ± 0.11 | 70.59 ± 0.21 | 87.62 ± 0.24 | 87.65 ± 0.19
SU | susy | 80.36 ± 0.25 | 78.54 ± 0.05 | 80.30 ± 0.19 | 80.33 ± 0.08
HI | higgs | 74.12 ± 0.13 | 65.81 ± 0.29 | 73.96 ± 0.23 | 74.10 ± 0.15
YP | yearprediction | 8.83 ± 0.23 | 9.61 ± 0.23 | 8.91 ± 0.24 | 8.87 ± 0.18
HP | not identified | 0.08 ± 0.02 | 75.24 ± 0.27 | 0.11 ± 0.03 | 0.10 ± 0.2
WO | not found | 98.27 ± 0.15 | 208.93 ± 0.19 | 98.95 ± 0.21 | 98.42 ± 0.12
"""
PAPER_TABLE_4 = [
    ("CO", "covtype", 111, 97, 55_000, 128),
    ("SU", "susy", 107, 87, 80_000, 124),
    ("HI", "higgs", 188, 146, 85_000, 255),
    ("YP", "yearprediction", 75, 65, 56_000, 90),
    ("HP", "not identified", 94, 82, 50_000, 107),
    ("WO", "not found", 11, 9, 7_000, 11),
]
PAPER_HEADER = ("Paper's set", "Ours", "Centralised", "Single", "SplitNN", "RAP")
PARTS = {
    "covtype": "CO, 0.6 million rows, 54 columns",
    "susy": "SU, 1 million rows, 18 columns",
    "higgs": "HI, 1 million rows, 28 columns",
    "digits": "none",
    "superconduct": "none; in place of YP in the figures",
    "california_housing": "stands in for HP, 0.5 million rows, 11 columns",
    "yearprediction": "YP, 0.5 million rows, 90 columns",
}
CLASSIFIED = ("covtype", "susy", "higgs", "digits")
REGRESSED = ("superconduct", "california_housing")
BARS = [
    ("RAP, labels unprotected", CLASSIFIED, -0.3, "0.3 points"),
    ("RAP", CLASSIFIED, -1.2, "1.2 points"),
    ('RAP, kind="gaussian", labels unprotected', CLASSIFIED, -1.5, "1.5 points"),
    ("RAP, labels unprotected", REGRESSED, 3, "3 %"),
    ("RAP", REGRESSED, 3, "3 %"),
]


def literal(name):
    """Return a method or data set as the page writes it."""
    return name.replace('kind="gaussian"', '``kind="gaussian"``')


def score(line):
    """Write mean ± standard deviation."""
    digits = 3 if line["mean"] < 2 else 2
    return f"{number(line['mean'], digits)} ± {number(line['std'], digits)}"


def difference(line):
    """Write the paired difference to centralised ± its standard error."""
    unit = "" if line["metric"] == "accuracy %" else " %"
    return f"{signed(line['difference'])} ± {number(line['standard_error'])}{unit}"


def verdict(line, bar):
    """Say whether the mean meets a bar, and whether the seeds can tell."""
    margin = line["difference"] - bar if bar < 0 else bar - line["difference"]
    near = abs(margin) <= 2 * line["standard_error"]
    return met(margin >= 0, near, no="no")


def bars_table(main):
    """Return what was asked for and what was seen."""
    rows = []
    for method, datasets, bar, words in BARS:
        for name in datasets:
            line = main["MLP"][name][method]
            seen = difference(line), line["seeds"], verdict(line, bar)
            rows.append((literal(method), name, f"within {words}", *seen))
    header = ("Method", "Data set", "Bar", "Seen", "Seeds", "Met")
    return listing("MLP, difference to centralised ± standard error", header, rows)


def score_table(lines_of, title):
    """Return our side of Table 3 for one model."""
    rows = []
    for name, lines in lines_of.items():
        central = lines["Centralised"]
        what = f"{name}, {central['metric']}"
        others = [scored(lines.get(method)) for method in METHODS[1:]]
        rows.append((what, central["seeds"], score(central), *others))
    header = ("Data set", "Seeds", *map(literal, METHODS))
    return listing(title, header, rows)


def scored(line):
    """Write a score beside the centralised one, and on how many seeds it is."""
    if line is None:
        return "not run"
    return f"{score(line)} ({difference(line)}; {line['seeds']} seeds)"


def seconds_table(lines_of, title):
    """Return our side of Table 4 for one model."""
    rows = []
    cell = "{seconds:,.2f} ± {seconds_std:,.2f}; {epochs:g}; {rate:g}"
    for name, lines in lines_of.items():
        ratio = lines["RAP"]["seconds"] / lines["Centralised"]["seconds"]
        cells = [
            cell.format_map(lines[method]) if method in lines else "not run"
            for method in METHODS
        ]
        rows.append((name, *cells, number(ratio)))
    header = ("Data set", *map(literal, METHODS), "RAP ÷ Centralised")
    return listing(title, header, rows)


def paper_seconds_table():
    """Return the paper's Table 4, with the ratios that follow from it."""
    rows = []
    for *names, central, single, splitnn, rap in PAPER_TABLE_4:
        seconds = [f"{each:,}" for each in (central, single, splitnn, rap)]
        rows.append((*names, *seconds, number(rap / central), f"{splitnn / rap:.0f}"))
    header = (*PAPER_HEADER, "RAP ÷ Centralised", "SplitNN ÷ RAP")
    return listing("The paper's Table 4, seconds (its numbers)", header, rows)


def network_seconds(line, network):
    """Return the seconds of a fit on a network: computing and transfer."""
    link = NETWORKS[network]
    transfer = 8 * line["bytes"] / link["bandwidth"]
    return line["seconds"] + transfer + 2 * link["latency"] * line["rounds"]


def network_table(main):
    """Return training time on the networks, SplitNN's beside RAP's."""
    paper = {
        name: f"{splitnn / rap:.0f}" for _, name, *_, splitnn, rap in PAPER_TABLE_4
    }
    rows = []
    for model, name in product(main, PLANS):
        lines = main[model].get(name)
        if not lines or SPLITNN not in lines:
            continue
        split, rap = lines[SPLITNN], lines["RAP"]
        cells = []
        for network in NETWORKS:
            slow, fast = (network_seconds(line, network) for line in (split, rap))
            cells.append(f"{slow:,.1f} s, {fast:,.2f} s; {slow / fast:,.0f}")
        rows.append(
            (
                f"{name}, {model}",
                f"{split['rounds']:,}",
                f"{number(split['bytes'] / 1e6, 1)} MB",
                f"{number(rap['bytes'] / 1e6, 1)} MB",
                *cells,
                paper.get(name, "") if model == "MLP" else "",
            )
        )
    counts = ("SplitNN's rounds", "SplitNN's bytes", "RAP's bytes")
    header = ("Data set, model", *counts, *NETWORKS, "The paper's ratio")
    title = "Seconds of SplitNN, of RAP, computing and transfer; their ratio"
    return listing(title, header, rows)


def gap(lines, over, under):
    """Return a method's paired difference to another by seed, in the table's unit."""
    a, b = (np.array(lines[method]["scores"]) for method in (over, under))
    n = min(len(a), len(b))
    gaps = a[:n] - b[:n]
    classes = lines[under]["metric"] == "accuracy %"
    return gaps if classes else 100 * gaps / b[:n].mean()


def asked_table(main):
    """Return what the paper claims of RAP and SplitNN, and what was seen."""
    columns = {"Centralised": 0, "Single": 1, SPLITNN: 2, "RAP": 3}
    pairs = (("RAP", "Centralised"), (SPLITNN, "Centralised"), ("RAP", SPLITNN))
    rows = []
    for _, name, *cells in rows_of(PAPER_TABLE_3):
        lines = main["MLP"].get(name, {})
        if SPLITNN not in lines:
            continue
        paper = {m: float(cells[i].split()[0]) for m, i in columns.items()}
        points = lines["RAP"]["metric"] == "accuracy %"
        for over, under in pairs:
            ours = gap(lines, over, under)
            theirs = paper[over] - paper[under]
            theirs = theirs if points else 100 * theirs / paper[under]
            rows.append(
                (
                    f"{over} {MINUS} {under}, {name}",
                    "points" if points else "% of RMSE",
                    signed(ours.mean()),
                    signed(theirs),
                    signed(ours.mean() - theirs),
                    len(ours),
                    f"± {number(half_interval(ours))}",
                )
            )
    header = ("What", "Unit", "Ours", "The paper's", "Difference", "Seeds", "Interval")
    return listing("MLP, paired differences; half of the 95 % interval", header, rows)


def protection_table(lines, main):
    """Return our side of Table 1: what protecting the cells costs and spoils."""
    rows = []
    for name in PLANS:
        sent = {x["way"]: x for x in select(lines, table="sending", dataset=name)}
        if not sent:
            continue
        central, rap = (main["MLP"][name][m] for m in ("Centralised", "RAP"))
        plain = 4 * sent["RAP"]["cells"]
        for way, line in sent.items():
            scored = rap if way == "RAP" else central
            cost = f"{1e3 * line['seconds']:,.1f} ms; {1e3 * line['undone']:,.1f} ms"
            size = f"{line['bytes'] / 1e6:,.2f} MB; {line['bytes'] / plain:,.1f}"
            about = difference(scored) if way == "RAP" else "as centralised"
            rows.append((name, way, cost, size, score(scored), about, scored["seeds"]))
        for line in select(lines, table="locally private", dataset=name):
            way = f"Laplace noise, ε = {line['epsilon']:g} a cell"
            size = f"{plain / 1e6:,.2f} MB; 1.0"
            about = score(line), difference(line), line["seeds"]
            rows.append((name, way, "", size, *about))
    header = (
        "Data set",
        "How the cells are protected",
        "Protect; undo",
        "Bytes; ÷ float32",
        "Score",
        "To centralised",
        "Seeds",
    )
    title = "Ours: the training rows of four clients together, and what is learnt"
    return listing(title, header, rows)


def clients_table(lines, column, heading, title):
    """Return what figures 4 to 7 draw."""
    slowest = [*NETWORKS][-1]
    columns = {
        "Data set, model": "{dataset}, {model}",
        "Method": "{method}",
        heading: f"{{{column}}}",
        "Metric": "{metric}",
        "Score": score,
        "To centralised": difference,
        "CPU seconds": "{seconds:,.2f} ± {seconds_std:,.2f}",
        f"Seconds at {slowest}": lambda x: number(network_seconds(x, slowest), 1),
        "Seeds": "{seeds}",
    }
    return table(title, lines, columns)


def stream_rows(lines):
    """Which data sets are recorded of which streams, by table."""
    for kind, model in (("main", "MLP"), ("main", "LR"), ("clients", "MLP")):
        names = defaultdict(list)
        for line in select(lines, table=kind, model=model, method="RAP"):
            if line["dataset"] not in names[line["streams"]]:
                names[line["streams"]].append(line["dataset"])
        words = {"main": "Tables 3 and 4", "clients": "Figures"}[kind]
        for of, sets in names.items():
            yield [f"{words}, {model}", f"``{of}``", ", ".join(sets)]


def write_page(lines):
    """Write the page of the benchmarks."""
    lines = newest(lines, key)
    machine = one(lines, table="machine")
    main = {model: defaultdict(dict) for model in MODELS}
    for line in select(lines, table="main"):
        main[line["model"]][line["dataset"]][line["method"]] = line
    sizes = {
        "Ours": "{dataset}",
        "Rows": "{rows:,}",
        "Columns": "{columns}",
        "The paper's": lambda line: PARTS[line["dataset"]],
    }
    scored = "mean ± standard deviation (to centralised)"
    spent = "CPU seconds of fit; epochs; learning rate"
    write(
        "rap_benchmarks",
        machine=machine,
        single=max(plan["single"] for plan in machine["plans"].values()),
        splitnn=max(plan["splitnn"] for plan in machine["plans"].values()),
        lr_rate=MODELS["LR"].rate,
        sizes=table(
            "The data",
            select(lines, table="main", model="MLP", method="Centralised"),
            sizes,
        ),
        bars=bars_table(main),
        mlp=score_table(main["MLP"], f"Ours, MLP: {scored}"),
        lr=score_table(main["LR"], f"Ours, LR: {scored}"),
        paper_scores=listing(
            "The paper's Table 3 (its numbers)", PAPER_HEADER, rows_of(PAPER_TABLE_3)
        ),
        mlp_seconds=seconds_table(main["MLP"], f"Ours, MLP: {spent}"),
        lr_seconds=seconds_table(main["LR"], f"Ours, LR: {spent}"),
        paper_seconds=paper_seconds_table(),
        streams=listing(
            "Streams", ["Table", "Streams", "Data sets"], stream_rows(lines)
        ),
        asked=asked_table(main),
        protection=protection_table(lines, main),
        networks=network_table(main),
        by_clients=clients_table(
            with_four(lines, main),
            "clients",
            "Clients",
            "Ours, 2 to 10 clients",
        ),
        by_one_feature=clients_table(
            select(lines, table="one-feature clients"),
            "one_feature",
            "One-feature clients",
            "Ours, 1 to 5 of 10 clients with one column",
        ),
    )


def with_four(lines, main):
    """Return the lines of figures 4 and 5; SplitNN's four clients are the tables'."""
    found = select(lines, table="clients")
    about = {(x["dataset"], x["model"]) for x in select(found, method=SPLITNN)}
    four = [{**main[model][name][SPLITNN], "clients": 4} for name, model in about]
    order = [*PLANS], [*MODELS], ["RAP", SPLITNN]
    fields = ("dataset", "model", "method")

    def place(line):
        places = (of.index(line[f]) for of, f in zip(order, fields, strict=True))
        return (*places, line["clients"])

    return sorted([*found, *four], key=place)


if __name__ == "__main__":
    options = command(__doc__).parse_args()
    resume(options, RECORD, measure, key, write_page)
    if not options.quick:
        keep_newest(RECORD, key)
