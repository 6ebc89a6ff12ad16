"""What the estimators share. Think twice before adding anything."""

from __future__ import annotations

import math
from contextlib import contextmanager
from numbers import Integral

import numpy as np
from scipy import sparse
from sklearn.base import (
    BaseEstimator,
    ClassifierMixin,
    RegressorMixin,
    is_classifier,
)
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted, validate_data

from skvfl._course import Course
from skvfl._halves import HalvesMixin
from skvfl._opening import TRANSPORTS, OpeningMixin
from skvfl._random import branch, seed_sequence
from skvfl._sklearn import (
    CallbackSupportMixin,
    StrOptions,
    _num_samples,
    check_instances,
)
from skvfl._targets import (
    as_classes,
    as_targets,
    check_entries,
    check_total,
    read_labels,
    read_weights,
    weights_of_classes,
)
from skvfl.federation import (
    CommunicationLog,
    Federation,
    Labels,
    Transport,
)
from skvfl.federation._log import current_log
from skvfl.federation._replies import Count, Rows, most_columns
from skvfl.partition._names import canonical_order, party_name
from skvfl.partition._partitioner import VerticalPartitioner, as_partition
from skvfl.partition._tables import _check_table


def read_truth(y, sample_weight, n_rows, *, classifies):
    """True labels or targets and weights, as a score can use them.

    scikit-learn's scores take what lies under a mask for a label, and negative weights.
    """
    y = read_labels(y)
    y = as_classes(y) if classifies else as_targets(y)
    check_entries(len(y), n_rows, "y")
    if sample_weight is not None:
        sample_weight = read_weights(sample_weight, n_rows)
    return y, sample_weight


def check_kind(y, classes):
    """Refuse text where the classes are numbers, and the reverse.

    scikit-learn does so too, with all labels in its message.
    """
    kinds = ["text" if each.dtype.kind in "UO" else "numbers" for each in (y, classes)]
    if kinds[0] != kinds[1]:
        raise ValueError(f"y holds {kinds[0]}, and the labels of fit were {kinds[1]}")


def check_answers(answers):
    """Refuse predictions that are not finite.

    Parameters
    ----------
    answers : ndarray, or dict of str to ndarray
        What a fitted model says of rows.

    Returns
    -------
    answers : the same

    Raises
    ------
    ValueError
        If one of them is NaN or infinite; the message counts the rows.
    """
    for each in answers.values() if isinstance(answers, dict) else [answers]:
        if each.dtype.kind == "f" and not np.isfinite(each).all():
            spoilt = ~np.isfinite(each.reshape(len(each), -1)).all(axis=1)
            raise ValueError(
                f"the answers for {np.count_nonzero(spoilt)} of {len(each)} rows of X "
                "are not finite: their cells lie far outside those of fit, or training "
                "diverged; look at the scales of the columns"
            )
    return answers


def _check_same_columns(before, now):
    """Refuse to go on with models of other columns, or of others' columns."""
    # Networks and what prepares columns would take any others of the same number.
    if {n: [*held] for n, held in before.items()} != {n: [*x] for n, x in now.items()}:
        raise ValueError(
            "warm_start=True goes on with the models of the last fit, and the parties "
            "have other columns than in it: set warm_start=False"
        )


class VFLClassifierMixin(ClassifierMixin):
    """A classifier that predicts what is likeliest, and looks at what it is given."""

    def predict(self, X):
        """Predict classes.

        Parameters
        ----------
        X : DataFrame, ndarray or sparse matrix of shape (n_samples, n_features)
            With the columns of ``fit``, in any order where they have names.

        Returns
        -------
        y : ndarray of shape (n_samples,)
            Of the data type of ``classes_``.
        """
        codes = self.predict_proba(X).argmax(axis=1)
        return self.classes_[codes]

    def score(self, X, y, sample_weight=None):
        """Accuracy.

        Parameters
        ----------
        X : DataFrame, ndarray or sparse matrix of shape (n_samples, n_features)
            With the columns of ``fit``, in any order where they have names.
        y : array-like of shape (n_samples,)
            True labels.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows.

        Returns
        -------
        score : float
        """
        n_rows = _num_samples(_check_table(X))
        check_is_fitted(self)
        y, sample_weight = read_truth(y, sample_weight, n_rows, classifies=True)
        check_kind(y, self.classes_)
        return super().score(X, y, sample_weight)


