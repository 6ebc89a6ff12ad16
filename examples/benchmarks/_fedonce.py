"""The FedOnce paper's data, networks and methods, as its tables are measured here."""

from functools import cache
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from _data import draw, folder, prepared
from _measure import timed
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import accuracy_score, root_mean_squared_error
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder
from torch import nn
from torch.nn import functional

from skvfl import (
    Contiguous,
    FedOnceClassifier,
    FedOnceRegressor,
    ImageTiles,
    NoiseAsTargetsEncoder,
    SplitNNClassifier,
    SplitNNRegressor,
    VerticalPartitioner,
    VFLBoostingClassifier,
    VFLBoostingRegressor,
)
from skvfl.datasets import load

SOLO, COMBINE, LINEAR = "Solo", "Combine", "Linear-Combine"
ONCE, WITH_PCA = "FedOnce-L0", "FedOnce-PCA"
UNTRAINED, FIXED = "Untrained guests", "No permutation"
SAME_BYTES, SPLIT = "SplitNN, same bytes", "SplitNN"
# The paper's baseline of trees, whose accuracy no encryption changes.
TREES = "SecureBoost"
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
ROUNDS, PLAIN = "Multi-round FedOnce", "FedOnce-L0, images as they are"
# Epochs after which a curve has a point; 0 is the one round.
MORE_EPOCHS, SPLIT_EPOCHS = (0, 1, 2, 5, 10), (1, 2, 5, 10, 20)
ITERATIONS = (1, 2, 5, 10, 20, 50)
WIDTHS = {"phishing": (1, 2, 3, 5), "mnist": (2, 4, 8, 16, 32)}
# Deviations of the noise of the paper's table 8, and how many rows an attacker knows.
NOISES, KNOWN = (0.0, 0.1, 0.5, 1.0, 1.5), 100
# What the paper's figure 10 holds fixed: rows, batch, epochs, noise; and parties.
ACCOUNTED = {"rows": 60_000, "batch": 128, "epochs": 50, "multiplier": 1.0}
COUNTS = (1, 2, 4, 10, 50, 100)
# Convolutions of the guests of images. The paper's program has twice as many.
CHANNELS = 16, 32


class Table(NamedTuple):
    """Columns, labels, who holds what, and whether the labels are classes."""

    X: np.ndarray
    y: np.ndarray
    parties: object
    classes: bool = True


class Networks(NamedTuple):
    """Sizes of the networks, as in the paper's tables 2 and 3, and what to send.

    ``d`` and ``f`` are of tables 5 and 10; targets are exchanged every ``f`` epochs.
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
    "phishing": Plan(PHISHING, seeds=3),
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
# Of the first tables' plans, with fewer rows or hosts.
FEW = {"rows": 5_000}
CURVE_PLANS = {
    "phishing": PLANS["phishing"],
    "superconduct": PLANS["superconduct"],
    "mnist": PLANS["mnist"]._replace(**FEW),
    "kmnist": PLANS["kmnist"],
}
WIDTH_PLANS = {
    "phishing": PLANS["phishing"]._replace(hosts=slice(0, 10, 9)),
    "mnist": PLANS["mnist"]._replace(hosts=slice(0, 4, 3), **FEW),
}
NOISE_PLANS = {
    "mfeat": PLANS["mfeat"]._replace(hosts=slice(0, 6, 3)),
    "phishing": PLANS["phishing"]._replace(hosts=slice(0, 1)),
    "superconduct": PLANS["superconduct"]._replace(hosts=slice(0, 1)),
}
# The first party as the host. With 2,000 rows and 9 epochs guests were five points
# behind the network on whole images.
NETWORK_PLANS = {
    "mnist": PLANS["mnist"]._replace(
        guest_epochs=30, host_epochs=12, host_lr=0.001, hosts=slice(0, 1)
    )
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


def score_of(estimator, parts):
    """Accuracy, or the RMSE in parts of the label's range; per cent."""
    predicted = estimator.predict(parts.X_test)
    if parts.classes:
        return 100 * accuracy_score(parts.y_test, predicted)
    return 100 * root_mean_squared_error(parts.y_test, predicted) / parts.range


def fit_and_score(estimator, parts):
    """Fit and score an estimator, and say what that cost."""
    _, seconds = timed(estimator.fit, parts.X, parts.y)
    score = score_of(estimator, parts)
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
    settings = {
        "hidden_layer_sizes": plan.networks.guest,
        "update_every": plan.networks.f,
        "max_epochs": plan.guest_epochs,
        "batch_size": 100,
        "lr": 1e-3,
        **settings,
    }
    activation = "tanh" if classes <= 2 else "identity"
    return NoiseAsTargetsEncoder(
        plan.networks.d, output_activation=activation, **settings
    )


def n_classes(parts):
    """Return the number of classes, 0 for a number."""
    return len(np.unique(parts.y)) if parts.classes else 0


def once(parts, plan, seed, **settings):
    """Return FedOnce with the paper's networks."""
    kind = FedOnceClassifier if parts.classes else FedOnceRegressor
    settings = {
        "bottom": plan.networks.guest,
        "max_epochs": plan.host_epochs,
        "batch_size": 250,
        **settings,
    }
    return kind(
        cut_width=plan.networks.width,
        top=plan.networks.host,
        random_state=seed,
        **settings,
    )


def alone(parts, plan, seed, held=slice(None), **settings):
    """One party's own model: FedOnce's host without a guest."""
    own = parts.columns(held)
    parties = VerticalPartitioner(plan.scaler, parties={"host": slice(None)})
    estimator = once(own, plan, seed, parties=parties, lr=plan.host_lr, **settings)
    return fit_and_score(estimator, own)


