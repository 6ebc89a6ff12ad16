"""Inputs of many kinds, in every estimator: a right answer, or an error that helps.

Every estimator is given tables, targets, parties and parameters of many kinds. What it
answers must be finite, of the right shape, and where the input is only another way to
write plain numbers, equal to the answer for those. What it refuses it must refuse in
words about a parameter, a column or a party, which say what to do.

To try more, add a line to ``TABLES``, ``TARGETS``, ``PARTIES`` or ``PARAMETERS``.
"""

import inspect
import re
import traceback
import warnings
from decimal import Decimal
from functools import cache

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin, clone, is_classifier
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from skvfl import (
    APCVFLClassifier,
    APCVFLRegressor,
    AutoencoderTransformer,
    Contiguous,
    FedOnceClassifier,
    FedOnceRegressor,
    ImportanceSplit,
    RandomProjectionVFL,
    SplitNNClassifier,
    SplitNNRegressor,
    TabVFLClassifier,
    TabVFLRegressor,
    VerticalPartitioner,
    VFedSecClassifier,
    VFedSecRegressor,
    VFLBoostingClassifier,
    VFLBoostingRegressor,
)
from skvfl.exceptions import PartyError

COLUMNS = ["a0", "a1", "b0", "b1", "c0", "c1"]
HELD = {"a": ["a0", "a1"], "b": ["b0", "b1"], "c": ["c0", "c1"]}
BY_POSITION = {p: [COLUMNS.index(c) for c in held] for p, held in HELD.items()}
N_ROWS = 24
QUICK_ONES = {"RAP", "SplitNN"}
TRAINING = {"max_epochs": 1, "batch_size": 12, "random_state": 0}
ENCODER = AutoencoderTransformer(2, hidden_layer_sizes=(3,), max_epochs=1)
APC = {
    "local_encoder": ENCODER,
    "joint_encoder": ENCODER,
    "active_encoder": ENCODER,
    **TRAINING,
}
SPLIT = {"bottom": (3,), "top": (3,), "cut_width": 3, **TRAINING}
ONCE = {"bottom": (3,), "top": (3,), "cut_width": 3, **TRAINING}
TAB = {"n_steps": 1, "n_d": 4, "n_a": 2, "pretrain": False, **TRAINING}
TREES = {"max_iter": 2, "min_samples_leaf": 3, "random_state": 0}
ESTIMATORS = {
    "RAP": RandomProjectionVFL(LogisticRegression(), random_state=0),
    "RAP-r": RandomProjectionVFL(Ridge(), random_state=0),
    "SplitNN": SplitNNClassifier(**SPLIT),
    "SplitNN-r": SplitNNRegressor(**SPLIT),
    "FedOnce": FedOnceClassifier(**ONCE),
    "FedOnce-r": FedOnceRegressor(**ONCE),
    "TabVFL": TabVFLClassifier(**TAB),
    "TabVFL-r": TabVFLRegressor(**TAB),
    "vFedSec": VFedSecClassifier(**SPLIT),
    "vFedSec-r": VFedSecRegressor(**SPLIT),
    "Boosting": VFLBoostingClassifier(**TREES),
    "Boosting-r": VFLBoostingRegressor(**TREES),
    "APC": APCVFLClassifier(**APC),
    "APC-r": APCVFLRegressor(**APC),
}

rng = np.random.default_rng(0)
ARRAY = rng.integers(0, 50, (N_ROWS, 6)).astype(float)
FRAME = pd.DataFrame(ARRAY, columns=COLUMNS)
CODES = (ARRAY[:, 0] > np.median(ARRAY[:, 0])).astype(int)
TEXT = np.array(["low", "high"])[CODES]


def with_cells(column, values):
    frame = FRAME.astype(object)
    frame[column] = values
    return frame


def edited(row, column, value):
    frame = FRAME.astype(object)
    frame.iloc[row, column] = value
    return frame


