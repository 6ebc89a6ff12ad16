"""The same thing has the same name, order and default in every constructor."""

import ast
import inspect
import runpy
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.decomposition import PCA

import skvfl
from skvfl import (
    GaussianProjection,
    RandomProjectionVFL,
    SplitNNClassifier,
    SplitNNRegressor,
    VFedSecClassifier,
)

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "docs" / "vocabulary.py"
# Other words for what has a name already.
SYNONYMS = {
    *("seed", "rng", "epochs", "n_epochs", "max_iter", "iterations"),
    *("classifier", "regressor", "model", "module", "network", "hidden", "layers"),
    *("guest", "host", "local", "local_width", "on_failure", "on_missing", "absent"),
    *("patience", "tol", "l2", "decay", "optim", "optimiser", "verbose", "gpu"),
}
PARTIES = {"bank": range(10), "shop": range(10, 30)}
QUICK = {"parties": PARTIES, "max_epochs": 1, "random_state": 0}


@pytest.fixture(scope="module")
def vocabulary():
    return runpy.run_path(str(SCRIPT))


@pytest.fixture(scope="module")
def cancer():
    X, y = load_breast_cancer(return_X_y=True)
    return X[:200], y[:200]


def test_the_page_is_that_of_the_constructors(vocabulary):
    page = vocabulary["PAGE"].read_text()
    assert page == vocabulary["page"](), "run python docs/vocabulary.py"


def test_other_words_are_not_used(vocabulary):
    # Boosted trees have the words of scikit-learn's, whose iterations are no epochs.
    of_trees = {"VFLBoosting"}
    parameters = vocabulary["parameters"]()
    named = {name for name, where in parameters.items() if where.keys() - of_trees}
    assert not SYNONYMS & named
    named = [getattr(skvfl, name) for name in skvfl.__all__]
    for kind in filter(inspect.isclass, named):
        assert "seed" not in inspect.signature(kind).parameters, kind


@pytest.mark.parametrize(
    "path", sorted(ROOT.glob("examples/**/*.py")), ids=lambda path: path.name
)
def test_examples_use_the_present_words(path):
    """Former ones still work, with a warning that nobody sees in a gallery."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        name = getattr(getattr(node, "func", None), "id", None)
        if name in skvfl.__all__ and inspect.isclass(kind := getattr(skvfl, name)):
            known = inspect.signature(kind).parameters
            given = [each.arg for each in node.keywords if each.arg]
            assert not set(given) - set(known), f"{name} in line {node.lineno}"


def test_defaults_differ_for_a_reason(vocabulary):
    differ = {
        (name, family)
        for name, defaults in vocabulary["shared"]().items()
        for family in vocabulary["usual"](defaults)[1]
    }
    assert differ == vocabulary["DIFFERENT"].keys()
    assert all(vocabulary["DIFFERENT"].values())


def test_shared_parameters_come_in_one_order(vocabulary):
    # A cycle of two orders would be an error of the sort.
    order = list(vocabulary["shared"]())
    for kinds in vocabulary["families"]().values():
        for kind in kinds:
            own = [n for n in inspect.signature(kind).parameters if n in order]
            assert own == sorted(own, key=order.index), kind


def test_what_trains_in_epochs_has_the_same_words(vocabulary):
    families, parameters = vocabulary["families"](), vocabulary["parameters"]()
    trained = parameters["max_epochs"]
    for name in ("batch_size", "lr", "optimizer", "weight_decay", "random_state"):
        assert trained.keys() <= parameters[name].keys(), name
    # APC-VFL's curves are those of its encoders.
    of_encoders = {"APCVFL"}
    for name in ("loss_curve_", "n_iter_"):
        # Boosting counts trees in the same words.
        counted = {*vocabulary["documented"](name)} - {"VFLBoosting"}
        assert trained.keys() - of_encoders == counted, name
    for family, kinds in families.items():
        if "early_stopping" in inspect.signature(kinds[0]).parameters:
            assert family in vocabulary["documented"]("validation_loss_curve_")


@pytest.mark.parametrize("kind", [SplitNNClassifier, VFedSecClassifier])
def test_networks_by_party(kind, cancer):
    bottom = {"bank": (5,), "shop": (6, 7)}
    fitted = kind(bottom=bottom, **QUICK).fit(*cancer)
    sizes = {
        name: [p.shape[0] for p in party._bottom.parameters() if p.ndim == 2][:-1]
        for name, party in fitted._parties.items()
    }
    assert sizes == {"bank": [5], "shop": [6, 7]}
    same = kind(bottom=dict.fromkeys(PARTIES, (64,)), **QUICK).fit(*cancer)
    np.testing.assert_array_equal(
        same.predict_proba(cancer[0]),
        kind(**QUICK).fit(*cancer).predict_proba(cancer[0]),
    )


@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        (SplitNNRegressor(bottom={"bank": (5,)}, **QUICK), "nothing for party 'shop'"),
        (
            SplitNNClassifier(bottom={"bnak": (5,), **PARTIES}, **QUICK),
            r"names \['bnak'\], where it can be said of \['bank', 'shop'\]",
        ),
        (
            VFedSecClassifier(bottom={"bank": (5,), "shop.0": (5,)}, **QUICK),
            r"names \['shop.0'\], where it can be said of",
        ),
        (
            SplitNNClassifier(bottom={"bank": (5,), "shop": "deep"}, **QUICK),
            "'shop': bottom='deep' is no list of hidden layers",
        ),
        (
            RandomProjectionVFL(
                projection={"bank": PCA(2), "shop": "PCA"}, parties=PARTIES
            ),
            "projection of party 'shop' is a str without fit_transform",
        ),
    ],
)
def test_wrong_settings_of_a_party_are_named(estimator, message, cancer):
    with pytest.raises(ValueError, match=message):
        estimator.fit(*cancer)


def test_a_party_without_columns_needs_no_network(cancer):
    parties = {**PARTIES, "lab": []}
    bottom = dict.fromkeys(PARTIES, (4,))
    split = SplitNNClassifier(bottom=bottom, **{**QUICK, "parties": parties})
    assert split.set_params(active="lab").fit(*cancer).n_iter_ == 1


def test_projections_by_party(cancer):
    projection = {"bank": PCA(2), "shop": GaussianProjection()}
    rap = RandomProjectionVFL(projection=projection, parties=PARTIES, random_state=0)
    assert rap.fit(*cancer).transform(cancer[0]).shape == (200, 22)
