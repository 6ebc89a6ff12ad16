"""Random projection of one party's columns (the RAP paper, section 2)."""

from __future__ import annotations

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from scipy import sparse
from scipy.linalg.lapack import dgeqrf, dgeqrf_lwork, dorgqr
from scipy.special import ndtri
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
)
from sklearn.utils.validation import check_is_fitted, validate_data

from skvfl._cells import unquoted
from skvfl._random import seed_sequence
from skvfl._sklearn import StrOptions, _fit_context

# Enough that correlations do not give the matrix away, little enough for a network to
# train on what comes out.
CONDITION_NUMBER = 4.0
# Of one input column in the length of an output column; above it the output is that
# column with some noise.
LARGEST_SHARE = 0.9
CHUNK_ROWS = 8192


def random_matrix(kind, n, rng):
    """Draw a private square matrix that sends no column nearly in the clear.

    Draws in which an output column is all but one input column (a share of its length
    above 0.9) are rejected; in two dimensions that is more than half of them.

    Parameters
    ----------
    kind : {"conditioned", "orthogonal", "gaussian"}
        See :class:`GaussianProjection`.
    n : int
        Number of rows and of columns.
    rng : numpy.random.Generator
        The party's private stream.

    Returns
    -------
    matrix : ndarray of shape (n, n), dtype float64
    """
    while True:
        matrix = _draw(kind, n, rng)
        shares = np.abs(matrix) / np.linalg.norm(matrix, axis=0)
        # One column can only be sent as itself, so any draw does.
        if n == 1 or shares.max() <= LARGEST_SHARE:
            return matrix


def _draw(kind, n, rng):
    gaussian = rng.standard_normal((n, n)) / np.sqrt(n)
    if kind == "gaussian":
        return gaussian
    left = _haar(gaussian)
    if kind == "orthogonal":
        return left
    right = _haar(rng.standard_normal((n, n)))
    # Symmetric about 1 on the log scale: columns keep their size on average.
    half = 0.5 * np.log(CONDITION_NUMBER)
    return (left * np.exp(rng.uniform(-half, half, n))) @ right


def _haar(gaussian):
    """Orthogonal matrix, uniform over all of them, from a Gaussian one."""
    # By hand what numpy's ``qr`` does, to the same bits and without what it copies: the
    # reflections are read off below the diagonal, and the triangle is not asked for.
    work = int(dgeqrf_lwork(*gaussian.shape)[0])
    reflections, scales, _, _ = dgeqrf(gaussian, lwork=work)
    # The signs that LAPACK picks are no part of the draw: without this the factor is
    # not uniform.
    signs = np.sign(reflections.diagonal())
    q, _, _ = dorgqr(reflections, scales, lwork=work, overwrite_a=True)
    return np.multiply(q, signs, order="C")