# What a table can be. SAME: other ways to write the same numbers, whose answers must be
# equal. FREE: finite answers or clear errors. REFUSED: nothing but clear errors.
# OWN_CODE: something of the user's own fails, whose words stay with the party.
SAME, FREE, REFUSED = "same", "free", "refused"
OWN_CODE = "own code"
TABLES = {
    "array": (SAME, lambda: ARRAY.copy()),
    "float32": (SAME, lambda: ARRAY.astype("f4")),
    "float16": (SAME, lambda: ARRAY.astype("f2")),
    "integers": (SAME, lambda: ARRAY.astype(int)),
    "unsigned": (SAME, lambda: ARRAY.astype("u1")),
    "big endian": (SAME, lambda: ARRAY.astype(">f8")),
    "objects": (SAME, lambda: ARRAY.astype(object)),
    "lists": (SAME, lambda: ARRAY.tolist()),
    "column order": (SAME, lambda: np.asfortranarray(ARRAY)),
    "strided": (SAME, lambda: np.repeat(ARRAY, 2, axis=1)[:, ::2]),
    "read only": (SAME, lambda: np.frombuffer(ARRAY.tobytes()).reshape(-1, 6)),
    "frame": (SAME, lambda: FRAME.copy()),
    "frame of objects": (SAME, lambda: FRAME.astype(object)),
    "Int64": (SAME, lambda: FRAME.astype("Int64")),
    "Float32": (SAME, lambda: FRAME.astype("Float32")),
    "mixed dtypes": (SAME, lambda: FRAME.astype({"a0": int, "b0": "Int8"})),
    "arrow doubles": (SAME, lambda: FRAME.astype(pd.ArrowDtype(pa.float64()))),
    "arrow halves": (SAME, lambda: FRAME.astype(pd.ArrowDtype(pa.float16()))),
    "sparse frame": (SAME, lambda: FRAME.astype(pd.SparseDtype(float, 0))),
    "shuffled index": (SAME, lambda: FRAME.set_axis(rng.permutation(N_ROWS))),
    "repeated index": (SAME, lambda: FRAME.set_axis([0] * N_ROWS)),
    "index of pairs": (
        SAME,
        lambda: FRAME.set_axis(pd.MultiIndex.from_arrays([CODES, range(N_ROWS)])),
    ),
    # Estimators take parties as their first columns stand in the table.
    "permuted columns": (SAME, lambda: FRAME[[*COLUMNS[::2], *COLUMNS[1::2]]]),
    "reversed columns": (FREE, lambda: FRAME[COLUMNS[::-1]]),
    "decimals": (SAME, lambda: FRAME.map(lambda x: Decimal(int(x)))),
    "polars": (SAME, lambda: pl.from_pandas(FRAME)),
    "polars Float32": (SAME, lambda: pl.from_pandas(FRAME).cast(pl.Float32)),
    "polars Int128": (SAME, lambda: pl.from_pandas(FRAME).cast(pl.Int128)),
    "polars Decimal": (SAME, lambda: pl.from_pandas(FRAME).cast(pl.Decimal(10, 2))),
    "pyarrow": (SAME, lambda: pa.table({c: FRAME[c].to_numpy() for c in COLUMNS})),
    "torch": (SAME, lambda: torch.from_numpy(ARRAY.copy())),
    "missing cells": (FREE, lambda: FRAME.where(FRAME > 10)),
    "missing row": (FREE, lambda: edited(3, slice(2, 4), np.nan).astype(float)),
    "None": (FREE, lambda: edited(3, 1, None)),
    "NA": (FREE, lambda: edited(3, 1, pd.NA)),
    "constant": (FREE, lambda: FRAME.assign(b0=1.0)),
    "no value": (FREE, lambda: FRAME.assign(b0=np.nan)),
    "party without value": (FREE, lambda: FRAME.assign(b0=np.nan, b1=np.nan)),
    "text": (FREE, lambda: with_cells("b0", TEXT)),
    "ids": (FREE, lambda: with_cells("b0", [f"u{i}" for i in range(N_ROWS)])),
    "category": (FREE, lambda: FRAME.assign(b0=pd.Categorical(TEXT))),
    "booleans": (FREE, lambda: FRAME.assign(b0=CODES > 0)),
    "times": (FREE, lambda: FRAME.assign(b0=pd.date_range("2020", periods=N_ROWS))),
    "durations": (FREE, lambda: FRAME.assign(b0=pd.to_timedelta(CODES, "D"))),
    "periods": (
        FREE,
        lambda: FRAME.assign(b0=pd.period_range("2020", periods=N_ROWS, freq="D")),
    ),
    "intervals": (FREE, lambda: FRAME.assign(b0=pd.cut(FRAME.b0, 3))),
    "polars text": (FREE, lambda: pl.from_pandas(FRAME.assign(b0=TEXT))),
    "mixed cells": (FREE, lambda: edited(3, 2, "x")),
    "huge": (FREE, lambda: FRAME * 1e30),
    "integer names": (FREE, lambda: FRAME.set_axis(range(6), axis=1)),
    "infinite": (REFUSED, lambda: edited(3, 2, np.inf).astype(float)),
    "too large": (FREE, lambda: edited(3, 2, 1e300).astype(float)),
    "complex": (REFUSED, lambda: ARRAY + 1j),
    "complex column": (REFUSED, lambda: FRAME.assign(b0=FRAME.b0 + 1j)),
    "masked": (REFUSED, lambda: np.ma.masked_array(ARRAY, ARRAY > 40)),
    "lists in cells": (REFUSED, lambda: with_cells("b0", [[1]] * N_ROWS)),
    "arrays in cells": (REFUSED, lambda: with_cells("b0", [np.arange(2)] * N_ROWS)),
    "polars lists": (
        REFUSED,
        lambda: pl.from_pandas(FRAME).with_columns(b0=pl.concat_list("b0", "b1")),
    ),
    "bytes": (REFUSED, lambda: with_cells("b0", [b"x"] * N_ROWS)),
    "structured": (REFUSED, lambda: FRAME.to_records(index=False)),
    "sparse array": (FREE, lambda: sparse.csr_array(ARRAY)),
    "sparse matrix": (FREE, lambda: sparse.coo_matrix(ARRAY)),
    "one dimension": (REFUSED, lambda: ARRAY[:, 0]),
    "three dimensions": (REFUSED, lambda: ARRAY[:, :, None]),
    "ragged": (REFUSED, lambda: [[1.0] * (i % 3 + 4) for i in range(N_ROWS)]),
    "a number": (REFUSED, lambda: 3.0),
    "a word": (REFUSED, lambda: "table.csv"),
    "None itself": (REFUSED, lambda: None),
    "series": (REFUSED, lambda: FRAME.a0),
    "dict": (REFUSED, lambda: {c: FRAME[c] for c in COLUMNS}),
    "dict of tables": (REFUSED, lambda: {p: FRAME[c] for p, c in HELD.items()}),
    "list of tables": (REFUSED, lambda: [FRAME[c] for c in HELD.values()]),
    "lazy": (REFUSED, lambda: pl.from_pandas(FRAME).lazy()),
    "generator": (REFUSED, lambda: (row for row in ARRAY)),
    "no rows": (REFUSED, lambda: FRAME[:0]),
    "no rows in array": (REFUSED, lambda: ARRAY[:0]),
    "no columns": (REFUSED, lambda: FRAME[[]]),
    "fewer columns": (REFUSED, lambda: FRAME[COLUMNS[:4]]),
    "fewer columns in array": (REFUSED, lambda: ARRAY[:, :4]),
    "more columns": (REFUSED, lambda: FRAME.assign(d0=1.0)),
    "repeated names": (REFUSED, lambda: FRAME.set_axis(["a0", *COLUMNS[:5]], axis=1)),
    "other names": (REFUSED, lambda: FRAME.add_prefix("x")),
    "pairs as names": (
        FREE,
        lambda: FRAME.set_axis(pd.MultiIndex.from_product([["a"], COLUMNS]), axis=1),
    ),
    "another length": (REFUSED, lambda: FRAME[:-1]),
}
ONLY_IN_FIT = {"another length"}
# Where the active party predicts alone, nobody looks at the other parties' columns.
FINE_WHEN_ALONE = {
    "fewer columns",
    "fewer columns in array",
    "more columns",
    "infinite",
    "complex column",
    "bytes",
    "lists in cells",
    "arrays in cells",
    "polars lists",
}

