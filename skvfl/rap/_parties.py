"""RAP's parties: what they project, and how labels are hidden from the server."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

from skvfl._random import seed_party
from skvfl._targets import Standard
from skvfl.exceptions import ShareableError
from skvfl.federation import Holding, Settings, TransformerParty, operation, serving
from skvfl.rap._projection import GaussianProjection, random_matrix

# The paper's number. One alias would show which rows are of one class.
ALIASES = 2
ONCE = (
    "it has given its labels already, and a second draw would show which aliases "
    "belong together, or tell the target from the pseudo target; fit again to train on "
    "other rows"
)


@dataclass(frozen=True, kw_only=True)
class PartySettings(Settings, role="rap.party"):
    """What a party without labels is told; the estimator's parameters of these names.

    Parameters
    ----------
    projection : transformer or None, default=None
        What it sends its prepared columns through; a projection of its own by default.
    """

    projection: Any = field(default=None, metadata={"stream": "project"})

    def make(self, member):
        """A party that prepares and projects its columns."""
        return TransformerParty(member.name, self._pipeline(member))

    def _pipeline(self, member):
        prepare = member.transformer(self.transformer)
        if prepare is None:
            return None
        # A projection of the user's was given its stream with the settings, see
        # ``metadata`` above; the default one takes it here.
        if self.projection is None:
            # Made here and not told by a seed: the matrix is this party's secret.
            project = seed_party(GaussianProjection(), member.stream("project"))
        else:
            project = clone(self.projection)
        return make_pipeline(prepare, project)


@dataclass(frozen=True, kw_only=True)
class OwnerSettings(PartySettings, role="rap.owner"):
    """What the label owner is told; the estimator's parameters of these names."""

    label_protection: bool

    def make(self, member):
        """The party that has the labels."""
        kind = ClassOwner if member.labels.n_classes else TargetOwner
        return kind(
            member.name,
            self._pipeline(member),
            self.label_protection,
            member.stream("protect"),
        )


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
        self.n_labels = n_classes * (ALIASES if protect else 1)
        # Without protection aliases are the classes themselves, so nothing is drawn and
        # one code serves both.
        order = np.arange(self.n_labels)
        # Without the shuffle a class's aliases would be neighbours, and the mapping
        # known.
        if protect:
            order = rng.permutation(self.n_labels)
        self._aliases = order.reshape(n_classes, -1)
        self._owner = np.empty(self.n_labels, dtype=np.int64)
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
        # By chance and not by a rule, which the server's model could learn.
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
        # ``totals[...] += `` would count one alias of a class only.
        totals = np.zeros((self.n_classes, len(scores)))
        np.add.at(totals, self._owner[aliases], scores.T)
        return totals.T

    def recover_best(self, scores, aliases):
        """Scores of classes: the best of a class's aliases; see `recover_scores`."""
        # A class of which no alias was seen must lose against any score.
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
        self._standard = Standard(target)
        self.n_labels = 2 if protect else 1
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
        standard = self._standard.encode(target)
        if self._matrix is None:
            return standard
        # At the scale of the standardised target: a much smaller one would hide
        # nothing, and a larger one would be all that the server learns.
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
            # The pseudo target is dropped below; it only had to be learnt.
            mixed = mixed @ np.linalg.inv(self._matrix)
        return self._standard.decode(mixed[:, 0])


class LabelOwner(TransformerParty):
    """The party with the labels, which it protects once.

    Parameters
    ----------
    name : str
        Name of the party.
    transformer : transformer or None
        For its own columns, where it holds any.
    protect : bool
        Whether to hide the labels.
    stream : numpy.random.SeedSequence
        The party's private one.
    """

    made_by: ClassVar = {"_labels": "protect_labels"}

    def __init__(self, name, transformer, protect, stream):
        super().__init__(name, transformer)
        self._protect = protect
        self._rng = np.random.default_rng(stream)
        # A dict, because shallow copies of this party share it: none answers again.
        self._given = {"labels": False}

    @operation
    def protect_labels(self):
        """Labels as the server may see them, and the weights of the rows; once.

        A second draw for the same rows shows what the first one hides: the two aliases
        that one row has had are those of its class, and the two pseudo targets of a row
        differ where its target does not.
        """
        if self._given["labels"]:
            raise ShareableError(ONCE)
        self._given["labels"] = True
        labels = self.held(Holding).labels
        self._labels = self._draw(labels)
        return {
            "labels": self._labels.protect(labels.values, self._rng),
            "weights": labels.weights,
            "n_labels": self._labels.n_labels,
        }

    def _draw(self, labels):
        """What hides the labels, and finds them again."""
        raise NotImplementedError


class ClassOwner(LabelOwner):
    """The label owner of a classification, which sends aliases instead of classes.

    Parameters
    ----------
    name, transformer, protect, stream
        As for :class:`LabelOwner`.
    """

    def _draw(self, labels):
        return ClassAliases(labels.n_classes, self._rng, self._protect)

    @serving
    def recover_scores(self, scores, aliases):
        """Scores of classes: the sum over a class's aliases."""
        return self._labels.recover_scores(scores, aliases)

    @serving
    def recover_best(self, scores, aliases):
        """Scores of classes: the best of a class's aliases."""
        return self._labels.recover_best(scores, aliases)

    @serving
    def recover_codes(self, answer):
        """Classes as 0 … K - 1."""
        return self._labels.recover_codes(answer)


class TargetOwner(LabelOwner):
    """The label owner of a regression, which mixes the target with a pseudo target.

    Parameters
    ----------
    name, transformer, protect, stream
        As for :class:`LabelOwner`.
    """

    def _draw(self, labels):
        return PseudoTarget(labels.values, self._rng, self._protect)

    @serving
    def recover_target(self, answer):
        """Targets in their own units."""
        return self._labels.recover(answer)