def boosted(parts, parties, n_iterations=50):
    """Trees over parties; who is the host makes no difference to them."""
    kind = VFLBoostingClassifier if parts.classes else VFLBoostingRegressor
    return fit_and_score(kind(parties=parties, max_iter=n_iterations), parts)


def linear(parts):
    """Measure the linear model on all columns."""
    model = LogisticRegression(max_iter=200) if parts.classes else Ridge()
    scale = MinMaxScaler().fit(parts.X).transform
    scaled = parts._replace(X=scale(parts.X), X_test=scale(parts.X_test))
    return fit_and_score(model, scaled)


def split_network(parts, plan, seed, parties, **settings):
    """Return SplitNN with FedOnce's networks."""
    kind = SplitNNClassifier if parts.classes else SplitNNRegressor
    settings = {
        "bottom": plan.networks.guest,
        "max_epochs": plan.split_epochs,
        "batch_size": 100,
        "lr": 3e-3,
        **settings,
    }
    return kind(
        parties=VerticalPartitioner(plan.scaler, parties=parties),
        cut_width=plan.networks.d,
        top=plan.networks.host,
        random_state=seed,
        **settings,
    )


def split_learning(parts, plan, seed, parties, **settings):
    """Measure SplitNN with FedOnce's networks."""
    return fit_and_score(split_network(parts, plan, seed, parties, **settings), parts)


def same_bytes(parts, plan, seed, parties, **settings):
    """Stop SplitNN after half an epoch, at the learning rate of the best score.

    Activations up and gradients down are twice the representations that FedOnce sends,
    so half of the rows, each seen once, take the same bytes.
    """
    settings["max_epochs"] = 1
    half = parts.half()
    runs = [
        split_learning(half, plan, seed, parties, lr=lr, **settings)
        for lr in SPLIT_RATES
    ]
    return max(runs, key=lambda run: better(run["score"], parts.classes))


def blocks_of(parts, plan, seed, parties):
    """Return every party's prepared columns of the training rows, by its name."""
    partition = VerticalPartitioner(
        plan.scaler, parties=parties, remainder="drop", random_state=seed
    )
    return prepared(partition.fit(parts.X), parts.X)


def trained_guests(parts, plan, seed, parties, **settings):
    """Return a trained guest for every party, by its name."""
    blocks = blocks_of(parts, plan, seed, parties)
    encoders = [
        encoder(plan, n_classes(parts), random_state=1000 * seed + i, **settings)
        for i in range(len(blocks))
    ]
    # Only perceptrons are trained in one matrix product.
    fit = NoiseAsTargetsEncoder.fit_together
    if callable(settings.get("hidden_layer_sizes")):
        fit = fit_each
    _, seconds = timed(fit, encoders, list(blocks.values()))
    return dict(zip(blocks, map(Ready, encoders), strict=True)), seconds


def fit_each(encoders, blocks):
    """Fit encoders one after another."""
    for each, block in zip(encoders, blocks, strict=True):
        each.fit(block)


def pca_guests(plan, held):
    """Return the guests of the paper's FedOnce-PCA, which are not trained yet."""
    width = plan.networks.d
    sizes = {party: min(width, len(columns)) for party, columns in held.items()}
    return {party: PCA(size, random_state=0) for party, size in sizes.items()}


def with_guests(parts, plan, seed, parties, guests, active=None, **settings):
    """Measure FedOnce whose guests are trained already; the host's own has no part."""
    parties = VerticalPartitioner(plan.scaler, parties=parties)
    if active:
        settings["active"] = active
        guests = {name: guest for name, guest in guests.items() if name != active}
    settings |= {"parties": parties, "local_encoder": guests, "lr": plan.host_lr}
    return fit_and_score(once(parts, plan, seed, **settings), parts)


def who_holds(parts, parties):
    """Return which columns every party holds, by its name."""
    return VerticalPartitioner(parties=parties).fit(parts.X[:2]).parties_


class Shifted(nn.Module):
    """While a network is trained, it sees images moved by up to so many pixels."""

    def __init__(self, most=1):
        super().__init__()
        self.most = most

    def forward(self, images):
        """Move each image of a batch by a distance of its own, and fill with zeros."""
        if not self.training:
            return images
        most, (n, _, height, width) = self.most, images.shape
        padded = functional.pad(images, (most,) * 4)
        down, right = torch.randint(2 * most + 1, (2, n, 1))
        rows = down + torch.arange(height)
        columns = right + torch.arange(width)
        each = torch.arange(n)[:, None, None]
        return padded[each, 0, rows[:, :, None], columns[:, None, :]][:, None]


def convolutional(n_inputs, n_outputs, *, shifts):
    """Return a small network for square images: two convolutions, then 128 units.

    As in the paper's program, convolutions are 3 × 3 without padding, pooled once and
    followed by dropout of a quarter.
    """
    side = int(n_inputs**0.5)
    first, second = CHANNELS
    inner = (side - 4) // 2
    return nn.Sequential(
        nn.Unflatten(1, (1, side, side)),
        *([Shifted()] if shifts else []),
        nn.Conv2d(1, first, 3),
        nn.ReLU(),
        nn.Conv2d(first, second, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Dropout(0.25),
        nn.Flatten(),
        nn.Linear(second * inner * inner, 128),
        nn.ReLU(),
        nn.Linear(128, n_outputs),
    )