# What a target can be, given the plain one. The second word is for regressors.
TARGETS = {
    "list": (SAME, SAME, lambda y: y.tolist()),
    "series": (SAME, SAME, lambda y: pd.Series(y, index=rng.permutation(N_ROWS))),
    "polars": (SAME, SAME, lambda y: pl.Series(y)),
    "objects": (SAME, SAME, lambda y: y.astype(object)),
    "Int64": (SAME, SAME, lambda y: pd.Series(y).astype("Int64")),
    "column": (SAME, SAME, lambda y: y[:, None]),
    "frame": (SAME, SAME, lambda y: pd.DataFrame({"y": y})),
    "category": (FREE, FREE, lambda y: pd.Series(y).astype("category")),
    "text": (FREE, REFUSED, lambda y: np.where(y > y.mean(), "yes", "no")),
    "booleans": (FREE, FREE, lambda y: y > y.mean()),
    "times": (FREE, FREE, lambda y: pd.Series(pd.to_datetime(y, unit="D"))),
    "missing": (FREE, FREE, lambda y: np.where(np.arange(N_ROWS) == 3, np.nan, y)),
    "None in it": (FREE, FREE, lambda y: [None, *y[1:]]),
    "infinite": (REFUSED, REFUSED, lambda y: np.where(np.arange(N_ROWS), y, np.inf)),
    "masked": (REFUSED, REFUSED, lambda y: np.ma.masked_array(y, y > y.mean())),
    "complex": (REFUSED, REFUSED, lambda y: y + 1j),
    "two columns": (REFUSED, REFUSED, lambda y: np.c_[y, y]),
    "lists": (REFUSED, REFUSED, lambda y: [[1], [2, 3]] * 12),
    "shorter": (REFUSED, REFUSED, lambda y: y[:-1]),
    "empty": (REFUSED, REFUSED, lambda y: y[:0]),
    "None itself": (REFUSED, REFUSED, lambda y: None),
    "a number": (REFUSED, REFUSED, lambda y: 1),
    "dict": (REFUSED, REFUSED, lambda y: dict(enumerate(y))),
    "mixed": (REFUSED, REFUSED, lambda y: ["a", *y[1:]]),
    "constant": (REFUSED, FREE, lambda y: np.ones(N_ROWS)),
    "every one another": (FREE, FREE, lambda y: np.arange(N_ROWS)),
}


