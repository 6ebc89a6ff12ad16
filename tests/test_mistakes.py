"""Mistakes that users make, each with a message that names the cure.

``EACH`` are tried on every federated estimator, ``OTHERS`` once.
"""

import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone, is_classifier
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import accuracy_score
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler
from torch import nn

import skvfl
from skvfl import (
    APCVFLClassifier,
    APCVFLRegressor,
    ComparisonDisplay,
    FedOnceClassifier,
    FedOnceRegressor,
    ImageTiles,
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
    compare,
)
from skvfl.alignment import align
from skvfl.datasets import load, make_two_companies
from skvfl.exceptions import PartyError

N = 24
RNG = np.random.default_rng(0)
X = pd.DataFrame(RNG.normal(size=(N, 6)), columns=["age", "job", "pay", *"xyz"])
TARGET = (X["age"] + X["x"]).to_numpy()
LABELS = (np.median(TARGET) < TARGET).astype(int)
PARTIES = {"bank": ["age", "job", "pay"], "shop": ["x", "y", "z"]}
QUICK = {"parties": PARTIES, "random_state": 0, "max_epochs": 1}
TREES = {"parties": PARTIES, "random_state": 0, "max_iter": 2, "min_samples_leaf": 2}
ESTIMATORS = [
    RandomProjectionVFL(LogisticRegression(), parties=PARTIES, random_state=0),
    RandomProjectionVFL(Ridge(), parties=PARTIES, random_state=0),
    APCVFLClassifier(**QUICK),
    APCVFLRegressor(**QUICK),
    FedOnceClassifier(**QUICK),
    FedOnceRegressor(**QUICK),
    SplitNNClassifier(**QUICK),
    SplitNNRegressor(**QUICK),
    TabVFLClassifier(**QUICK),
    TabVFLRegressor(**QUICK),
    VFedSecClassifier(**QUICK),
    VFedSecRegressor(**QUICK),
    VFLBoostingClassifier(**TREES),
    VFLBoostingRegressor(**TREES),
]
FITTED = {}


def truth(estimator):
    return LABELS if is_classifier(estimator) else TARGET


def fit(estimator, table=X, y=None, **given):
    return estimator.fit(table, truth(estimator) if y is None else y, **given)


def fitted(estimator):
    """Each of them once, for mistakes of predictions."""
    key = repr(estimator)
    if key not in FITTED:
        FITTED[key] = fit(clone(estimator))
    return FITTED[key]


def asks_everybody(estimator):
    """One that needs every party's columns to predict."""
    if isinstance(estimator, APCVFLClassifier | APCVFLRegressor):
        estimator = clone(estimator).set_params(inference="joint")
    return fitted(estimator)


def with_(**params):
    return lambda each: fit(each.set_params(**params))


