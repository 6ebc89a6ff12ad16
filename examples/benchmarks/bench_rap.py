"""What RAP costs beside what a user would run instead, as ratios of one run.

Prints one JSON object per line. Both sides of a ratio are measured in turns in this
process, in CPU seconds with one thread; the figure is the median of the repetitions. A
full run also records the lines in ``docs/benchmarks/rap.jsonl``. Needs the covtype file
in the folder that the environment variable SKVFL_DATA names.

    python bench_rap.py [--quick]
"""

import tracemalloc
import warnings
from functools import partial
from statistics import median

import numpy as np
from _measure import interleave, machine
from _measure import ratio as ratio_of
from _record import command, run
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.dummy import DummyClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.impute import SimpleImputer
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skvfl import (
    CommunicationLog,
    GaussianProjection,
    LocalTransport,
    RandomProjectionVFL,
    VerticalPartitioner,
)
from skvfl.datasets import load
from skvfl.federation import TransformerParty
from skvfl.federation._transport import check_rows


def ratio(what, seconds, over, under, bar=None, **context):
    """One line: the median of the ratios of one repetition each."""
    seen = ratio_of(seconds[over], seconds[under], lambda value: round(value, 4))
    return {
        "what": what,
        **seen,
        "bar": bar,
        "over": f"{over} {median(seconds[over]):.3f} s",
        "under": f"{under} {median(seconds[under]):.3f} s",
        **context,
    }


def federation(model, parties=4):
    """Return the estimator of all measurements."""
    return RandomProjectionVFL(model, parties=parties, random_state=0)


def networks(epochs):
    """Return the paper's perceptron for a fixed number of epochs, seeded."""
    fixed = {
        "hidden_layer_sizes": (128,),
        "max_iter": epochs,
        "n_iter_no_change": epochs + 1,
        "random_state": 0,
    }
    return MLPClassifier(**fixed), MLPRegressor(**fixed)


def fit_against_centralised(X, y, epochs, repetitions):
    """(a) RAP's fit against the same estimator on the same standardised columns.

    The strict comparison leaves the centralised side's preparation out and gives it
    float32, which is what RAP's server receives; the other is what a user would write.
    """
    classifier, regressor = networks(epochs)
    target = X[:, 0].copy()
    others = X[:, 1:]
    tasks = {
        "classification": (classifier, X, y, 1.10),
        "regression": (regressor, others, (target - target.mean()) / target.std(), 1.2),
    }
    for task, (model, columns, labels, bar) in tasks.items():
        prepared = StandardScaler().fit_transform(columns).astype(np.float32)
        pipeline = make_pipeline(StandardScaler(), model)
        sides = {
            "rap": partial(federation(model).fit, columns, labels),
            "model": lambda m=model, p=prepared, t=labels: clone(m).fit(p, t),
            "pipeline": lambda m=pipeline, c=columns, t=labels: clone(m).fit(c, t),
        }
        seconds = interleave(repetitions, sides, collect=False)
        context = {"rows": len(columns), "parties": 4, "epochs": epochs}
        what = f"{task}: RAP fit / model.fit"
        yield ratio(what, seconds, "rap", "model", bar, **context)
        what = f"{task}: RAP fit / make_pipeline(StandardScaler, model).fit"
        yield ratio(what, seconds, "rap", "pipeline", **context)


def projection_against_fit(X, y, epochs, repetitions):
    """(b) Projection and transport against the whole fit."""
    partition = VerticalPartitioner(parties=4).fit(X)
    blocks = {
        name: partition.transformers_[name].transform(block)
        for name, block in partition.split(X).items()
    }

    def project():
        parties = [
            TransformerParty(name, GaussianProjection(random_state=0)).holding(
                block=block
            )
            for name, block in blocks.items()
        ]
        with LocalTransport().connect(parties, CommunicationLog()) as session:
            np.hstack(check_rows(session.call("fit_transform"), len(X)))

    fit = partial(federation(networks(epochs)[0]).fit, X, y)
    sides = {"projection": project, "fit": fit}
    seconds = interleave(repetitions, sides, collect=False)
    what = "projection and transport / RAP fit"
    context = {"rows": len(X), "epochs": epochs}
    yield ratio(what, seconds, "projection", "fit", bar=0.03, **context)


