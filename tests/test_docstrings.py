"""The docstrings of everything public: numpydoc's rules, and the fitted attributes."""

import importlib
import inspect

import numpy as np
import pandas as pd
import pytest
from numpydoc.docscrape import NumpyDocString
from numpydoc.validate import validate
from sklearn.base import BaseEstimator, clone, is_classifier
from sklearn.linear_model import LogisticRegression, Ridge

import skvfl
from skvfl import (
    APCVFLClassifier,
    APCVFLRegressor,
    AutoencoderTransformer,
    Contiguous,
    CorrelationSplit,
    FedOnceClassifier,
    FedOnceRegressor,
    GaussianProjection,
    ImageTiles,
    ImportanceSplit,
    NoiseAsTargetsEncoder,
    PartyPreprocessor,
    RandomFeaturesEncoder,
    RandomProjectionVFL,
    RoundRobin,
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
from skvfl._base import VFLEstimator
from skvfl._methods import METHODS

IGNORED = {
    "ES01": "a summary is often enough",
    "PR04": "a parameter that is described elsewhere is listed with a reference only",
    "RT02": "returned values have names, as in scikit-learn",
    "RT03": "self and values that the summary describes need no second description",
    "SS05": "takes a plural noun for a verb in the third person",
}
MODULES = (
    "alignment",
    "datasets",
    "evaluation",
    "exceptions",
    "federation",
    "nn",
    "privacy",
)
IGNORED_FOR_ERRORS = {
    "EX01": "an error is shown where it is raised",
    "SA01": "there is nothing else to see",
}
# What parties and members offer is for whoever writes a method: one line says it.
IGNORED_FOR_ONE_LINES = {
    "PR01": "the summary names what is given",
    "RT01": "the summary names what is returned",
}
IGNORED_FOR_METHODS = {
    "EX01": "the examples are the class's",
    "SA01": "the references are the class's",
}
CONFIGURATIONS = [
    APCVFLClassifier(max_epochs=1),
    APCVFLRegressor(max_epochs=1),
    AutoencoderTransformer(max_epochs=1),
    FedOnceClassifier(max_epochs=1, epsilon=5.0),
    FedOnceRegressor(max_epochs=1, epsilon=5.0),
    NoiseAsTargetsEncoder(max_epochs=1),
    RandomFeaturesEncoder(),
    GaussianProjection(),
    PartyPreprocessor(),
    VerticalPartitioner(),
    VerticalPartitioner(parties={"all": slice(None)}),
    RandomProjectionVFL(LogisticRegression(), random_state=0),
    RandomProjectionVFL(Ridge(), random_state=0),
    SplitNNClassifier(max_epochs=1, label_epsilon=5.0),
    SplitNNRegressor(max_epochs=1),
    TabVFLClassifier(max_epochs=1, label_epsilon=5.0),
    TabVFLRegressor(max_epochs=1),
    VFedSecClassifier(max_epochs=1, record_server_view=True),
    VFedSecRegressor(max_epochs=1, record_server_view=True),
    VFLBoostingClassifier(max_iter=1, label_epsilon=5.0),
    VFLBoostingRegressor(max_iter=1, label_epsilon=5.0, target_range=(-9, 9)),
    Contiguous(),
    CorrelationSplit(),
    ImageTiles(shape=(2, 3)),
    ImportanceSplit(),
    RoundRobin(),
]


def public_objects(module=skvfl, names=skvfl.__all__):
    """Public names, and the methods that public classes define themselves."""
    for name in names:
        yield f"{module.__name__}.{name}"
        cls = getattr(module, name)
        if not inspect.isclass(cls):
            continue
        for method in dir(cls):
            function = getattr(cls, method)
            function = inspect.unwrap(getattr(function, "fget", function))
            home = getattr(function, "__module__", None) or ""
            if not method.startswith("_") and home.startswith("skvfl"):
                yield f"{module.__name__}.{name}.{method}"


def objects_of_modules():
    """The same of the modules below the package."""
    for name in MODULES:
        module = importlib.import_module(f"skvfl.{name}")
        names = getattr(module, "__all__", None)
        if names is None:
            names = [
                each
                for each, value in vars(module).items()
                if inspect.isclass(value) and value.__module__ == module.__name__
            ]
        # Words that classes and functions take are described where they are taken.
        names = [each for each in names if not isinstance(getattr(module, each), str)]
        yield from public_objects(module, names)


def public_estimators():
    public = [getattr(skvfl, name) for name in skvfl.__all__]
    return [
        each
        for each in public
        if inspect.isclass(each) and issubclass(each, BaseEstimator)
    ]


@pytest.mark.parametrize("name", list(public_objects()))
def test_docstring(name):
    ignored = set(IGNORED)
    if name.count(".") > 1:
        ignored |= set(IGNORED_FOR_METHODS)
    errors = [error for error in validate(name)["errors"] if error[0] not in ignored]
    assert not errors


@pytest.mark.parametrize("name", list(objects_of_modules()))
def test_docstring_below_the_package(name):
    ignored = set(IGNORED)
    if name.count(".") > 2:
        ignored |= set(IGNORED_FOR_METHODS)
        if name.startswith("skvfl.federation."):
            ignored |= set(IGNORED_FOR_ONE_LINES)
    elif name.startswith("skvfl.exceptions."):
        ignored |= set(IGNORED_FOR_ERRORS)
    errors = [error for error in validate(name)["errors"] if error[0] not in ignored]
    assert not errors


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_docstrings_say_who_sees_what_in_the_words_of_the_table(method):
    for name in method.classes:
        said = " ".join(getattr(skvfl, name).__doc__.split())
        assert f"*Who sees what, in short.* {method.sees}" in said


def test_the_table_has_every_method():
    named = {name for method in METHODS for name in method.classes}
    federated = {
        cls.__name__ for cls in public_estimators() if issubclass(cls, VFLEstimator)
    }
    assert named == federated


def test_public_objects_include_methods_behind_descriptors():
    names = set(public_objects())
    assert "skvfl.RandomProjectionVFL.predict_proba" in names
    assert "skvfl.VerticalPartitioner.fit" in names
    assert "skvfl.VerticalPartitioner.set_output" not in names


@pytest.mark.parametrize("cls", public_estimators())
def test_documented_attributes_are_those_of_a_fitted_estimator(cls):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(30, 6)), columns=list("abcdef"))
    documented = {entry.name for entry in NumpyDocString(cls.__doc__)["Attributes"]}
    # What belongs to one party's half is looked up there.
    looked_up = {n for n in documented if isinstance(getattr(cls, n, None), property)}
    fitted = set()
    for estimator in CONFIGURATIONS:
        if type(estimator) is cls:
            estimator = clone(estimator)
            y = np.arange(30) % 3 if is_classifier(estimator) else rng.normal(size=30)
            fit = estimator.fit if hasattr(cls, "fit") else estimator.split_columns
            fit(X, y)
            fitted |= {
                name
                for name in vars(estimator)
                if name.endswith("_") and not name.startswith("_")
            }
            fitted |= {name for name in looked_up if hasattr(estimator, name)}
    assert documented == fitted
