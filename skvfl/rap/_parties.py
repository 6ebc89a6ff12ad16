"""How RAP's label owner hides labels from the server (the paper, section 2.3)."""

from __future__ import annotations

import numpy as np

from skvfl._targets import mean_and_scale, standardised
from skvfl.exceptions import ShareableError
from skvfl.federation import TransformerParty, operation
from skvfl.rap._projection import random_matrix

ALIASES = 2


class ClassAliases:
    """Map each class to two aliases of its own.

    They hide which class is which from whoever reads them, and no more: the rows of
    both aliases of a class have the same distribution, and the server has the projected
    rows. By the means of the aliases' rows it paired both classes' aliases in 20 of 20
    fits on adult (``examples/benchmarks/bench_aliases.py``).

    Parameters
    ----------
    n_classes : int
        Number of classes K.
    rng : numpy.random.Generator
        The label owner's private stream.
    protect : bool
        Whether to use aliases; without them every class is its own single alias.
    """

    def __init__(self, n_classes, rng, protect):
        self.n_classes = n_classes
        self.n_aliases = n_classes * (ALIASES if protect else 1)
        order = np.arange(self.n_aliases)
        if protect:
            order = rng.permutation(self.n_aliases)
        self._aliases = order.reshape(n_classes, -1)
        self._owner = np.empty(self.n_aliases, dtype=np.int64)
        self._owner[self._aliases] = np.arange(n_classes)[:, None]

    def protect(self, codes, rng):
        """Draw one of its class's aliases for every row.

        Parameters
        ----------
        codes : ndarray of shape (n_samples,), dtype int64
            Classes as 0 … K - 1.
        rng : numpy.random.Generator
            The label owner's private stream.

        Returns
        -------
        aliases : ndarray of shape (n_samples,), dtype int64
            In 0 … 2K - 1.
        """
        which = rng.integers(self._aliases.shape[1], size=len(codes))
        return self._aliases[codes, which]

    def recover_scores(self, scores, aliases):
        """Scores of classes from scores of aliases: the sum over a class's aliases.

        Parameters
        ----------
        scores : ndarray of shape (n_samples, n_seen)
            One column per alias that the server's model has seen.
        aliases : ndarray of shape (n_seen,), dtype int64
            Which alias each column is.

        Returns
        -------
        scores : ndarray of shape (n_samples, n_classes), dtype float64
        """
        totals = np.zeros((self.n_classes, len(scores)))
        np.add.at(totals, self._owner[aliases], scores.T)
        return totals.T

    def recover_best(self, scores, aliases):
        """Scores of classes: the best of a class's aliases; see `recover_scores`."""
        best = np.full((self.n_classes, len(scores)), -np.inf)
        np.maximum.at(best, self._owner[aliases], scores.T)
        return best.T

    def recover_codes(self, aliases):
        """Classes as 0 … K - 1 from aliases, the inverse of :meth:`protect`."""
        return self._owner[aliases]


class PseudoTarget:
    """Standardise a target and mix it with a pseudo target by a secret 2 × 2 matrix.

    The matrix is a random rotation or reflection, so that it never magnifies the
    server model's error.

    Parameters
    ----------
    target : ndarray of shape (n_samples,), dtype float64
        The label owner's target; gives the mean and the scale.
    rng : numpy.random.Generator
        The label owner's private stream.
    protect : bool
        Whether to mix; without a pseudo target the standardised one goes by itself.
    """

    def __init__(self, target, rng, protect):
        self._mean, self._scale = mean_and_scale(target)
        self._matrix = random_matrix("orthogonal", 2, rng) if protect else None

    def protect(self, target, rng):
        """The columns for the server to learn.

        Parameters
        ----------
        target : ndarray of shape (n_samples,), dtype float64
            The target in its own units.
        rng : numpy.random.Generator
            The label owner's private stream.

        Returns
        -------
        mixed : ndarray of shape (n_samples, 2) or (n_samples, 1), dtype float64
        """
        standard = standardised(target, self._mean, self._scale)
        if self._matrix is None:
            return standard
        pseudo = rng.standard_normal(len(target))
        return np.column_stack([standard, pseudo]) @ self._matrix

    def recover(self, mixed):
        """Target in its own units from the predicted columns.

        Parameters
        ----------
        mixed : ndarray of shape (n_samples, 2) or (n_samples, 1)
            The server model's predictions.

        Returns
        -------
        target : ndarray of shape (n_samples,), dtype float64
        """
        if self._matrix is not None:
            mixed = mixed @ np.linalg.inv(self._matrix)
        return mixed[:, 0] * self._scale + self._mean


