"""The TabVFL paper's figure 5 and Tables III and IV on the data at hand.

The pipeline of the paper's figure 4: train, take the latent vectors, and ask six
classic classifiers how good they are. Other than in the paper, the classifiers are
tested on latent vectors of rows that nothing was trained on. Prints one JSON object per
line. A full run also appends the lines to ``docs/benchmarks/tabvfl_papers.jsonl``, goes
on where that record ends, and writes the page of the benchmarks that shows them. Needs
the data sets in the folder that the environment variable SKVFL_DATA names.

    python bench_tabvfl_papers.py [--quick | --write-docs]
"""

import warnings
from statistics import mean
from typing import NamedTuple

import numpy as np
import pandas as pd
from _data import folder, halves
from _measure import machine, timed
from _page import MINUS, listing, met, number, table, write
from _record import command, one, resume, select
from _seeds import half_interval
from scipy.special import softmax
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, f1_score, roc_auc_score
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

from skvfl import ClientFailures, Contiguous, TabVFLClassifier

CT, LT, LE, TABVFL = "CT", "LT", "TabVFL-LE", "TabVFL"
DESIGNS = {CT: "joint", LT: "local", LE: "local_encoder", TABVFL: "joint"}
METRICS = ("accuracy", "F1", "ROC-AUC")
GUESTS, FAILING_GUESTS = 5, 2
PROBABILITIES = (0.2, 0.35, 0.5)
WIDTHS = (16, 32, 64)
# The settings of the paper's code but for the batches, the rate and the batch norms.
TRAINING = {
    "n_a": 2,
    "n_steps": 4,
    "gamma": 1.5,
    "n_independent": 1,
    "n_shared": 1,
    "lambda_sparse": 1e-4,
    "pretraining_ratio": 0.5,
    "batch_size": 512,
    "virtual_batch_size": 128,
    "lr": 0.02,
}


class Source(NamedTuple):
    """A file of the folder, its label, and columns that are left out."""

    file: str
    target: str
    drop: tuple = ()
    paper: str = ""


SOURCES = {
    "covtype": Source("covtype_50k_mixed", "Cover_Type", ("row",), "Forest Cover Type"),
    "bank": Source("bank_marketing", "y", (), "Bank Marketing"),
    "kddcup99": Source("kddcup99_10percent", "label", (), "Intrusion (its columns)"),
    "rice": Source("rice_cammeo_osmancik", "Class", (), "stands in for Rice MSC"),
    "adult": Source("adult", "income", ("fnlwgt", "education"), "none"),
}

# What local and joint TabNets are compared on needs rows.
LARGE = ("covtype", "bank")


class Plan(NamedTuple):
    """How much is run."""

    rows: dict
    epochs: int
    seeds: int
    width_rows: int
    width_seeds: int
    failure_rows: int
    failure_epochs: int
    failure_batch_size: int
    failure_seeds: int


FULL = Plan(
    rows={name: 20_000 if name in LARGE else 6_000 for name in SOURCES},
    epochs=40,
    seeds=3,
    width_rows=3_000,
    width_seeds=1,
    failure_rows=6_000,
    failure_epochs=40,
    failure_batch_size=256,
    failure_seeds=4,
)
QUICK = Plan(dict.fromkeys(SOURCES, 1_500), 2, 2, 1_500, 1, 1_500, 2, 256, 2)


def read(name, n_rows):
    """Columns and codes of the classes of some rows, drawn by class."""
    source = SOURCES[name]
    frame = pd.read_csv(folder() / f"{source.file}.csv.gz")
    labels = frame.pop(source.target)
    if name == "kddcup99":
        labels = labels == "normal"
    frame = frame.drop(columns=list(source.drop))
    if n_rows < len(frame):
        frame, _, labels, _ = train_test_split(
            frame, labels, train_size=n_rows, stratify=labels, random_state=42
        )
    return frame.reset_index(drop=True), np.unique(labels, return_inverse=True)[1]


def parties(X, n_guests):
    """A host without columns, and guests with as many columns each as can be."""
    return {"host": [], **Contiguous(n_guests).split_columns(X)}


def estimator(method, X, n_d, epochs, seed, n_guests=GUESTS, **settings):
    """Return one of the paper's designs, unfitted."""
    return TabVFLClassifier(
        design=DESIGNS[method],
        parties=1 if method == CT else parties(X, n_guests),
        n_d=n_d,
        max_epochs=epochs,
        random_state=seed,
        **{**TRAINING, **settings},
    )


