"""Which of RAP's aliases belong to one class."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from skvfl.privacy.attacks._base import Attack
from skvfl.privacy.attacks._evidence import LEVEL, N_PERMUTATIONS
from skvfl.privacy.attacks._projection import generator, received_columns

_LABELS = "protect_labels"


class AliasAttack(Attack):
    """Classes from aliases, by the rows behind them, or by two fits.

    RAP sends one of two aliases of its class for every row [1]_. Both aliases of a
    class have rows that are statistically alike, so the attacker pairs the aliases
    whose rows have the nearest means, at the scale of the rows' spread within aliases.
    Where the same rows were sent in two fits, it pairs aliases that meet in the same
    aliases of the other fit. Which class a pair is, a few known labels say.

    Parameters
    ----------
    known_rows : tuple (positions, values) or int, default=None
        Rows whose labels are known. Without any, classes have no names, and
        :meth:`score` says which share of the aliases is paired rightly: 0 for pairs by
        chance, 1 if all are.
    random_state : int, RandomState instance or None, default=None
        Of the permutations that tell knowledge from chance.

    Attributes
    ----------
    aliases_ : ndarray of int of shape (n_rows,)
        What was received of the rows' labels; -1 for nothing.
    partners_ : ndarray of int of shape (n_aliases,)
        The alias that each alias is paired with.

    References
    ----------
    .. [1] Q. Zhang, X. Yan, Y. Ding, F. Fu, C. Hu, Q. Xu, X. Chen, J. Jiang, "RAP:
       Random Projection is What You Need for Vertical Federated Learning".

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.linear_model import LogisticRegression
    >>> from skvfl import RandomProjectionVFL
    >>> from skvfl.privacy import record_views
    >>> from skvfl.privacy.attacks import AliasAttack
    >>> X, y = load_digits(return_X_y=True)
    >>> model = LogisticRegression(max_iter=5)
    >>> vfl = RandomProjectionVFL(model, parties=2, random_state=0)
    >>> with record_views() as views:
    ...     vfl = vfl.fit(X, y)
    >>> AliasAttack().fit(views["server"]).score(y)
    1.0
    """

    target: ClassVar = "labels"

    def __init__(self, *, known_rows=None, random_state=None):
        self.known_rows = known_rows
        self.random_state = random_state

    def fit(self, view):
        """Pair aliases.

        Parameters
        ----------
        view : View
            Of who receives aliases and columns. Fits of tables with as many rows are
            taken to be of the same rows.

        Returns
        -------
        self : AliasAttack
        """
        n_rows = view.fit.n_rows
        fits = [view.run(number) for number in view.fits]
        drawn = [_aliases(fit) for fit in fits if fit.n_rows == n_rows]
        drawn = [each for each in drawn if each is not None]
        if not drawn:
            self.aliases_ = np.full(n_rows, -1)
            self.partners_ = np.zeros(0, int)
            return self
        self.aliases_ = drawn[0]
        if len(drawn) > 1:
            distances = _apart_by_fits(drawn[0], drawn[1:])
        else:
            rows, columns = received_columns(view.fit, None, None)
            distances = _apart_by_means(columns, drawn[0][rows], drawn[0].max() + 1)
        self.partners_ = pair(distances)
        return self

    def reconstruct(self):
        """Class of every row, or number of its group where no labels are known.

        Returns
        -------
        labels : ndarray of shape (n_rows,)
        """
        check_is_fitted(self)
        alone = np.arange(len(self.partners_))
        group = np.append(np.minimum(self.partners_, alone), -1)[self.aliases_]
        known = self._known()
        if known is None:
            return group
        rows, values = known
        classes, codes = np.unique(values, return_inverse=True)
        votes = np.zeros((group.max() + 2, len(classes)))
        np.add.at(votes, (group[rows], codes), 1)
        most = np.bincount(codes).argmax()
        named = np.where(votes.sum(axis=1) > 0, votes.argmax(axis=1), most)
        if not self._agree(group[rows], codes):
            named[:] = most
        return classes[named[group]]

    def score(self, truth):
        """How much of the labels was found; see :class:`AliasAttack`.

        Parameters
        ----------
        truth : ndarray of shape (n_rows,)
            Labels of the rows.

        Returns
        -------
        score : float
        """
        check_is_fitted(self)
        if self._known() is not None:
            return super().score(truth)
        truth = np.unique(np.asarray(truth), return_inverse=True)[1]
        seen = np.unique(self.aliases_[self.aliases_ >= 0])
        if len(seen) < 3:
            return 0.0
        of_alias = np.full(len(self.partners_), -1)
        for alias in seen:
            of_alias[alias] = np.bincount(truth[self.aliases_ == alias]).argmax()
        right = (of_alias[self.partners_] == of_alias)[seen].mean()
        # Of the other aliases one is the right one.
        by_chance = 1 / (len(seen) - 1)
        return float((right - by_chance) / (1 - by_chance))

    def _agree(self, groups, codes):
        """Whether known rows of a group have one class more often than by chance."""
        rng = generator(self.random_state)
        same = groups[:, None] == groups
        orders = [rng.permutation(len(codes)) for _ in range(N_PERMUTATIONS)]
        ones = np.eye(codes.max() + 1)[codes]
        agreed = [
            (same * (one @ one.T)).sum() for one in (ones, *(ones[o] for o in orders))
        ]
        return np.mean(np.array(agreed) >= agreed[0]) <= LEVEL


def _aliases(view):
    """Codes that a label owner sent of all rows, or None."""
    found = view.matrices(operation=_LABELS, place="labels")
    if not found or found[-1].values.shape[1] != 1 or not found[-1].known.all():
        return None
    values = found[-1].values[:, 0]
    return np.unique(values, return_inverse=True)[1]


def _apart_by_means(columns, aliases, n_aliases):
    """Squared distances of the means of the rows behind aliases."""
    if not columns.shape[1]:
        return np.zeros((n_aliases, n_aliases))
    counts = np.bincount(aliases, minlength=n_aliases)
    means = np.zeros((n_aliases, columns.shape[1]))
    np.add.at(means, aliases, columns)
    means /= np.maximum(counts, 1)[:, None]
    within = columns - means[aliases]
    # Differences count at the scale of the spread within, whatever the matrix.
    covariance = within.T @ within / len(within)
    covariance += (
        1e-3 * np.trace(covariance) / len(covariance) * np.eye(len(covariance))
    )
    white = np.linalg.solve(np.linalg.cholesky(covariance), means.T).T
    return ((white[:, None] - white) ** 2).sum(axis=2)


def _apart_by_fits(aliases, others):
    """Squared distances of the shares of other fits' aliases that aliases meet in."""
    apart = 0.0
    for other in others:
        together = np.zeros((aliases.max() + 1, other.max() + 1))
        np.add.at(together, (aliases, other), 1)
        together /= together.sum(axis=1, keepdims=True)
        apart = apart + ((together[:, None] - together) ** 2).sum(axis=2)
    return apart


def pair(distances):
    """Pairs of the least total distance, nearest first and then by exchanges.

    Parameters
    ----------
    distances : ndarray of shape (n, n)

    Returns
    -------
    partners : ndarray of int of shape (n,)
        The one that is left over is its own partner.
    """
    n = len(distances)
    partners = np.arange(n)
    free = set(range(n))
    for flat in np.argsort(distances, axis=None, kind="stable"):
        i, j = divmod(int(flat), n)
        if i < j and i in free and j in free:
            partners[i], partners[j] = j, i
            free -= {i, j}
    changed = True
    while changed:
        changed = False
        for a in range(n):
            for c in range(n):
                b, d = partners[a], partners[c]
                if len({a, b, c, d}) < 4:
                    continue
                now = distances[a, b] + distances[c, d]
                if distances[a, c] + distances[b, d] < now - 1e-12 * (1 + abs(now)):
                    partners[[a, c, b, d]] = c, a, d, b
                    changed = True
    return partners
