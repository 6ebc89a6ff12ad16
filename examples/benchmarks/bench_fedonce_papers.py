"""The FedOnce paper's accuracy tables on the data at hand.

Prints one JSON object per line. A full run also appends the lines to
``docs/benchmarks/fedonce_papers.jsonl`` and goes on where that record ends, so that a
run may be stopped and started again; it ends by writing the page of the user guide
that shows the record. Needs the data sets in the folder that the environment variable
SKVFL_DATA names.

    python bench_fedonce_papers.py [--quick | --write-docs]
"""

import argparse
import json
import os
import platform
import time
import warnings
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import sklearn
import torch
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.decomposition import PCA
from sklearn.ensemble import GradientBoostingClassifier, GradientBoostingRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import accuracy_score, root_mean_squared_error
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder

from skvfl import (
    Contiguous,
    FedOnceClassifier,
    FedOnceRegressor,
    ImageTiles,
    NoiseAsTargetsEncoder,
    RandomFeaturesEncoder,
    SplitNNClassifier,
    SplitNNRegressor,
    VerticalPartitioner,
)
from skvfl.datasets import load
from skvfl.nn._training import TrainingError

DOCS = Path(__file__).parents[2] / "docs"
RECORD = DOCS / "benchmarks" / "fedonce_papers.jsonl"
PAGE = DOCS / "user_guide" / "fedonce_benchmarks.rst"

SOLO, COMBINE, LINEAR = "Solo", "Combine", "Linear-Combine"
ONCE, WITH_PCA = "FedOnce-L0", "FedOnce-PCA"
UNTRAINED, FIXED = "Untrained guests", "No permutation"
SAME_BYTES, SPLIT = "SplitNN, same bytes", "SplitNN"
METHODS = (SOLO, COMBINE, LINEAR, ONCE, WITH_PCA, UNTRAINED, FIXED, SAME_BYTES, SPLIT)
SPLIT_RATES = (1e-3, 3e-3, 1e-2)

L1, NAIVE, OURS = "FedOnce-L1", "Priv-Baseline", "Random features"
NO_NOISE, OURS_NO_NOISE = "FedOnce-L1, no noise", "Random features, no noise"
PRIVATE_METHODS = (L1, NAIVE, OURS, NO_NOISE, OURS_NO_NOISE)
BUDGETS = (2, 4, 6, 8)
DELTA = 1e-5
GRID = [
    {"lr": lr, "max_grad_norm": norm, "batch_size": size}
    for lr in (0.3, 1.0)
    for norm in (0.5, 1.5)
    for size in (128, 512)
]
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
PARTIES = (10, 50, 100, 200)


class Table(NamedTuple):
    """Columns, labels, who holds what, and whether the labels are classes."""

    X: np.ndarray
    y: np.ndarray
    parties: object
    classes: bool = True


class Networks(NamedTuple):
    """Sizes of the networks, as in the paper's tables 2 and 3, and what to send."""

    guest: tuple
    host: tuple
    width: int
    d: int = 3


class Plan(NamedTuple):
    """How a data set is run."""

    networks: Networks
    seeds: int
    rows: int | None = None
    hosts: slice = slice(None)
    guest_epochs: int = 10
    host_epochs: int = 20
    host_lr: float = 0.01
    split_epochs: int = 20
    scaler: object = MinMaxScaler()


class Budget(NamedTuple):
    """How a data set is run with a budget of differential privacy."""

    networks: Networks
    seeds: int
    rows: int | None = None
    guest_epochs: int = 5
    host_epochs: int = 20


