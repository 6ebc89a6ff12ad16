"""Attacks on columns that were multiplied by a secret matrix, as RAP's are."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from skvfl.privacy.attacks._base import Attack
from skvfl.privacy.attacks._evidence import held_against
from skvfl.privacy.attacks._linear import find_turned, reconstruct
from skvfl.privacy.attacks._statistics import (
    from_frequencies,
    from_marginals,
    from_moments,
    from_sample,
    moments,
)

_LABELS = "protect_labels"


def generator(random_state):
    """Numpy's generator from scikit-learn's kind of seed."""
    if isinstance(random_state, np.random.RandomState):
        random_state = int(random_state.randint(2**31))
    return np.random.default_rng(random_state)


def received_columns(view, sender, operation):
    """What was last received of each row, side by side.

    Returns
    -------
    rows : ndarray of int
        Rows of which all is known.
    columns : ndarray of shape (len(rows), width)
    """
    # A fit may ask for columns more than once; the last answer is what models learn
    # from. Labels are no columns, unless they are what is attacked.
    last = {}
    for matrix in view.matrices(sender=sender, operation=operation):
        if operation == _LABELS or matrix.operation != _LABELS:
            last[matrix.sender, matrix.operation, matrix.place] = matrix.values
    whole = np.hstack([np.zeros((view.n_rows, 0)), *last.values()])
    rows = np.flatnonzero(~np.isnan(whole).any(axis=1))
    return rows, whole[rows]


class ColumnsAttack(Attack):
    """What attacks on projected columns have in common: a guess of every row."""

    target: ClassVar = "columns"

    def fit(self, view):
        """Look at what was received of each row in the first fit.

        Parameters
        ----------
        view : View
            Of who receives the projected columns.

        Returns
        -------
        self : Attack
        """
        view = view.fit
        rows, received = received_columns(view, self.sender, self.operation)
        # Attacks are tried on each party that sends, so one that is sent nothing, or
        # always the same, has no guess rather than an error.
        guess = None
        # Of what is the same in all rows nothing follows.
        if len(rows) > 1 and np.ptp(received, axis=0).max(initial=0) > 0:
            guess = self._guess(rows, received)
        self.guess_ = np.full(
            (view.n_rows, 1 if guess is None else guess.shape[1]), np.nan
        )
        if guess is not None:
            self.guess_[rows] = guess
        return self

    def reconstruct(self):
        """Columns as far as they were worked out.

        Returns
        -------
        guess : ndarray of shape (n_rows, n_columns)
            NaN where nothing is known beside what was known before.
        """
        check_is_fitted(self)
        return self.guess_

    @abstractmethod
    def _guess(self, rows, received):
        """Columns of the rows; None for no guess."""

    def _known_among(self, rows):
        """Known rows by their place among those received, and their values."""
        known = self._known()
        if known is None:
            return None
        place = np.searchsorted(rows, known[0]).clip(max=len(rows) - 1)
        there = rows[place] == known[0]
        values = known[1].reshape(len(known[1]), -1).astype(float)
        return (place[there], values[there]) if there.any() else None


class KnownRowsAttack(ColumnsAttack):
    """Columns behind a secret matrix, from rows whose values are known.

    With as many known rows as columns the matrix is the solution of linear equations,
    as the RAP paper [1]_ says in its third case. With fewer rows the part that they
    span is found. Where the attacker does not know which rows they are, lengths of rows
    tell, if the matrix is orthogonal; the paper's is not. A map is believed if more
    equations hold than it takes, or if what it says of known rows is not said as well
    when they are taken for one another.

    Parameters
    ----------
    known_rows : tuple (positions, values) or int, default=None
        Rows whose columns are known. Fewer than six, and no more than columns, prove
        something of an orthogonal matrix alone.
    matched : bool, default=True
        Whether the attacker knows which rows they are. If not, positions are used by
        :meth:`score` alone.
    sender : str, default=None
        Whose columns to look at; by default everybody's together.
    operation : str, default=None
        Sent by which operation; by default all but the one that sends labels.
    random_state : int, RandomState instance or None, default=None
        Of the permutations that tell knowledge from chance.

    Attributes
    ----------
    guess_ : ndarray of shape (n_rows, n_columns)
        What :meth:`reconstruct` returns.

    References
    ----------
    .. [1] Q. Zhang, X. Yan, Y. Ding, F. Fu, C. Hu, Q. Xu, X. Chen, J. Jiang, "RAP:
       Random Projection is What You Need for Vertical Federated Learning".

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.preprocessing import StandardScaler
    >>> from skvfl import RandomProjectionVFL
    >>> from skvfl.privacy import record_views
    >>> from skvfl.privacy.attacks import KnownRowsAttack
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> parties = {"clinic": range(10), "laboratory": range(10, 30)}
    >>> vfl = RandomProjectionVFL(LogisticRegression(), parties=parties)
    >>> with record_views() as views:
    ...     vfl = vfl.fit(X, y)
    >>> secret = StandardScaler().fit_transform(X[:, 10:])
    >>> attack = KnownRowsAttack(known_rows=20, sender="laboratory")
    >>> attack = attack.informed(secret, random_state=0).fit(views["server"])
    >>> round(attack.score(secret), 2)
    1.0
    """

    def __init__(
        self,
        *,
        known_rows=None,
        matched=True,
        sender=None,
        operation=None,
        random_state=None,
    ):
        self.known_rows = known_rows
        self.matched = matched
        self.sender = sender
        self.operation = operation
        self.random_state = random_state

    def _guess(self, rows, received):
        known = self._known() if not self.matched else self._known_among(rows)
        if known is None:
            return None
        places, values = known
        if not self.matched:
            values = values.reshape(len(values), -1).astype(float)
            found = find_turned(received, values)
            if found is None:
                return None
            places, values = np.array(found[0]), values[found[1]]
        return reconstruct(received, places, values, generator(self.random_state))


class MomentsAttack(ColumnsAttack):
    """Columns behind an orthogonal matrix, from their correlations and skewness.

    An orthogonal matrix keeps variances along principal components. Known correlations
    therefore say which received component is which known one, and known skewness says
    with what sign. The RAP paper [1]_ concludes from means alone that a known
    distribution leaves the columns hidden; see [2]_ for the components.

    Parameters
    ----------
    moments : tuple (mean, covariance, third), bool or None, default=None
        Mean, covariance matrix and third central moments of the columns. True stands
        for those of the truth, which :meth:`informed` computes.
    known_rows : tuple (positions, values) or int, default=None
        Rows whose columns are known: they are held against the reconstruction.
    sender : str, default=None
        Whose columns to look at; by default everybody's together.
    operation : str, default=None
        Sent by which operation; by default all but the one that sends labels.
    random_state : int, RandomState instance or None, default=None
        Of the search for signs.

    Attributes
    ----------
    guess_ : ndarray of shape (n_rows, n_columns)
        What :meth:`reconstruct` returns.

    See Also
    --------
    IndependentComponentsAttack : From a sample, and whatever the matrix.

    References
    ----------
    .. [1] Q. Zhang, X. Yan, Y. Ding, F. Fu, C. Hu, Q. Xu, X. Chen, J. Jiang, "RAP:
       Random Projection is What You Need for Vertical Federated Learning".
    .. [2] K. Liu, C. Giannella, H. Kargupta, "An attacker's view of distance preserving
       maps for privacy preserving data mining", PKDD 2006.

    Examples
    --------
    >>> from skvfl.privacy.attacks import MomentsAttack
    >>> MomentsAttack(moments=True, sender="party1")
    MomentsAttack(moments=True, sender='party1')
    """

    def __init__(
        self,
        *,
        moments=None,
        known_rows=None,
        sender=None,
        operation=None,
        random_state=None,
    ):
        self.moments = moments
        self.known_rows = known_rows
        self.sender = sender
        self.operation = operation
        self.random_state = random_state

    def informed(self, truth, random_state=None):
        """A copy that has the side knowledge which its parameters only name.

        Parameters
        ----------
        truth : ndarray of shape (n_rows, n_columns)
            The columns whose moments are given away.
        random_state : int, RandomState instance or None, default=None
            Which rows are known, where some are.

        Returns
        -------
        attack : MomentsAttack
        """
        attack = super().informed(truth, random_state)
        if attack.moments is True:
            columns = np.asarray(truth, float).reshape(len(truth), -1)
            attack.set_params(moments=moments(columns))
        return attack

    def _guess(self, rows, received):
        if self.moments is None:
            return None
        # Known rows only refute: moments alone leave signs that nothing else decides.
        known = [np.asarray(each, float) for each in self.moments]
        guess = from_moments(received, *known, generator(self.random_state))
        if guess is None:
            return None
        return held_against(guess, self._known_among(rows))

    def _mean(self, truth):
        return super()._mean(truth) if self.moments is None else self.moments[0]


class IndependentComponentsAttack(ColumnsAttack):
    """Columns behind any matrix, from histograms, by independent component analysis.

    A matrix that mixes columns does not change the independent components behind them.
    With a sample of the same population the attacker finds the components of both, and
    pairs them by their histograms, as in [1]_. Histograms of the columns alone are
    enough where the columns are independent of one another, or where there is one. What
    comes out is believed as far as trials on the sample itself come out.

    Parameters
    ----------
    marginals : ndarray of shape (n_samples, n_columns) or bool, default=None
        Values of each column by itself. True stands for those of the truth.
    shadow : tuple (X, y), default=None
        Columns of rows like those of the run; ``y`` is not looked at. Takes the place
        of ``marginals``.
    known_rows : tuple (positions, values) or int, default=None
        Rows whose columns are known: they are held against the reconstruction.
    sender : str, default=None
        Whose columns to look at; by default everybody's together.
    operation : str, default=None
        Sent by which operation; by default all but the one that sends labels. A
        numerical target that is mixed with a pseudo target is a single column.
    random_state : int, RandomState instance or None, default=None
        Of the component analysis.

    Attributes
    ----------
    guess_ : ndarray of shape (n_rows, n_columns)
        What :meth:`reconstruct` returns.

    References
    ----------
    .. [1] K. Liu, H. Kargupta, J. Ryan, "Random projection-based multiplicative data
       perturbation for privacy preserving distributed data mining", IEEE Transactions
       on Knowledge and Data Engineering 18, 2006.

    Examples
    --------
    >>> from skvfl.privacy.attacks import IndependentComponentsAttack
    >>> IndependentComponentsAttack(marginals=True, sender="party1")
    IndependentComponentsAttack(marginals=True, sender='party1')
    """

    def __init__(
        self,
        *,
        marginals=None,
        shadow=None,
        known_rows=None,
        sender=None,
        operation=None,
        random_state=None,
    ):
        self.marginals = marginals
        self.shadow = shadow
        self.known_rows = known_rows
        self.sender = sender
        self.operation = operation
        self.random_state = random_state

    def _guess(self, rows, received):
        rng = generator(self.random_state)
        if self.shadow is not None:
            guess = from_sample(received, _sample(self.shadow), rng)
        elif self.marginals is not None:
            guess = from_marginals(received, np.asarray(self.marginals, float), rng)
        else:
            return None
        return held_against(guess, self._known_among(rows))

    def _mean(self, truth):
        return _shadow_mean(self.shadow, super()._mean(truth))


class FrequencyAttack(ColumnsAttack):
    """Rows of few kinds, from how often each kind is in a sample.

    Equal rows are sent as equal rows, under any matrix. So the attacker counts how many
    rows are equal and takes the most frequent kind for the most frequent one that it
    knows. It is the oldest attack on what is encrypted without noise [1]_.

    Parameters
    ----------
    shadow : tuple (X, y), default=None
        Columns of rows like those of the run; ``y`` is not looked at.
    marginals : ndarray of shape (n_samples, 1) or bool, default=None
        The same for a party with a single column. True stands for the truth's.
    known_rows : tuple (positions, values) or int, default=None
        Rows whose columns are known: they are held against the reconstruction.
    sender : str, default=None
        Whose columns to look at; by default everybody's together.
    operation : str, default=None
        Sent by which operation; by default all but the one that sends labels.

    Attributes
    ----------
    guess_ : ndarray of shape (n_rows, n_columns)
        What :meth:`reconstruct` returns.

    References
    ----------
    .. [1] M. Naveed, S. Kamara, C. V. Wright, "Inference attacks on
       property-preserving encrypted databases", CCS 2015.

    Examples
    --------
    >>> from skvfl.privacy.attacks import FrequencyAttack
    >>> FrequencyAttack(marginals=True, sender="party1")
    FrequencyAttack(marginals=True, sender='party1')
    """

    def __init__(
        self,
        *,
        shadow=None,
        marginals=None,
        known_rows=None,
        sender=None,
        operation=None,
    ):
        self.shadow = shadow
        self.marginals = marginals
        self.known_rows = known_rows
        self.sender = sender
        self.operation = operation

    def _guess(self, rows, received):
        # Kinds of rows are counted, which a table of independent columns has lost.
        if self.shadow is not None:
            sample = _sample(self.shadow)
        elif self.marginals is not None:
            sample = np.asarray(self.marginals, float)
            if sample.shape[1] > 1:
                raise ValueError(
                    f"marginals have {sample.shape[1]} columns, and kinds of rows are "
                    "counted: give whole rows as shadow=(X, None)"
                )
        else:
            return None
        guess = from_frequencies(received, sample)
        if guess is None:
            return None
        return held_against(guess, self._known_among(rows))

    def _mean(self, truth):
        return _shadow_mean(self.shadow, super()._mean(truth))


def _sample(shadow):
    columns = np.asarray(shadow[0], float)
    return columns.reshape(len(columns), -1)


def _shadow_mean(shadow, otherwise):
    return otherwise if shadow is None else _sample(shadow).mean(axis=0)
