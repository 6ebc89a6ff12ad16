"""The FedOnce paper's accuracy tables on the data at hand.

Prints one JSON object per line. A full run also appends the lines to
``docs/benchmarks/fedonce_papers.jsonl`` and measures only what that record lacks, so
that a run may be stopped and started again, and lines that a change has made wrong may
be deleted; it ends by writing the page of the benchmarks that shows the record. Needs
the data sets in the folder that the environment variable SKVFL_DATA names.

    python bench_fedonce_papers.py [--quick | --write-docs]
"""

import warnings
from collections import defaultdict
from functools import cache, partial
from itertools import product
from operator import itemgetter
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from _data import draw, folder, prepared
from _measure import machine, timed
from _page import MINUS, listing, met, number, rows_of, signed, write
from _record import command, read, resume, select
from _seeds import half_interval, standard_error
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.decomposition import PCA
from sklearn.ensemble import GradientBoostingClassifier, GradientBoostingRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import accuracy_score, root_mean_squared_error
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
    VFLBoostingClassifier,
    VFLBoostingRegressor,
)
from skvfl.datasets import load
from skvfl.exceptions import TrainingError

RECORD = "fedonce_papers"
SOLO, COMBINE, LINEAR = "Solo", "Combine", "Linear-Combine"
ONCE, WITH_PCA = "FedOnce-L0", "FedOnce-PCA"
UNTRAINED, FIXED = "Untrained guests", "No permutation"
SAME_BYTES, SPLIT = "SplitNN, same bytes", "SplitNN"
# The paper's baseline of trees, whose accuracy no encryption changes.
TREES = "SecureBoost"
METHODS = (SOLO, COMBINE, LINEAR, ONCE, WITH_PCA, UNTRAINED, FIXED, SAME_BYTES, SPLIT)
# As in the paper, not on images.
WITH_TREES = ("phishing", "superconduct", "covtype", "ujiindoorloc")
SPLIT_RATES = (1e-3, 3e-3, 1e-2)

L1, NAIVE = "FedOnce-L1", "Priv-Baseline"
NARROW, OURS = "8 random features", "32 random features"
NO_NOISE, OURS_NO_NOISE = "FedOnce-L1, no noise", "Random features, no noise"
PRIVATE_METHODS = (L1, NAIVE, NARROW, OURS, NO_NOISE, OURS_NO_NOISE)
BUDGETS = (2, 4, 6, 8)
DELTA = 1e-5
RATES, NORMS, SIZES = (0.3, 1.0), (0.5, 1.5), (128, 512)
RATES_WITHOUT_NOISE = (0.03, 0.1, *RATES)
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
PARTIES = FEWEST, *_ = (10, 50, 100, 200)


class Table(NamedTuple):
    """Columns, labels, who holds what, and whether the labels are classes."""

    X: np.ndarray
    y: np.ndarray
    parties: object
    classes: bool = True


class Networks(NamedTuple):
    """Sizes of the networks, as in the paper's tables 2 and 3, and what to send.

    ``d`` and ``f``, every how many epochs targets are exchanged, are of tables 5 and 10.
    """

    guest: tuple
    host: tuple
    width: int
    d: int = 3
    f: int = 1


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
IMAGES = Networks((128,), (128,), 64, d=16, f=3)
# What the plans of digits, and those of images, have in common.
DIGITS = {"seeds": 3, "guest_epochs": 40, "host_epochs": 60, "split_epochs": 40}
PICTURES = {"rows": 5_000, "hosts": slice(0, 4, 3), "host_epochs": 25}
PLANS = {
    "phishing": Plan(PHISHING, seeds=4),
    "digits": Plan(Networks((64,), (64,), 32, d=16), **DIGITS),
    "mnist": Plan(IMAGES, 3, host_epochs=15, host_lr=0.003, split_epochs=15),
    "phishing, standardised": Plan(
        PHISHING, seeds=3, hosts=slice(0, 10, 3), scaler="auto"
    ),
    "digits, d = 3": Plan(Networks((64,), (64,), 32), **DIGITS),
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
    "ujiindoorloc": Plan(UJI, 3, 8_000, hosts=slice(0, 10, 4), host_epochs=40),
    "kmnist": Plan(IMAGES, 3, host_lr=0.003, **PICTURES),
    "fashion_mnist": Plan(IMAGES, 3, host_lr=0.003, **PICTURES),
}
BUDGET_PLANS = {
    "phishing": Budget(Networks((30,), (10,), 16), seeds=3),
    "covtype": Budget(Networks((50,), (30,), 16), 3, 60_000, 1, host_epochs=4),
    "ujiindoorloc": Budget(
        Networks((50, 50), (20, 20), 16, d=6), seeds=3, guest_epochs=3, host_epochs=12
    ),
    "mnist": Budget(Networks((64,), (10,), 16, d=8), seeds=3),
    "superconduct": Budget(Networks((50, 50), (20, 20), 16), seeds=3),
}
BIASED_PLANS = {
    "phishing": Plan(PHISHING, seeds=3),
    "ujiindoorloc": Plan(UJI, seeds=3, rows=5_000, host_epochs=40),
}
WIDE_PLANS = {
    "4 or 9": Plan(Networks((100, 100, 50), (30, 30), 30), seeds=3, host_epochs=30)
}


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
def load_table(name):
    """Read a data set by the first word of its name in the plans."""
    if name == "4 or 9":
        return read_wide()
    name = name.split(",")[0]
    if name in ("mnist", "kmnist", "fashion_mnist"):
        return read_images(name)
    if name == "phishing":
        return read_phishing()
    if name == "ujiindoorloc":
        return read_ujiindoorloc()
    bunch = load(name)
    X, y = bunch.data.to_numpy(np.float32), bunch.target.to_numpy()
    parties = ImageTiles((8, 8)) if name == "digits" else Contiguous(10)
    if name == "mfeat":
        find = bunch.data.columns.get_indexer
        parties = {party: find(columns) for party, columns in bunch.parties.items()}
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
        inner = split(Table(self.X, self.y, None, self.classes), 0)
        return inner._replace(range=self.range)