PHISHING = Networks((30, 30), (30,), 30)
UJI = Networks((50, 50, 50, 30), (30, 10), 32)
IMAGES = Networks((128,), (128,), 64, d=16)
PLANS = {
    "phishing": Plan(PHISHING, seeds=5),
    "digits": Plan(
        Networks((64,), (64,), 32, d=16),
        seeds=5,
        guest_epochs=40,
        host_epochs=60,
        split_epochs=40,
    ),
    "mnist": Plan(IMAGES, seeds=3, host_epochs=15, host_lr=0.003, split_epochs=15),
    "phishing, standardised": Plan(
        PHISHING, seeds=3, hosts=slice(0, 10, 3), scaler="auto"
    ),
    "digits, d = 3": Plan(
        Networks((64,), (64,), 32),
        seeds=5,
        guest_epochs=40,
        host_epochs=60,
        split_epochs=40,
    ),
    "superconduct": Plan(
        Networks((30, 30), (30, 10), 30),
        seeds=3,
        hosts=slice(0, 10, 3),
        guest_epochs=30,
        host_epochs=80,
        split_epochs=40,
    ),
    "mfeat": Plan(
        Networks((60,), (50,), 32, d=6),
        seeds=3,
        guest_epochs=30,
        host_epochs=40,
        split_epochs=40,
    ),
    "covtype": Plan(
        Networks((200, 100, 100), (30, 30), 32),
        seeds=3,
        rows=20_000,
        hosts=slice(0, 10, 4),
        guest_epochs=4,
        split_epochs=8,
    ),
    "ujiindoorloc": Plan(
        UJI,
        seeds=3,
        rows=8_000,
        hosts=slice(0, 10, 4),
        host_epochs=40,
    ),
    "kmnist": Plan(
        IMAGES,
        seeds=3,
        rows=5_000,
        hosts=slice(0, 4, 3),
        host_epochs=25,
        host_lr=0.003,
    ),
    "fashion_mnist": Plan(
        IMAGES,
        seeds=3,
        rows=5_000,
        hosts=slice(0, 4, 3),
        host_epochs=25,
        host_lr=0.003,
    ),
}
BUDGET_PLANS = {
    "phishing": Budget(Networks((30,), (10,), 16), seeds=4),
    "covtype": Budget(
        Networks((50,), (30,), 16),
        seeds=3,
        rows=60_000,
        guest_epochs=1,
        host_epochs=4,
    ),
    "ujiindoorloc": Budget(
        Networks((50, 50), (20, 20), 16, d=6), seeds=3, guest_epochs=3, host_epochs=12
    ),
    "mnist": Budget(Networks((64,), (10,), 16, d=8), seeds=3),
}
BIASED_PLANS = {
    "phishing": Plan(PHISHING, seeds=3),
    "ujiindoorloc": Plan(UJI, seeds=3, rows=5_000, host_epochs=40),
}
WIDE_PLANS = {
    "4 or 9": Plan(Networks((100, 100, 50), (30, 30), 30), seeds=3, host_epochs=30)
}
PARTS = {
    "hosts": PLANS,
    "privacy": BUDGET_PLANS,
    "biased": BIASED_PLANS,
    "parties": WIDE_PLANS,
}


def folder():
    """Return the folder of the data sets."""
    return Path(os.environ["SKVFL_DATA"])


def read_images(name):
    """Images of 28 × 28 pixels, as numbers from 0 to 1, and their labels."""
    if name == "fashion_mnist":
        bunch = load(name)
        X, y = bunch.data.to_numpy(), bunch.target.to_numpy()
    else:
        with np.load(folder() / f"{name}_t10k.npz") as arrays:
            X, y = arrays["x"].reshape(-1, 784), arrays["y"]
    return Table(np.float32(X) / 255, y, ImageTiles((28, 28)))


def read_phishing():
    """Read the one-hot columns, 68 as in the paper."""
    bunch = load("phishing")
    X = OneHotEncoder(sparse_output=False).fit_transform(bunch.data)
    return Table(X.astype(np.float32), bunch.target.to_numpy(), Contiguous(10))


def read_ujiindoorloc():
    """Signals, positions and the time to be predicted.

    The file writes 100 where there is no signal, which is weaker than any.
    """
    frame = pd.read_csv(folder() / "ujiindoorloc_train.csv.gz", dtype=np.float64)
    y = frame.pop("TIMESTAMP").to_numpy()
    signals = frame.columns.str.startswith("WAP")
    X = frame.to_numpy(np.float32)
    X[:, signals] = np.where(X[:, signals] == 100, -105, X[:, signals])
    return Table(X, y, Contiguous(10), classes=False)


def read_wide():
    """Fours and nines with 5,000 columns, half of them products, half of them probes.

    As gisette was made, from other images: products of two pixels, and products whose
    rows are shuffled, in random order.
    """
    images = read_images("mnist")
    rows = np.isin(images.y, (4, 9))
    pixels, y = images.X[rows], images.y[rows]
    rng = np.random.default_rng(0)
    lively = np.flatnonzero(pixels.std(axis=0) > 0.1)
    first, second = rng.choice(lively, (2, 5_000))
    X = pixels[:, first] * pixels[:, second]
    X[:, 2_500:] = rng.permuted(X[:, 2_500:], axis=0)
    return Table(X[:, rng.permutation(5_000)], y, Contiguous(10))


