"""What the training loop and FedOnce's guests cost, and what a byte buys.

Prints one JSON object per line. Speed: all sides of a ratio are measured in turns in
this process, in CPU seconds with one thread; an epoch is the difference of two numbers
of epochs, so that preparing does not count; the figure is the median of the
repetitions. A full run also records the lines in ``docs/benchmarks/fedonce.jsonl``
and writes the page of the benchmarks that shows them, together with what
``bench_private.py`` recorded. Needs the data sets in the folder that the environment
variable SKVFL_DATA names.

    python bench_fedonce.py [--quick | --write-docs] [part ...]
"""

import resource
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from statistics import mean, median, stdev

import numpy as np
import torch
from _data import halves
from _measure import machine, per_epoch, ratio, timed
from _page import listing, met, number, spread, table, write
from _record import command, one, read, run, select
from _torch import perceptron, train
from scipy.optimize import linear_sum_assignment
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.utils._testing import ignore_warnings
from skorch import NeuralNetClassifier
from torch import nn
from torch.nn.functional import cross_entropy, normalize
from torch.utils.data import DataLoader, Dataset, TensorDataset

from skvfl import FedOnceClassifier, NoiseAsTargetsEncoder, SplitNNClassifier
from skvfl.datasets import load
from skvfl.nn import _training

LOOP_BAR = 1.2
GUEST_BARS = {"alone": 0.55, "together": 0.25}
# Units of the hidden and the output layer of the loops.
SIZES = (128, 2)
LOOP = {"batch_size": 128, "lr": 1e-3}
# The paper's table 5 for phishing, and its table 2 for the guest's layers.
PHISHING = {
    "batch_size": 100,
    "lr": 1e-4,
    "weight_decay": 1e-5,
    "hidden_layer_sizes": (30, 30),
}
N_PARTIES = 10
# As many columns as the paper's widest table, which is cut among up to 200 parties.
N_COLUMNS = 5_000
MEMORY_BAR = 4
PARTS = ("loop", "guest", "parties", "curve")


def beside(seconds, over, under):
    """Ratio of two sides, and the milliseconds of both."""
    return {
        **ratio(seconds[over], seconds[under]),
        "ms": round(1e3 * median(seconds[over]), 2),
        "against_ms": round(1e3 * median(seconds[under]), 2),
    }


def bare_loop(X, y, epochs, *, fused):
    """Train as a user's loop in torch does, with slices of tensors."""
    network = perceptron([X.shape[1], *SIZES])
    optimizer = torch.optim.Adam(network.parameters(), lr=LOOP["lr"], fused=fused)
    inputs, labels = torch.from_numpy(X), torch.from_numpy(y)
    train(network, optimizer, [inputs], labels, LOOP["batch_size"], epochs)


def our_loop(X, y, epochs):
    """Train by the package's loop."""
    _training.train(
        perceptron([X.shape[1], *SIZES]),
        X,
        y,
        loss=partial(cross_entropy, reduction="none"),
        max_epochs=epochs,
        sequence=np.random.SeedSequence(0),
        **LOOP,
    )


def skorch_default(X, y, epochs):
    """Train by skorch with its own data loader."""
    NeuralNetClassifier(
        perceptron([X.shape[1], *SIZES]),
        criterion=nn.CrossEntropyLoss,
        optimizer=torch.optim.Adam,
        max_epochs=epochs,
        train_split=None,
        iterator_train__shuffle=True,
        verbose=0,
        **LOOP,
    ).fit(X, y)


@ignore_warnings(category=ConvergenceWarning)
def scikit_learn(X, y, epochs):
    """Train scikit-learn's perceptron."""
    MLPClassifier(
        SIZES[:1],
        alpha=0,
        batch_size=LOOP["batch_size"],
        learning_rate_init=LOOP["lr"],
        max_iter=epochs,
        n_iter_no_change=epochs,
        random_state=0,
    ).fit(X, y)