def split(table, seed, rows=None):
    """Draw the parts, stratified by class, from at most so many rows."""
    chosen = np.random.default_rng(seed).permutation(len(table.y))[:rows]
    train, test = draw(chosen, table.y, 0.2, seed, table.classes)
    X, y = table.X, table.y
    spread = 0.0 if table.classes else float(np.ptp(y))
    return Split(X[train], y[train], X[test], y[test], table.classes, spread)


def fit_and_score(estimator, parts):
    """Fit and score: accuracy, or the RMSE in parts of the label's range; per cent."""
    _, seconds = timed(estimator.fit, parts.X, parts.y)
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
        hidden_layer_sizes=plan.networks.guest,
        output_activation="tanh" if classes <= 2 else "identity",
        **{"update_every": plan.networks.f, "max_epochs": plan.guest_epochs, "batch_size": 100, "lr": 1e-3, **settings},
    )


def n_classes(parts):
    """Return the number of classes, 0 for a number."""
    return len(np.unique(parts.y)) if parts.classes else 0


def once(parts, plan, seed, **settings):
    """Return FedOnce with the paper's networks."""
    kind = FedOnceClassifier if parts.classes else FedOnceRegressor
    return kind(
        bottom=plan.networks.guest,
        cut_width=plan.networks.width,
        top=plan.networks.host,
        random_state=seed,
        **{"max_epochs": plan.host_epochs, "batch_size": 250, **settings},
    )


def alone(parts, plan, seed, held=slice(None)):
    """One party's own model: FedOnce's host without a guest."""
    own = parts.columns(held)
    parties = VerticalPartitioner(plan.scaler, parties={"host": slice(None)})
    estimator = once(own, plan, seed, parties=parties, lr=plan.host_lr)
    return fit_and_score(estimator, own)


def boosted(parts, parties):
    """Trees over parties; who is the host makes no difference to them."""
    kind = VFLBoostingClassifier if parts.classes else VFLBoostingRegressor
    return fit_and_score(kind(parties=parties, max_iter=50), parts)


def linear(parts):
    """Measure the linear model on all columns."""
    model = LogisticRegression(max_iter=200) if parts.classes else Ridge()
    scale = MinMaxScaler().fit(parts.X).transform
    scaled = parts._replace(X=scale(parts.X), X_test=scale(parts.X_test))
    return fit_and_score(model, scaled)


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
    return fit_and_score(estimator, parts)


def same_bytes(parts, plan, seed, parties):
    """Stop SplitNN after half an epoch, at the learning rate of the best score.

    Activations up and gradients down are twice the representations that FedOnce sends,
    so half of the rows, each seen once, take the same bytes.
    """
    settings = {"max_epochs": 1, "batch_size": 100}
    half = parts.half()
    runs = [
        split_learning(half, plan, seed, parties, lr=lr, **settings)
        for lr in SPLIT_RATES
    ]
    return max(runs, key=lambda run: better(run["score"], parts.classes))