@cache
def read(name):
    """Read a data set by the first word of its name in the plans."""
    if name == "4 or 9":
        return read_wide()
    name = name.split(",")[0]
    if name in ("mnist", "kmnist", "fashion_mnist"):
        return read_images(name)
    if name in ("phishing", "ujiindoorloc"):
        return {"phishing": read_phishing, "ujiindoorloc": read_ujiindoorloc}[name]()
    bunch = load(name)
    X, y = bunch.data.to_numpy(np.float32), bunch.target.to_numpy()
    parties = {
        "digits": ImageTiles((8, 8)),
        "mfeat": {
            party: bunch.data.columns.get_indexer(columns)
            for party, columns in bunch.parties.items()
        },
    }.get(name, Contiguous(10))
    if name == "covtype":
        y = y == 2
    return Table(X, y, parties, bunch.task == "classification")


class Split(NamedTuple):
    """Four fifths of the rows to train on, the rest to test on."""

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    classes: bool
    range: float

    def columns(self, held):
        """Return the same rows of some columns."""
        return self._replace(X=self.X[:, held], X_test=self.X_test[:, held])

    def half(self):
        """Return half of the training rows, and the same rows to test on."""
        n_rows = len(self.y) // 2
        return self._replace(X=self.X[:n_rows], y=self.y[:n_rows])

    def validation(self):
        """Split the training rows again."""
        return split(Table(self.X, self.y, None, self.classes), 0)._replace(
            range=self.range
        )


def split(table, seed, rows=None):
    """Draw the parts, stratified by class, from at most so many rows."""
    chosen = np.random.default_rng(seed).permutation(len(table.y))[:rows]
    train, test = train_test_split(
        chosen,
        test_size=0.2,
        stratify=table.y[chosen] if table.classes else None,
        random_state=seed,
    )
    X, y = table.X, table.y
    spread = 0.0 if table.classes else float(np.ptp(y))
    return Split(X[train], y[train], X[test], y[test], table.classes, spread)


def measure(estimator, parts):
    """Fit and score: accuracy, or the RMSE in parts of the label's range; per cent."""
    start = time.process_time()
    estimator.fit(parts.X, parts.y)
    seconds = time.process_time() - start
    predicted = estimator.predict(parts.X_test)
    if parts.classes:
        score = 100 * accuracy_score(parts.y_test, predicted)
    else:
        score = 100 * root_mean_squared_error(parts.y_test, predicted) / parts.range
    log = getattr(estimator, "communication_", None)
    return {"score": score, "seconds": seconds, "bytes": log.n_bytes if log else 0}


def better(score, classes):
    """Return a figure of which more is better."""
    return score if classes else -score


class Ready(TransformerMixin, BaseEstimator):
    """An encoder that is trained already; every host finds the same one.

    Guests do not know who the host is, so that one training does for all hosts.
    """

    def __init__(self, encoder):
        self.encoder = encoder

    def __sklearn_clone__(self):
        return self

    def fit(self, X, y=None):
        """Do nothing."""
        return self

    def transform(self, X):
        """Represent rows."""
        return self.encoder.transform(X)


def encoder(plan, classes, **settings):
    """Return the paper's guest."""
    return NoiseAsTargetsEncoder(
        plan.networks.d,
        module=plan.networks.guest,
        output_activation="tanh" if classes <= 2 else "identity",
        **{"max_epochs": plan.guest_epochs, "batch_size": 100, "lr": 1e-3, **settings},
    )


def n_classes(parts):
    """Return the number of classes, 0 for a number."""
    return len(np.unique(parts.y)) if parts.classes else 0


def once(parts, plan, seed, **settings):
    """Return FedOnce with the paper's networks."""
    kind = FedOnceClassifier if parts.classes else FedOnceRegressor
    return kind(
        local=plan.networks.guest,
        local_width=plan.networks.width,
        host=plan.networks.host,
        random_state=seed,
        **{"max_epochs": plan.host_epochs, "batch_size": 250, **settings},
    )


def alone(parts, plan, seed, held=slice(None)):
    """One party's own model: FedOnce's host without a guest."""
    own = parts.columns(held)
    parties = VerticalPartitioner(plan.scaler, parties={"host": slice(None)})
    estimator = once(own, plan, seed, parties=parties, lr=plan.host_lr)
    return measure(estimator, own)