# What was done, and the part of the message that says what to do.
EACH = {
    "a column's name mistyped": (
        with_(parties={"bank": ["agee"], "shop": ["x"]}),
        "'bank': column 'agee' is missing from the table, which has 'age'",
    ),
    "a column that there is not": (
        with_(parties={"bank": ["salary"], "shop": ["x"]}),
        "which has 'age', 'job', 'pay', 'x', 'y', 'z'",
    ),
    "a column in other letters": (
        with_(parties={"bank": ["Age"], "shop": ["x"]}),
        "column 'Age' is missing .* has 'age'",
    ),
    "columns that nobody has": (
        with_(parties={"bank": ["age"], "shop": ["x"]}),
        'give them to a party, or set remainder="drop"',
    ),
    "a column of two parties": (
        with_(parties={"bank": ["age", "job", "pay"], "shop": ["pay", *"xyz"]}),
        "set allow_overlap=True if they really share it",
    ),
    "a party without columns": (
        with_(parties={"bank": [*X.columns], "shop": []}),
        "'shop' holds no column; only the label owner",
    ),
    "more parties than columns": (with_(parties=9), "ask for fewer parties"),
    "lists of columns for parties": (
        with_(parties=[["age", "job"], ["x"]]),
        r"\(name, transformer, columns\) tuples, .* a dict of names to columns",
    ),
    "a party by the name of the server": (
        with_(parties={"server": ["age", "job", "pay"], "shop": [*"xyz"]}),
        "party name 'server' is not allowed: a name is",
    ),
    "names instead of parties": (
        with_(parties="bank"),
        "'parties' parameter .* must be an int .* 'dict'",
    ),
    "another active party": (
        with_(active="Bank"),
        r"active='Bank' is not one of the parties \['bank', 'shop'\]",
    ),
    "parties counted from one": (
        with_(active=2),
        r"active=2 is not one of the parties \['bank', 'shop'\]",
    ),
    "a table for each party": (
        lambda each: fit(each, {n: X[held] for n, held in PARTIES.items()}),
        r"skvfl\.alignment\.align makes it",
    ),
    "a column for a table": (
        lambda each: fit(each, X["age"]),
        "Reshape your data to",
    ),
    "infinite cells": (
        lambda each: fit(each, X.assign(y=np.inf)),
        "'shop': .* column 'y' .* replace them by missing values",
    ),
    "text for numbers in a scaler": (
        lambda each: fit(
            each.set_params(
                parties=VerticalPartitioner(StandardScaler(), parties=PARTIES)
            ),
            X.assign(y="oslo"),
        ),
        "'shop': .* not numbers; let the transformer .* as transformer=.auto. does",
    ),
    "no labels": (
        lambda each: each.fit(X, None),
        "requires y to be passed",
    ),
    "labels of other rows": (
        lambda each: fit(each, y=truth(each)[:10]),
        "y has 10 entries for the 24 rows of X .* give one for each row",
    ),
    "two columns of labels": (
        lambda each: fit(each, y=np.c_[truth(each), truth(each)]),
        r"y should be a 1d array, got an array of shape \(24, 2\)",
    ),
    "labels of two types": (
        lambda each: fit(each, y=np.array(["yes", 1] * 12, dtype=object)),
        "convert|numbers",
    ),
    "negative weights": (
        lambda each: fit(each, sample_weight=-np.ones(N)),
        "sample_weight is negative in 24 of 24 rows: weights are 0 or more",
    ),
    "weights of other rows": (
        lambda each: fit(each, sample_weight=np.ones(3)),
        "sample_weight has 3 entries .* give one for each row",
    ),
    "a transport that is not there": (
        with_(transport="http"),
        "'transport' parameter .* among .*'local'",
    ),
    "a generator for a seed": (
        with_(random_state=RNG),
        "'random_state' parameter .* must be an int",
    ),
    "another name of a parameter": (
        with_(epochs=3),
        "Invalid parameter 'epochs' .* Valid parameters are: .*'active'",
    ),
    "predictions before fit": (
        lambda each: each.predict(X),
        "not fitted yet. Call 'fit'",
    ),
    "half of what was never learnt": (
        lambda each: each.save_half("bank", "never"),
        "not fitted yet. Call 'fit'",
    ),
    "predictions without a column": (
        lambda each: asks_everybody(each).predict(X.drop(columns="x")),
        "party 'shop': column 'x' is missing from the table",
    ),
    "predictions of a renamed column": (
        lambda each: asks_everybody(each).predict(X.rename(columns={"x": "X"})),
        "column 'x' is missing from the table, which has 'X'",
    ),
    "predictions of an array with fewer columns": (
        lambda each: asks_everybody(each).predict(X.to_numpy()[:, :5]),
        "X has 5 features, but .* is expecting 6 features",
    ),
    "predictions of one row as a series": (
        lambda each: asks_everybody(each).predict(X.iloc[0]),
        "Reshape your data to",
    ),
}
CLASSIFIERS = {
    "amounts for classes": (
        lambda each: fit(each, y=TARGET),
        "y holds no classes.* regression target",
    ),
    "one class": (
        lambda each: fit(each, y=np.zeros(N)),
        "one class only; .* give rows of another one",
    ),
    "scores of other labels": (
        lambda each: fitted(each).score(X, np.where(LABELS, "yes", "no")),
        "y holds text, and the labels of fit were numbers",
    ),
}
REGRESSORS = {
    "words for amounts": (
        lambda each: fit(each, y=np.array(["low", "high"] * 12)),
        "not numbers, which a regressor needs: convert them, or take the classifier",
    ),
}
BANK, SHOP = ({"id": [1, 2], "a": [1, 2]}, {"id": [1, 2], "b": [1, 2]})


def tables(bank=None, shop=None):
    bank, shop = BANK | (bank or {}), SHOP | (shop or {})
    return {"bank": pd.DataFrame(bank), "shop": pd.DataFrame(shop)}


def of(estimator, **params):
    return lambda: fit(estimator(**(QUICK | params)))


def rap(model, **params):
    return RandomProjectionVFL(model, parties=PARTIES, **params)


def against(methods, **options):
    return lambda: compare(methods, X, LABELS, **options)