def trained_guests(parts, plan, seed, parties, **settings):
    """Return a trained guest for every party, by its name."""
    partition = VerticalPartitioner(
        plan.scaler, parties=parties, remainder="drop", random_state=seed
    )
    blocks = prepared(partition.fit(parts.X), parts.X)
    encoders = [
        encoder(plan, n_classes(parts), random_state=1000 * seed + i, **settings)
        for i in range(len(blocks))
    ]
    fit = NoiseAsTargetsEncoder.fit_together
    _, seconds = timed(fit, encoders, list(blocks.values()))
    return dict(zip(blocks, map(Ready, encoders), strict=True)), seconds


def with_guests(parts, plan, seed, parties, guests, active=None):
    """Measure FedOnce whose guests are trained already."""
    parties = VerticalPartitioner(plan.scaler, parties=parties)
    settings = {"active": active} if active else {}
    settings |= {"parties": parties, "local_encoder": guests, "lr": plan.host_lr}
    return fit_and_score(once(parts, plan, seed, **settings), parts)


def by_host(name, plan, seed):
    """Figure 5 and table 7: every method, with every party as the host."""
    table = load_table(name)
    parties = table.parties
    parts = split(table, seed, plan.rows)
    held = VerticalPartitioner(parties=parties).fit(parts.X[:2]).parties_
    hosts = list(held)[plan.hosts]
    training = {ONCE: {}, UNTRAINED: {"max_epochs": 0}, FIXED: {"update_every": None}}

    def guests_of(method):
        if method != WITH_PCA:
            return trained_guests(parts, plan, seed, parties, **training[method])
        width = plan.networks.d
        sizes = {party: min(width, len(columns)) for party, columns in held.items()}
        return {party: PCA(size, random_state=0) for party, size in sizes.items()}, 0.0

    def federated(method):
        guests, seconds = guests_of(method)
        runs = []
        for host in hosts:
            others = {k: guest for k, guest in guests.items() if k != host}
            runs.append(with_guests(parts, plan, seed, parties, others, host))
        return runs, {"guest_seconds": round(seconds, 2)}

    for method in (ONCE, WITH_PCA, UNTRAINED, FIXED):
        yield method, {}, partial(federated, method)
    yield SOLO, {}, lambda: [alone(parts, plan, seed, held[host]) for host in hosts]
    yield COMBINE, {}, lambda: [alone(parts, plan, seed)]
    yield LINEAR, {}, lambda: [linear(parts)]
    yield SAME_BYTES, {}, lambda: [same_bytes(parts, plan, seed, parties)]
    settings = {"max_epochs": plan.split_epochs, "batch_size": 100, "lr": 3e-3}
    learn = partial(split_learning, parts, plan, seed, parties, **settings)
    yield SPLIT, {}, lambda: [learn()]
    if name in WITH_TREES:
        yield TREES, {}, lambda: [boosted(parts, parties)]


def private(method, parts, plan, seed, parties, host, epsilon, settings):
    """Measure one private method, or its twin without noise."""
    settings = dict(settings)
    if method in (L1, NAIVE, NO_NOISE):
        settings["local_encoder"] = encoder(
            plan,
            n_classes(parts),
            batch_size=128,
            lr=settings["lr"],
            optimizer=torch.optim.SGD if method == NO_NOISE else None,
        )
    if method in (NO_NOISE, OURS_NO_NOISE):
        del settings["max_grad_norm"]
        settings.setdefault("local_encoder", RandomFeaturesEncoder(8))
        settings["optimizer"] = torch.optim.SGD
    else:
        if method in (NARROW, OURS):
            n_features = 8 if method == NARROW else 32
            settings["local_encoder"] = RandomFeaturesEncoder(n_features)
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
    run = fit_and_score(estimator, parts)
    if hasattr(estimator, "epsilon_spent_"):
        run["epsilon_spent"] = estimator.epsilon_spent_.epsilon
    return run


def grid(method):
    """Yield the settings that are searched."""
    noisy = method not in (NO_NOISE, OURS_NO_NOISE)
    for lr, norm, size in product(
        RATES if noisy else RATES_WITHOUT_NOISE, NORMS if noisy else [None], SIZES
    ):
        yield {"lr": lr, "max_grad_norm": norm, "batch_size": size}


def search(method, parts, plan, seed, parties, host):
    """Choose the settings of the best score on held-out training rows, at ε = 4."""
    inner = parts.validation()
    found = []
    for settings in grid(method):
        try:
            run = private(method, inner, plan, seed, parties, host, 4, settings)
        except TrainingError:
            continue
        found.append((better(run["score"], parts.classes), settings))
    return max(found, key=itemgetter(0))[1]