def loop_speed(repetitions, epochs):
    """The training loop against what a user would write or pick instead."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((16_000, 40)).astype(np.float32)
    y = (X @ rng.standard_normal(40) > 0).astype(np.int64)
    loops = {
        "ours": our_loop,
        "bare torch loop, fused Adam": partial(bare_loop, fused=True),
        "bare torch loop, default Adam": partial(bare_loop, fused=False),
        "skorch, default loader": skorch_default,
        "MLPClassifier": scikit_learn,
    }
    sides = {name: partial(loop, X, y) for name, loop in loops.items()}
    seconds = per_epoch(repetitions, epochs, sides)
    bare = "bare torch loop, fused Adam"
    for name in sides:
        if name != bare:
            yield {
                "what": "loop",
                "loop": name,
                "against": bare,
                **beside(seconds, name, bare),
                "bar": LOOP_BAR if name == "ours" else None,
            }


class Rows(Dataset):
    """Rows one by one, with their targets and positions."""

    def __init__(self, X, targets):
        self.X, self.targets = X, targets

    def __len__(self):
        return len(self.X)

    def __getitem__(self, row):
        return self.X[row], self.targets[row], row


def reference_guest(X, epochs):
    """Train a guest by a data loader, with a matrix of costs filled row by row."""
    sizes = [X.shape[1], *PHISHING["hidden_layer_sizes"], 3]
    network = nn.Sequential(*perceptron(sizes), nn.Tanh())
    optimizer = torch.optim.Adam(
        network.parameters(), lr=PHISHING["lr"], weight_decay=PHISHING["weight_decay"]
    )
    rows = Rows(torch.from_numpy(X), normalize(torch.randn(len(X), 3)))
    loader = DataLoader(rows, PHISHING["batch_size"], shuffle=True, drop_last=True)
    for _ in range(epochs):
        total = 0.0
        for inputs, targets, positions in loader:
            outputs = network(inputs)
            points, centres = outputs.detach().numpy(), targets.numpy()
            costs = np.empty((len(points), len(points)))
            for i, point in enumerate(points):
                costs[i] = ((point - centres) ** 2).sum(axis=1)
            _, chosen = linear_sum_assignment(costs)
            targets = targets[chosen]
            rows.targets[positions] = targets
            optimizer.zero_grad()
            loss = (outputs - targets).square().sum(dim=1).mean()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(inputs)


def phishing_guests():
    """Every party's standardised columns of the one-hot table."""
    table = OneHotEncoder(sparse_output=False, drop="if_binary").fit_transform(
        load("phishing").data
    )
    columns = StandardScaler().fit_transform(table).astype(np.float32)
    return np.array_split(columns, N_PARTIES, axis=1)


def encoders(epochs, **settings):
    """Every party's encoder."""
    return [
        NoiseAsTargetsEncoder(
            max_epochs=epochs, random_state=seed, **PHISHING, **settings
        )
        for seed in range(N_PARTIES)
    ]


def fit_alone(blocks, epochs, **settings):
    """Fit all encoders, one after another."""
    for encoder, block in zip(encoders(epochs, **settings), blocks, strict=True):
        encoder.fit(block)


def only_batches(blocks, epochs):
    """Shuffle the rows and slice batches of them, and do nothing with them."""
    for block in blocks:
        rows = TensorDataset(torch.from_numpy(block), torch.arange(len(block)))
        for _ in range(epochs):
            order = torch.randperm(len(block))
            for start in range(0, len(block), PHISHING["batch_size"]):
                rows[order[start : start + PHISHING["batch_size"]]]


def guest_speed(repetitions, epochs):
    """Ten guests of phishing, alone and together, against a reference loop."""
    blocks = phishing_guests()
    sides = {
        "reference": lambda n: [reference_guest(block, n) for block in blocks],
        "alone": lambda n: fit_alone(blocks, n),
        "together": lambda n: NoiseAsTargetsEncoder.fit_together(encoders(n), blocks),
        "no exchange": lambda n: fit_alone(blocks, n, update_every=None),
        "data": lambda n: only_batches(blocks, n),
    }
    seconds = per_epoch(repetitions, epochs, sides)
    guests = {
        name: [each / N_PARTIES for each in spent] for name, spent in seconds.items()
    }
    shape = {"rows": len(blocks[0]), "guests": N_PARTIES, "epochs": list(epochs)}
    for name, bar in GUEST_BARS.items():
        line = {"what": "guest", "trained": name, **shape}
        yield {**line, **beside(guests, name, "reference"), "bar": bar}
    whole, still, data = (
        1e3 * median(guests[name]) for name in ("alone", "no exchange", "data")
    )
    yield {
        "what": "guest epoch",
        **shape,
        "forward_backward_step_ms": round(still - data, 2),
        "assignment_ms": round(whole - still, 2),
        "data_ms": round(data, 2),
    }