class VFLRegressorMixin(RegressorMixin):
    """A regressor whose score looks at what it is given."""

    def score(self, X, y, sample_weight=None):
        """R², the share of the target's variance that is predicted.

        Parameters
        ----------
        X : DataFrame, ndarray or sparse matrix of shape (n_samples, n_features)
            With the columns of ``fit``, in any order where they have names.
        y : array-like of shape (n_samples,)
            True targets.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows.

        Returns
        -------
        score : float
        """
        n_rows = _num_samples(_check_table(X))
        return super().score(X, *read_truth(y, sample_weight, n_rows, classifies=False))


class VFLEstimator(OpeningMixin, HalvesMixin, CallbackSupportMixin, BaseEstimator):
    """Who holds what, and how to reach the parties.

    Subclasses have the parameters ``parties``, ``active`` and ``transport``, keep
    their fitted parties in ``_parties``, and say in ``_roles``, or in ``_settings``,
    what each is told.
    """

    # Whether every member is asked once, when the run is opened.
    _one_round = False

    _parameter_constraints = {
        "parties": [
            *VerticalPartitioner._parameter_constraints["parties"],
            VerticalPartitioner,
            Federation,
        ],
        "active": [str, Integral],
        "missing_rows": [StrOptions({"raise", "impute"})],
        "transport": [StrOptions(set(TRANSPORTS)), Transport],
        "random_state": ["random_state"],
    }

    def set_params(self, **params):
        """Set parameters, nested ones as ``name__parameter``.

        Parameters
        ----------
        **params : dict
            As named by ``get_params``.

        Returns
        -------
        self : estimator

        Raises
        ------
        ValueError
            If a parameter does not exist, or is nested in one that is not an estimator
            yet.
        """
        for key in params:
            name, nested, parameter = key.partition("__")
            # The new value counts, as scikit-learn sets ``name`` before what is nested.
            # A name that does not exist is left to scikit-learn's own message.
            value = params.get(name, getattr(self, name, self))
            if nested and not hasattr(value, "set_params"):
                raise ValueError(
                    f"{name}={value!r} has no parameter {parameter!r}: set {name} to "
                    "an estimator first, whose parameters can then be reached"
                )
        return super().set_params(**params)

    def __sklearn_is_fitted__(self):
        return hasattr(self, "_parties")

    def _fit_partition(self, X, y, sequence):
        """Find each party's columns and the active party; return the table."""
        if sparse.issparse(X) and not get_tags(self).input_tags.sparse:
            raise TypeError(
                "sparse input is not supported by the parties' transformers; convert "
                "it to a dense array, or choose transformers that take sparse columns"
            )
        X = _check_table(X)
        check_entries(_num_samples(y), _num_samples(X), "y")
        self._put_aside_earlier()
        before = None if self._earlier is None else self.partition_.parties_
        self.partition_, label_owner = self._partition_of(X)
        check_instances(self.partition_)
        self.partition_._validate_params()
        X = self.partition_._fit_columns(
            X, y, label_owner=label_owner, sequence=sequence
        )
        self.n_features_in_ = self.partition_.n_features_in_
        if hasattr(self.partition_, "feature_names_in_"):
            self.feature_names_in_ = self.partition_.feature_names_in_
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        written = self.partition_.parties_
        if not isinstance(self.parties, Federation):
            self._active = party_name(written, self.active)
            # Everything after this goes through the parties in one order, so that sums
            # and networks do not depend on how a dict was written.
            self.partition_.parties_ = canonical_order(written)
            self._names = list(self.partition_.parties_)
        if before is not None:
            _check_same_columns(before, self.partition_.parties_)
        return X

    def _put_aside_earlier(self):
        """Forget the parties of an earlier fit, but for a warm start."""
        # A fit that fails must not leave them to predict with.
        earlier = self.__dict__.pop("_parties", None)
        self._earlier = earlier if getattr(self, "warm_start", False) else None
        self._replaces = earlier is not None and self._earlier is None
        self.__dict__.pop("_n_columns", None)

    def _partition_of(self, X):
        """Who is to hold which columns of the table here, and who has the labels."""
        if not isinstance(self.parties, Federation):
            return as_partition(self.parties), self.active
        # Before anything is sent: half a run is of no use to anybody.
        if self.parties.one_round and not self._one_round:
            raise ValueError(
                f"{type(self).__name__} with these parameters asks the parties "
                f"again and again, and {type(self.parties).__name__} carries one "
                "question to each: connect to the parties, or choose RAP, FedOnce "
                "without split epochs, or APC-VFL"
            )
        # A federation knows its members' names alone, so the partition is of the one
        # table that is here, and the order of the names is the federation's.
        self._names = list(self.parties.names)
        self._active = party_name(self._names, self.active)
        columns = {self._active: self.parties.own_columns(X)}
        return VerticalPartitioner(parties=columns, remainder="drop"), self._active

    def _last_losses(self, train="loss_curve_", held_out="validation_loss_curve_"):
        """Of the last epoch, by skorch's names for them."""
        losses = {"train_loss": getattr(self, train)[-1]}
        if getattr(self, held_out):
            losses["valid_loss"] = getattr(self, held_out)[-1]
        return losses

    def _ask_callbacks(self, session, losses):
        """Whether callbacks of the party that knows the loss end training."""
        if not self._machine(self._listener)["callbacks"]:
            return False
        ends = Count(0, 1)
        return bool(session.ask(self._listener, "end_epoch", reply=ends, losses=losses))

    @contextmanager
    def _training(self, X, y, labels, n_tasks, *, root=None):
        """Session of a fit that the active party runs; for a ``with`` statement.

        Parameters
        ----------
        X, y
            As ``fit`` was given them.
        labels : Labels
            What the active party learns from.
        n_tasks : int
            How many tasks callbacks will hear of at most.
        root : SeedSequence, default=None
            Of all streams; of ``random_state`` by default. A method that branches off
            streams itself gives it.

        Yields
        ------
        session : Session
        course : Course
            Of its tasks.
        """
        # A RandomState gives another root each time, so it is asked once.
        root = seed_sequence(self.random_state) if root is None else root
        X = self._fit_partition(X, y, branch(root, 0))
        members = self._make_members(X, root, labels)
        with Course(self, X, y, n_tasks) as course:
            self.communication_ = CommunicationLog()
            with self._open(members, self.communication_, self._active) as session:
                course.session = session
                yield session, course
            # Only now, when the session has ended well, is the estimator fitted.
            self._parties = session.parties

    def _serving(self, X):
        """Session of a prediction that the active party runs."""
        # Only a fitted estimator knows who is active.
        check_is_fitted(self)
        return self._reopen(X, current_log(), self._active)

    def _begin_curves(self):
        """Curves of the losses; with ``warm_start`` the training loss goes on."""
        before = [] if self._earlier is None else self.loss_curve_
        # A copy, because an earlier fit survives this one if it fails.
        self.loss_curve_, self.validation_loss_curve_ = list(before), []

    def _so_far(self, session, **more):
        """Attributes of an estimator with what has been learnt so far.

        Parameters
        ----------
        session : Session
            Of the fit.
        **more
            What this method sets when its fit has ended.

        Returns
        -------
        attributes : dict
        """
        n_iter = len(self.loss_curve_)
        if hasattr(self, "label_epsilon_"):
            more["label_epsilon_"] = self.label_epsilon_
        return {"_parties": session.halves(), "n_iter_": n_iter, **more}

    @property
    def _holders(self):
        """Parties that hold columns."""
        if hasattr(self, "_n_columns"):
            return [name for name in self._names if self._n_columns.get(name)]
        return [name for name, held in self.partition_.parties_.items() if held.size]

    @property
    def _n_outputs(self):
        """Number of outputs of a network that predicts."""
        return len(self.classes_) if is_classifier(self) else 1

    @property
    def _any_widths(self):
        """What is expected of parties that say how many columns they will send."""
        # A transformer may widen its columns, and one-hot codes do; a bound keeps a
        # party from making the receiver allocate whatever it says.
        held = {n: len(columns) for n, columns in self.partition_.parties_.items()}
        held |= getattr(self, "_n_columns", {})
        return {n: Count(1, most_columns(held[n])) for n in self._holders}

    def _any_rows(self, n_rows):
        """What is expected of parties that never said how many columns they send."""
        return {
            name: Rows(n_rows, count.high, exact=False)
            for name, count in self._any_widths.items()
        }

    def _encode_classes(self, y):
        """Classes as 0 … K - 1; sets ``classes_``."""
        if y is None:
            validate_data(self, y=None)
        classes, codes = np.unique(as_classes(read_labels(y)), return_inverse=True)
        if len(classes) < 2:
            raise ValueError(
                "y holds one class only; a classifier needs at least two: give rows of "
                "another one, too, or stratify where rows are drawn"
            )
        warm = getattr(self, "warm_start", False) and hasattr(self, "_parties")
        if warm and not np.array_equal(classes, self.classes_):
            raise ValueError(
                "warm_start=True goes on with the models of the last fit, and y has "
                "other classes: set warm_start=False"
            )
        self.classes_ = classes
        return codes.astype(np.int64)

    def _encode_target(self, y):
        """Target as float64."""
        if y is None:
            validate_data(self, y=None)
        # RAP is a classifier or a regressor by its model, and may be fitted as both.
        self.__dict__.pop("classes_", None)
        return as_targets(read_labels(y))

    def _check_label_budget(self):
        """Refuse what a budget of the labels' privacy does not cover."""
        if self.label_epsilon is not None and self.class_weight is not None:
            raise ValueError(
                "class_weight cannot be used with label_epsilon: rows would weigh what "
                "their true classes weigh, which gradients show; leave it at None"
            )

    def _spend_on_labels(self):
        """Say what this fit, and those that it goes on from, spend on the labels."""
        before = self.__dict__.pop("label_epsilon_", None)
        # A refit without a budget must not keep that of the fit before it.
        if self.label_epsilon is None:
            return
        if self._earlier is None:
            before = 0.0
        elif before is None:
            # It was without a budget, and all that gradients say has been shown.
            before = math.inf
        self.label_epsilon_ = before + float(self.label_epsilon)

    def _read_classes(self, X, y, sample_weight, class_weight):
        """Labels of classes, for the active party; sets ``classes_``."""
        codes = self._encode_classes(y)
        weights = self._row_weights(X, sample_weight, class_weight, codes)
        return Labels(codes, len(self.classes_), weights)

    def _read_targets(self, X, y, sample_weight):
        """A numerical target in its own units, for the active party."""
        target = self._encode_target(y)
        return Labels(target, weights=self._row_weights(X, sample_weight))

    def _row_weights(self, X, sample_weight, class_weight=None, codes=None):
        """Weights of rows, those of their classes included, or None."""
        if sample_weight is None and class_weight is None:
            return None
        n_rows = _num_samples(_check_table(X))
        weights = np.ones(n_rows)
        if sample_weight is not None:
            weights = read_weights(sample_weight, n_rows)
        if class_weight is None:
            return weights
        check_entries(len(codes), n_rows, "y")
        weights = weights * weights_of_classes(class_weight, self.classes_, codes)
        check_total(weights, "class_weight")
        return weights

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        partition = as_partition(self.parties)
        tags.input_tags = get_tags(partition).input_tags
        tags.input_tags.allow_nan = partition._prepares_by_default
        return tags