class LabelOwner(TransformerParty):
    """The party with the labels, which it protects once.

    Parameters
    ----------
    name : str
        Name of the party.
    transformer : transformer or None
        For its own columns, where it holds any.
    """

    def __init__(self, name, transformer):
        super().__init__(name, transformer)
        # One for all copies that hold the data of a run: none of them answers again.
        self._given = {"labels": False}

    def _protect_once(self, protect):
        """Protected labels and weights of the rows held; refused a second time.

        A second draw for the same rows shows what the first one hides: the two aliases
        that one row has had are those of its class, and the two pseudo targets of a row
        differ where its target does not.
        """
        if self._given["labels"]:
            raise ShareableError(
                "it has given its labels already, and a second draw would show which "
                "aliases belong together, or tell the target from the pseudo target; "
                "fit again to train on other rows"
            )
        self._given["labels"] = True
        labels, n_labels = protect(self._held["labels"])
        return {
            "labels": labels,
            "weights": self._held["weights"],
            "n_labels": n_labels,
        }


class ClassOwner(LabelOwner):
    """The label owner of a classification.

    Parameters
    ----------
    name : str
        Name of the party.
    transformer : transformer or None
        For its own columns, where it holds any.
    n_classes : int
        Number of classes K.
    protect : bool
        Whether to send aliases instead of classes.
    sequence : numpy.random.SeedSequence
        The party's private stream, see :func:`skvfl._random.one_way`.
    """

    def __init__(self, name, transformer, n_classes, protect, sequence):
        super().__init__(name, transformer)
        self._rng = np.random.default_rng(sequence)
        self._labels = ClassAliases(n_classes, self._rng, protect)

    @operation
    def protect_labels(self):
        """Labels as the server may see them, and the weights of the rows; once."""

        def protect(codes):
            return self._labels.protect(codes, self._rng), self._labels.n_aliases

        return self._protect_once(protect)

    @operation
    def recover_scores(self, scores, aliases):
        """Scores of classes: the sum over a class's aliases."""
        return self._labels.recover_scores(scores, aliases)

    @operation
    def recover_best(self, scores, aliases):
        """Scores of classes: the best of a class's aliases."""
        return self._labels.recover_best(scores, aliases)

    @operation
    def recover_codes(self, answer):
        """Classes as 0 … K - 1."""
        return self._labels.recover_codes(answer)


class TargetOwner(LabelOwner):
    """The label owner of a regression.

    Parameters
    ----------
    name : str
        Name of the party.
    transformer : transformer or None
        For its own columns, where it holds any.
    protect : bool
        Whether to mix the target with a pseudo target.
    sequence : numpy.random.SeedSequence
        The party's private stream, see :func:`skvfl._random.one_way`.
    """

    def __init__(self, name, transformer, protect, sequence):
        super().__init__(name, transformer)
        self._protect = protect
        self._rng = np.random.default_rng(sequence)

    @operation
    def protect_labels(self):
        """Targets as the server may see them, and the weights of the rows; once."""

        def protect(target):
            self._labels = PseudoTarget(target, self._rng, self._protect)
            mixed = self._labels.protect(target, self._rng)
            return mixed, mixed.shape[1]

        return self._protect_once(protect)

    @operation
    def recover_target(self, answer):
        """Targets in their own units."""
        return self._labels.recover(answer)