SPLIT = SplitNNClassifier(max_epochs=1)
OTHERS = {
    "RAP: a class": (
        lambda: fit(rap(LogisticRegression), y=LABELS),
        r"such as LogisticRegression\(\)",
    ),
    "RAP: a clustering": (
        lambda: fit(rap(KMeans(2)), y=LABELS),
        "put VerticalPartitioner",
    ),
    "RAP: a word": (lambda: fit(rap("logistic"), y=LABELS), "among .*'classifier'"),
    "RAP: weights of neighbours": (
        lambda: fit(rap(KNeighborsClassifier()), sample_weight=np.ones(N)),
        "KNeighborsClassifier does not support sample_weight",
    ),
    "RAP: classes of amounts": (
        lambda: fit(rap(Ridge(), class_weight="balanced")),
        "class_weight is for classifiers only",
    ),
    "SplitNN: no epochs": (of(SplitNNClassifier, max_epochs=0), r"range \[1, inf\)"),
    "SplitNN: text for a number": (of(SplitNNClassifier, lr="1e-3"), "'lr' parameter"),
    "SplitNN: steps too long": (
        of(SplitNNClassifier, lr=1e20, max_epochs=5),
        "lower the learning rate|lower lr",
    ),
    "SplitNN: an optimiser's name": (
        of(SplitNNClassifier, optimizer="adam"),
        "'optimizer' parameter .* callable",
    ),
    "SplitNN: one layer's width": (
        of(SplitNNClassifier, bottom=64),
        "'bottom' parameter .* array-like, a callable or",
    ),
    "SplitNN: one network for all": (
        of(SplitNNClassifier, bottom=nn.Linear(3, 32)),
        r"a function bottom\(n_inputs, n_outputs\) is due that makes a new one",
    ),
    "SplitNN: another aggregation": (
        of(SplitNNClassifier, aggregation="average"),
        "among .*'mean'",
    ),
    "FedOnce: a guest's name mistyped": (
        of(FedOnceClassifier, local_encoder={"Shop": PCA(1)}),
        r"names \['Shop'\].* lacks \['shop'\]: give a transformer",
    ),
    "FedOnce: no budget": (
        of(FedOnceClassifier, epsilon=0),
        r"'epsilon' .* range \(0.0, inf\)",
    ),
    "FedOnce: Adam with a budget": (
        of(FedOnceClassifier, epsilon=1.0, optimizer=torch.optim.Adam),
        "plain gradient steps .* leave it at its default",
    ),
    "FedOnce: another word": (
        of(FedOnceClassifier, missing_party="skip"),
        "among .*'zero'",
    ),
    "vFedSec: nobody to hide among": (
        of(VFedSecClassifier, parties={"bank": [*X.columns]}),
        "at least two clients.* give columns to another party",
    ),
    "vFedSec: odd sizes": (of(VFedSecClassifier, bits=16), r"\{32, 64\}"),
    "vFedSec: a bound too small": (
        of(VFedSecClassifier, bound=1e-6),
        "declare a larger bound",
    ),
    "APC-VFL: no row in common": (
        lambda: fit(APCVFLClassifier(**QUICK), X.assign(x=None, y=None, z=None)),
        "'shop' holds none of the 24 rows: leave it out, or look at the ids",
    ),
    "APC-VFL: an active party without columns": (
        lambda: fit(APCVFLClassifier(**(QUICK | {"parties": {"owner": []} | PARTIES}))),
        "predicts from its own columns: give it some",
    ),
    "APC-VFL: positions for a mask": (
        lambda: fit(APCVFLClassifier(**QUICK), aligned=np.arange(N)),
        "aligned.* must be one bool for each of the 24 rows",
    ),
    "TabVFL: too few numbers": (of(TabVFLClassifier, n_d=1), "raise n_d"),
    "TabVFL: a share of failures": (
        of(TabVFLClassifier, failure=0.3),
        "an instance of .*ClientFailures",
    ),
    "partition: columns and transformer exchanged": (
        lambda: VerticalPartitioner(parties=[("bank", ["age"], PCA(1))]).fit(X),
        r"the order is \(name, transformer, columns\)",
    ),
    "partition: one name twice": (
        lambda: VerticalPartitioner(
            parties=[("bank", PCA(1), ["age"]), ("bank", PCA(1), ["job"])]
        ).fit(X),
        "give each party a name of its own",
    ),
    "partition: the rest to nobody": (
        lambda: VerticalPartitioner(parties={"bank": [0]}, remainder="shop").fit(X),
        "neither 'raise' nor 'drop' nor one of the parties",
    ),
    "partition: a position outside": (
        lambda: VerticalPartitioner(parties={"bank": [0, 17]}).fit(X),
        "no column at position 17 in a table of 6 columns; integers are positions",
    ),
    "partition: a mask too short": (
        lambda: VerticalPartitioner(parties={"bank": [True, False]}).fit(X),
        "2 entries for 6 columns; give one for each",
    ),
    "partition: a word for a transformer": (
        lambda: VerticalPartitioner("standard").fit(X),
        "among .*'auto'|among .*'passthrough'",
    ),
    "partition: importance without labels": (
        lambda: VerticalPartitioner(parties=ImportanceSplit()).fit(X),
        "pass y",
    ),
    "partition: tiles of no image": (
        lambda: VerticalPartitioner(parties=ImageTiles(shape=(4, 4))).fit(X),
        r"set shape to \(height, width\)",
    ),
    "compare: a class": (against({"s": SplitNNClassifier}), "such as SplitNNClass"),
    "compare: a list": (against([SPLIT]), "give a dict, such as"),
    "compare: a name": (against("SplitNN"), "give the estimator itself"),
    "compare: none": (against({}), "name at least one"),
    "compare: a model without parties": (
        against(LogisticRegression()),
        "pass another model as baseline",
    ),
    "compare: a federated baseline": (
        against(SPLIT, baseline=SPLIT),
        "give it as a method",
    ),
    "compare: two kinds": (
        against({"a": SPLIT, "b": SplitNNRegressor()}),
        r"\['a', .*classify and \['b'\] do not",
    ),
    "compare: two splits": (
        against({"a": SplitNNClassifier(parties=3)}, parties=PARTIES),
        "leave parties out of one of them, or compare twice",
    ),
    "compare: a search over parties": (
        against(GridSearchCV(SPLIT, {"parties": [2, 3]})),
        "leave it out of the grid, and compare once for each",
    ),
    "compare: a metric for a scorer": (
        against(SPLIT, scoring=accuracy_score),
        "use `make_scorer`",
    ),
    "compare: another scorer": (
        against(SPLIT, scoring="acc"),
        "get_scorer_names",
    ),
    "compare: a taken name": (
        against({"centralised": SPLIT}, baseline=LogisticRegression()),
        r"cannot be named \['centralised'\]: compare adds such rows",
    ),
    "compare: more folds than rows": (
        against(SPLIT, cv=50),
        "n_splits=50 greater than the number",
    ),
    "compare: another network": (against(SPLIT, network="4G"), "among .*'internet'"),
    "compare: no time": (against(SPLIT, time_limit=0), r"range \(0.0, inf\)"),
    "compare: classes or amounts": (
        lambda: compare("all", X, np.arange(N)),
        'say methods="classifiers" or methods="regressors"',
    ),
    "display: not a cost": (
        lambda: ComparisonDisplay(None).plot("accuracy"),
        r"is not one of \['bytes'",
    ),
    "alignment: no such column": (
        lambda: align(tables(), on="customer"),
        "name the column in on",
    ),
    "alignment: an id twice": (
        lambda: align(tables(bank={"id": [1, 1]}), on="id"),
        'make them unique, or keep one row of each by duplicates="first"',
    ),
    "alignment: numbers and text": (
        lambda: align(tables(bank={"id": ["1", "2"]}), on="id"),
        "convert one to the other",
    ),
    "alignment: nothing in common": (
        lambda: align(tables(bank={"id": [8, 9]}), on="id"),
        "no id in common: .*; write them in one way",
    ),
    "data sets: a name mistyped": (lambda: load("adults"), "choose from .*'adult'"),
    "data sets: no folder": (
        lambda: load("adult", data_home="/no/such/folder"),
        "SKVFL_DATA to a folder that holds adult.csv.gz",
    ),
    "data sets: per cent for a share": (
        lambda: make_two_companies(100, overlap=80),
        r"range \(0.0, 1.0\]",
    ),
    "package: half a name": (
        lambda: skvfl.SplitNN,
        "it has 'SplitNN",
    ),
}
ERRORS = (ValueError, TypeError, AttributeError, FileNotFoundError, PartyError)


def names(estimator):
    inner = estimator.get_params(deep=False).get("estimator")
    kind = type(estimator).__name__
    return kind if inner is None else f"{kind}-{type(inner).__name__}"


def check(call, message):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(ERRORS, match=f"(?s){message}"):
            call()


@pytest.mark.parametrize("mistake", EACH)
@pytest.mark.parametrize("estimator", ESTIMATORS, ids=names)
def test_of_any_estimator(estimator, mistake):
    do, message = EACH[mistake]
    check(lambda: do(clone(estimator)), message)


@pytest.mark.parametrize("mistake", [*CLASSIFIERS, *REGRESSORS])
@pytest.mark.parametrize("estimator", ESTIMATORS, ids=names)
def test_of_labels(estimator, mistake):
    mistakes = CLASSIFIERS if is_classifier(estimator) else REGRESSORS
    if mistake in mistakes:
        do, message = mistakes[mistake]
        check(lambda: do(clone(estimator)), message)


@pytest.mark.parametrize("mistake", OTHERS)
def test_of_one_thing(mistake):
    check(*OTHERS[mistake])


def test_there_are_enough():
    assert len(EACH) + len(CLASSIFIERS) + len(REGRESSORS) + len(OTHERS) >= 40
