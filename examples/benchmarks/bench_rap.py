"""What RAP costs beside what a user would run instead, as ratios of one run.

Prints one JSON object per line. Both sides of a ratio are measured in turns in this
process, in CPU seconds with one thread; the figure is the median of the repetitions.
Needs the covtype file in the folder that the environment variable SKVFL_DATA names.

    python bench_rap.py [--quick]
"""

import argparse
import json
import platform
import time
import tracemalloc
import warnings
from statistics import median

import numpy as np
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.dummy import DummyClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.impute import SimpleImputer
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

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


def report(what, **figures):
    """Print one measurement."""
    print(json.dumps({"what": what, **figures}), flush=True)


def interleave(repetitions, **sides):
    """CPU seconds of every side, measured in turns after one warm-up each."""
    seconds = {name: [] for name in sides}
    for repetition in range(repetitions + 1):
        for name, run in sides.items():
            start = time.process_time()
            run()
            if repetition:
                seconds[name].append(time.process_time() - start)
    return seconds


def ratio(what, seconds, over, under, bar=None, **context):
    """Report the median of the ratios of one repetition each."""
    ratios = [a / b for a, b in zip(seconds[over], seconds[under], strict=True)]
    report(
        what,
        ratio=round(median(ratios), 4),
        spread=[round(min(ratios), 4), round(max(ratios), 4)],
        bar=bar,
        over=f"{over} {median(seconds[over]):.3f} s",
        under=f"{under} {median(seconds[under]):.3f} s",
        **context,
    )


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
        seconds = interleave(
            repetitions,
            rap=lambda m=model, c=columns, t=labels: RandomProjectionVFL(
                m, parties=4, random_state=0
            ).fit(c, t),
            model=lambda m=model, p=prepared, t=labels: clone(m).fit(p, t),
            pipeline=lambda m=model, c=columns, t=labels: make_pipeline(
                StandardScaler(), clone(m)
            ).fit(c, t),
        )
        context = {"rows": len(columns), "parties": 4, "epochs": epochs}
        ratio(f"{task}: RAP fit / model.fit", seconds, "rap", "model", bar, **context)
        ratio(
            f"{task}: RAP fit / make_pipeline(StandardScaler, model).fit",
            seconds,
            "rap",
            "pipeline",
            **context,
        )


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

    vfl = RandomProjectionVFL(networks(epochs)[0], parties=4, random_state=0)
    seconds = interleave(repetitions, projection=project, fit=lambda: vfl.fit(X, y))
    ratio(
        "projection and transport / RAP fit",
        seconds,
        "projection",
        "fit",
        bar=0.03,
        rows=len(X),
        epochs=epochs,
    )


def partitioner_against_column_transformer(X, repetitions):
    """(c) VerticalPartitioner against ColumnTransformer, fitting and transforming."""
    work = {
        "auto": (
            "auto",
            make_pipeline(SimpleImputer(strategy="median"), StandardScaler()),
        ),
        "StandardScaler": (StandardScaler(), StandardScaler()),
    }
    for name, (ours, theirs) in work.items():
        partition = VerticalPartitioner(ours, parties=4).fit(X)
        columns = ColumnTransformer(
            [
                (party, clone(theirs), positions)
                for party, positions in partition.parties_.items()
            ]
        ).fit(X)
        assert np.allclose(partition.transform(X), columns.transform(X), atol=1e-4)
        seconds = interleave(
            repetitions,
            partitioner=lambda p=partition: p.transform(X),
            columns=lambda c=columns: c.transform(X),
            partitioner_fit=lambda p=partition: clone(p).fit(X),
            columns_fit=lambda c=columns: clone(c).fit_transform(X),
        )
        context = {"rows": len(X), "columns": X.shape[1]}
        what = f"VerticalPartitioner / ColumnTransformer, {name}"
        ratio(f"{what}, transform", seconds, "partitioner", "columns", 1.1, **context)
        ratio(f"{what}, fit", seconds, "partitioner_fit", "columns_fit", **context)


def peak_memory(X, y):
    """(d) Peak memory beyond X of preparing, projecting and sending, in sizes of X."""
    vfl = RandomProjectionVFL(DummyClassifier(), parties=4, random_state=0)
    vfl.fit(X[:1000], y[:1000])
    tracemalloc.start()
    vfl.fit(X, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    report(
        "peak memory beyond X / size of X",
        ratio=round(peak / X.nbytes, 3),
        bar=3,
        rows=len(X),
        megabytes=round(X.nbytes / 1e6),
    )


def growth(X, y, epochs, repetitions):
    """(e) Fit time by rows and by parties."""
    model = networks(epochs)[0]
    n = len(X) // 4
    seconds = interleave(
        repetitions,
        **{
            f"{k}n": lambda k=k: RandomProjectionVFL(
                model, parties=4, random_state=0
            ).fit(X[: k * n], y[: k * n])
            for k in (1, 2, 4)
        },
        **{
            f"{p} parties": lambda p=p: RandomProjectionVFL(
                model, parties=p, random_state=0
            ).fit(X[:n], y[:n])
            for p in (2, 8, 32)
        },
    )
    for name in ("2n", "4n"):
        ratio(f"RAP fit at {name} / n", seconds, name, "1n", n=n, epochs=epochs)
    for name in ("8 parties", "32 parties"):
        ratio(f"RAP fit with {name} / 2", seconds, name, "2 parties", n=n)


def main():
    """Run every measurement."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer rows and epochs")
    quick = parser.parse_args().quick
    rows, epochs, repetitions = (40_000, 3, 5) if quick else (200_000, 20, 5)
    bunch = load("covtype")
    X, y = bunch.data.to_numpy(dtype=np.float64), np.asarray(bunch.target)
    order = np.random.default_rng(0).permutation(len(X))
    X, y = X[order], y[order]
    report(
        "machine",
        processor=platform.processor() or platform.machine(),
        python=platform.python_version(),
        threads=1,
        repetitions=repetitions,
        quick=quick,
    )
    warnings.simplefilter("ignore", ConvergenceWarning)
    with threadpool_limits(1):
        peak_memory(X, y)
        X, y = X[:rows], y[:rows]
        partitioner_against_column_transformer(X, repetitions)
        projection_against_fit(X, y, epochs, repetitions)
        fit_against_centralised(X, y, epochs, repetitions)
        growth(X, y, max(epochs // 5, 1), repetitions)


if __name__ == "__main__":
    main()
