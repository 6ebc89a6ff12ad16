"""What the estimators share. Think twice before adding anything."""

from __future__ import annotations

from numbers import Integral

from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from skvfl._partition import VerticalPartitioner, as_partition, party_name
from skvfl._sklearn import CallbackSupportMixin, StrOptions
from skvfl.federation import LocalTransport, ProcessTransport, Transport
from skvfl.federation._log import current_log

_TRANSPORTS = {"local": LocalTransport, "process": ProcessTransport}


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

    def _fit_partition(self, X, y, sequence):
        """Find each party's columns; return the table and the active party's name."""
        if sparse.issparse(X) and not get_tags(self).input_tags.sparse:
            raise TypeError(
                "sparse input is not supported by the parties' transformers; convert "
                "it to a dense array, or choose transformers that take sparse columns"
            )
        self.partition_ = as_partition(self.parties)
        X = self.partition_.fit_columns(
            X, y, label_owner=self.active, sequence=sequence
        )
        self.n_features_in_ = self.partition_.n_features_in_
        if hasattr(self.partition_, "feature_names_in_"):
            self.feature_names_in_ = self.partition_.feature_names_in_
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        return X, party_name(self.partition_.parties_, self.active)

    def _connect(self, parties, log):
        """Open a session with parties that hold what they need."""
        transport = self.transport
        if isinstance(transport, str):
            transport = _TRANSPORTS[transport]()
        return transport.connect(parties, log)

    def _connect_fitted(self, X):
        """Open a session in which the fitted parties hold their columns of ``X``."""
        check_is_fitted(self, "partition_")
        blocks = self.partition_.split(X)
        return self._connect(
            [
                party.holding(block=blocks[name])
                for name, party in self._parties.items()
            ],
            current_log(),
        )

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        partition = as_partition(self.parties)
        tags.input_tags = get_tags(partition).input_tags
        tags.input_tags.allow_nan = partition.prepares_by_default
        return tags