def linear(parts):
    """Measure the linear model on all columns."""
    model = LogisticRegression(max_iter=200) if parts.classes else Ridge()
    scaler = MinMaxScaler().fit(parts.X)
    return measure(
        model,
        parts._replace(
            X=scaler.transform(parts.X), X_test=scaler.transform(parts.X_test)
        ),
    )


def split_learning(parts, plan, seed, parties, **settings):
    """Measure SplitNN with FedOnce's networks."""
    kind = SplitNNClassifier if parts.classes else SplitNNRegressor
    estimator = kind(
        parties=VerticalPartitioner(plan.scaler, parties=parties),
        bottom=plan.networks.guest,
        cut_width=plan.networks.d,
        top=plan.networks.host,
        random_state=seed,
        **settings,
    )
    return measure(estimator, parts)


def same_bytes(parts, plan, seed, parties):
    """Stop SplitNN after half an epoch, at the learning rate of the best score.

    Activations up and gradients down are twice the representations that FedOnce sends,
    so half of the rows, each seen once, take the same bytes.
    """
    settings = {"max_epochs": 1, "batch_size": 100}
    return max(
        (
            split_learning(parts.half(), plan, seed, parties, lr=lr, **settings)
            for lr in SPLIT_RATES
        ),
        key=lambda run: better(run["score"], parts.classes),
    )


def trained_guests(parts, plan, seed, parties, **settings):
    """Return a trained guest for every party, by its name."""
    partition = VerticalPartitioner(
        plan.scaler, parties=parties, remainder="drop", random_state=seed
    )
    partition.fit(parts.X)
    blocks = {
        name: np.asarray(partition.transformers_[name].transform(block), np.float32)
        for name, block in partition.split(parts.X).items()
    }
    encoders = [
        encoder(plan, n_classes(parts), random_state=1000 * seed + i, **settings)
        for i in range(len(blocks))
    ]
    start = time.process_time()
    NoiseAsTargetsEncoder.fit_together(encoders, list(blocks.values()))
    seconds = time.process_time() - start
    return dict(zip(blocks, map(Ready, encoders), strict=True)), seconds


def by_host(name, plan, seed):
    """Figure 5 and table 7: every method, with every party as the host."""
    table = read(name)
    parts = split(table, seed, plan.rows)
    partition = VerticalPartitioner(parties=table.parties).fit(parts.X[:2])
    held = partition.parties_
    hosts = list(held)[plan.hosts]
    guests, seconds = {}, {}
    for method, settings in {
        ONCE: {},
        UNTRAINED: {"max_epochs": 0},
        FIXED: {"update_every": None},
    }.items():
        guests[method], seconds[method] = trained_guests(
            parts, plan, seed, table.parties, **settings
        )
    start = time.process_time()
    guests[WITH_PCA] = {
        party: PCA(min(plan.networks.d, len(columns)), random_state=0)
        for party, columns in held.items()
    }
    seconds[WITH_PCA] = time.process_time() - start
    for method in (ONCE, WITH_PCA, UNTRAINED, FIXED):
        runs = []
        for host in hosts:
            others = {k: guest for k, guest in guests[method].items() if k != host}
            parties = VerticalPartitioner(plan.scaler, parties=table.parties)
            estimator = once(
                parts,
                plan,
                seed,
                parties=parties,
                active=host,
                guest=others,
                lr=plan.host_lr,
            )
            runs.append(measure(estimator, parts))
        yield method, runs, {"guest_seconds": round(seconds[method], 2)}
    yield SOLO, [alone(parts, plan, seed, held[host]) for host in hosts], {}
    yield COMBINE, [alone(parts, plan, seed)], {}
    yield LINEAR, [linear(parts)], {}
    yield SAME_BYTES, [same_bytes(parts, plan, seed, table.parties)], {}
    settings = {"max_epochs": plan.split_epochs, "batch_size": 100, "lr": 3e-3}
    yield SPLIT, [split_learning(parts, plan, seed, table.parties, **settings)], {}


