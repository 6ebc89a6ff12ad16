"""The rows of a comparison: every way to learn, with and without federation."""

from __future__ import annotations

from typing import Any, NamedTuple

from sklearn.base import clone, is_classifier
from sklearn.compose import TransformedTargetRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skvfl._methods import who_sees_what
from skvfl.evaluation._defaults import all_methods, default_baselines, kind_of_target
from skvfl.evaluation._parties import find_federated, refuse_varied_parties

CENTRALISED = "centralised"
WORDS = ("all", "classifiers", "regressors")


class Contender(NamedTuple):
    """A row: who learns, by what, and what that gives away.

    Attributes
    ----------
    model : str
        Name of the class.
    shares : {"raw columns", "nothing", "raw labels", "messages"}
        What its owner gives away in the clear.
    sees : str
        Who sees what, in a sentence.
    estimator : estimator
        Unfitted.
    """

    model: str
    shares: str
    sees: str
    estimator: Any


def read_methods(methods, y):
    """Federated estimators by name; an error for what is none.

    Parameters
    ----------
    methods : str, estimator or dict of str to estimator
        As :func:`skvfl.compare` was given them.
    y : array-like of shape (n_samples,)
        Labels or target, which decide between classifiers and regressors.

    Returns
    -------
    methods : dict of str to estimator
    """
    if isinstance(methods, str):
        if methods not in WORDS:
            raise ValueError(
                f"methods={methods!r} is none of {WORDS}: give the estimator itself, "
                "such as one of skvfl.evaluation.all_methods()"
            )
        return all_methods(kind_of_target(y) if methods == "all" else methods)
    if isinstance(methods, list):
        raise ValueError(
            "methods is a list, whose rows would have no names: give a dict, such as "
            '{"split": SplitNNClassifier()}'
        )
    if not isinstance(methods, dict):
        _refuse_class(type(methods).__name__, methods)
        methods = {type(methods).__name__: methods}
    if not methods:
        raise ValueError("methods is empty: name at least one")
    for name, method in methods.items():
        _refuse_class(name, method)
        if not hasattr(method, "get_params") or not find_federated(method):
            raise ValueError(
                f"{name!r} ({type(method).__name__}) has no parameter 'parties', and "
                "nothing in it has, so it is no federated estimator; pass another "
                "model as baseline"
            )
        refuse_varied_parties(name, method)
    return methods


def _refuse_class(name, method):
    if isinstance(method, type):
        raise ValueError(
            f"{name!r} is the class {method.__name__}: give an instance, such as "
            f"{method.__name__}()"
        )


def read_baselines(baseline, methods):
    """Models to learn with where there is no federation, by the name of their rows.

    A federated estimator whose server trains a model is compared with that model, too:
    what a better model gains is no gain of the federation.
    """
    if isinstance(baseline, dict) and not baseline:
        raise ValueError("baseline is empty: name at least one model, or leave it out")
    kinds = {name: is_classifier(method) for name, method in methods.items()}
    if baseline is None:
        baseline = default_baselines(next(iter(kinds.values())))
    elif not isinstance(baseline, dict):
        baseline = {type(baseline).__name__: baseline}
    for name, model in baseline.items():
        _refuse_class(name, model)
        if find_federated(model):
            raise ValueError(
                f"the baseline {name!r} is a federated estimator: a baseline learns "
                "without federation, so give it as a method"
            )
        kinds[f"the baseline {name}"] = is_classifier(model)
    _refuse_mixed(kinds)
    known = {repr(model) for model in baseline.values()}
    baseline = dict(baseline)
    for name, method in methods.items():
        for model in _server_models(method):
            if repr(model) not in known:
                known.add(repr(model))
                label = type(model).__name__
                label = f"{label} of {name}" if label in baseline else label
                baseline[label] = _on_raw_columns(model)
    return baseline


def _refuse_mixed(kinds):
    if len(set(kinds.values())) > 1:
        classifiers = [name for name, kind in kinds.items() if kind]
        others = [name for name, kind in kinds.items() if not kind]
        raise ValueError(
            "classifiers and regressors cannot be compared on one target: "
            f"{classifiers} classify and {others} do not"
        )


def _server_models(method):
    """Models that federated estimators in it train on what the parties send."""
    for each in find_federated(method).values():
        params = each.get_params(deep=False)
        # By default APC-VFL has a logistic regression, which is a baseline anyway.
        if params.get("estimator") is not None:
            yield each._model


def _on_raw_columns(model):
    """A server's model as a baseline: label owners standardise the target for it."""
    if is_classifier(model):
        return model
    return TransformedTargetRegressor(model, transformer=StandardScaler())


def contenders(methods, baselines, parties, seed):
    """All rows, by name.

    Parameters
    ----------
    methods : dict of str to estimator
        Federated ones.
    baselines : dict of str to estimator
        See :func:`read_baselines`.
    parties : Parties
        Who holds what.
    seed : callable
        Sets what is random in an estimator.

    Returns
    -------
    rows : dict of str to Contender
    """
    rows = {}
    for way, (shares, sees, held) in _ways(parties).items():
        for label, model in baselines.items():
            part = clone(parties.here).set_params(parties=held, remainder="drop")
            name = way if len(baselines) == 1 else f"{way}, {label}"
            pipeline = make_pipeline(part, clone(model))
            rows[name] = Contender(_kind(model), shares, sees, seed(pipeline))
    taken = [name for name in methods if name in rows]
    if taken:
        raise ValueError(f"methods cannot be named {taken}: compare adds such rows")
    for name, method in methods.items():
        found = find_federated(method)
        sees = who_sees_what(next(iter(found.values())))
        method = clone(method)
        for prefix in found:
            said = {"parties": parties.given, "active": parties.owner}
            method.set_params(**{prefix + key: value for key, value in said.items()})
        rows[name] = Contender(_kind(method), "messages", sees, seed(method))
    return rows


def _kind(model):
    """Name of the class that learns."""
    if isinstance(model, TransformedTargetRegressor):
        model = model.regressor
    return type(model).__name__


def _ways(parties):
    """Ways to learn without federation: what each shares, who sees it, who learns."""
    ways = {}
    # What is elsewhere cannot be pooled here.
    if not parties.elsewhere:
        sees = "Whoever pools them sees all columns and labels."
        ways[CENTRALISED] = "raw columns", sees, parties.pooled
    for name, entry in parties.held.items():
        if name == parties.owner:
            ways[f"{name} alone"] = "nothing", "Nobody sees anything.", entry
        else:
            sees = f"{name} sees the labels."
            ways[f"{name} alone"] = "raw labels", sees, entry
    return ways