def partitioner_against_column_transformer(X, repetitions):
    """(c) VerticalPartitioner against ColumnTransformer, fitting and transforming."""
    numeric = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    for name, ours, theirs in (
        ("auto", "auto", numeric),
        ("StandardScaler", StandardScaler(), StandardScaler()),
    ):
        partition = VerticalPartitioner(ours, parties=4).fit(X)
        blocks = partition.parties_.items()
        columns = ColumnTransformer(
            [(party, clone(theirs), positions) for party, positions in blocks]
        ).fit(X)
        assert np.allclose(partition.transform(X), columns.transform(X), atol=1e-4)
        sides = {
            "partitioner": partial(partition.transform, X),
            "columns": partial(columns.transform, X),
            "partitioner_fit": lambda p=partition: clone(p).fit(X),
            "columns_fit": lambda c=columns: clone(c).fit_transform(X),
        }
        seconds = interleave(repetitions, sides, collect=False)
        context = {"rows": len(X), "columns": X.shape[1]}
        what = f"VerticalPartitioner / ColumnTransformer, {name}"
        transform = f"{what}, transform"
        yield ratio(transform, seconds, "partitioner", "columns", 1.1, **context)
        fit = f"{what}, fit"
        yield ratio(fit, seconds, "partitioner_fit", "columns_fit", **context)


def peak_memory(X, y):
    """(d) Peak memory beyond X of preparing, projecting and sending, in sizes of X."""
    vfl = federation(DummyClassifier())
    vfl.fit(X[:1000], y[:1000])
    tracemalloc.start()
    vfl.fit(X, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    yield {
        "what": "peak memory beyond X / size of X",
        "ratio": round(peak / X.nbytes, 3),
        "bar": 3,
        "rows": len(X),
        "megabytes": round(X.nbytes / 1e6),
    }


def growth(X, y, epochs, repetitions):
    """(e) Fit time by rows and by parties."""
    model = networks(epochs)[0]
    n = len(X) // 4
    sides = {
        f"{k}n": partial(federation(model).fit, X[: k * n], y[: k * n])
        for k in (1, 2, 4)
    } | {
        f"{p} parties": partial(federation(model, p).fit, X[:n], y[:n])
        for p in (2, 8, 32)
    }
    seconds = interleave(repetitions, sides, collect=False)
    for name in ("2n", "4n"):
        yield ratio(f"RAP fit at {name} / n", seconds, name, "1n", n=n, epochs=epochs)
    for name in ("8 parties", "32 parties"):
        yield ratio(f"RAP fit with {name} / 2", seconds, name, "2 parties", n=n)


def measure(quick):
    """Run every measurement; yield its lines."""
    warnings.simplefilter("ignore", ConvergenceWarning)
    rows, epochs, repetitions = (40_000, 3, 5) if quick else (200_000, 20, 5)
    bunch = load("covtype")
    X, y = bunch.data.to_numpy(dtype=np.float64), np.asarray(bunch.target)
    order = np.random.default_rng(0).permutation(len(X))
    X, y = X[order], y[order]
    yield {"what": "machine", **machine(quick), "repetitions": repetitions}
    yield from peak_memory(X, y)
    X, y = X[:rows], y[:rows]
    yield from partitioner_against_column_transformer(X, repetitions)
    yield from projection_against_fit(X, y, epochs, repetitions)
    yield from fit_against_centralised(X, y, epochs, repetitions)
    yield from growth(X, y, max(epochs // 5, 1), repetitions)


if __name__ == "__main__":
    run(command(__doc__, page=False).parse_args(), "rap", measure)
