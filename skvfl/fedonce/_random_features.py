"""A representation that is learnt from nobody."""

from __future__ import annotations

from numbers import Integral

import numpy as np
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
)
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.validation import check_is_fitted, validate_data

from skvfl._cells import unquoted
from skvfl._random import generator
from skvfl._sklearn import Interval, _fit_context


class RandomFeaturesEncoder(
    ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator
):
    """Project columns onto random directions, and squash the result by tanh.

    A representation that depends on no row but its own: ``fit`` reads the number of
    columns and nothing else. A released encoder therefore says nothing about the rows,
    and costs no differential privacy; as a guest of :class:`FedOnceClassifier` it
    leaves the whole budget to the host. The *representation* hides nothing from whoever
    has it: where there are no more columns than directions, both steps can be undone.

    Read more in the :ref:`User Guide <fedonce>`.

    Parameters
    ----------
    n_components : int, default=32
        Number of directions.
    random_state : int, RandomState instance or None, default=None
        Seed of the directions, which are no secret. ``None`` takes fresh entropy from
        the operating system.

    Attributes
    ----------
    components_ : ndarray of shape (n_features, n_components)
        The directions: independent normal numbers of variance 1 / n_features.
    n_features_in_ : int
        Number of columns seen in ``fit``.
    feature_names_in_ : ndarray of str
        Their names, where all columns have one.

    See Also
    --------
    NoiseAsTargetsEncoder : A representation that is learnt.
    GaussianProjection : A secret projection that loses nothing.

    Notes
    -----
    Scale the columns first; the estimators of this package do. That scaling is fitted
    on data, and is part of what is released.

    Examples
    --------
    >>> import numpy as np
    >>> from skvfl import RandomFeaturesEncoder
    >>> X, Z = np.random.default_rng(0).normal(size=(2, 50, 10))
    >>> first, second = (
    ...     RandomFeaturesEncoder(3, random_state=0).fit(data) for data in (X, Z)
    ... )
    >>> np.array_equal(first.transform(X), second.transform(X))
    True
    """

    _parameter_constraints = {
        "n_components": [Interval(Integral, 1, None, closed="left")],
        "random_state": ["random_state"],
    }

    def __init__(self, n_components=32, *, random_state=None):
        self.n_components = n_components
        self.random_state = random_state

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y=None):
        """Draw the directions.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Only its number of columns matters.
        y : None
            Ignored.

        Returns
        -------
        self : RandomFeaturesEncoder
        """
        self._validate(X, reset=True)
        shape = self.n_features_in_, self.n_components
        directions = generator(self.random_state).standard_normal(shape)
        # Projections of standardised columns then have a variance near 1 for any number
        # of columns, where tanh bends and does not yet saturate.
        self.components_ = directions / np.sqrt(self.n_features_in_)
        return self

    def transform(self, X):
        """Represent rows.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Columns as numbers.

        Returns
        -------
        X_out : ndarray of shape (n_samples, n_components), dtype float32 or float64
            Of the data type of ``X``, between -1 and 1.
        """
        check_is_fitted(self)
        X = self._validate(X, reset=False)
        # Dense: the directions are, and a sparse result would gain nothing.
        projected = safe_sparse_dot(X, self.components_, dense_output=True)
        return np.tanh(projected).astype(X.dtype)

    @property
    def _n_features_out(self):
        return self.n_components

    def _validate(self, X, reset):
        return unquoted(
            validate_data,
            self,
            X,
            accept_sparse=["csr", "csc"],
            dtype=[np.float64, np.float32],
            reset=reset,
        )

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