class Adds(TransformerMixin, BaseEstimator):
    """Returns what it is told to."""

    def __init__(self, output):
        self.output = output

    def fit(self, X, y=None):
        return self

    def transform(self, X):
        return self.output(X)


def prepared(transformer):
    return VerticalPartitioner(transformer, parties=HELD)


# How parties can be given.
PARTIES = {
    "two": (FREE, lambda: 2),
    "six": (FREE, lambda: np.int64(6)),
    "splitter": (FREE, lambda: Contiguous(3)),
    "importance": (FREE, lambda: ImportanceSplit(2, random_state=0)),
    "positions": (SAME, lambda: {"a": [0, 1], "b": range(2, 4), "c": np.array([4, 5])}),
    "from the end": (SAME, lambda: {"a": [0, 1], "b": [2, 3], "c": [-2, -1]}),
    "slices": (SAME, lambda: {"a": slice(2), "b": slice(2, 4), "c": slice(4, None)}),
    "named slices": (
        SAME,
        lambda: {
            "a": slice("a0", "a1"),
            "b": slice("b0", "b1"),
            "c": slice("c0", None),
        },
    ),
    "masks": (
        SAME,
        lambda: {p: np.isin(COLUMNS, columns) for p, columns in HELD.items()},
    ),
    "callables": (
        SAME,
        lambda: {p: (lambda X, c=tuple(c): list(c)) for p, c in HELD.items()},
    ),
    "tuples": (SAME, lambda: [(p, "auto", columns) for p, columns in HELD.items()]),
    "another order": (SAME, lambda: dict(reversed(HELD.items()))),
    "partitioner": (SAME, lambda: prepared("auto")),
    "scaled": (FREE, lambda: prepared(StandardScaler())),
    "raw": (FREE, lambda: prepared("passthrough")),
    "one column": (FREE, lambda: {"a": COLUMNS[:5], "c": "c1"}),
    "shared column": (
        FREE,
        lambda: VerticalPartitioner(
            parties={"a": COLUMNS[:4], "c": COLUMNS[3:]}, allow_overlap=True
        ),
    ),
    "no columns": (FREE, lambda: {"a": [], "b": COLUMNS[:3], "c": COLUMNS[3:]}),
    "alone": (FREE, lambda: {"a": COLUMNS}),
    "one": (FREE, lambda: 1),
    "passive without columns": (REFUSED, lambda: {"a": COLUMNS, "b": []}),
    "sets": (REFUSED, lambda: {p: set(columns) for p, columns in HELD.items()}),
    "True": (REFUSED, lambda: True),
    "None": (REFUSED, lambda: None),
    "none": (REFUSED, lambda: 0),
    "negative": (REFUSED, lambda: -2),
    "too many": (REFUSED, lambda: 7),
    "a float": (REFUSED, lambda: 2.0),
    "a word": (REFUSED, lambda: "a"),
    "a class": (REFUSED, lambda: Contiguous),
    "partitioner class": (REFUSED, lambda: VerticalPartitioner),
    "empty": (REFUSED, lambda: {}),
    "empty list": (REFUSED, lambda: []),
    "names only": (REFUSED, lambda: ["a", "b"]),
    "pairs": (REFUSED, lambda: list(HELD.items())),
    "unknown column": (REFUSED, lambda: {**HELD, "c": ["c0", "zip"]}),
    "position out of range": (REFUSED, lambda: {"a": [0, 1], "b": [2, 3], "c": [9]}),
    "unclaimed": (REFUSED, lambda: {"a": ["a0"], "b": ["b0"]}),
    "overlap": (REFUSED, lambda: {**HELD, "c": ["b1", "c0", "c1"]}),
    "twice": (REFUSED, lambda: {**HELD, "c": ["c0", "c0", "c1"]}),
    "column is None": (REFUSED, lambda: {**HELD, "c": None}),
    "column is a float": (REFUSED, lambda: {**HELD, "c": [4.0, 5.0]}),
    "mask too short": (REFUSED, lambda: {**HELD, "c": [True, False]}),
    "name with underscores": (REFUSED, lambda: {**HELD, "c__": HELD["c"], "c": []}),
    "name is a number": (REFUSED, lambda: {"a": COLUMNS[:3], 2: COLUMNS[3:]}),
    "name is reserved": (REFUSED, lambda: {"a": COLUMNS[:3], "server": COLUMNS[3:]}),
    "output is text": (
        REFUSED,
        lambda: prepared(Adds(lambda X: np.full(X.shape, "x"))),
    ),
    "output is None": (REFUSED, lambda: prepared(Adds(lambda X: None))),
    "output is flat": (REFUSED, lambda: prepared(Adds(lambda X: np.ones(len(X))))),
    "output has NaN": (REFUSED, lambda: prepared(Adds(lambda X: X * np.nan))),
    "output is infinite": (REFUSED, lambda: prepared(Adds(lambda X: X * np.inf))),
    "output has no columns": (REFUSED, lambda: prepared(Adds(lambda X: X.iloc[:, :0]))),
    "output is shorter": (REFUSED, lambda: prepared(Adds(lambda X: X[:-1]))),
    "output is sorted": (
        REFUSED,
        lambda: prepared(Adds(lambda X: X.sort_values(X.columns[0])[::-1])),
    ),
    "transformer class": (REFUSED, lambda: prepared(StandardScaler)),
    "unknown transformer": (REFUSED, lambda: prepared("scale")),
    "too many components": (OWN_CODE, lambda: prepared(PCA(5))),
    "transformer fails": (
        OWN_CODE,
        lambda: prepared(FunctionTransformer(lambda X: {}["a"])),
    ),
}
# Parameters that are tried where an estimator has them.
PARAMETERS = {
    "active": ["nobody", 9, None, True, 1.0, ["a"]],
    "max_epochs": [0, -1, 1.5, True, None, "many"],
    "max_iter": [0, -1, 1.5, True, None, "many"],
    "max_leaf_nodes": [1, 2.5, True],
    "max_bins": [1, 256, 2.5, True],
    "min_samples_leaf": [0, 2.5, True],
    "learning_rate": [0, -1.0, np.nan, np.inf, "fast"],
    "label_epsilon": [0, -1.0, np.nan, np.inf, "some"],
    "batch_size": [0, -1, 2.5, True],
    "lr": [0, -1.0, np.nan, np.inf, "fast"],
    "cut_width": [0, True, 2.5],
    "bottom": [
        None,
        3,
        (0,),
        (-1,),
        (2.5,),
        ("a",),
        lambda n, m: torch.nn.Linear(n, m + 1),
    ],
    "top": [
        5,
        (True,),
        lambda n, m: torch.nn.Linear(n + 1, m),
        torch.nn.Linear(2, 2),
        lambda n, m: None,
    ],
    "optimizer": ["adam", torch.optim.Adam(torch.nn.Linear(1, 1).parameters())],
    "aggregation": ["median", None],
    "transport": ["carrier pigeon", None],
    "random_state": [-1, "seed", 1.5, np.random.default_rng(0)],
    "missing_rows": ["drop", None, True],
    "estimator": [LogisticRegression, "svm", None],
    "projection": [StandardScaler, "gaussian"],
    "local_encoder": [PCA, "pca", {"a": PCA(1)}, {"b": PCA(1)}],
    "clients": [{"b": 0}, {"z": 2}, {"b": [0, 1]}, 3],
    "class_weight": [{"x": 1}, {0: -1, 1: 1}, "even", [1, 2]],
    "n_steps": [0, True],
    "design": ["local encoder"],
    "bound": [0, np.nan],
}