@cache
def chosen_settings(name, plan, method):
    """Search once for each data set and method, on the first split.

    A full run that goes on takes what was found from the record.
    """
    if plan == BUDGET_PLANS[name]:
        where = {"part": "privacy", "dataset": name, "method": method}
        for line in select(read(RECORD), **where):
            return line["settings"]
    parts = split(load_table(name), 0, plan.rows)
    return search(method, parts, plan, 0, four_parties(name), 0)


def four_parties(name):
    """Return the split of the paper's private experiments."""
    return ImageTiles((28, 28)) if name == "mnist" else Contiguous(4)


def with_budget(name, plan, seed):
    """Table 6: accuracy by ε. The host is another party in every split."""
    parts = split(load_table(name), seed, plan.rows)
    parties, host = four_parties(name), seed % 4

    def run(method, epsilon):
        settings = chosen_settings(name, plan, method)
        run = private(method, parts, plan, seed, parties, host, epsilon, settings)
        spent = {k: run[k] for k in ("epsilon_spent",) if k in run}
        return [run], {**spent, "settings": settings}

    for method in PRIVATE_METHODS:
        noisy = method not in (NO_NOISE, OURS_NO_NOISE)
        for epsilon in BUDGETS if noisy else [None]:
            yield method, {"epsilon": epsilon}, partial(run, method, epsilon)


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
    parts = split(load_table(name), seed, plan.rows)
    importance = importances(parts)
    yield COMBINE, {"share": None}, lambda: [alone(parts, plan, seed)]

    def federated(held):
        guests, _ = trained_guests(parts, plan, seed, {"guest": held["guest"]})
        return [with_guests(parts, plan, seed, held, guests)]

    for share in SHARES:
        what = {"share": share}
        held = biased_halves(importance, share, seed)
        yield SOLO, what, lambda held=held: [alone(parts, plan, seed, held["host"])]
        yield ONCE, what, partial(federated, held)
        yield SAME_BYTES, what, lambda held=held: [same_bytes(parts, plan, seed, held)]


