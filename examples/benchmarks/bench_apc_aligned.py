"""The APC-VFL paper's Table II on covtype, and the active party alone.

The paper has it on MIMIC-III, which may not be passed on. Prints one JSON object per
line. A full run also appends the lines to ``docs/benchmarks/apc_aligned.jsonl``, goes
on where that record ends, and writes the page of APC-VFL's benchmarks. Needs covtype in
the folder that the environment variable SKVFL_DATA names.

    python bench_apc_aligned.py [--quick | --write-docs]
"""

import warnings
from copy import deepcopy
from functools import partial
from math import ceil

import numpy as np
import torch
from _aligned_page import LARGE
from _measure import machine, timed
from _record import command, read, resume
from _vfedtrans import VFedTrans
from bench_apc_papers import (
    ABLATION,
    CENTRAL,
    LOCAL,
    MSE,
    VFEDTRANS,
    Autoencoder,
    classifier,
    federation,
)
from bench_apc_papers import write_page as write_apc_page
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import f1_score
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import FunctionTransformer
from torch import nn

from skvfl import PartyPreprocessor, SplitNNClassifier
from skvfl._random import int_seed, seed_sequence
from skvfl.datasets import load
from skvfl.nn._mlp import linear
from skvfl.nn._steps import infer, tensor
from skvfl.nn._training import train

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
TUNED = "APC-VFL, joint encoder fine-tuned on labels (ours)"
SENT = "APC-VFL, perceptron of 256 and 256 on what was sent (ours)"
# The active party alone: so many rows, of which so many are aligned.
ALONE_ROWS, ALONE_ALIGNED, ALONE_SEEDS = 5_000, 2_500, 5
DISTILLED = "APC-VFL (MSE), joint encoder fine-tuned on labels (ours)"
AVERAGES = ("micro", "macro", "weighted")


class TunedEncoder(TransformerMixin, BaseEstimator):
    """A joint encoder that its owner, the active party, also trains on its labels.

    After the autoencoder a linear head follows its encoder, both are trained to
    classify, and the head is left out. Labels come with the settings, because a joint
    encoder's ``fit`` is given none: those of the aligned rows, in their order.
    """

    def __init__(
        self, autoencoder, labels, max_epochs=50, batch_size=128, random_state=None
    ):
        self.autoencoder = autoencoder
        self.labels = labels
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.random_state = random_state

    def fit(self, X, y=None):
        classes, codes = np.unique(self.labels, return_inverse=True)
        to_head, to_rows = seed_sequence(self.random_state).spawn(2)
        generator = torch.Generator().manual_seed(int_seed(to_head))
        # A copy, as the trained autoencoder is shared within a seed.
        encoder = deepcopy(self.autoencoder.fit(X).module_.encoder)
        head = linear(self.autoencoder.n_components, len(classes), generator)
        network = nn.Sequential(*encoder, head)
        train(
            network,
            X,
            codes,
            loss=partial(nn.functional.cross_entropy, reduction="none"),
            max_epochs=self.max_epochs,
            batch_size=self.batch_size,
            lr=1e-3,
            sequence=to_rows,
        )
        self.encoder_ = network[:-1]
        return self

    def transform(self, X):
        return infer(self.encoder_, tensor(X), torch.float32).numpy()


def estimators(parties, labels, seed, training):
    """Return what is compared; the local encoders of a seed are trained once."""
    joint = {"inference": "joint"}
    wide = Autoencoder(512, hidden_layer_sizes=(512,), **training)
    tuned = TunedEncoder(Autoencoder(**training), labels, **training)
    epochs, batch = training["max_epochs"], training["batch_size"]
    # As large as the default top of SplitNN.
    top = MLPClassifier((64,), max_iter=epochs, random_state=seed)
    settings = {"parties": parties, "random_state": seed, **training}
    # As large as the encoders that the passive party and the joint rows have.
    large = {"bottom": (128,), "cut_width": 256, "top": (256, 256)}
    # Joins what was sent, and leaves all learning to the model on top.
    bare = {
        "joint_encoder": FunctionTransformer(),
        "estimator": MLPClassifier(
            (256, 256), max_iter=epochs, batch_size=batch, random_state=seed
        ),
    }
    compared = {
        CENTRAL: classifier(1.0),
        SPLIT: SplitNNClassifier(**settings),
        LARGE: SplitNNClassifier(**settings, **large),
        JOINT: federation(parties, seed, training, **joint),
        PERCEPTRON: federation(parties, seed, training, estimator=top, **joint),
        SENT: federation(parties, seed, training, **bare, **joint),
        TUNED: federation(parties, seed, training, joint_encoder=tuned, **joint),
    }
    if len(labels) <= WIDE_ROWS:
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


