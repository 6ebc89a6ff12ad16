"""What is compared unless the user says otherwise."""

from __future__ import annotations

from importlib import import_module

import numpy as np
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
)
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.utils.multiclass import type_of_target

from skvfl._methods import METHODS
from skvfl._sklearn import StrOptions, validate_params

# More classes than this are not told from whole-numbered amounts.
MANY_CLASSES = 20
# The perceptron without a penalty learns the training rows by heart. Early stopping is
# not for aliases of labels, whose held-out accuracy is noise.
PERCEPTRON = {
    "hidden_layer_sizes": (128,),
    "alpha": 1.0,
    "tol": 1e-3,
    "n_iter_no_change": 5,
}
# Without a penalty boosting now and then falls apart on classes of a few rows: on
# 5,000 rows of covtype one fold in five came down to 0.58, and to 0.75 with it.
TREES = {"l2_regularization": 0.1}
STOPPING = {"early_stopping": True, "n_iter_no_change": 5}


def default_baselines(classifies):
    """Models that a party would train without federation: a linear one, and trees.

    Between them they are hard to beat on tables, and cheap. Names are those of rows.
    """
    if classifies:
        return {
            "linear": LogisticRegression(max_iter=1000),
            "trees": HistGradientBoostingClassifier(**TREES),
        }
    return {"linear": Ridge(), "trees": HistGradientBoostingRegressor(**TREES)}


@validate_params(
    {"kind": [StrOptions({"classifiers", "regressors"})]},
    prefer_skip_nested_validation=True,
)
def all_methods(kind="classifiers"):
    """One estimator of every method, with settings that suit a first comparison.

    Networks stop by rows that they hold out. This is what :func:`skvfl.compare` takes
    for ``methods="all"``; leave out or change what you like.

    Parameters
    ----------
    kind : {"classifiers", "regressors"}, default="classifiers"
        What the target asks for.

    Returns
    -------
    methods : dict of str to estimator
        By the name of the method.

    See Also
    --------
    skvfl.compare : Compares them.

    Examples
    --------
    >>> from skvfl.evaluation import all_methods
    >>> list(all_methods())
    ['RAP', 'SplitNN', 'vFedSec', 'FedOnce', 'APC-VFL', 'TabVFL', 'Boosting']
    """
    classifies = kind == "classifiers"
    perceptron = MLPClassifier if classifies else MLPRegressor
    settings = {
        "RAP": {"estimator": perceptron(**PERCEPTRON)},
        "SplitNN": STOPPING,
        "vFedSec": STOPPING,
        "FedOnce": STOPPING,
        # Pretraining shows the active party more, and gains little where all rows have
        # labels. Noisy with small batches, so it is given more time.
        "TabVFL": {"early_stopping": True, "pretrain": False},
        "APC-VFL": {"max_epochs": 15},
    }
    package = import_module("skvfl")
    return {
        each.name: getattr(package, each.classes[0 if classifies else -1])(
            **settings.get(each.name, {})
        )
        for each in METHODS
    }


def kind_of_target(y):
    """Whether a target has classes or amounts; an error where that cannot be told.

    Parameters
    ----------
    y : array-like of shape (n_samples,)
        Without missing values.

    Returns
    -------
    kind : {"classifiers", "regressors"}
    """
    y = np.asarray(y)
    if y.dtype.kind == "f" and type_of_target(y) == "continuous":
        return "regressors"
    n_values = len(np.unique(y))
    if y.dtype.kind in "fiu" and n_values > MANY_CLASSES:
        raise ValueError(
            f"y holds {n_values} different whole numbers, which may be classes or "
            'amounts: say methods="classifiers" or methods="regressors"'
        )
    return "classifiers"