class GaussianProjection(
    ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator
):
    """Multiply a party's columns by a private random square matrix.

    Sections 2.2 and 2.3 of the RAP paper [1]_: the columns stay as informative as they
    were, and whoever receives them does not know the matrix. A single column is first
    joined by a pseudo column of the same mean and variance, because one number times a
    secret factor is not hidden. Scale the columns before projecting them; the
    estimators of this package do.

    Read more in the :ref:`User Guide <rap>`.

    Parameters
    ----------
    kind : {"orthogonal", "conditioned", "gaussian"}, default="orthogonal"
        How the matrix is drawn.

        - ``"orthogonal"``: a uniformly random rotation or reflection. Distances and
          inner products are exactly preserved, so models train as on the columns
          themselves. Who knows the columns' correlations and skewness can undo it; who
          knows some rows finds them by their lengths, without being told which they
          are, and fewer of them than there are columns undo part of it.
        - ``"conditioned"``: random directions with singular values between 1/2 and 2,
          log-uniformly. Neither lengths nor correlations alone undo it, unless a few
          directions dominate; distances change by at most a factor of 2, which costs
          up to a point of accuracy.
        - ``"gaussian"``: independent normal entries of variance 1 / n_features, as the
          paper writes. Hides what ``"conditioned"`` hides and costs more accuracy,
          because nearly singular draws are common (a condition number of 68 in the
          median at 20 columns).

        A draw that would send some column nearly in the clear is rejected.
    random_state : int, RandomState instance or None, default=None
        Seed of the matrix and of the key of the pseudo column. ``None`` takes them from
        the operating system. A known seed is a known secret.

    Attributes
    ----------
    n_features_in_ : int
        Number of columns seen in ``fit``.
    feature_names_in_ : ndarray of str
        Their names, where all columns have one.

    See Also
    --------
    RandomProjectionVFL : Trains a model on such projections.
    VerticalPartitioner : Gives each party a projection of its own.

    Notes
    -----
    *Who learns what.* The receiver of the output does not see the columns, and needs
    further knowledge to find them. Some kinds of knowledge suffice whatever the matrix:
    another sample of the same population (by independent component analysis, also for
    dependent columns), ``n_features`` known rows, or the frequencies of a block with
    few distinct rows, such as a binary column or a one-hot encoded category, because
    equal rows stay equal. :ref:`The privacy page <rap_privacy>` has the measurements.

    The value of the pseudo column is a keyed function of the value beside it: the same
    row always gives the same output, as scikit-learn requires, and equal values are
    visibly equal to the receiver. Fresh noise in each row, as the paper has it, would
    hide that equality.

    References
    ----------
    .. [1] Q. Zhang, X. Yan, Y. Ding, F. Fu, C. Hu, Q. Xu, X. Chen, J. Jiang, "RAP:
       Random Projection is What You Need for Vertical Federated Learning".

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.metrics.pairwise import euclidean_distances
    >>> from skvfl import GaussianProjection
    >>> X = np.random.default_rng(0).normal(size=(5, 3))
    >>> projected = GaussianProjection(random_state=0).fit_transform(X)
    >>> np.allclose(euclidean_distances(projected), euclidean_distances(X))
    True
    """

    _parameter_constraints = {
        "kind": [StrOptions({"orthogonal", "conditioned", "gaussian"})],
        "random_state": ["random_state"],
    }

    def __init__(self, *, kind="orthogonal", random_state=None):
        self.kind = kind
        self.random_state = random_state

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y=None):
        """Draw the matrix.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            The party's columns, as numbers.
        y : None
            Ignored.

        Returns
        -------
        self : GaussianProjection
        """
        X = self._validate(X, reset=True)
        rng = np.random.default_rng(
            getattr(self, "_sequence", None) or seed_sequence(self.random_state)
        )
        # Drawn also where there is no pseudo column: one order of draws for all.
        self._key = rng.bytes(32)
        if self.n_features_in_ == 1:
            column = _single_column(X)
            self._mean, self._scale = column.mean(), column.std()
        self._matrix = random_matrix(self.kind, self._n_features_out, rng)
        return self

    def transform(self, X):
        """Project rows.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            The party's columns, as numbers.

        Returns
        -------
        X_out : ndarray of shape (n_samples, n_features), dtype float32 or float64
            Of the data type of ``X``; two columns for a single one.
        """
        check_is_fitted(self, "_matrix")
        X = self._validate(X, reset=False)
        # The product is taken in double precision, and rounded to what came in: a party
        # that prepares single precision sends half the bytes.
        dtype = X.dtype
        if self.n_features_in_ == 1:
            column = _single_column(X)
            pseudo = self._mean + self._scale * keyed_normal(self._key, column)
            X = np.column_stack([column, pseudo])
        if sparse.issparse(X):
            return np.asarray(X @ self._matrix, dtype=dtype)
        out = np.empty((len(X), self._matrix.shape[1]), dtype=dtype)
        # In pieces, which need no second table in double precision; and cast before the
        # product, because numpy multiplies two types without BLAS.
        for start in range(0, len(X), CHUNK_ROWS):
            rows = slice(start, start + CHUNK_ROWS)
            out[rows] = X[rows].astype(np.float64, copy=False) @ self._matrix
        return out

    def _draw_from(self, sequence):
        """Take the secrets from a party's own stream instead of ``random_state``."""
        self._sequence = sequence

    def __sklearn_clone__(self):
        """Clone that has the stream, as a clone has the seed.

        Transformers made of transformers clone them when they are fitted.
        """
        clone = super().__sklearn_clone__()
        if hasattr(self, "_sequence"):
            clone._draw_from(self._sequence)
        return clone

    @property
    def _n_features_out(self):
        return max(self.n_features_in_, 2)

    def _validate(self, X, reset):
        return unquoted(
            validate_data,
            self,
            X,
            accept_sparse=["csr", "csc"],
            dtype=[np.float64, np.float32],
            reset=reset,
        )

    def __sklearn_is_fitted__(self):
        return hasattr(self, "_matrix")

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _single_column(X):
    column = X.toarray() if sparse.issparse(X) else X
    return column.ravel().astype(np.float64)


def keyed_normal(key, values):
    """Standard normal numbers that are a secret function of ``values``.

    Parameters
    ----------
    key : bytes of length 32
        The secret.
    values : ndarray of shape (n,), dtype float64
        Equal values give equal numbers.

    Returns
    -------
    numbers : ndarray of shape (n,), dtype float64
        The normal quantiles of AES-256 of each value: without the key they cannot be
        told from independent draws.
    """
    # AES takes blocks of 16 bytes: the value and a zero. Equal values must give equal
    # numbers, which is what ECB does and other modes do not.
    blocks = np.zeros((len(values), 2), dtype="<f8")
    # Adding zero makes -0.0 and 0.0 one value.
    blocks[:, 0] = values + 0.0
    cipher = Cipher(algorithms.AES256(key), modes.ECB()).encryptor()
    words = np.frombuffer(cipher.update(blocks.tobytes()), dtype="<u8")[::2]
    # 53 bits fill a double's mantissa; half a step keeps 0 and 1, whose quantiles are
    # infinite, out.
    return ndtri((words >> np.uint64(11)) * 2.0**-53 + 2.0**-54)