# What is right


CURE = re.compile(
    r"\b(give|set|use|take|choose|convert|drop|rename|fill|leave|call|let|make|fit|"
    r"express|clip|replace|reshape|lower|raise|share|shares|put|pass|point|align|"
    r"impute|encode|must|should|needs?|at least|minimum|due|expected|Expected|"
    r"is not one of|are names|one of|is none of|instead|neither|not supported|"
    r"expecting|inconsistent|requires|declare|list|"
    r"allowed|positions|Got|got|holds?|missing|only|standardise)\b"
)


def unclear(exc, names, own_code=False):
    """Why an error does not help whoever reads it; None if it does."""
    if not isinstance(exc, TypeError | ValueError | PartyError):
        return "not an error about a value"
    message = str(exc)
    if not any(re.search(rf"(?<!\w){re.escape(n)}(?!\w)", message) for n in names):
        return "names no parameter, column or party"
    if "the message stays with the party" in message:
        return None if own_code else "says nothing of the reason"
    if not CURE.search(message):
        return "names no cure"
    raised_in = traceback.extract_tb(exc.__traceback__)[-1].filename
    if raised_in.startswith("<") or not re.search(r"/(skvfl|sklearn)/", raised_in):
        return f"raised inside {raised_in.split('site-packages/')[-1].split('/')[0]}"
    return None