def private(method, parts, plan, seed, parties, host, epsilon, settings):
    """Measure one private method, or its twin without noise."""
    settings = dict(settings)
    if method in (L1, NAIVE, NO_NOISE):
        settings["guest"] = encoder(
            plan,
            n_classes(parts),
            batch_size=128,
            lr=settings["lr"],
            optimizer=torch.optim.SGD if method == NO_NOISE else None,
        )
    if method in (NO_NOISE, OURS_NO_NOISE):
        del settings["max_grad_norm"]
        settings.setdefault("guest", RandomFeaturesEncoder())
        settings["optimizer"] = torch.optim.SGD
    else:
        settings |= {
            "epsilon": epsilon,
            "delta": DELTA,
            "division": "naive" if method == NAIVE else "moments",
        }
    estimator = once(
        parts,
        plan,
        seed,
        parties=VerticalPartitioner(MinMaxScaler(), parties=parties),
        active=host,
        **settings,
    )
    run = measure(estimator, parts)
    if hasattr(estimator, "epsilon_spent_"):
        run["epsilon_spent"] = estimator.epsilon_spent_.epsilon
    return run


def search(method, parts, plan, seed, parties, host):
    """Choose the settings of the best score on held-out training rows, at ε = 4."""
    inner = parts.validation()
    norms = {settings["max_grad_norm"] for settings in GRID}
    if method in (NO_NOISE, OURS_NO_NOISE):
        norms = {min(norms)}
    best, chosen = -np.inf, None
    for settings in GRID:
        if settings["max_grad_norm"] not in norms:
            continue
        try:
            run = private(method, inner, plan, seed, parties, host, 4, settings)
        except TrainingError:
            continue
        if better(run["score"], parts.classes) > best:
            best, chosen = better(run["score"], parts.classes), settings
    return chosen


@cache
def chosen_settings(name, plan, method):
    """Search once for each data set and method, on the first split."""
    table = read(name)
    parts = split(table, 0, plan.rows)
    return search(method, parts, plan, 0, four_parties(name), 0)


def four_parties(name):
    """Return the split of the paper's private experiments."""
    return ImageTiles((28, 28)) if name == "mnist" else Contiguous(4)


def with_budget(name, plan, seed):
    """Table 6: accuracy by ε. The host is another party in every split."""
    parts = split(read(name), seed, plan.rows)
    parties, host = four_parties(name), seed % 4
    for method in PRIVATE_METHODS:
        settings = chosen_settings(name, plan, method)
        noisy = method not in (NO_NOISE, OURS_NO_NOISE)
        for epsilon in BUDGETS if noisy else [None]:
            run = private(method, parts, plan, seed, parties, host, epsilon, settings)
            spent = {k: run[k] for k in ("epsilon_spent",) if k in run}
            yield method, [run], {"epsilon": epsilon, **spent, "settings": settings}


def importances(parts):
    """Return the importance of columns for boosted trees."""
    kind = GradientBoostingClassifier if parts.classes else GradientBoostingRegressor
    trees = kind(n_estimators=50, subsample=0.5, max_features="sqrt", random_state=0)
    return trees.fit(parts.X, parts.y).feature_importances_