def by_parties(name, plan, seed):
    """Figure 8: a wide table, by the number of parties."""
    parts = split(load_table(name), seed, plan.rows)
    yield COMBINE, {"parties": None}, lambda: [alone(parts, plan, seed)]

    def federated(parties):
        guests, seconds = trained_guests(parts, plan, seed, parties)
        del guests["party0"]
        run = with_guests(parts, plan, seed, parties, guests)
        return [run], {"guest_seconds": seconds}

    def with_pca():
        guests = PCA(plan.networks.d, random_state=0)
        return [with_guests(parts, plan, seed, Contiguous(FEWEST), guests)]

    # The paper's table 7 has the wide table, too.
    yield WITH_PCA, {"parties": FEWEST}, with_pca
    for n in PARTIES:
        dealt, what = Contiguous(n), {"parties": n}
        held = slice(parts.X.shape[1] // n)
        yield ONCE, what, partial(federated, dealt)
        yield SOLO, what, lambda held=held: [alone(parts, plan, seed, held)]
        yield SAME_BYTES, what, lambda of=dealt: [same_bytes(parts, plan, seed, of)]


PARTS = {
    "hosts": (by_host, PLANS),
    "privacy": (with_budget, BUDGET_PLANS),
    "biased": (by_share, BIASED_PLANS),
    "parties": (by_parties, WIDE_PLANS),
}


def quick_plan(plan):
    """Take few rows and epochs, and one seed."""
    few = {"seeds": 1, "rows": 600, "guest_epochs": 1, "host_epochs": 2}
    if hasattr(plan, "split_epochs"):
        few["split_epochs"] = 1
    return plan._replace(**few)


def measure(quick, done):
    """Yield the lines of every part, seed and data set that are not done."""
    warnings.simplefilter("ignore", ConvergenceWarning)
    yield {"part": "machine", **machine(quick, "torch", "scikit-learn")}
    for part, (_, plans) in PARTS.items():
        for seed in range(max(plan.seeds for plan in plans.values())):
            for name, plan in plans.items():
                plan = quick_plan(plan) if quick else plan
                if seed < plan.seeds:
                    yield from lines(part, name, plan, seed, done)


def lines(part, name, plan, seed, done):
    """Yield the lines of one part, data set and seed that are not done."""
    table = load_table(name)
    for method, what, run in PARTS[part][0](name, plan, seed):
        about = {"part": part, "dataset": name, "seed": seed}
        line = {**about, "method": method, **what}
        if key(line) in done:
            continue
        runs = run()
        runs, more = runs if isinstance(runs, tuple) else (runs, {})
        networks = plan.networks._asdict()
        yield {
            **line,
            **more,
            "scores": [round(run["score"], 4) for run in runs],
            "bytes": round(np.mean([run["bytes"] for run in runs])),
            "seconds": round(np.mean([run["seconds"] for run in runs]), 2),
            "rows": min(plan.rows or len(table.y), len(table.y)),
            "columns": table.X.shape[1],
            "metric": "accuracy" if table.classes else "RMSE",
            "plan": {**plan._asdict(), "networks": networks, **describe(plan)},
        }


def key(line):
    """Return what tells a line from all others."""
    names = ("part", "dataset", "seed", "method", "epsilon", "share", "parties")
    return tuple(line.get(name) for name in names)


def describe(plan):
    """Return the fields of a plan that are no numbers as text."""
    if not hasattr(plan, "hosts"):
        return {}
    hosts, scaler = plan.hosts, plan.scaler
    return {
        "hosts": [hosts.start, hosts.stop, hosts.step],
        "scaler": scaler if isinstance(scaler, str) else type(scaler).__name__,
    }


PAPER_TABLE_7 = {
    "gisette": ("", "96.51", "94.10"),
    "phishing": ("phishing", "92.78", "92.41"),
    "MNIST": ("mnist", "98.05", "25.98"),
    "KMNIST": ("kmnist", "91.73", "25.59"),
}
INFINITE = None
N_PARTIES = {"digits": 4, "mnist": 4, "kmnist": 4, "fashion_mnist": 4, "mfeat": 6}
TRAFFIC = (ONCE, SAME_BYTES, SPLIT)


# Data set, ε, and what Priv-Baseline and FedOnce-L1 score with each of four hosts.
PAPER_TABLE_6 = """
phishing | 2 | 87.69 87.22 83.98 83.64 | 90.10 89.36 87.78 88.95
phishing | 4 | 89.43 87.49 88.79 87.92 | 91.10 90.24 90.90 91.16
phishing | 6 | 90.31 89.51 89.55 89.29 | 91.56 90.65 90.36 90.16
phishing | 8 | 90.89 90.76 89.69 90.51 | 90.78 91.12 90.63 91.30
phishing | ∞ |                         | 91.95 91.28 91.21 90.90
covtype | 2 | 74.60 65.88 60.19 66.53 | 76.88 70.74 70.11 71.56
covtype | 4 | 75.89 69.14 69.88 68.70 | 77.80 73.33 73.71 72.15
covtype | 6 | 78.27 73.75 73.46 73.87 | 79.23 74.18 73.66 73.98
covtype | 8 | 79.25 73.96 73.40 74.04 | 80.49 75.04 74.74 74.80
covtype | ∞ |                         | 82.24 74.48 74.29 74.06
ujiindoorloc | 2 | 23.26 22.75 22.92 25.01 | 10.66 11.02 10.87 14.89
ujiindoorloc | 4 | 14.87 15.78 20.62 19.43 |  7.69  8.11  8.43 13.62
ujiindoorloc | 6 | 10.53 12.24 14.75 19.14 |  7.14  7.46  6.64 12.23
ujiindoorloc | 8 | 10.51 11.98 14.09 13.45 |  5.42  6.14  6.78  7.30
ujiindoorloc | ∞ |                         |  3.55  3.69  4.02  3.59
mnist | 2 | 45.29 39.98 50.28 44.49 | 82.13 82.57 83.30 81.43
mnist | 4 | 70.07 76.70 78.00 75.23 | 87.01 87.51 87.91 87.02
mnist | 6 | 83.64 82.92 84.00 82.60 | 88.05 89.03 88.24 87.91
mnist | 8 | 85.40 86.33 86.21 85.28 | 90.52 90.63 89.61 89.32
mnist | ∞ |                         | 92.05 92.97 93.11 91.74
"""


def paper_table_6():
    """Means over the paper's hosts by data set, method and ε."""
    means = defaultdict(dict)
    for name, epsilon, *cells in rows_of(PAPER_TABLE_6):
        epsilon = INFINITE if epsilon == "∞" else int(epsilon)
        for method, scores in zip((NAIVE, L1), cells, strict=True):
            if scores:
                means[name][method, epsilon] = np.mean([*map(float, scores.split())])
    return means


PAPER_ROWS = {"phishing": 11_055, "covtype": 581_012, "ujiindoorloc": 21_048}
PAPER_ROWS |= dict.fromkeys(("mnist", "kmnist", "fashion_mnist"), 60_000)
PAPER_ROWS |= {"superconduct": 21_263}


class Sample:
    """Figures of several seeds: mean, standard error and 95 % interval."""

    def __init__(self, values):
        self.n = len(values)
        self.mean = float(np.mean(values))
        self.error = self.half = np.nan
        if self.n > 1:
            self.error, self.half = standard_error(values), half_interval(values)

    def __str__(self):
        if self.n == 1:
            return number(self.mean)
        return f"{number(self.mean)} ± {number(self.error)}"

    @property
    def interval(self):
        """Mean ± half the 95 % interval."""
        if self.n == 1:
            return f"{signed(self.mean)} (one seed)"
        return f"{signed(self.mean)} ± {number(self.half)}"

    def verdict(self, bar):
        """Say whether the mean is at least the bar, and whether the seeds can tell."""
        near = not abs(self.mean - bar) > self.half
        return met(self.mean >= bar, near, "met", "**not met**")


def collect(lines, part, *keys):
    """Means over hosts by data set, method, further keys, and seed."""
    found = defaultdict(lambda: defaultdict(dict))
    for line in lines:
        if line["part"] == part:
            key = (line["method"], *(line.get(k) for k in keys))
            key = key if keys else key[0]
            found[line["dataset"]][key][line["seed"]] = line
    return found


def scores(by_seed):
    """Return the mean over hosts of every seed."""
    return Sample([np.mean(line["scores"]) for line in by_seed.values()])


def gain(over, under):
    """Paired differences, of which more is better."""
    sign = 1 if what_is({"": over})["metric"] == "accuracy" else -1
    means = [{s: np.mean(x["scores"]) for s, x in by.items()} for by in (over, under)]
    shared = [seed for seed in over if seed in under]
    return Sample([sign * (means[0][seed] - means[1][seed]) for seed in shared])


def what_is(by_method):
    """Return the first line of a data set."""
    return next(iter(next(iter(by_method.values())).values()))


def bars(lines):
    """Return what was asked for, and what was seen."""
    hosts = collect(lines, "hosts")
    wanted = [
        ("phishing", ONCE, COMBINE, -1.0),
        ("phishing", ONCE, UNTRAINED, 8.0),
        ("phishing", ONCE, WITH_PCA, 0.0),
        ("phishing, standardised", ONCE, UNTRAINED, 8.0),
        ("phishing, standardised", ONCE, WITH_PCA, 0.0),
        ("digits", ONCE, COMBINE, -1.5),
        ("mnist", ONCE, COMBINE, -1.5),
        *((name, ONCE, SAME_BYTES, 0.0) for name in PLANS),
    ]
    for name, over, under, bar in wanted:
        if name in hosts:
            seen = gain(hosts[name][over], hosts[name][under])
            yield bar_row(f"{name}: {over} {MINUS} {under}", bar, seen)
    privacy = collect(lines, "privacy", "epsilon")
    if "phishing" in privacy:
        runs = privacy["phishing"]
        what = f"phishing: {L1} at ε = 8 {MINUS} without a budget"
        yield bar_row(what, -2.0, gain(runs[L1, 8], runs[NO_NOISE, None]))


def bar_row(what, bar, seen):
    """Return one row of the bars."""
    asked = f"≥ {number(bar, 1)}" if bar else "≥ 0"
    return what, asked, seen.interval, seen.n, seen.verdict(bar)


def private_bars(lines):
    """Return the bars of private training, for every ε."""
    for name, runs in collect(lines, "privacy", "epsilon").items():
        paper = paper_table_6()[name]
        seen = [gain(runs[L1, e], runs[NAIVE, e]) for e in BUDGETS]
        yield budget_row(f"{name}: {L1} {MINUS} {NAIVE}", seen)
        for method in (NARROW, OURS):
            seen = [gain_on_paper(runs[method, e], paper[L1, e]) for e in BUDGETS]
            what = f"{name}: {method} {MINUS} the paper's {L1}"
            yield budget_row(what, seen)


def budget_row(what, seen):
    """Return one row of the private bars."""
    cells = [f"{sample.interval}, {sample.verdict(0.0)}" for sample in seen]
    return what, *cells, seen[0].n


def gain_on_paper(by_seed, paper):
    """Differences to the mean of the paper's hosts, of which more is better."""
    sign = 1 if what_is({"": by_seed})["metric"] == "accuracy" else -1
    return Sample([sign * (np.mean(x["scores"]) - paper) for x in by_seed.values()])


def sizes_table(lines):
    """Return the data sets."""
    rows = []
    for name, runs in collect(lines, "hosts").items():
        line = what_is(runs)
        plan, networks = line["plan"], line["plan"]["networks"]
        short = name.split(",")[0]
        paper = PAPER_ROWS.get(short)
        n_parties, n_hosts = N_PARTIES.get(short, 10), len(runs[ONCE][0]["scores"])
        rows.append(
            (
                name,
                f"{line['rows']:,}",
                f"{paper:,}" if paper else "not in the paper",
                line["columns"],
                f"{n_parties}, {n_hosts}",
                networks["d"],
                layers(networks["guest"]),
                layers(networks["host"]),
                "{guest_epochs}, {host_epochs}, {split_epochs}".format_map(plan),
            )
        )
    shape = ("Rows", "The paper's rows", "Columns", "Parties, hosts measured")
    networks = ("d", "Guest", "Host", "Epochs: guests, host, SplitNN")
    header = ("Data set", *shape, *networks)
    return listing("The data, and the networks", header, rows)


def layers(sizes):
    """Write the sizes of hidden layers as the paper does."""
    return f"FC({'×'.join(map(str, sizes))})"


def joint_table(lines):
    """Return FedOnce beside joint training, one party alone, and split learning."""
    methods = (SOLO, COMBINE, LINEAR, ONCE, SAME_BYTES, SPLIT, TREES)
    rows = []
    for name, runs in collect(lines, "hosts").items():
        cells = [scores(runs[m]) if runs[m] else "not measured" for m in methods]
        rows.append((f"{name}, {metric(what_is(runs))}", cells[0].n, *cells))
    header = ("Data set, metric", "Seeds", *methods)
    return listing("Ours: mean over hosts and seeds ± standard error", header, rows)


def metric(line):
    """Return the metric as the tables write it."""
    return "accuracy %" if line["metric"] == "accuracy" else "RMSE % of the range"


def guests_table(lines):
    """Return what other guests do, against Noise-As-Targets."""
    methods = (WITH_PCA, UNTRAINED, FIXED)
    rows = []
    for name, runs in collect(lines, "hosts").items():
        line = what_is(runs)
        about = line["plan"]["networks"]["d"], metric(line), len(runs[ONCE])
        means = [scores(runs[method]) for method in (ONCE, *methods)]
        gains = [gain(runs[ONCE], runs[method]).interval for method in methods]
        rows.append((name, *about, *means, *gains))
    better = (f"L0 better than {method} by" for method in methods)
    header = ("Data set", "d", "Metric", "Seeds", ONCE, *methods, *better)
    return listing("Ours: the same host with other guests", header, rows)


def host_table(lines):
    """Return the lowest and the highest host."""
    rows = []
    for name, runs in collect(lines, "hosts").items():
        cells = []
        for method in (SOLO, ONCE):
            by_host = np.mean([x["scores"] for x in runs[method].values()], axis=0)
            cells.append(f"{number(by_host.min())} to {number(by_host.max())}")
        rows.append((f"{name}, {metric(what_is(runs))}", len(by_host), *cells))
    header = ("Data set, metric", "Hosts", SOLO, ONCE)
    return listing("Ours: range over host parties (means over seeds)", header, rows)


def bytes_table(lines):
    """Return the traffic of training."""
    rows = []
    for name, runs in collect(lines, "hosts").items():
        sent = [np.mean([x["bytes"] for x in runs[m].values()]) for m in TRAFFIC]
        more = f"{sent[2] / sent[0]:.0f}"
        rows.append((name, *(f"{number(x / 1e6)} MB" for x in sent), more))
    header = ("Data set", *TRAFFIC, "SplitNN ÷ FedOnce-L0")
    return listing("Ours: bytes that cross in one training", header, rows)


def paper_guests_table(lines):
    """Return the paper's table 7 beside ours."""
    hosts = collect(lines, "hosts")
    rows = []
    for theirs, (ours, once_score, pca_score) in PAPER_TABLE_7.items():
        cells = ("not measured", "not measured")
        if ours in hosts:
            cells = [scores(hosts[ours][method]) for method in (ONCE, WITH_PCA)]
        rows.append((theirs, once_score, pca_score, *cells))
    header = ("Data set", "Paper: FedOnce-L0", "Paper: FedOnce-PCA", "Ours: L0", "PCA")
    return listing("The paper's table 7 beside ours, accuracy %", header, rows)


def private_table(lines, name):
    """Return one part of table 6, ours beside the paper's."""
    runs = collect(lines, "privacy", "epsilon")[name]
    line, paper = what_is(runs), paper_table_6()[name]
    rows = []
    for epsilon in (*BUDGETS, INFINITE):
        ours = (L1, NAIVE, NARROW, OURS)
        if epsilon is INFINITE:
            ours = (NO_NOISE, None, OURS_NO_NOISE, None)
        cells = [spread(runs[m, epsilon]) if m else "" for m in ours]
        theirs = [paper.get((method, epsilon)) for method in (L1, NAIVE)]
        theirs = ["" if score is None else number(score) for score in theirs]
        rows.append((epsilon or "∞ (no noise, no clipping)", *cells, *theirs))
    header = ("ε", L1, NAIVE, NARROW, OURS, f"Paper: {L1}", f"Paper: {NAIVE}")
    title = (
        f"{name}, {line['rows']:,} rows (paper: {PAPER_ROWS[name]:,}), {metric(line)}: "
        f"mean ± half the 95 % interval; seeds: {len(runs[L1, 2])}"
    )
    return listing(title, header, rows)


def spread(by_seed):
    """Write the mean ± half its 95 % interval."""
    sample = scores(by_seed)
    if sample.n == 1:
        return number(sample.mean)
    return f"{number(sample.mean)} ± {number(sample.half)}"


def settings_table(lines):
    """Return what the search chose."""
    rows = []
    for name, runs in collect(lines, "privacy", "epsilon").items():
        cells = []
        for method in PRIVATE_METHODS:
            epsilon = None if method in (NO_NOISE, OURS_NO_NOISE) else BUDGETS[0]
            chosen = next(iter(runs[method, epsilon].values()))["settings"]
            norm = f", {chosen['max_grad_norm']:g}" if chosen["max_grad_norm"] else ""
            cells.append(f"{chosen['lr']:g}{norm}, {chosen['batch_size']}")
        rows.append((name, *cells))
    title = "What was chosen: learning rate, clipping norm, batch size of the host"
    return listing(title, ("Data set", *PRIVATE_METHODS), rows)


def by_key_table(lines, part, key, values, heading):
    """Return figure 8 or 9."""
    rows = []
    for name, runs in collect(lines, part, key).items():
        for value in values:
            solo, first, split = (runs[m, value] for m in (SOLO, ONCE, SAME_BYTES))
            sent = [next(iter(of.values()))["bytes"] / 1e6 for of in (first, split)]
            rows.append(
                (
                    f"{name}, {metric(what_is(runs))}",
                    f"{value:g}",
                    *map(scores, (solo, first, split, runs[COMBINE, None])),
                    gain(first, solo).interval,
                    *map(number, sent),
                    len(first),
                )
            )
    methods = (SOLO, ONCE, SAME_BYTES, COMBINE, "L0 better than Solo by")
    costs = ("MB, FedOnce", "MB, SplitNN", "Seeds")
    header = ("Data set, metric", heading, *methods, *costs)
    return listing("Ours: mean over seeds ± standard error", header, rows)


def write_page(lines):
    """Write the page of the benchmarks."""
    budgets = collect(lines, "privacy", "epsilon")
    axes = {"learning rate": RATES, "norm": NORMS, "batch size": SIZES}
    grid = {name: " or ".join(f"{x:g}" for x in axis) for name, axis in axes.items()}
    shares = SHARES, "Host's share of the dominant columns"
    write(
        "fedonce_benchmarks",
        machine=select(lines, part="machine")[0],
        bars=listing("Bars", ("What", "Bar", "Seen", "Seeds", "Met"), bars(lines)),
        private_bars=listing(
            "Bars of private training (≥ 0 in every cell)",
            ("What", *(f"ε = {epsilon}" for epsilon in BUDGETS), "Seeds"),
            private_bars(lines),
        ),
        sizes=sizes_table(lines),
        joint=joint_table(lines),
        host_range=host_table(lines),
        traffic=bytes_table(lines),
        guests=guests_table(lines),
        paper_guests=paper_guests_table(lines),
        privacy="\n\n".join(private_table(lines, name) for name in budgets),
        settings=settings_table(lines),
        grid="; ".join(f"{name} {values}" for name, values in grid.items()),
        guest_epochs=", ".join(
            f"{plan.guest_epochs} ({name})" for name, plan in BUDGET_PLANS.items()
        ),
        biased=by_key_table(lines, "biased", "share", *shares),
        parties=by_key_table(lines, "parties", "parties", PARTIES, "Parties"),
    )


if __name__ == "__main__":
    options = command(__doc__).parse_args()
    resume(options, RECORD, measure, key, write_page)
