"""What all attacks have in common: side knowledge, and a score that 0 and 1 bound."""

from __future__ import annotations

from abc import ABC, abstractmethod
from numbers import Integral
from typing import Any, ClassVar, Literal, Self

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.metrics import roc_auc_score
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from skvfl.privacy._views import View


class Attack(BaseEstimator, ABC):
    """What a role can work out of its view and of what it knows besides.

    An attack is given its side knowledge by its constructor, looks at a view in
    :meth:`fit`, and at nothing else. Its :meth:`score` compares with the truth, which
    only a simulation has.

    Subclasses have those of the parameters that they use, and the attribute
    ``target``.

    Parameters
    ----------
    known_rows : tuple (positions, values) or int, default=None
        Rows whose secret values are known. A number stands for so many rows, which
        :meth:`informed` draws.
    marginals : ndarray of shape (n_samples, n_columns) or bool, default=None
        Values from the distribution of each secret column by itself. True stands for
        the columns of the truth, each shuffled.
    shadow : tuple (X, y) or int, default=None
        Rows like those of the run that did not take part.
    random_state : int, RandomState instance or None, default=None
        Of the attack's own draws.

    Attributes
    ----------
    target : {"columns", "labels", "membership", "equality"}
        What is worked out, which decides what :meth:`score` is.
    """

    target: ClassVar[Literal["columns", "labels", "membership", "equality"]]

    @abstractmethod
    def fit(self, view: View) -> Self:
        """Look at a view.

        Parameters
        ----------
        view : View
            Of one role, or of several together.

        Returns
        -------
        self : Attack
        """

    @abstractmethod
    def reconstruct(self) -> np.ndarray:
        """What was worked out.

        Returns
        -------
        guess : ndarray
            Secret columns of shape (n_rows, n_columns), or labels of shape (n_rows,),
            NaN where there is no guess; or for each candidate a number that is larger
            the likelier it is a member, or a pair is equal.
        """

    def score(self, truth: Any) -> float:
        """How much of the secret was found.

        Parameters
        ----------
        truth : array-like
            The secret, in the shape of what :meth:`reconstruct` gives.

        Returns
        -------
        score : float
            1 if it is exact, 0 if it is as good as the best guess from the side
            knowledge alone, below if it is worse. For columns, the mean over columns of
            1 - MSE / MSE of that guess, over rows that were not known; for labels,
            accuracy on the same scale; else 2 AUC - 1.
        """
        check_is_fitted(self)
        truth = np.asarray(truth)
        guess = np.asarray(self.reconstruct())
        self._check_truth(truth, guess)
        if self.target in ("membership", "equality"):
            return float(2 * roc_auc_score(truth, guess) - 1)
        unknown = np.ones(len(truth), bool)
        known = self._known()
        if known is not None:
            unknown[known[0]] = False
        if self.target == "labels":
            prior = self._most_frequent(truth)
            if guess.dtype.kind == "f":
                guess = np.where(np.isnan(guess), prior, guess)
            hits = float(np.mean(guess[unknown] == truth[unknown]))
            by_prior = float(np.mean(truth[unknown] == prior))
            # Of one class there is nothing to find out.
            return (hits - by_prior) / (1 - by_prior) if by_prior < 1 else 0.0
        truth = truth.reshape(len(truth), -1).astype(float)
        guess = guess.reshape(len(guess), -1)
        prior = self._mean(truth)
        guess = np.where(np.isnan(guess), prior, guess)[unknown]
        error = ((guess - truth[unknown]) ** 2).mean(axis=0)
        by_prior = ((prior - truth[unknown]) ** 2).mean(axis=0)
        # A constant column is known from the side knowledge already.
        varies = by_prior > 1e-12
        if not varies.any():
            return 0.0
        return float(np.mean(1 - error[varies] / by_prior[varies]))

    def informed(self, truth: Any, random_state: Any = None) -> Self:
        """A copy that has the side knowledge which its parameters only count.

        Parameters
        ----------
        truth : ndarray of shape (n_rows,) or (n_rows, n_columns)
            The secret of which some is given away.
        random_state : int, RandomState instance or None, default=None
            Which rows.

        Returns
        -------
        attack : Attack
        """
        attack = clone(self)
        rng = check_random_state(random_state)
        truth = np.asarray(truth)
        known = getattr(self, "known_rows", None)
        if isinstance(known, Integral):
            # Where all rows are known there is none left to be guessed, and a score
            # of 0 would look like safety.
            if isinstance(known, bool) or not 0 <= int(known) < len(truth):
                raise ValueError(
                    f"known_rows={known} of {len(truth)} rows: give a number from 0 to "
                    f"{len(truth) - 1}, so that some are left to be guessed"
                )
            rows = rng.permutation(len(truth))[:known]
            attack.set_params(known_rows=(rows, truth[rows]))
        if getattr(self, "marginals", None) is True:
            columns = truth.reshape(len(truth), -1).T
            shuffled = [rng.permutation(column) for column in columns]
            attack.set_params(marginals=np.column_stack(shuffled))
        return attack

    def _known(self):
        """Positions and values of known rows, or None."""
        known = getattr(self, "known_rows", None)
        if isinstance(known, Integral):
            raise ValueError(
                f"known_rows={known} only counts rows: give (positions, values), or "
                "call informed(truth), which draws them"
            )
        if known is None:
            return None
        if not isinstance(known, tuple | list) or len(known) != 2:
            raise ValueError("known_rows is no pair (positions, values), and no number")
        rows, values = (np.asarray(each) for each in known)
        if rows.shape != (len(values) if values.ndim else -1,):
            raise ValueError(
                f"known_rows has {rows.size} positions and "
                f"{len(values) if values.ndim else 0} values"
            )
        if not len(rows):
            return None
        if rows.dtype.kind not in "iu" or rows.min() < 0:
            raise ValueError(
                "known_rows: positions are whole numbers from 0, and no mask"
            )
        if len(np.unique(rows)) < len(rows):
            raise ValueError("known_rows names a position twice")
        if _lacks_some(values):
            raise ValueError("known_rows: values are missing or infinite")
        return rows, values

    def _check_truth(self, truth, guess):
        """Refuse what a guess cannot be compared with, and a score would not show."""
        name = type(self).__name__
        if len(truth) != len(guess):
            raise ValueError(
                f"truth has {len(truth)} rows, and {name} speaks of {len(guess)}"
            )
        if _lacks_some(truth):
            raise ValueError(
                "truth holds missing or infinite values: give columns as they are "
                "prepared, in which they are replaced"
            )
        known = self._known()
        if known is not None and known[0].max() >= len(truth):
            raise ValueError(
                f"known_rows names positions beyond the {len(truth)} rows of the truth"
            )
        if self.target == "columns":
            width, found = truth[:1].size, guess[:1].size
            if found not in (1, width):
                raise ValueError(
                    f"truth has {width} columns, and {name} speaks of {found}"
                )
        if self.target == "labels":
            words = [each.dtype.kind not in "biuf" for each in (truth, guess)]
            # Without known labels there is no name for a class but its position.
            unnamed = known is None and not words[0] and truth.min() > 0
            if words[0] != words[1] or unnamed or (known is None and truth.min() < 0):
                raise ValueError(
                    f"{name} speaks of classes by their positions: give those, as "
                    "np.searchsorted(estimator.classes_, y)"
                )

    def _mean(self, truth):
        """The best guess of every row from the side knowledge alone."""
        known, marginals = self._known(), getattr(self, "marginals", None)
        if isinstance(marginals, np.ndarray):
            return marginals.mean(axis=0)
        if known is not None:
            return known[1].reshape(len(known[1]), -1).mean(axis=0)
        # Nothing is known: the mean is given, so that a score is never flattered.
        return truth.mean(axis=0)

    def _most_frequent(self, truth):
        known = self._known()
        values, counts = np.unique(
            truth if known is None else known[1], return_counts=True
        )
        return values[counts.argmax()]


def _lacks_some(values):
    """Whether numbers are missing or infinite."""
    return values.dtype.kind == "f" and not np.isfinite(values).all()