def biased_halves(importance, share, seed):
    """Give the host a share of the most important quarter, and half of all columns."""
    n_columns = len(importance)
    rng = np.random.default_rng(seed)
    order = np.argsort(-importance, kind="stable")
    dominant, others = order[: n_columns // 4], order[n_columns // 4 :]
    rng.shuffle(dominant)
    rng.shuffle(others)
    n_dominant = round(share * len(dominant))
    n_others = n_columns // 2 - n_dominant
    return {
        "host": np.r_[dominant[:n_dominant], others[:n_others]],
        "guest": np.r_[dominant[n_dominant:], others[n_others:]],
    }


def by_share(name, plan, seed):
    """Figure 9: two parties, by the host's share of the dominant columns."""
    parts = split(read(name), seed, plan.rows)
    importance = importances(parts)
    yield COMBINE, [alone(parts, plan, seed)], {"share": None}
    for share in SHARES:
        parties = biased_halves(importance, share, seed)
        guests, _ = trained_guests(parts, plan, seed, {"guest": parties["guest"]})
        for method, run in {
            SOLO: lambda held=parties["host"]: alone(parts, plan, seed, held),
            ONCE: lambda held=parties, guests=guests: measure(
                once(
                    parts,
                    plan,
                    seed,
                    parties=VerticalPartitioner(plan.scaler, parties=held),
                    guest=guests,
                    lr=plan.host_lr,
                ),
                parts,
            ),
            SAME_BYTES: lambda held=parties: same_bytes(parts, plan, seed, held),
        }.items():
            yield method, [run()], {"share": share}


def by_parties(name, plan, seed):
    """Figure 8: a wide table, by the number of parties."""
    parts = split(read(name), seed, plan.rows)
    yield COMBINE, [alone(parts, plan, seed)], {"parties": None}
    for n_parties in PARTIES:
        parties = Contiguous(n_parties)
        guests, seconds = trained_guests(parts, plan, seed, parties)
        others = {party: guest for party, guest in guests.items() if party != "party0"}
        estimator = once(
            parts,
            plan,
            seed,
            parties=VerticalPartitioner(plan.scaler, parties=parties),
            guest=others,
            lr=plan.host_lr,
        )
        what = {"parties": n_parties}
        yield ONCE, [measure(estimator, parts)], {**what, "guest_seconds": seconds}
        held = slice(parts.X.shape[1] // n_parties)
        yield SOLO, [alone(parts, plan, seed, held)], what
        yield SAME_BYTES, [same_bytes(parts, plan, seed, parties)], what


RUN = {
    "hosts": by_host,
    "privacy": with_budget,
    "biased": by_share,
    "parties": by_parties,
}


def machine(quick):
    """Return where and with what the run is made."""
    return {
        "part": "machine",
        "processor": platform.processor() or platform.machine(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "scikit-learn": sklearn.__version__,
        "threads": 1,
        "quick": quick,
    }


def quick_plan(plan):
    """Take few rows and epochs, and one seed."""
    few = {"seeds": 1, "rows": 600, "guest_epochs": 1, "host_epochs": 2}
    return plan._replace(
        **few, **({"split_epochs": 1} if hasattr(plan, "hosts") else {})
    )


def measurements(quick, done):
    """Yield the lines of every part, data set and seed that is not done, seed first."""
    yield [machine(quick)]
    for seed in range(
        max(plan.seeds for plans in PARTS.values() for plan in plans.values())
    ):
        for part, plans in PARTS.items():
            for name, plan in plans.items():
                plan = quick_plan(plan) if quick else plan
                if seed >= plan.seeds or (part, name, seed) in done:
                    continue
                yield [*lines(part, name, plan, seed)]


def lines(part, name, plan, seed):
    """Yield the lines of one part, data set and seed."""
    table = read(name)
    for method, runs, what in RUN[part](name, plan, seed):
        yield {
            "part": part,
            "dataset": name,
            "seed": seed,
            "method": method,
            **what,
            "scores": [round(run["score"], 4) for run in runs],
            "bytes": round(np.mean([run["bytes"] for run in runs])),
            "seconds": round(np.mean([run["seconds"] for run in runs]), 2),
            "rows": min(plan.rows or len(table.y), len(table.y)),
            "columns": table.X.shape[1],
            "metric": "accuracy" if table.classes else "RMSE",
            "plan": plan._replace(
                networks=plan.networks._asdict(), **describe(plan)
            )._asdict(),
        }


def describe(plan):
    """Return the fields of a plan that are no numbers as text."""
    if not hasattr(plan, "hosts"):
        return {}
    return {
        "hosts": [plan.hosts.start, plan.hosts.stop, plan.hosts.step],
        "scaler": type(plan.scaler).__name__
        if isinstance(plan.scaler, BaseEstimator)
        else plan.scaler,
    }


def main():
    """Measure and record, or only write the page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--quick", action="store_true", help="few rows, nothing kept")
    mode.add_argument(
        "--write-docs", action="store_true", help="only write the page, from the record"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", ConvergenceWarning)
    if not options.write_docs:
        run(options.quick)
    if not options.quick:
        write_page(recorded())


def recorded():
    """Return the lines of the record."""
    if not RECORD.exists():
        return []
    return [json.loads(line) for line in RECORD.read_text("utf-8").splitlines()]


def run(quick):
    """Measure what the record lacks, and append it."""
    record = [] if quick else recorded()
    done = {(line["part"], line.get("dataset"), line.get("seed")) for line in record}
    for group in measurements(quick, done):
        text = "".join(f"{json.dumps(line)}\n" for line in group)
        print(text, end="", flush=True)
        if not quick:
            with RECORD.open("a", encoding="utf-8") as file:
                file.write(text)


if __name__ == "__main__":
    main()
