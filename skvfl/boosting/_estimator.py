"""Gradient-boosted trees over parties, in the manner of SecureBoost."""

from __future__ import annotations

from numbers import Integral, Real

import numpy as np

from skvfl._base import (
    VFLClassifierMixin,
    VFLEstimator,
    VFLRegressorMixin,
    check_answers,
)
from skvfl._sklearn import Interval, StrOptions, _fit_context, _num_samples
from skvfl._targets import weights_of_classes
from skvfl.boosting._parties import ActiveSettings, PassiveSettings
from skvfl.boosting._protocol import Bits, boost
from skvfl.federation._replies import Rows


class _BaseVFLBoosting(VFLEstimator):
    """Training and serving; the subclasses say what the labels are."""

    # Never changed: another branch would be another result for the same seed.
    _streams = {
        "prepare": (1, 0),
        "bins": (1, 1),
        "held_out": (1, 2),
        "labels": (1, 3),
    }
    _roles = (PassiveSettings, ActiveSettings)
    # A parameter where there is a target; classes need none.
    target_range = None

    _parameter_constraints = {
        **VFLEstimator._parameter_constraints,
        "learning_rate": [Interval(Real, 0, None, closed="neither")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "max_leaf_nodes": [Interval(Integral, 2, None, closed="left"), None],
        "max_depth": [Interval(Integral, 1, None, closed="left"), None],
        "min_samples_leaf": [Interval(Integral, 1, None, closed="left")],
        "l2_regularization": [Interval(Real, 0, None, closed="left")],
        "max_bins": [Interval(Integral, 2, 255, closed="both")],
        "early_stopping": ["boolean"],
        "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
        "n_iter_no_change": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "epsilon": [Interval(Real, 0, None, closed="neither"), None],
    }

    def __init__(
        self,
        *,
        parties=2,
        active=0,
        missing_rows="raise",
        learning_rate=0.1,
        max_iter=100,
        max_leaf_nodes=31,
        max_depth=None,
        min_samples_leaf=20,
        l2_regularization=0.0,
        max_bins=255,
        early_stopping=False,
        validation_fraction=0.1,
        n_iter_no_change=10,
        tol=1e-7,
        epsilon=None,
        transport="local",
        random_state=None,
    ):
        self.parties = parties
        self.active = active
        self.missing_rows = missing_rows
        self.learning_rate = learning_rate
        self.max_iter = max_iter
        self.max_leaf_nodes = max_leaf_nodes
        self.max_depth = max_depth
        self.min_samples_leaf = min_samples_leaf
        self.l2_regularization = l2_regularization
        self.max_bins = max_bins
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.tol = tol
        self.epsilon = epsilon
        self.transport = transport
        self.random_state = random_state

    def _fit(self, X, y, labels, class_weight=None):
        n_rows = len(labels.values)
        with self._training(X, y, labels, self.max_iter) as (session, course):
            self._begin_curves()
            asked = (session, self._active, n_rows, class_weight, course)
            boost(self, *asked)
            self.n_iter_ = len(self.loss_curve_)
            self.epsilon_ = np.inf if self.epsilon is None else float(self.epsilon)
        return self

    def _so_far(self, session):
        return super()._so_far(session, _n_splits=dict(self._n_splits))

    def _serve(self, X):
        """What the active party says of rows to be served."""
        with self._serving(X) as session:
            n_rows = _num_samples(X)
            # Once for all trees: who owns a split says of every row where it goes.
            asked = {n: Bits(k, n_rows) for n, k in self._n_splits.items() if k}
            sides = {}
            if asked:
                session.begin_round()
                sides = session.call("route", to=[*asked], reply=asked)
            said = {"sides": sides, "n_rows": n_rows}
            expected = Rows(n_rows, self._n_outputs)
            answers = session.ask(self._active, "predict", reply=expected, **said)
            return check_answers(answers)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        tags.target_tags.required = True
        return tags


class VFLBoostingClassifier(VFLClassifierMixin, _BaseVFLBoosting):
    """X."""

    _parameter_constraints = {
        **_BaseVFLBoosting._parameter_constraints,
        "class_weight": [dict, StrOptions({"balanced"}), None],
    }

    def __init__(
        self,
        *,
        parties=2,
        active=0,
        missing_rows="raise",
        learning_rate=0.1,
        max_iter=100,
        max_leaf_nodes=31,
        max_depth=None,
        min_samples_leaf=20,
        l2_regularization=0.0,
        max_bins=255,
        early_stopping=False,
        validation_fraction=0.1,
        n_iter_no_change=10,
        tol=1e-7,
        epsilon=None,
        class_weight=None,
        transport="local",
        random_state=None,
    ):
        super().__init__(
            parties=parties,
            active=active,
            missing_rows=missing_rows,
            learning_rate=learning_rate,
            max_iter=max_iter,
            max_leaf_nodes=max_leaf_nodes,
            max_depth=max_depth,
            min_samples_leaf=min_samples_leaf,
            l2_regularization=l2_regularization,
            max_bins=max_bins,
            early_stopping=early_stopping,
            validation_fraction=validation_fraction,
            n_iter_no_change=n_iter_no_change,
            tol=tol,
            epsilon=epsilon,
            transport=transport,
            random_state=random_state,
        )
        self.class_weight = class_weight

    @_fit_context(prefer_skip_nested_validation=False)
    def fit(self, X, y, sample_weight=None):
        """Grow trees over all parties' columns.

        Parameters
        ----------
        X : DataFrame or ndarray of shape (n_samples, n_features)
            Every column of every party, aligned by rows.
        y : array-like of shape (n_samples,)
            The active party's labels.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows in the loss, by which derivatives are multiplied.

        Returns
        -------
        self : VFLBoostingClassifier

        Raises
        ------
        ValueError
            If the parties and the columns do not match; the message names both.
        PartyError
            If a party fails; the message names it.
        """
        # Weights of classes are applied by the active party, to labels that it may
        # have drawn at random; here they are only looked at.
        self._read_classes(X, y, sample_weight, self.class_weight)
        labels = self._read_classes(X, y, sample_weight, None)
        class_weight = self.class_weight
        if isinstance(class_weight, dict):
            codes = np.arange(len(self.classes_))
            class_weight = weights_of_classes(class_weight, self.classes_, codes)
        return self._fit(X, y, labels, class_weight)

    def predict_proba(self, X):
        """Probabilities of classes, in the order of ``classes_``.

        Parameters
        ----------
        X : DataFrame or ndarray of shape (n_samples, n_features)
            With the columns of ``fit``, in any order where they have names.

        Returns
        -------
        probabilities : ndarray of shape (n_samples, n_classes)
        """
        return self._serve(X)


class VFLBoostingRegressor(VFLRegressorMixin, _BaseVFLBoosting):
    """X."""

    @_fit_context(prefer_skip_nested_validation=False)
    def fit(self, X, y, sample_weight=None):
        """Grow trees over all parties' columns."""
        return self._fit(X, y, self._read_targets(X, y, sample_weight))

    def predict(self, X):
        """Predict targets in their own units."""
        return self._serve(X)[:, 0]
