"""What the estimators share. Think twice before adding anything."""

from __future__ import annotations

from contextlib import contextmanager
from numbers import Integral

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils import compute_sample_weight, get_tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from skvfl._partition import (
    VerticalPartitioner,
    as_partition,
    canonical_order,
    party_name,
)
from skvfl._sklearn import CallbackSupportMixin, StrOptions, _check_sample_weight
from skvfl.federation import LocalTransport, ProcessTransport, Transport
from skvfl.federation._log import current_log

_TRANSPORTS = {"local": LocalTransport, "process": ProcessTransport}


@contextmanager
def _no_quotes(name):
    """Replace a message of numpy that quotes what cannot be read as a number."""
    try:
        yield
    except ValueError as exc:
        if "could not convert" not in str(exc):
            raise
        raise ValueError(f"{name} holds values that are not numbers") from None


class VFLEstimator(CallbackSupportMixin, BaseEstimator):
    """Who holds what, and how to reach the parties.

    Subclasses have the parameters ``parties``, ``active`` and ``transport``, and keep
    their fitted parties in ``_parties``.
    """

    _parameter_constraints = {
        "parties": [
            *VerticalPartitioner._parameter_constraints["parties"],
            VerticalPartitioner,
        ],
        "active": [str, Integral],
        "transport": [StrOptions(set(_TRANSPORTS)), Transport],
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
        self.__dict__.pop("_parties", None)
        self.partition_ = as_partition(self.parties)
        X = self.partition_._fit_columns(
            X, y, label_owner=self.active, sequence=sequence
        )
        self.n_features_in_ = self.partition_.n_features_in_
        if hasattr(self.partition_, "feature_names_in_"):
            self.feature_names_in_ = self.partition_.feature_names_in_
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        written = self.partition_.parties_
        self._active = party_name(written, self.active)
        # Everything after this goes through the parties in one order, so that sums and
        # networks do not depend on how a dict was written.
        self.partition_.parties_ = canonical_order(written)
        return X

    @property
    def _holders(self):
        """Parties that hold columns."""
        return [name for name, held in self.partition_.parties_.items() if held.size]

    def _encode_classes(self, y):
        """Classes as 0 … K - 1; sets ``classes_``."""
        y = validate_data(self, y=y)
        check_classification_targets(y)
        try:
            self.classes_, codes = np.unique(y, return_inverse=True)
        except TypeError as exc:
            raise ValueError(
                "y mixes labels of several types, or holds missing ones"
            ) from exc
        if len(self.classes_) < 2:
            raise ValueError("y holds one class only; a classifier needs at least two")
        return codes.astype(np.int64)

    def _encode_target(self, y):
        """Target as float64."""
        self.__dict__.pop("classes_", None)
        with _no_quotes("y"):
            y = validate_data(self, y=y, y_numeric=True).astype(np.float64)
        if not len(y):
            raise ValueError("y holds no target")
        return y

    def _row_weights(self, X, sample_weight, class_weight=None, codes=None):
        """Weights of rows, those of their classes included, or None."""
        if sample_weight is None and class_weight is None:
            return None
        with _no_quotes("sample_weight"):
            weights = _check_sample_weight(
                sample_weight, X, dtype=np.float64, ensure_non_negative=True
            )
        if class_weight is None:
            return weights
        return weights * compute_sample_weight(class_weight, self.classes_[codes])

    @property
    def _transport(self):
        if isinstance(self.transport, str):
            return _TRANSPORTS[self.transport]()
        return self.transport

    def _connect(self, parties, log, centre="server"):
        """Open a session with parties that hold what they need."""
        return self._transport.connect(parties, log, centre)

    def _connect_fitted(self, X, centre="server"):
        """Open a session in which the fitted parties hold their columns of ``X``."""
        check_is_fitted(self)
        blocks = self.partition_.split(X)
        return self._connect(
            [
                party.holding(block=blocks[name])
                for name, party in self._parties.items()
            ],
            current_log(),
            centre,
        )

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        partition = as_partition(self.parties)
        tags.input_tags = get_tags(partition).input_tags
        tags.input_tags.allow_nan = partition._prepares_by_default
        return tags
