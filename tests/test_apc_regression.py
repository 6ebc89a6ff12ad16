import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import log_softmax
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV

from skvfl import APCVFLClassifier
from skvfl.apc._regression import MANY_CLASSES, begins_near, fit_from_near

N_CLASSES = 2 * MANY_CLASSES
HEAD = LogisticRegression(C=0.1, max_iter=1000)


@pytest.fixture(scope="module")
def data():
    """Many features of a few columns, as encoders make them; classes of all sizes."""
    rng = np.random.default_rng(0)
    columns = rng.normal(size=(2_000, 6))
    X = np.tanh(columns @ rng.normal(size=(6, 40)))
    X = ((X - X.mean(axis=0)) / X.std(axis=0)).astype(np.float32)
    order = (columns[:, 0] + rng.normal(size=2_000)).argsort().argsort()
    codes = (order / 2_000) ** 2 * N_CLASSES
    labels = np.array([f"class {i}" for i in range(N_CLASSES)])[codes.astype(int)]
    return X, labels, rng.exponential(size=2_000)


def loss_and_slope(model, X, labels, weights):
    """The loss that scikit-learn minimises, and its largest slope."""
    codes, rows = np.searchsorted(model.classes_, labels), np.arange(len(X))
    X, coefs = X.astype(float), model.coef_.astype(float)
    weights = np.ones(len(X)) if weights is None else weights
    logs = log_softmax(X @ coefs.T + model.intercept_, axis=1)
    penalty = 1 / (model.C * weights.sum())
    loss = -np.average(logs[rows, codes], weights=weights)
    away = np.exp(logs)
    away[rows, codes] -= 1
    away *= (weights / weights.sum())[:, None]
    slopes = away.T @ X + penalty * coefs
    steepest = max(np.abs(slopes).max(), np.abs(away.sum(axis=0)).max())
    return loss + penalty / 2 * (coefs**2).sum(), steepest


@pytest.mark.parametrize("weighted", [False, True])
def test_ends_as_near_the_optimum(data, weighted):
    X, labels, weights = data
    weights = weights if weighted else None
    exact = clone(HEAD).set_params(tol=1e-6, max_iter=10_000)
    exact.fit(X.astype(float), labels, weights)
    plain = clone(HEAD).fit(X, labels, weights)
    found = clone(HEAD)
    fit_from_near(found, X, labels, weights)
    assert found.get_params() == HEAD.get_params()
    assert_array_equal(found.classes_, plain.classes_)
    least, _ = loss_and_slope(exact, X, labels, weights)
    for model in (plain, found):
        loss, steepest = loss_and_slope(model, X, labels, weights)
        assert steepest < 1.01 * HEAD.tol
        assert loss - least < HEAD.tol
    # Nothing is left to do where it ends, from where another needs many steps.
    assert found.n_iter_[0] <= 1 < 20 < plain.n_iter_[0]
    expected = exact.predict_proba(X)
    assert_allclose(found.predict_proba(X), expected, atol=0.01)


@pytest.mark.parametrize("C", [1e20, np.inf])
def test_directions_without_curvature_are_not_scaled_up(data, C):
    """Where nothing is penalised and a column is constant, or twice there."""
    X, labels, weights = data
    X = np.column_stack([X, X[:, 0], np.zeros(len(X))]).astype(np.float32)
    model = clone(HEAD).set_params(C=C, max_iter=1000)
    plain = clone(model).fit(X, labels, weights)
    fit_from_near(model, X, labels, weights)
    losses = [loss_and_slope(each, X, labels, weights)[0] for each in (plain, model)]
    assert losses[1] < losses[0] + HEAD.tol
    nothing = np.zeros_like(X)
    fit_from_near(model, nothing, labels, weights)
    assert np.isfinite(model.predict_proba(nothing)).all()


def test_parameters_are_refused_by_name(data):
    X, labels, weights = data
    with pytest.raises(ValueError, match="'C' parameter"):
        fit_from_near(clone(HEAD).set_params(C="a"), X, labels, weights)


def test_only_plain_logistic_regression_of_many_classes_begins_near():
    assert begins_near(HEAD, N_CLASSES)
    assert begins_near(LogisticRegression(), N_CLASSES)
    assert not begins_near(HEAD, MANY_CLASSES)
    for settings in [{"class_weight": "balanced"}, {"fit_intercept": False}]:
        assert not begins_near(clone(HEAD).set_params(**settings), N_CLASSES)
    assert not begins_near(LogisticRegressionCV(), N_CLASSES)


@pytest.mark.parametrize("distillation", [None, "prediction"])
def test_the_default_model_begins_near(data, distillation):
    X, labels, _ = data
    vfl = APCVFLClassifier(
        local_encoder=PCA(12),
        joint_encoder=PCA(20),
        active_encoder=PCA(18),
        distillation=distillation,
        random_state=0,
    )
    labelled = np.arange(len(X)) % 3 > 0
    n_steps = {}
    for tol in (1e-4, 1e-5):
        head = clone(HEAD).set_params(tol=tol)
        vfl.set_params(estimator=None if tol == 1e-4 else head)
        vfl.fit(X, labels, labelled=labelled)
        n_steps[tol] = vfl.active_estimator_[-1].n_iter_[0]
    # Where single precision does not suffice, it begins at zero.
    assert n_steps[1e-4] <= 1 < 20 < n_steps[1e-5]