def covtype(seed):
    """Return covtype's parties, its columns, its labels, and its rows in some order.

    As in the paper five columns are the active party's and the others the passive
    one's.
    """
    bunch = load("covtype")
    X, y = bunch.data, np.asarray(bunch.target)
    own = next(iter(bunch.parties.values()))
    parties = {"active": own, "passive": [c for c in X.columns if c not in own]}
    return parties, X, y, np.random.default_rng(seed).permutation(len(y))


def table_two(n_aligned, seed, training, done=()):
    """Yield a line for every method that is not done, on the rows of one seed.

    The rows to test on are the same for every number of aligned rows.
    """
    parties, X, y, rows = covtype(seed)
    train, test = rows[:n_aligned], rows[-N_TEST:]
    Autoencoder.trained.clear()
    for method, model in estimators(parties, y[train], seed, training).items():
        line = {"table": "aligned", "aligned": n_aligned, "seed": seed}
        line["method"] = method
        if key(line) in done:
            continue
        _, seconds = timed(model.fit, X.iloc[train], y[train])
        line |= scores(y[test], model.predict(X.iloc[test]))
        log = getattr(model, "communication_", None)
        line["messages"] = log.n_messages if log else 0
        if method in (SPLIT, LARGE):
            batches = ceil(n_aligned / training["batch_size"])
            line["equation_10"] = 2 * training["max_epochs"] * batches
        yield line | {"seconds": round(seconds, 2)}


def alone(n_rows, n_aligned, seed, training, done=()):
    """Yield a line for every method by which the active party predicts alone."""
    parties, X, y, rows = covtype(seed)
    known, test = rows[:n_rows], rows[-N_TEST:]
    table, labels = X.iloc[known], y[known]
    aligned = np.arange(n_rows) < n_aligned
    tuned = TunedEncoder(Autoencoder(**training), labels[aligned], **training)
    Autoencoder.trained.clear()
    for method, represent in {
        LOCAL: PartyPreprocessor(),
        ABLATION: federation(parties, seed, training, distillation=None),
        MSE: federation(parties, seed, training),
        DISTILLED: federation(parties, seed, training, joint_encoder=tuned),
        **{
            name: VFedTrans(parties, weight, seed, **training)
            for name, weight in VFEDTRANS.items()
        },
    }.items():
        line = {"table": "alone", "rows": n_rows, "aligned": n_aligned, "seed": seed}
        line["method"] = method
        if key(line) in done:
            continue
        seen, fresh = table, X.iloc[test]
        if method == LOCAL:
            seen, fresh = (each[parties["active"]] for each in (seen, fresh))
            represent.fit(seen)
        else:
            represent.fit(seen, labels, aligned=aligned)
        model = classifier().fit(represent.transform(seen), labels)
        yield line | scores(y[test], model.predict(represent.transform(fresh)))


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
    sizes = (400, 200) if quick else (ALONE_ROWS, ALONE_ALIGNED)
    for seed in range(QUICK_SEEDS if quick else ALONE_SEEDS):
        yield from alone(*sizes, seed, training, done)


def write_page(lines):
    """Write APC-VFL's page, which shows this table beside the paper's others."""
    write_apc_page(read("apc_papers"))


if __name__ == "__main__":
    resume(command(__doc__).parse_args(), RECORD, measure, key, write_page)
