"""Attacks on vFedSec: on single masked messages, on their sums, and on clusters."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import numpy as np
from sklearn.metrics import roc_auc_score
from sklearn.utils.validation import check_is_fitted

from skvfl.privacy.attacks._base import Attack
from skvfl.privacy.attacks._linear import reconstruct
from skvfl.privacy.attacks._projection import generator

MASKED = "masked"
MOST_MESSAGES = 200
# Of the gradient of a module that linear equations may leave unexplained.
UNEXPLAINED = 0.02


def masked_messages(view):
    """Masked arrays that were received, with the messages that they are in."""
    for seen in view.messages:
        content = seen.content
        array = content.get(MASKED) if isinstance(content, dict) else None
        if isinstance(array, np.ndarray) and array.dtype.kind == "u":
            yield seen, array


def unevenness(numbers):
    """How much more unevenly bytes are spread than those of uniform numbers.

    Parameters
    ----------
    numbers : ndarray of unsigned integers

    Returns
    -------
    excess : float
        Of the most uneven byte of the numbers, in standard deviations of a chi-squared
        statistic.
    """
    digits = np.ascontiguousarray(numbers).ravel()
    digits = digits.view(np.uint8).reshape(len(digits), -1)
    expected = len(digits) / 256
    counts = np.array([np.bincount(column, minlength=256) for column in digits.T])
    chi_squared = ((counts - expected) ** 2).sum(axis=1) / expected
    return float((chi_squared.max() - 255) / np.sqrt(2 * 255))


class _Distinguisher(Attack):
    """What attacks have in common that tell what was received from uniform numbers."""

    target: ClassVar = "membership"

    def __init__(self, *, sender=None, random_state=None):
        self.sender = sender
        self.random_state = random_state

    def fit(self, view):
        """Look at masked messages, and at as many arrays of uniform numbers.

        Parameters
        ----------
        view : View
            Of the server.

        Returns
        -------
        self : Attack
        """
        rng = generator(self.random_state)
        found = self._arrays(view, rng)
        chosen = rng.permutation(len(found))[:MOST_MESSAGES]
        real = [found[i] for i in chosen]
        drawn = [
            rng.integers(0, np.iinfo(a.dtype).max, a.shape, a.dtype, endpoint=True)
            for a in real
        ]
        self.excess_ = np.array([unevenness(array) for array in real + drawn])
        return self

    def reconstruct(self):
        """How unevenly numbers are spread: the received ones, then uniform ones.

        Returns
        -------
        excess : ndarray of shape (2 * n_messages,)
        """
        check_is_fitted(self)
        return self.excess_

    def score(self, truth=None):
        """How well what was received is told from uniform numbers.

        Parameters
        ----------
        truth : None
            Ignored: the attack itself draws the uniform numbers.

        Returns
        -------
        score : float
            2 AUC - 1: 0 if it looks like uniform numbers, 1 if it never does.
        """
        check_is_fitted(self)
        n = len(self.excess_) // 2
        if not n:
            return 0.0
        return float(2 * roc_auc_score(np.repeat([1, 0], n), self.excess_) - 1)

    def _messages(self, view):
        named = ((seen, array) for seen, array in masked_messages(view))
        return [each for each in named if of_party(each[0].sender, self.sender)]

    @abstractmethod
    def _arrays(self, view, rng):
        """What is held against uniform numbers."""


def of_party(client, party):
    """Whether a client is one of a party's; any is where no party is named."""
    return party is None or client == party or client.startswith(f"{party}.")


class UniformityAttack(_Distinguisher):
    """Whether single messages of a secure sum differ from uniform numbers.

    Secure aggregation [1]_ promises that they do not. The attacker counts bytes.

    Parameters
    ----------
    sender : str, default=None
        Whose messages; by default everybody's.
    random_state : int, RandomState instance or None, default=None
        Of the uniform numbers, and of which messages are looked at.

    Attributes
    ----------
    excess_ : ndarray of shape (2 * n_messages,)
        What :meth:`reconstruct` returns.

    References
    ----------
    .. [1] K. Bonawitz et al., "Practical secure aggregation for privacy-preserving
       machine learning", CCS 2017.

    Examples
    --------
    >>> from skvfl.privacy.attacks import UniformityAttack
    >>> UniformityAttack(sender="shop")
    UniformityAttack(sender='shop')
    """

    def _arrays(self, view, rng):
        return [array for _, array in self._messages(view)]


