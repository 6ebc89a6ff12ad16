"""PartyPreprocessor beside skrub's TableVectorizer and Cleaner.

Prints one JSON object per line: accuracy behind two models on public data, accuracy on
one column written as text in many ways, what users are told, what a fitted pickle
keeps, CPU time with one thread, and dependencies. A full run also records the lines in
``docs/benchmarks/preprocessing.jsonl`` and writes the page of the benchmarks that shows
them. Needs skrub (extra ``bench``) and the data sets in the folder that the
environment variable SKVFL_DATA names.

    python bench_preprocessing.py [--quick | --write-docs]
"""

import pickle
import warnings
from collections import defaultdict
from importlib import metadata
from itertools import product

import numpy as np
import pandas as pd
from _measure import machine, timed
from _page import listing, number, write
from _record import command, one, run, select
from packaging.requirements import Requirement
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from skvfl import PartyPreprocessor
from skvfl.datasets import load

DATASETS = ["adult", "bank_marketing", "default_credit", "covtype", "phishing"]
OURS, VECTORIZER, CLEANER = "PartyPreprocessor", "TableVectorizer", "Cleaner"
METHODS = [OURS, VECTORIZER, CLEANER]


def make(method):
    """An unfitted transformer of tables to numbers."""
    if method == OURS:
        return PartyPreprocessor()
    try:
        from skrub import Cleaner, TableVectorizer
    except ImportError:
        raise SystemExit("This benchmark needs skrub: pip install skrub") from None
    if method == VECTORIZER:
        return TableVectorizer()
    encoder = OneHotEncoder(
        max_categories=100, handle_unknown="infrequent_if_exist", sparse_output=False
    )
    strings = ["string", "object", "category"]
    return make_pipeline(
        Cleaner(parse_numbers=True),
        make_column_transformer(
            (encoder, make_column_selector(dtype_include=strings)),
            (Seconds(), make_column_selector(dtype_include=["datetime", "datetimetz"])),
            (StandardScaler(), make_column_selector(dtype_include="number")),
        ),
    )


class Seconds(StandardScaler):
    """Standardised times, which Cleaner leaves as times."""

    def _seconds(self, X):
        start = pd.Timestamp(0, tz="UTC")
        utc = X.apply(pd.to_datetime, utc=True)
        return utc.apply(lambda column: (column - start).dt.total_seconds())

    def fit(self, X, y=None):
        return super().fit(self._seconds(X))

    def transform(self, X):
        return super().transform(self._seconds(X))