def judges(seed):
    """The paper's six classifiers; boosting by histograms in place of XGBoost."""
    scaled = [
        LogisticRegression(max_iter=200),
        MLPClassifier((32,), max_iter=50, early_stopping=True, random_state=seed),
        LinearSVC(),
    ]
    return [
        *(make_pipeline(StandardScaler(), each) for each in scaled),
        DecisionTreeClassifier(min_samples_leaf=5, random_state=seed),
        RandomForestClassifier(50, min_samples_leaf=2, random_state=seed),
        HistGradientBoostingClassifier(max_iter=50, random_state=seed),
    ]


def probabilities(judge, X):
    """Of each class; for a support vector machine, what ranks the rows alike."""
    if hasattr(judge, "predict_proba"):
        return judge.predict_proba(X)
    decisions = judge.decision_function(X)
    if decisions.ndim == 1:
        decisions = np.column_stack([-decisions, decisions])
    return softmax(decisions, axis=1)


def judge_latent(train, test, seed):
    """Mean accuracy, weighted F1 and area under the ROC curve over the judges."""
    scores = []
    for judge in judges(seed):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            judge.fit(*train)
        p = probabilities(judge, test[0])
        predicted = judge.classes_[p.argmax(axis=1)]
        area = p[:, 1] if p.shape[1] == 2 else p
        scores.append(
            (
                accuracy_score(test[1], predicted),
                f1_score(test[1], predicted, average="weighted"),
                roc_auc_score(test[1], area, multi_class="ovr"),
            )
        )
    return dict(zip(METRICS, 100 * np.mean(scores, axis=0), strict=True))


def run(vfl, parts, seed):
    """Fit on the training rows and judge the latent vectors; the cost as well."""
    X_train, X_test, y_train, y_test = parts
    _, seconds = timed(vfl.fit, X_train, y_train)
    train, test = (vfl.transform(X_train), y_train), (vfl.transform(X_test), y_test)
    scores = judge_latent(train, test, seed)
    return {
        **{metric: round(value, 3) for metric, value in scores.items()},
        "seconds": round(seconds, 2),
        "epochs": [len(vfl.pretraining_loss_curve_), vfl.n_iter_],
        "megabytes": round(vfl.communication_.n_bytes / 1e6, 2),
    }


def key(line):
    """What a line is about."""
    names = ("table", "dataset", "n_d", "method", "on_failure", "probability", "seed")
    return tuple(line.get(name) for name in names)


def measure(quick, done):
    """Yield every line that is not done."""
    plan = QUICK if quick else FULL
    where = machine(quick, "torch", "scikit-learn")
    first = {"table": "machine", **where, "plan": plan._asdict(), "training": TRAINING}
    if key(first) not in done:
        yield first
    for name, n_rows in plan.rows.items():
        yield from quality(name, 5, n_rows, plan.seeds, plan.epochs, done)
        for width in WIDTHS:
            size = plan.width_rows, plan.width_seeds, plan.epochs
            yield from quality(name, width, *size, done)
        yield from failures(name, plan, done)


def about(table, name, X):
    """What every line says of its data."""
    return {"table": table, "dataset": name, "rows": len(X), "columns": X.shape[1]}


def quality(name, n_d, n_rows, n_seeds, epochs, done):
    """Figure 5 and Table III: every design at one width of the latent vector."""
    X, y = read(name, n_rows)
    settings = {"early_stopping": True, "validation_fraction": 0.15}
    for seed in range(n_seeds):
        # Of the 70 % to train on, some rows are held out for early stopping.
        parts = halves(X, y, seed)
        for method in DESIGNS:
            line = about("quality", name, X)
            line |= {"n_d": n_d, "method": method, "seed": seed}
            if key(line) not in done:
                vfl = estimator(method, X, n_d, epochs, seed, **settings)
                yield {**line, **run(vfl, parts, seed)}


def failures(name, plan, done):
    """Table IV: two guests that fail, without early stopping."""
    X, y = read(name, plan.failure_rows)
    cases = [("none", 0.0)]
    cases += [(how, p) for how in ("cache", "zeros") for p in PROBABILITIES]
    for seed in range(plan.failure_seeds):
        parts = halves(X, y, seed)
        for how, probability in cases:
            line = about("failures", name, X)
            line |= {"on_failure": how, "probability": probability, "seed": seed}
            if key(line) in done:
                continue
            settings = {"batch_size": plan.failure_batch_size}
            if probability:
                settings["failure"] = ClientFailures(probability, random_state=seed)
                settings["missing_party"] = {"zeros": "zero"}.get(how, how)
            epochs = plan.failure_epochs
            vfl = estimator(TABVFL, X, 5, epochs, seed, FAILING_GUESTS, **settings)
            yield {**line, **run(vfl, parts, seed)}


def interval(values):
    """Write a mean ± half of its 95 % interval over the seeds."""
    if len(values) < 2:
        return number(mean(values))
    return f"{number(mean(values))} ± {number(half_interval(values))}"