class RoundDifferenceAttack(_Distinguisher):
    """Whether a client's messages of two rounds differ by other than uniform numbers.

    A mask that is used twice goes off in the difference, and what is left are small
    numbers. So each message may look uniform, and two of them need not.

    Parameters
    ----------
    sender : str, default=None
        Whose messages; by default everybody's.
    random_state : int, RandomState instance or None, default=None
        Of the uniform numbers, and of which messages are looked at.

    Attributes
    ----------
    excess_ : ndarray of shape (2 * n_pairs,)
        What :meth:`reconstruct` returns.

    References
    ----------
    .. [1] K. Bonawitz et al., "Practical secure aggregation for privacy-preserving
       machine learning", CCS 2017.

    Examples
    --------
    >>> from skvfl.privacy.attacks import RoundDifferenceAttack
    >>> RoundDifferenceAttack(sender="shop")
    RoundDifferenceAttack(sender='shop')
    """

    def _arrays(self, view, rng):
        groups = {}
        for seen, array in self._messages(view):
            kind = seen.sender, seen.operation, array.shape, array.dtype
            groups.setdefault(kind, []).append(array)
        pairs = [
            (one, other)
            for arrays in groups.values()
            # Every message once: differences of many pairs would not be independent.
            for one, other in zip(arrays[::2], arrays[1::2], strict=False)
        ]
        return [one - other for one, other in pairs]


class CollusionAttack(Attack):
    """Columns of one organisation from sums, by all who are in league with the server.

    The server reads the sum of what all clients contribute, and not the terms. Where
    there is one term, or local modules are linear and the layer has as many outputs as
    all parties have columns, known rows tell how the columns follow from the sum; masks
    have nothing to do with it. Columns of the coalition stand for its own terms, which
    no message shows: an attacker who writes its own terms down needs as few known rows
    as the others have columns, and this one as many as the whole sum has.

    Parameters
    ----------
    known_rows : tuple (positions, values) or int, default=None
        Rows whose columns are known.
    random_state : int, RandomState instance or None, default=None
        Of the permutations that tell knowledge from chance.

    Attributes
    ----------
    guess_ : ndarray of shape (n_rows, n_columns)
        What :meth:`reconstruct` returns.

    References
    ----------
    .. [1] K. Bonawitz et al., "Practical secure aggregation for privacy-preserving
       machine learning", CCS 2017.

    Examples
    --------
    >>> from skvfl.privacy.attacks import CollusionAttack
    >>> CollusionAttack(known_rows=20)
    CollusionAttack(known_rows=20)
    """

    target: ClassVar = "columns"

    def __init__(self, *, known_rows=None, random_state=None):
        self.known_rows = known_rows
        self.random_state = random_state

    def fit(self, view):
        """Add up what clients sent, and go back to columns from known rows.

        Parameters
        ----------
        view : View
            Of the server, or of it and others together. Sums of a prediction on the
            rows of the fit are looked at where there are any: models move in training.

        Returns
        -------
        self : CollusionAttack
        """
        n_rows, known = view.fit.n_rows, self._known()
        self.guess_ = np.full((n_rows, 1), np.nan)
        sums = _sums(view, n_rows)
        if sums is None or known is None:
            return self
        own = [_numbers(block) for block in view.fit.blocks.values()]
        own = [columns for columns in own if len(columns) == n_rows]
        received = np.hstack([sums, *own])
        rows = np.flatnonzero(~np.isnan(received).any(axis=1))
        place = np.searchsorted(rows, known[0]).clip(max=max(len(rows) - 1, 0))
        there = rows[place] == known[0] if len(rows) else np.zeros(len(place), bool)
        values = known[1].reshape(len(known[1]), -1).astype(float)
        if there.any():
            rng = generator(self.random_state)
            guess = reconstruct(received[rows], place[there], values[there], rng)
            self.guess_ = np.full((n_rows, guess.shape[1]), np.nan)
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


def _sums(view, n_rows):
    """The last sums over all clients of every row of a run, standardised."""
    batches = {}
    for seen, array in masked_messages(view):
        if seen.operation == "forward" and seen.rows is not None:
            key = seen.run, seen.epoch, seen.rows.tobytes()
            before = batches.get(key)
            total = array if before is None else before[1] + array
            batches[key] = seen.rows, total
    runs = [run for run in view.runs if view.run(run).n_rows == n_rows]
    keys = [key for key in batches if key[0] in runs]
    if not keys:
        return None
    last = max(key[:2] for key in keys)
    chosen = [batches[key] for key in keys if key[:2] == last]
    sums = np.full((n_rows, chosen[0][1].shape[1]), np.nan)
    for rows, total in chosen:
        sums[rows] = total.view(total.dtype.str.replace("u", "i"))
    scale = np.nanstd(sums, axis=0)
    return (sums - np.nanmean(sums, axis=0)) / np.where(scale > 0, scale, 1.0)


