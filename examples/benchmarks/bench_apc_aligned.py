"""The APC-VFL paper's Table II on covtype: joint inference by aligned rows.

The paper has it on MIMIC-III, which may not be passed on. Prints one JSON object per
line. A full run also appends the lines to ``docs/benchmarks/apc_aligned.jsonl``, goes
on where that record ends, and writes the page of APC-VFL's benchmarks. Needs covtype in
the folder that the environment variable SKVFL_DATA names.

    python bench_apc_aligned.py [--quick | --write-docs]
"""

import warnings
from math import ceil

import numpy as np
from _measure import machine, timed
from _record import command, read, resume
from bench_apc_papers import CENTRAL, Autoencoder, classifier, federation
from bench_apc_papers import write_page as write_apc_page
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import f1_score
from sklearn.neural_network import MLPClassifier

from skvfl import SplitNNClassifier
from skvfl.datasets import load

RECORD = "apc_aligned"
# The extremes first: a run may be stopped.
ALIGNED, N_TEST, SEEDS = (1_000, 2_500, 10_000, 5_000, 7_500), 10_000, 3
# The wide encoder takes as long as all the rest together.
WIDE_ROWS = 2_500
QUICK_ALIGNED, QUICK_SEEDS = (200,), 2
TRAINING = {"max_epochs": 50, "batch_size": 128}
SPLIT, JOINT = "SplitNN", "APC-VFL, joint"
# Ours, not the paper's: what could close the gap at no more messages.
WIDE = "APC-VFL, joint encoder of 512 (ours)"
PERCEPTRON = "APC-VFL, perceptron on top (ours)"
AVERAGES = ("micro", "macro", "weighted")


def estimators(parties, n_aligned, seed, training):
    """Return what is compared; the local encoders of a seed are trained once."""
    joint = {"inference": "joint"}
    wide = Autoencoder(512, hidden_layer_sizes=(512,), **training)
    # As large as the default top of SplitNN.
    top = MLPClassifier((64,), max_iter=training["max_epochs"], random_state=seed)
    compared = {
        CENTRAL: classifier(1.0),
        SPLIT: SplitNNClassifier(parties=parties, random_state=seed, **training),
        JOINT: federation(parties, seed, training, **joint),
        PERCEPTRON: federation(parties, seed, training, estimator=top, **joint),
    }
    if n_aligned <= WIDE_ROWS:
        compared[WIDE] = federation(
            parties, seed, training, joint_encoder=wide, **joint
        )
    return compared


def scores(y, predicted):
    """The paper's three F1 scores, in per cent."""
    return {
        average: round(100 * f1_score(y, predicted, average=average), 3)
        for average in AVERAGES
    }


def key(line):
    """What a line is about."""
    return tuple(line.get(name) for name in ("table", "aligned", "seed", "method"))


def table_two(n_aligned, seed, training, done=()):
    """Yield a line for every method that is not done, on the rows of one seed.

    As in the paper five columns are the active party's and the others the passive
    one's. The rows to test on are the same for every number of aligned rows.
    """
    bunch = load("covtype")
    X, y = bunch.data, np.asarray(bunch.target)
    own = next(iter(bunch.parties.values()))
    parties = {"active": own, "passive": [c for c in X.columns if c not in own]}
    rows = np.random.default_rng(seed).permutation(len(y))
    train, test = rows[:n_aligned], rows[-N_TEST:]
    Autoencoder.trained.clear()
    for method, model in estimators(parties, n_aligned, seed, training).items():
        line = {"table": "aligned", "aligned": n_aligned, "seed": seed}
        line["method"] = method
        if key(line) in done:
            continue
        _, seconds = timed(model.fit, X.iloc[train], y[train])
        line |= scores(y[test], model.predict(X.iloc[test]))
        log = getattr(model, "communication_", None)
        line["messages"] = log.n_messages if log else 0
        if method == SPLIT:
            batches = ceil(n_aligned / training["batch_size"])
            line["equation_10"] = 2 * training["max_epochs"] * batches
        yield line | {"seconds": round(seconds, 2)}


def measure(quick, done):
    """Yield every line that is not done."""
    warnings.simplefilter("ignore", ConvergenceWarning)
    training = {**TRAINING, "max_epochs": 2} if quick else TRAINING
    where = machine(quick, "torch", "scikit-learn")
    first = {"table": "machine", **where, "training": training, "test": N_TEST}
    if key(first) not in done:
        yield first
    for n_aligned in QUICK_ALIGNED if quick else ALIGNED:
        for seed in range(QUICK_SEEDS if quick else SEEDS):
            yield from table_two(n_aligned, seed, training, done)


def write_page(lines):
    """Write APC-VFL's page, which shows this table beside the paper's others."""
    write_apc_page(read("apc_papers"))


if __name__ == "__main__":
    resume(command(__doc__).parse_args(), RECORD, measure, key, write_page)
