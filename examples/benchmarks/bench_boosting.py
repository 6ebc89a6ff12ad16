"""Boosted trees over parties beside scikit-learn's on pooled columns.

Prints one JSON object per line: the score of both in five folds, with the same
settings; CPU seconds of a fit with one thread, as the ratio of both in turns; what a
fit on many rows adds to memory; and what a budget of labels costs. A full run also
records the lines in ``docs/benchmarks/boosting.jsonl`` and writes the page of the user
guide. Needs the data sets in the folder that the environment variable SKVFL_DATA names.

    python bench_boosting.py [--quick | --write-docs]
"""

import warnings

import numpy as np
from _measure import interleave, machine, ratio
from _page import number, signed, spread, table, write
from _record import command, one, run, select
from bench_growth import apart
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
)
from sklearn.metrics import accuracy_score, root_mean_squared_error
from sklearn.model_selection import KFold, StratifiedKFold

from skvfl import VFLBoostingClassifier, VFLBoostingRegressor
from skvfl.datasets import load

N_PARTIES = 4
# None is all rows; the metric goes by the target.
ROWS = {
    "breast_cancer": None,
    "adult": None,
    "bank_marketing": None,
    "covtype": 50_000,
    "california_housing": None,
}
SETTINGS = {"max_iter": 50, "random_state": 0}
BUDGETS = [0.5, 1.0, 2.0, 4.0]
BIG = {"rows": 1_000_000, "columns": 50, "parties": 4}
QUICK_BIG = {"rows": 20_000, "columns": 50, "parties": 4}


def tables(quick):
    """Names, columns and targets."""
    for name, n_rows in ROWS.items():
        data = load(name, n_rows=1_500 if quick and name != "breast_cancer" else n_rows)
        yield name, data.data, np.asarray(data.target)


def kinds(y):
    """Ours, theirs, folds and metric for a target."""
    if y.dtype.kind == "f":
        rmse = root_mean_squared_error
        folds = KFold(5, shuffle=True, random_state=0)
        return VFLBoostingRegressor, HistGradientBoostingRegressor, folds, rmse
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    ours, theirs = VFLBoostingClassifier, HistGradientBoostingClassifier
    return ours, theirs, folds, accuracy_score


def declared(X):
    """Text as categories, as scikit-learn's trees take it."""
    text = X.select_dtypes(["object", "string"]).columns
    return X.astype(dict.fromkeys(text, "category"))


def scores(quick):
    """Both in five folds."""
    for name, X, y in tables(quick):
        ours, theirs, folds, metric = kinds(y)
        pooled = declared(X)
        both = []
        for train, test in folds.split(X, y):
            shared = ours(parties=N_PARTIES, missing_rows="impute", **SETTINGS)
            shared.fit(X.iloc[train], y[train])
            expected = theirs(early_stopping=False, **SETTINGS)
            expected.fit(pooled.iloc[train], y[train])
            both.append(
                (
                    metric(y[test], shared.predict(X.iloc[test])),
                    metric(y[test], expected.predict(pooled.iloc[test])),
                )
            )
        shared_score, pooled_score = np.mean(both, axis=0)
        yield {
            "what": "score",
            "dataset": name,
            "rows": len(X),
            "columns": X.shape[1],
            "metric": metric.__name__,
            "shared": float(shared_score),
            "pooled": float(pooled_score),
            "folds": [float(a - b) for a, b in both],
            "megabytes": shared.communication_.n_bytes / 1e6,
            "rounds": shared.communication_.n_rounds,
        }


def fits(quick):
    """What is fitted for seconds: a table, a target and a number of iterations each."""
    n_rows = 2_000 if quick else 50_000
    data = load("covtype", n_rows=n_rows)
    X, classes = data.data.to_numpy(float), np.asarray(data.target)
    common = np.unique(classes, return_counts=True)
    most = classes == common[0][common[1].argmax()]
    # Nothing but columns of many bins, of which no two can be added up together.
    rng = np.random.default_rng(0)
    numbers = rng.normal(size=(n_rows, 50))
    above = numbers[:, :10].sum(axis=1) + rng.normal(size=n_rows) > 0
    return {
        ("covtype", "two classes"): (X, most, 50),
        ("covtype", "seven classes"): (X, classes, 10),
        ("50 normal columns", "two classes"): (numbers, above, 50),
    }


