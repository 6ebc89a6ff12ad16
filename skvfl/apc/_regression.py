"""A start near the optimum for logistic regression of many classes."""

from __future__ import annotations

import numpy as np
import torch
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression
from torch.nn.functional import log_softmax

from skvfl.nn._steps import PIECE

# Below this there is little to gain.
MANY_CLASSES = 30
# May differ from the defaults: C, tol and max_iter are heeded here, and the others do
# not move the optimum.
_FREE = {"C", "max_iter", "tol", "random_state", "n_jobs", "verbose"}


def begins_near(model, n_classes):
    """Whether it is known how a model begins near its optimum.

    Parameters
    ----------
    model : estimator
        Unfitted.
    n_classes : int
        Of what it is to learn.

    Returns
    -------
    begins : bool
    """
    if type(model) is not LogisticRegression or n_classes <= MANY_CLASSES:
        return False
    usual = LogisticRegression().get_params()
    given = model.get_params()
    return all(given[name] == usual[name] for name in usual.keys() - _FREE)


def fit_from_near(model, inputs, labels, weights=None):
    """Fit logistic regression, from where its own solver has nearly nothing to do.

    Features that encoders make of a few columns are strongly correlated, so that the
    penalised loss is curved thousands of times as much in some directions as in others.
    L-BFGS first minimises it in coordinates of equal curvature (as it is where all
    classes are equally likely), which takes a third of the steps; scikit-learn's own
    solver then goes on from there until its tolerance is met. Either takes at most
    ``max_iter`` steps.

    Parameters
    ----------
    model : LogisticRegression
        Fitted in place, to the same optimum and tolerance as by its ``fit``. Its
        ``n_iter_`` counts what is left to its solver.
    inputs : ndarray of shape (n_rows, n_features), dtype float32
        Standardised.
    labels : ndarray of shape (n_rows,)
        Any classes.
    weights : ndarray of shape (n_rows,) or None, default=None
        Of the rows.
    """
    model._validate_params()
    classes, codes = np.unique(labels, return_inverse=True)
    loss = _Loss(inputs, codes, len(classes), weights, model.C)

    def stop(_):
        if loss.slope <= model.tol:
            raise StopIteration

    # Half of Newton's step, as the curvature falls on the way.
    start = -loss(np.zeros(loss.shape).ravel())[1] / 2
    options = {"gtol": 0, "ftol": np.finfo(np.float32).eps, "maxiter": model.max_iter}
    found = minimize(
        loss, start, jac=True, method="L-BFGS-B", callback=stop, options=options
    )
    coefs, intercepts = loss.coefficients(found.x)
    model.set_params(warm_start=True)
    model.coef_, model.intercept_ = coefs.T.numpy(), intercepts.numpy()
    model.fit(inputs, labels, sample_weight=weights)
    model.set_params(warm_start=False)


class _Loss:
    """scikit-learn's loss and its gradient, in coordinates of equal curvature.

    Attributes
    ----------
    slope : float
        What scikit-learn compares to its ``tol``, where the loss was last asked for.
    """

    def __init__(self, inputs, codes, n_classes, weights, C):
        inputs, codes = torch.from_numpy(inputs), torch.from_numpy(codes)
        weights = np.ones(len(codes)) if weights is None else np.asarray(weights)
        total = weights.sum()
        weights = torch.from_numpy((weights / total).astype(np.float32))
        self.shape = inputs.shape[1] + 1, n_classes
        self._pieces = list(
            zip(*(x.split(PIECE) for x in (inputs, codes, weights)), strict=True)
        )
        self._penalty = 1 / (C * total)
        moments = sum((x * w[:, None]).T @ x for x, _, w in self._pieces)
        sizes, directions = torch.linalg.eigh(moments)
        # What is below rounding is no curvature: with a large C, which penalises
        # nothing, a constant column would be scaled up without bounds.
        single = torch.finfo(torch.float32)
        sizes = sizes.clamp_min(max(single.eps * sizes[-1].item(), single.tiny))
        curvature = sizes / n_classes + self._penalty
        self._directions = directions * curvature.rsqrt()
        # An intercept's curvature is 1 / n_classes, and it has no penalty.
        self._height = n_classes**0.5

    def __call__(self, position):
        coefs, intercepts = self.coefficients(position)
        loss = self._penalty / 2 * float(coefs.square().sum())
        slopes, of_intercepts = self._penalty * coefs, torch.zeros_like(intercepts)
        for inputs, codes, weights in self._pieces:
            codes = codes[:, None]
            logs = log_softmax(torch.addmm(intercepts, inputs, coefs), 1)
            loss -= float(weights @ logs.gather(1, codes)[:, 0])
            away = logs.exp_().mul_(weights[:, None])
            away.scatter_add_(1, codes, -weights[:, None])
            slopes.addmm_(inputs.T, away)
            of_intercepts += away.sum(0)
        self.slope = max(float(each.abs().max()) for each in (slopes, of_intercepts))
        gradient = [self._directions.T @ slopes, self._height * of_intercepts[None]]
        return loss, torch.cat(gradient).double().numpy().ravel()

    def coefficients(self, position):
        """Coefficients and intercepts, a column for each class."""
        at = torch.from_numpy(position.reshape(self.shape)).float()
        return self._directions @ at[:-1], self._height * at[-1]