def wrong(fitted, X, n_rows, expected=None):
    """What is wrong with the answers for a table; None if they are right."""
    answer = np.asarray(fitted.predict(X))
    if answer.shape != (n_rows,):
        return f"predictions of shape {answer.shape}"
    if is_classifier(fitted):
        if not set(answer) <= set(fitted.classes_):
            return "predicts what is no class"
        scores = np.asarray(fitted.predict_proba(X))
        if scores.shape != (n_rows, len(fitted.classes_)):
            return f"probabilities of shape {scores.shape}"
        if not np.allclose(scores.sum(axis=1), 1, atol=1e-5):
            return "probabilities do not sum to one"
    else:
        scores = answer.astype(float)
    if not np.isfinite(scores).all():
        return "answers that are not finite"
    if expected is not None and not np.allclose(scores, expected, atol=1e-4, rtol=1e-3):
        return f"differs by {abs(scores - expected).max():.1e} from plain numbers"
    return None


def judge(names, attempt, kind):
    """Verdict on what an attempt returns or raises; None if it is right."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            verdict = attempt()
        except Exception as exc:  # every kind of failure is judged
            reason = unclear(exc, names, kind == OWN_CODE)
            if reason is None and kind == SAME:
                reason = "refused, though these are plain numbers"
            text = " ".join(str(exc).split())
            return reason and f"{reason}: {type(exc).__name__}: {text[:110]}"
    if verdict is None and kind in (REFUSED, OWN_CODE):
        return "not refused"
    return verdict


# What is tried


@cache
def plain(name):
    """An estimator fitted on plain numbers, and its scores for them."""
    fitted = build(name).fit(FRAME, target(name))
    if is_classifier(fitted):
        return fitted, fitted.predict_proba(FRAME)
    return fitted, fitted.predict(FRAME)


def build(name, **params):
    estimator = clone(ESTIMATORS[name])
    return estimator.set_params(**{"parties": HELD, "active": 0, **params})


def target(name):
    if is_classifier(ESTIMATORS[name]):
        return CODES
    return np.rint(ARRAY @ np.arange(1, 7))


def parties_of(X):
    """Who holds what: by name, where the table has these names."""
    names = getattr(X, "column_names", getattr(X, "columns", ()))
    return HELD if set(COLUMNS) <= set(names) else BY_POSITION


def words(name, *more):
    """Names that an error may speak of."""
    parameters = [*ESTIMATORS[name].get_params(deep=False), "transformer", "remainder"]
    columns = [f"'{c}'" for c in COLUMNS]
    parties = [f"'{p}'" for p in ["a", "b", "c", "party0", "party1", *more]]
    return [
        *parameters,
        *columns,
        *parties,
        "X",
        "y",
        "sample_weight",
        "column names",
        "party name",
        "name of a party",
    ]


def combinations(name):
    """Everything that one estimator is tried on: labels, kind, attempt."""
    fitted, scores = plain(name)
    y = target(name)

    def fit_and_answer(kind, X, y, **params):
        estimator = build(name, **{"parties": parties_of(X), **params}).fit(X, y)
        return wrong(estimator, X, N_ROWS, scores if kind == SAME else None)

    for table, (kind, make) in TABLES.items():
        fits = FREE if table == "other names" else kind
        yield (("fit", table), fits, lambda k=fits, m=make: fit_and_answer(k, m(), y))
        if table in ONLY_IN_FIT:
            continue
        later = kind
        # Boosting asks nobody who owns no split.
        if table in FINE_WHEN_ALONE and name.startswith(("APC", "Boosting")):
            later = FREE
        yield (
            ("predict", table),
            later,
            lambda k=later, m=make: wrong(
                fitted, m(), N_ROWS, scores if k == SAME else None
            ),
        )
    for kind_of_target, (for_classes, for_numbers, make) in TARGETS.items():
        kind = for_classes if is_classifier(fitted) else for_numbers
        if kind_of_target == "masked" and "APC" in name:
            kind = FREE  # rows without a label are its subject
        yield (
            ("y", kind_of_target),
            kind,
            lambda k=kind, m=make: fit_and_answer(k, FRAME, m(y)),
        )
    for arrangement, (kind, make) in PARTIES.items():
        active = "a" if arrangement == "another order" else 0
        if arrangement == "output has NaN" and name.startswith("Boosting"):
            kind = FREE  # trees have a side for missing values
        yield (
            ("parties", arrangement),
            kind,
            lambda k=kind, m=make, a=active: fit_and_answer(
                k, FRAME, y, parties=m(), active=a
            ),
        )
    for parameter, values in PARAMETERS.items():
        if parameter in fitted.get_params(deep=False):
            usual = inspect.signature(type(fitted)).parameters[parameter].default
            for value in values:
                if value is None and usual is None:
                    continue
                shown = " ".join(repr(value).split())[:20]
                yield (
                    (parameter, shown),
                    REFUSED,
                    lambda p=parameter, v=value: fit_and_answer(
                        REFUSED, FRAME, y, **{p: v}
                    ),
                )


@pytest.mark.parametrize(
    "name",
    [
        # Two whose code the others share are tried often, all of them by CI.
        pytest.param(name, marks=[] if name in QUICK_ONES else [pytest.mark.slow])
        for name in ESTIMATORS
    ],
)
def test_a_right_answer_or_an_error_that_helps(name):
    rows, n_tried = [], 0
    for (where, what), kind, attempt in combinations(name):
        n_tried += 1
        verdict = judge(words(name), attempt, kind)
        if verdict is not None:
            rows.append(f"{name:10} {where:13} {what:24} {verdict}")
    assert n_tried >= 200
    if rows:
        pytest.fail(f"{len(rows)} of {n_tried}\n" + "\n".join(rows), pytrace=False)


# Whether it would be seen


def raising(exc):
    def attempt():
        raise exc

    return attempt


@pytest.mark.parametrize(
    "exc",
    [
        KeyError("a0"),
        IndexError("index 3 is out of bounds for X"),
        AttributeError("'NoneType' object has no attribute 'shape' of X"),
        ValueError("could not convert string to float: 'x'"),
        RuntimeError("mat1 and mat2 shapes cannot be multiplied"),
        ValueError("X"),
        PartyError("a", "ValueError in 'prepare'; the message stays with the party"),
    ],
    ids=lambda exc: type(exc).__name__,
)
def test_a_bad_error_is_recognised(exc):
    assert judge(words("SplitNN"), raising(exc), FREE) is not None


def test_an_error_from_inside_another_library_is_recognised():
    def attempt():
        pd.DataFrame({"X": [1]}).set_axis(["must", "not"], axis=1)

    assert "raised inside pandas" in judge(["names", "values"], attempt, FREE)


def test_a_wrong_answer_is_recognised():
    class Fake(BaseEstimator):
        def __init__(self, answer):
            self.answer = answer

        def predict(self, X):
            return self.answer

    assert wrong(Fake(np.zeros(3)), FRAME, 3, np.zeros(3)) is None
    for answer in (np.zeros(2), np.zeros((3, 1)), np.array([0, np.nan, 1]), np.ones(3)):
        assert wrong(Fake(answer), FRAME, 3, np.zeros(3)) is not None
    split, _ = plain("SplitNN")
    expected = split.predict_proba(FRAME)
    assert wrong(split, FRAME, N_ROWS, expected) is None
    assert wrong(split, FRAME, N_ROWS, expected[::-1]) is not None
    assert judge(words("SplitNN"), lambda: None, REFUSED) == "not refused"