def seconds(quick):
    """CPU seconds of a fit, in turns."""
    for (name, target), (X, y, n_iter) in fits(quick).items():
        sides = {
            "shared": lambda X=X, y=y, n=n_iter: VFLBoostingClassifier(
                parties=N_PARTIES, max_iter=n
            ).fit(X, y),
            "pooled": lambda X=X, y=y, n=n_iter: HistGradientBoostingClassifier(
                max_iter=n, early_stopping=False
            ).fit(X, y),
        }
        spent = interleave(1 if quick else 5, sides)
        yield {
            "what": "seconds",
            "dataset": name,
            "target": target,
            "iterations": n_iter,
            "rows": len(X),
            **ratio(spent["shared"], spent["pooled"]),
            "pooled": round(min(spent["pooled"]), 3),
        }


def memory(quick):
    """What ten trees on many rows add."""
    yield {"what": "memory"} | apart("Boosting", QUICK_BIG if quick else BIG)


def budgets(quick):
    """Accuracy with a budget of labels, in five folds of adult."""
    data = load("adult", n_rows=1_000 if quick else 10_000)
    X, y = data.data, np.asarray(data.target)
    for epsilon in [None, *BUDGETS]:
        right = []
        for train, test in StratifiedKFold(5, shuffle=True, random_state=0).split(X, y):
            shared = VFLBoostingClassifier(
                parties=N_PARTIES, label_epsilon=epsilon, **SETTINGS
            )
            shared.fit(X.iloc[train], y[train])
            right.append(shared.score(X.iloc[test], y[test]))
        line = {"what": "budget", "epsilon": epsilon, "accuracy": float(np.mean(right))}
        yield line | {"read": float(1 / (1 + np.exp(-(epsilon or np.inf))))}


def measure(quick):
    """Yield the lines of a run."""
    warnings.simplefilter("ignore")
    yield {"what": "machine", **machine(quick, "numpy", "scikit-learn")}
    yield from seconds(quick)
    yield from memory(quick)
    yield from budgets(quick)
    yield from scores(quick)


def in_points(line, field):
    """Write a score in its unit."""
    is_share = line["metric"] == "accuracy_score"
    return number(100 * line[field], 2) if is_share else number(line[field], 4)


def difference(line):
    """Write the difference in points, or in percent of an error."""
    if line["metric"] == "accuracy_score":
        return signed(100 * (line["shared"] - line["pooled"])) + " points"
    return signed(100 * (line["shared"] / line["pooled"] - 1)) + " %"


def write_page(lines):
    """Write the page of the user guide."""
    write(
        "boosting_benchmarks",
        machine=one(lines, what="machine"),
        scores=table(
            "Five folds, 50 iterations, four parties: accuracy in %, or RMSE of prices",
            select(lines, what="score"),
            {
                "Data set": "{dataset}",
                "Rows": "{rows:,}",
                "Columns": "{columns}",
                "Over parties": lambda line: in_points(line, "shared"),
                "Pooled": lambda line: in_points(line, "pooled"),
                "Difference": difference,
                "Sent, MB": "{megabytes:,.0f}",
                "Rounds": "{rounds:,}",
            },
        ),
        seconds=table(
            "CPU seconds of a fit on 50,000 rows, four parties",
            select(lines, what="seconds"),
            {
                "Data set": "{dataset}",
                "Target": "{target}",
                "Iterations": "{iterations}",
                "Pooled, seconds": "{pooled:.2f}",
                "Over parties ÷ pooled": "{ratio:.2f}",
                "Range": spread,
            },
        ),
        memory=one(lines, what="memory"),
        budgets=table(
            "Adult, 10,000 rows, five folds: accuracy, and labels that others can read",
            select(lines, what="budget"),
            {
                "``label_epsilon``": "{epsilon}",
                "Accuracy, %": lambda line: number(100 * line["accuracy"], 1),
                "Labels read rightly, %": lambda line: number(100 * line["read"], 1),
            },
        ),
    )


if __name__ == "__main__":
    run(command(__doc__).parse_args(), "boosting", measure, write_page)