def values(lines, metric, **where):
    """Values of a metric, by seed."""
    return np.array([line[metric] for line in select(lines, **where)])


def f1_of(lines, name, n_d=5):
    """F1 of every design on one set, by seed."""
    where = {"table": "quality", "dataset": name, "n_d": n_d}
    return {m: values(lines, "F1", method=m, **where) for m in DESIGNS}


def quality_rows(lines):
    """Figure 5: three metrics of every design."""
    for name in SOURCES:
        about = {"table": "quality", "dataset": name, "n_d": 5}
        for metric in METRICS:
            cells = [values(lines, metric, method=m, **about) for m in DESIGNS]
            yield [name, metric, *map(interval, cells)]


def difference_rows(lines):
    """Paired differences in F1 to central TabNet and to local TabNets."""
    for name in SOURCES:
        f1 = f1_of(lines, name)
        yield [name, *(interval(f1[TABVFL] - f1[m]) for m in (CT, LT, LE))]


def width_rows(lines):
    """Table III: F1 by the width of the latent vector."""
    for name in SOURCES:
        f1 = [f1_of(lines, name, width) for width in WIDTHS]
        means = [[number(mean(of[m]), 1) for of in f1] for m in DESIGNS]
        yield [name, *map(" / ".join, means)]


def failing(lines, name, how, probability=0.0):
    """F1 on one set where guests fail, by seed."""
    where = {"table": "failures", "on_failure": how, "probability": probability}
    return values(lines, "F1", dataset=name, **where)


def failure_rows(lines):
    """Table IV: F1 without failures, and what failures cost."""
    for name in SOURCES:
        base = failing(lines, name, "none")
        for p in PROBABILITIES:
            cache, zeros = (failing(lines, name, how, p) for how in ("cache", "zeros"))
            cells = base, cache - base, zeros - base, cache - zeros
            yield [name, p, *map(interval, cells)]


def bar_rows(lines):
    """What was asked for, and what was seen."""
    f1 = {name: f1_of(lines, name) for name in SOURCES}
    overall = mean((of[TABVFL] - of[CT]).mean() for of in f1.values())
    what = f"TabVFL {MINUS} CT, F1, mean over the sets"
    yield [what, "at most 1 point behind", number(overall), met(overall >= -1)]
    for name in LARGE:
        gap = f1[name][TABVFL] - f1[name][LT]
        what = f"TabVFL {MINUS} LT, F1, {name}"
        yield [what, "> 0", interval(gap), met(gap.mean() > 0)]
    p = max(PROBABILITIES)
    for name in SOURCES:
        base = failing(lines, name, "none")
        cache, zeros = (failing(lines, name, how, p) for how in ("cache", "zeros"))
        loss, gain = base - cache, cache - zeros
        what = f"Loss through failures of {p}, cache, {name}"
        yield [what, "≤ 3 points", interval(loss), met(loss.mean() <= 3)]
        what = f"Cache {MINUS} zeros at {p}, {name}"
        yield [what, "≥ 0", interval(gain), met(gain.mean() >= 0)]


def write_page(lines):
    """Write the page of the benchmarks."""
    machine = one(lines, table="machine")
    sizes = {x["dataset"]: x for x in select(lines, table="quality", n_d=5)}
    data = {
        "Set": "{dataset}",
        "Rows": "{rows:,}",
        "Columns": "{columns}",
        "In the paper": lambda line: SOURCES[line["dataset"]].paper,
    }
    costs = ["Cache to none", "Zeros to none", "Cache to zeros"]
    write(
        "tabvfl_benchmarks",
        machine=machine,
        **machine["plan"],
        sizes=table("Data", sizes.values(), data),
        bars=listing("Bars", ["What", "Bar", "Seen", "Met"], bar_rows(lines)),
        quality=listing(
            "Latent vectors of five dimensions, %: mean ± half of the 95 % interval",
            ["Set", "Metric", *DESIGNS],
            quality_rows(lines),
        ),
        differences=listing(
            "Paired differences of F1 in points: mean ± half of the 95 % interval",
            ["Set", "TabVFL to CT", "TabVFL to LT", "TabVFL to TabVFL-LE"],
            difference_rows(lines),
        ),
        widths=listing(
            "F1 at 16 / 32 / 64 dimensions, %, mean over the seeds",
            ["Set", *DESIGNS],
            width_rows(lines),
        ),
        failures=listing(
            "F1 in %, and differences in points: mean ± half of the 95 % interval",
            ["Set", "Probability", "No failures", *costs],
            failure_rows(lines),
        ),
    )


if __name__ == "__main__":
    options = command(__doc__).parse_args()
    resume(options, "tabvfl_papers", measure, key, write_page)