def fit_parties(n_parties, n_rows, epochs):
    """CPU seconds and peak memory of one fit on a wide table."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n_rows, N_COLUMNS), dtype=np.float32)
    y = X[:, ::100].sum(axis=1) > 0
    model = FedOnceClassifier(parties=n_parties, max_epochs=epochs, random_state=0)
    _, seconds = timed(model.fit, X, y)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return seconds, peak, model.communication_.n_bytes


def parties(n_rows, epochs, counts):
    """From few parties to many on the same table, each in a process of its own."""
    for n_parties in counts:
        with ProcessPoolExecutor(1, get_context("spawn")) as pool:
            fit = pool.submit(fit_parties, n_parties, n_rows, epochs)
            seconds, peak, n_bytes = fit.result()
        yield {
            "what": "parties",
            "parties": n_parties,
            "rows": n_rows,
            "columns": N_COLUMNS,
            "epochs": epochs,
            "seconds": round(seconds, 2),
            "seconds_per_party": round(seconds / n_parties, 3),
            "peak_gib": round(peak, 2),
            "bar_gib": MEMORY_BAR,
            "megabytes": round(n_bytes / 1e6, 2),
        }


def curve(seeds, epochs, split_epochs):
    """Accuracy against what has crossed: one round, more of them, split learning."""
    bunch = load("phishing")
    points = {
        ("FedOnce", n): FedOnceClassifier(max_epochs=epochs, n_split_epochs=n)
        for n in (0, *split_epochs)
    } | {
        (f"SplitNN, cut of {w}", n): SplitNNClassifier(max_epochs=n, cut_width=w)
        for w in (3, 32)
        for n in split_epochs
    }
    for (method, n_epochs), template in points.items():
        scores, sent = [], []
        for seed in range(seeds):
            X_train, X_test, y_train, y_test = halves(bunch.data, bunch.target, seed)
            model = clone(template).set_params(parties=bunch.parties, random_state=seed)
            model.fit(X_train, y_train)
            scores.append(100 * model.score(X_test, y_test))
            sent.append(model.communication_.n_bytes / 1e6)
        yield {
            "what": "curve",
            "dataset": "phishing",
            "parties": len(bunch.parties),
            "method": method,
            "split_epochs": n_epochs,
            "megabytes": round(mean(sent), 2),
            "accuracy": round(mean(scores), 2),
            "std": round(stdev(scores), 2),
            "seeds": seeds,
        }


def measure(quick, parts=PARTS):
    """Run the measurements; yield their lines."""
    yield {"what": "machine", **machine(quick, "torch", "scikit-learn")}
    if "loop" in parts:
        yield from loop_speed(*((5, (1, 3)) if quick else (9, (1, 6))))
    if "guest" in parts:
        yield from guest_speed(*((1, (1, 6)) if quick else (5, (1, 6))))
    if "parties" in parts:
        counts = (2, 10, 50) if quick else (2, 10, 20, 50, 100, 200)
        yield from parties(*((1_000, 2) if quick else (6_000, 3)), counts)
    if "curve" in parts:
        yield from curve(*((2, 5, (1, 2)) if quick else (5, 30, (1, 2, 5, 10, 20))))


def bars(lines):
    """Rows of what was asked for, and what was seen."""
    names = {
        "loop": "Training loop ÷ bare torch loop",
        "guest": "Guest epoch ÷ reference loop, {trained}",
        "speed": "Private step ÷ {against}, {network}",
    }
    for line in lines:
        if line.get("bar"):
            what = names[line["what"]].format_map(line)
            seen = f"{number(line['ratio'])} ({spread(line)})"
            yield [what, f"≤ {line['bar']}", seen, met(line["ratio"] <= line["bar"])]
    peak = max(line["peak_gib"] for line in select(lines, what="parties"))
    what = "Peak memory, up to 200 parties, 5,000 columns"
    seen = f"{number(peak)} GiB"
    yield [what, f"≤ {MEMORY_BAR} GiB", seen, met(peak <= MEMORY_BAR)]


def write_page(lines):
    """Write the page of the benchmarks."""
    epoch = one(lines, what="guest epoch")
    private = read("private")
    write(
        "fedonce_speed",
        machine=one(lines, what="machine"),
        bars=listing(
            "Bars",
            ["What", "Bar", "Seen (range of the repetitions)", "Met"],
            bars([*lines, *private]),
        ),
        loop=table(
            "An epoch against a bare torch loop with fused Adam",
            select(lines, what="loop"),
            {
                "Loop": "{loop}",
                "Ratio": "{ratio:.2f}",
                "Range": spread,
                "ms": "{ms:.0f}",
            },
        ),
        forward=number(epoch["forward_backward_step_ms"], digits=0),
        assignment=number(epoch["assignment_ms"], digits=0),
        data=number(epoch["data_ms"], digits=1),
        parties=table(
            "One fit on 6,000 rows and 5,000 columns, three epochs",
            select(lines, what="parties"),
            {
                "Parties": "{parties}",
                "CPU seconds": "{seconds:,.1f}",
                "Per party": "{seconds_per_party:.2f}",
                "Peak memory": "{peak_gib:.2f} GiB",
                "Sent": "{megabytes:,.1f} MB",
            },
        ),
        curve=table(
            "Phishing, ten parties: accuracy ± standard deviation of the seeds",
            select(lines, what="curve"),
            {
                "Method": "{method}",
                "Split epochs": "{split_epochs}",
                "Sent": "{megabytes:,.2f} MB",
                "Accuracy": "{accuracy:.2f} ± {std:.2f}",
            },
        ),
        private=table(
            "A private step",
            select(private, what="speed"),
            {
                "Network": "{network}",
                "Against": "{against}",
                "Ratio": "{ratio:.2f}",
                "Range": spread,
            },
        ),
    )


if __name__ == "__main__":
    options = command(__doc__, parts=PARTS).parse_args()
    run(options, "fedonce", measure, write_page)