def _numbers(block):
    """Columns of a party of the coalition, as it would prepare them."""
    from skvfl import PartyPreprocessor

    return np.asarray(PartyPreprocessor().fit_transform(block), float)


class ClusterGradientAttack(Attack):
    """Rows of a cluster of vFedSec from the gradient of the module that it shares.

    The gradient of a linear module is the cluster's cells times the gradient of the
    secure layer, which the server computes and all clients are sent. With fewer rows in
    a batch than outputs of the layer the cells are the solution of linear equations; it
    is the simplest case of [1]_. The sum over a cluster is therefore masked, unless
    ``masked=False``.

    Parameters
    ----------
    sender : str, default=None
        The party whose clients are a cluster; needed where there are several.

    Attributes
    ----------
    guess_ : ndarray of shape (n_rows, n_columns)
        What :meth:`reconstruct` returns.

    References
    ----------
    .. [1] L. Zhu, Z. Liu, S. Han, "Deep leakage from gradients", NeurIPS 2019.

    Examples
    --------
    >>> from skvfl.privacy.attacks import ClusterGradientAttack
    >>> ClusterGradientAttack(sender="telco")
    ClusterGradientAttack(sender='telco')
    """

    target: ClassVar = "columns"

    def __init__(self, *, sender=None):
        self.sender = sender

    def fit(self, view):
        """Solve for the rows of every batch.

        Parameters
        ----------
        view : View
            Of the server, which computes the gradient of the secure layer.

        Returns
        -------
        self : ClusterGradientAttack
        """
        view = view.fit
        self.guess_ = np.full((view.n_rows, 1), np.nan)
        certain = np.full(view.n_rows, np.inf)
        for rows, gradient, total in self._batches(view):
            found = solve_batch(gradient, total)
            if found is None:
                continue
            cells, error = found
            if self.guess_.shape[1] != cells.shape[1]:
                self.guess_ = np.full((view.n_rows, cells.shape[1]), np.nan)
            better = error < certain[rows]
            certain[rows[better]] = error[better]
            self.guess_[rows[better]] = cells[better]
        # Numbers are whole multiples of a power of two, and prepared columns have a
        # variance of about one.
        size = np.sqrt(np.nanmean(self.guess_**2)) if np.isfinite(certain).any() else 0
        if size > 0:
            self.guess_ = self.guess_ * 2.0 ** -np.round(np.log2(size))
        return self

    def reconstruct(self):
        """Cells as far as equations could be solved.

        Returns
        -------
        guess : ndarray of shape (n_rows, n_columns)
            NaN where there was no solution.
        """
        check_is_fitted(self)
        return self.guess_

    def _batches(self, view):
        """Rows, gradient of the secure layer, and the cluster's sum of every batch."""
        gradients, sums = {}, {}
        for seen in (*view.given, *view.messages):
            content = seen.content
            if seen.operation != "backward" or seen.rows is None:
                continue
            if not isinstance(content, dict):
                continue
            batch = seen.epoch, seen.rows.tobytes()
            if "gradient" in content:
                gradients[batch] = seen.rows, content["gradient"]
            elif MASKED in content and of_party(seen.sender, self.sender):
                array = content[MASKED]
                sums[batch] = sums[batch] + array if batch in sums else array
        for batch, total in sums.items():
            if batch in gradients:
                yield *gradients[batch], total


def solve_batch(gradient, total):
    """Cells of a batch, up to a factor, from gradients of the layer and of the module.

    Parameters
    ----------
    gradient : ndarray of shape (n_batch, width)
    total : ndarray of shape (width * n_columns,)
        Fixed-point numbers.

    Returns
    -------
    cells : ndarray of shape (n_batch, n_columns)
    error : ndarray of shape (n_batch,)
        How large an error of every row may be.
    """
    n_batch, width = gradient.shape
    # With as many unknowns as equations anything has a solution.
    if n_batch >= width or total.size % width:
        return None
    signed = total.view(total.dtype.str.replace("u", "i")).astype(float)
    module, layer = signed.reshape(width, -1), gradient.T.astype(float)
    inverse = np.linalg.pinv(layer, rcond=1e-9)
    cells = inverse @ module
    left = np.linalg.norm(module - layer @ cells)
    if not left <= UNEXPLAINED * np.linalg.norm(module):
        return None
    return cells, np.linalg.norm(inverse, axis=1) * np.abs(gradient).max()