def accuracy(method, model, X_train, X_test, y_train, y_test):
    """Accuracy of a model behind a transformer, imputed and scaled for all alike."""
    steps = [make(method)]
    if model == "logistic":
        steps += [SimpleImputer(), StandardScaler(), LogisticRegression(max_iter=200)]
    else:
        steps.append(HistGradientBoostingClassifier(max_iter=50, random_state=0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", UserWarning)
        return make_pipeline(*steps).fit(X_train, y_train).score(X_test, y_test)


def real_data(names, n_rows, n_seeds):
    """Accuracy on public tables."""
    for name in names:
        data = load(name)
        rows = np.random.default_rng(0).permutation(len(data.data))[:n_rows]
        X, y = data.data.iloc[rows], np.asarray(data.target)[rows]
        for model, method in product(("logistic", "boosting"), METHODS):
            scores = []
            for seed in range(n_seeds):
                parts = train_test_split(X, y, test_size=0.3, random_state=seed)
                scores.append(accuracy(method, model, *parts))
            yield {
                "what": "accuracy",
                "dataset": name,
                "model": model,
                "method": method,
                "mean": round(float(np.mean(scores)), 4),
                "seeds": n_seeds,
                "rows": len(rows),
            }


# --- One column as text -----------------------------------------------------------


def swap(text):
    """Exchange the signs of thousands and decimals."""
    return text.translate(str.maketrans(",.", ".,"))


def text_cases(n=900, seed=0):
    """Texts of one column and the numbers behind them, by case."""
    rng = np.random.default_rng(seed)
    whole = rng.integers(1, 5_000, n)
    real = rng.normal(0, 5_000, n).round(2)
    days = pd.Timestamp("1980-01-01") + pd.to_timedelta(rng.integers(0, 15_000, n), "D")
    cases = {
        "5,000": (whole, [f"{x:,}" for x in whole]),
        "5.000": (whole, [swap(f"{x:,}") for x in whole]),
        "5 000": (whole, [f"{x:,}".replace(",", " ") for x in whole]),
        "5'000": (whole, [f"{x:,}".replace(",", "'") for x in whole]),
        "1,234.56": (real, [f"{x:,.2f}" for x in real]),
        "1.234,56": (real, [swap(f"{x:,.2f}") for x in real]),
        "1234.56": (real, [str(x) for x in real]),
        **{
            f"{mark} for missing": (
                whole,
                [mark if i % 50 == 0 else str(x) for i, x in enumerate(whole)],
            )
            for mark in "?-"
        },
        "€ 12": (whole, [f"€ {x}" for x in whole]),
        "12.5%": (real, [f"{x:.1f}%" for x in real]),
        "(1,234.56)": (real, [f"{x:,.2f}" if x > 0 else f"({-x:,.2f})" for x in real]),
        "12 kg": (whole, [f"{x} kg" for x in whole]),
        "mixed units": (
            whole,
            [f"{x} g" if x % 2 else f"{x / 1000} kg" for x in whole],
        ),
    }
    formats = {
        "1999-12-31": "%Y-%m-%d",
        "31.12.1999": "%d.%m.%Y",
        "12/31/1999": "%m/%d/%Y",
        "31 Dec 1999": "%d %b %Y",
        "1999-12-31T10:00:00Z": "%Y-%m-%dT10:00:00Z",
    }
    for name, form in formats.items():
        cases[name] = (np.asarray(days.astype("int64")), list(days.strftime(form)))
    return cases


def told(action):
    """Run; say whether a warning or an error named the column."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result, error = action(), ""
        except Exception as exc:
            result, error = None, str(exc)
    messages = [str(each.message) for each in caught] + [error]
    return result, any("'amount'" in message for message in messages)


def texts():
    """Accuracy where the label depends on a column of text alone."""
    for case, (values, column) in text_cases().items():
        y = (values > np.median(values)).astype(int)
        noise = np.random.default_rng(1).normal(size=len(y))
        X = pd.DataFrame({"noise": noise, "amount": column})
        parts = train_test_split(X, y, test_size=0.3, random_state=0)
        for method in METHODS:
            _, was_told = told(lambda m=method, X=parts[0]: make(m).fit(X))
            yield {
                "what": "text",
                "case": case,
                "method": method,
                "accuracy": round(accuracy(method, "logistic", *parts), 4),
                "told": was_told,
            }


def behaviours():
    """What happens in cases that have no right answer but one that is said."""
    rng = np.random.default_rng(0)
    yes = pd.Series(rng.choice(["yes", "no"], 200))
    amounts = pd.Series([f"{x:,}" for x in rng.integers(1_000, 900_000, 200)])
    a, b = rng.integers(1, 13, (2, 200))
    names = pd.Series([f"customer {i}" for i in range(200)])
    fits = {
        "day or month": pd.Series([f"{i}/{j}/2020" for i, j in zip(a, b, strict=True)]),
        "identifier, text": names,
        "identifier, whole numbers": pd.Series(rng.permutation(200) + 1000),
        "rare categories": pd.Series([f"c{x}" for x in rng.integers(0, 900, 2_000)]),
    }
    later = {
        "all categories unknown": (yes, yes.map({"yes": "oui", "no": "non"})),
        "other case": (yes, yes.str.upper()),
        "stray blanks": (yes, " " + yes),
        "text that cannot be read": (amounts, names),
    }
    right = {
        "one row, value missing": (amounts, pd.Series([None], dtype=object)),
        "numbers where text was": (amounts, pd.Series(np.arange(200))),
        "the same text again": (amounts, amounts),
    }
    for case, column in fits.items():
        for method in METHODS:
            _, was_told = told(lambda m=method, c=column: make(m).fit(frame(c)))
            yield {"what": "told", "case": case, "method": method, "told": was_told}
    for case, (column, other) in {**later, **right}.items():
        for method in METHODS:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                fitted = make(method).fit(frame(column))
            output, was_told = told(lambda f=fitted, o=other: f.transform(frame(o)))
            failed = output is None
            line = {"what": "told", "case": case, "method": method, "told": was_told}
            yield {**line, "failed": failed, "silence": case in right}


def frame(column):
    """A table of one column."""
    return pd.DataFrame({"amount": column})


# --- What is kept, time, dependencies ---------------------------------------------


def kept():
    """How many rare categories, and pieces of them, a fitted pickle holds."""
    rng = np.random.default_rng(0)
    letters = [*"abcdefghijklmnopqrstuvwxyz"]
    rare = ["".join(rng.choice(letters, 12)) for _ in range(300)]
    tables = {
        "150 frequent and 300 single": [f"common{i}" for i in range(150)] * 10 + rare,
        "20 frequent and 10 single": [f"common{i}" for i in range(20)] * 50 + rare[:10],
    }
    for case, column in tables.items():
        single = [text for text in column if not text.startswith("common")]
        for method in METHODS:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                dumped = pickle.dumps(make(method).fit(frame(column)))
            pieces = [text[i : i + 4] for text in single for i in range(9)]
            yield {
                "what": "kept",
                "case": case,
                "method": method,
                "whole": sum(text.encode() in dumped for text in single),
                "of": len(single),
                "pieces": round(
                    np.mean([piece.encode() in dumped for piece in pieces]), 3
                ),
                "kilobytes": round(len(dumped) / 1000, 1),
            }


def seconds(repeats):
    """CPU time on a whole table, in turns; the best of the repetitions."""
    for name in ("adult", "covtype"):
        X = load(name).data
        X = X.iloc[:50_000]
        best = {}
        for _ in range(repeats):
            for method in METHODS:
                fitted, fit = timed(make(method).fit, X)
                _, transform = timed(fitted.transform, X)
                for step, value in (("fit", fit), ("transform", transform)):
                    key = method, step
                    best[key] = min(value, best.get(key, np.inf))
        for (method, step), spent in best.items():
            line = {"what": "seconds", "dataset": name, "method": method, "step": step}
            yield {**line, "seconds": round(spent, 4), "rows": len(X)}


def closure(names):
    """All distributions that these need, without extras."""
    found, waiting = set(), [Requirement(name) for name in names]
    while waiting:
        requirement = waiting.pop()
        name = requirement.name.lower().replace("_", "-")
        marker = requirement.marker
        if name in found or (marker and not marker.evaluate({"extra": ""})):
            continue
        try:
            needed = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue
        found.add(name)
        waiting += map(Requirement, needed)
    return found


def dependencies():
    """What skrub would add to what skvfl needs."""
    more = closure(["skrub"]) - closure(["skvfl"])
    files = [path for name in more for path in metadata.files(name) or []]
    size = sum(
        path.locate().stat().st_size for path in files if path.locate().is_file()
    )
    yield {
        "what": "dependencies",
        "more": sorted(more),
        "megabytes": round(size / 1e6),
        "skrub": metadata.version("skrub"),
    }


# --- Record and page --------------------------------------------------------------


def measure(quick):
    """Run every measurement; yield its lines."""
    yield {"what": "machine", **machine(quick, "scikit-learn")}
    yield from dependencies()
    yield from texts()
    yield from behaviours()
    yield from kept()
    yield from seconds(1 if quick else 3)
    names = DATASETS[:1] if quick else DATASETS
    yield from real_data(names, 2_000 if quick else 8_000, 1 if quick else 3)


def side_by_side(title, lines, keys, cell):
    """Return a table with one cell per method; a key is a field and its heading."""
    groups = defaultdict(dict)
    for line in lines:
        group = groups[tuple(line[key] for key in keys)]
        group[line["method"]] = cell(line)
    rows = [[*key, *map(group.get, METHODS)] for key, group in groups.items()]
    return listing(title, [*keys.values(), *METHODS], rows)


def percent(share, was_told=False):
    return number(100 * share, 1) + (" (says so)" if was_told else "")


def answer(line):
    """Write what a user is told."""
    if line.get("failed"):
        return "error that names it" if line["told"] else "error"
    if line["told"]:
        return "warns, names it"
    return "works" if line.get("silence") else "silent"


def write_page(lines):
    """Write the page of the benchmarks."""
    needs = one(lines, what="dependencies")
    texts = [{**x, "case": f"``{x['case']}``"} for x in select(lines, what="text")]
    write(
        "preprocessing_benchmarks",
        machine=one(lines, what="machine"),
        skrub=needs["skrub"],
        n_more=len(needs["more"]),
        more=", ".join(needs["more"]),
        megabytes=needs["megabytes"],
        texts=side_by_side(
            "Accuracy of a logistic regression whose label depends on this column, %",
            texts,
            {"case": "Written as"},
            lambda line: percent(line["accuracy"], line["told"]),
        ),
        told=side_by_side(
            "What users are told", select(lines, what="told"), {"case": "Case"}, answer
        ),
        kept=side_by_side(
            "Categories of one row in the fitted pickle: whole, and pieces of four "
            "letters",
            select(lines, what="kept"),
            {"case": "Categories of the column"},
            lambda x: f"{x['whole']} of {x['of']}; {percent(x['pieces'])} %",
        ),
        seconds=side_by_side(
            "CPU seconds on 50,000 rows at most",
            select(lines, what="seconds"),
            {"dataset": "Data set", "step": "Step"},
            lambda line: number(line["seconds"], 3),
        ),
        accuracy=side_by_side(
            "Accuracy on public data, mean of three splits of 8,000 rows, %",
            select(lines, what="accuracy"),
            {"dataset": "Data set", "model": "Model"},
            lambda line: percent(line["mean"]),
        ),
    )


if __name__ == "__main__":
    run(command(__doc__).parse_args(), "preprocessing", measure, write_page)
