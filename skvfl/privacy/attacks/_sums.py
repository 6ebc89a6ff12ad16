"""Attacks on boosted trees by whoever is told sums, or which rows a node has."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from sklearn.utils.validation import check_is_fitted

from skvfl.privacy.attacks._base import Attack
from skvfl.privacy.attacks._evidence import held_against
from skvfl.privacy.attacks._guess import guess_columns, guess_from_ranks
from skvfl.privacy.attacks._ranks import from_ranks

# Unknowns of a linear system; its solution costs their cube. Trees of more rows have
# enough splits for their sides to say nearly as much.
MOST_ROWS = 2_500
# Equations; later trees add little to so many for every row.
MOST_EQUATIONS = 4 * MOST_ROWS
# Of the mean square of a factor. It keeps directions out that hardly any sum shows.
RIDGE = 1e-9
# Equations that a solution is held against, and what share of the sums' spread it must
# give back to be believed.
CHECKED, GIVEN_BACK = 300, 0.5
# More splits say hardly more of a column, and more nodes hardly more of a row.
MOST_SPLITS, MOST_NODES = 2_000, 1_000


class BinSumsAttack(Attack):
    """Columns from sums of derivatives by bin, which is what grows boosted trees.

    A party adds up derivatives over the rows of a node, bin by bin. Such a sum is
    linear in who lies in the bin, with factors that the active party has sent itself,
    so as many sums as rows tell the bin of every cell; before that, on which side of
    its splits a row lies narrows it down. Known rows, or values from the same
    distribution, then say what a bin stands for. Encrypted derivatives [1]_ change
    nothing, because the active party decrypts the sums.

    Parameters
    ----------
    known_rows : tuple (positions, values) or int, default=None
        Rows whose columns are known.
    marginals : ndarray of shape (n_samples, n_columns) or bool, default=None
        Values of each column by itself, in place of known rows. True stands for those
        of the truth. Says nothing where a party's columns become several, as
        categories do.
    sender : str, default=None
        Whose sums to look at; by default those of whoever answers first.

    Attributes
    ----------
    bins_ : ndarray of shape (n_rows, n_binned)
        The number of each cell's bin, as far as it was worked out.
    guess_ : ndarray of shape (n_rows, n_columns)
        What :meth:`reconstruct` returns.

    See Also
    --------
    SplitSidesAttack : From the sides of splits alone.

    References
    ----------
    .. [1] K. Cheng et al., "SecureBoost: A Lossless Federated Learning Framework", IEEE
       Intelligent Systems 36, 2021.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from skvfl import VFLBoostingClassifier
    >>> from skvfl.privacy import record_views
    >>> from skvfl.privacy.attacks import BinSumsAttack
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> X, y = X[:150], y[:150]
    >>> vfl = VFLBoostingClassifier(
    ...     parties={"bank": range(27), "shop": range(27, 30)}, random_state=0
    ... )
    >>> with record_views() as views:
    ...     vfl = vfl.fit(X, y)
    >>> attack = BinSumsAttack(marginals=True, sender="shop").informed(X[:, 27:])
    >>> attack.fit(views["bank"]).score(X[:, 27:]) > 0.9
    True
    """

    target: ClassVar = "columns"

    def __init__(self, *, known_rows=None, marginals=None, sender=None):
        self.known_rows = known_rows
        self.marginals = marginals
        self.sender = sender

    def fit(self, view):
        """Solve for who lies in which bin.

        Parameters
        ----------
        view : View
            Of the party that grows the trees.

        Returns
        -------
        self : BinSumsAttack
        """
        view, known = view.fit, self._known()
        if known is None and self.marginals is None:
            raise ValueError("BinSumsAttack takes known_rows, or marginals: give some")
        self.bins_, believed = bins_of(view, self.sender)
        if self.marginals is None:
            rows, values = known[0], known[1].reshape(len(known[1]), -1).astype(float)
            self.guess_ = guess_from_ranks(self.bins_, rows, values)
            return self
        sample = np.asarray(self.marginals, float)
        if self.bins_.shape[1] != sample.shape[1]:
            raise ValueError(
                f"{self.bins_.shape[1]} columns are in bins and marginals have "
                f"{sample.shape[1]}: where categories become several columns, only "
                "known rows say which bin is which"
            )
        pairs = zip(self.bins_.T, sample.T, strict=True)
        guess = np.column_stack([from_ranks(*pair) for pair in pairs])
        self.guess_ = held_against(np.where(believed, guess, np.nan), known)
        return self

    def reconstruct(self):
        """The secret columns.

        Returns
        -------
        columns : ndarray of shape (n_rows, n_columns)
            NaN where nothing is known beside what was known before.
        """
        check_is_fitted(self)
        return self.guess_


class NodeRowsAttack(Attack):
    """Others' columns from which rows lie in the nodes of boosted trees.

    Every party is told the rows over which it is to add up, whoever owns the split that
    brought them together. Rows that are often in one node are alike in the columns that
    trees split by, and known rows say how. Some of it a party could learn from columns
    of its own that are like the others'.

    Parameters
    ----------
    known_rows : tuple (positions, values) or int, default=100
        Rows whose columns are known.

    Attributes
    ----------
    guess_ : ndarray of shape (n_rows, n_columns)
        What :meth:`reconstruct` returns.

    See Also
    --------
    SplitSidesAttack : The same by whoever is told the sides of each split.

    Examples
    --------
    >>> from skvfl.privacy.attacks import NodeRowsAttack
    >>> NodeRowsAttack(known_rows=50)
    NodeRowsAttack(known_rows=50)
    """

    target: ClassVar = "columns"

    def __init__(self, *, known_rows=100):
        self.known_rows = known_rows

    def fit(self, view):
        """Learn from known rows what lying in a node says.

        Parameters
        ----------
        view : View
            Of a party that adds up.

        Returns
        -------
        self : NodeRowsAttack
        """
        view, known = view.fit, self._known()
        if known is None:
            raise ValueError("NodeRowsAttack learns from known rows: give known_rows")
        inside = []
        for seen in view.messages:
            if seen.operation == "add_up" and len(inside) < MOST_NODES:
                inside += [nodes for _, nodes in nodes_of(seen.content, view.n_rows)]
        features = np.array(inside, float).reshape(len(inside), view.n_rows).T
        values = known[1].reshape(len(known[1]), -1).astype(float)
        self.guess_ = guess_columns(features, known[0], values)
        return self

    def reconstruct(self):
        """The secret columns.

        Returns
        -------
        columns : ndarray of shape (n_rows, n_columns)
        """
        check_is_fitted(self)
        return self.guess_


def nodes_of(asked, n_rows):
    """Output and rows of every node in a request for sums.

    Yields
    ------
    output : int
    inside : ndarray of bool of shape (n_rows,)
    """
    ends = list(asked["ends"])
    for output, start, end in zip(asked["trees"], [0, *ends[:-1]], ends, strict=True):
        inside = np.zeros(n_rows, bool)
        inside[asked["rows"][start:end]] = True
        yield output, inside


def bins_of(view, sender):
    """The bin of each cell of a party, from what it was asked and what it answered.

    Parameters
    ----------
    view : View
        Of a fit, of the party that grows the trees.
    sender : str or None
        Who answered; None for whoever did so first.

    Returns
    -------
    bins : ndarray of shape (n_rows, n_binned)
        No columns where nobody has said how many bins there are.
    believed : ndarray of bool of shape (n_binned,)
        Of which columns the bins give the sums back.
    """
    told = [
        seen
        for seen in view.messages
        if seen.operation == "prepare" and sender in (None, seen.sender)
    ]
    if not told or not isinstance(told[0].content, dict):
        return np.zeros((view.n_rows, 0)), np.zeros(0, bool)
    sender, columns = told[0].sender, told[0].content
    widths = columns["n_bins"] + columns["has_missing"]
    stops = np.cumsum(widths)
    few = view.n_rows <= MOST_ROWS
    most = MOST_EQUATIONS if few else CHECKED
    factors, sums = equations(view, sender, stops[-1], most)
    found = np.zeros((view.n_rows, stops[-1]))
    if few and len(factors):
        found = solved(factors, sums)
    checked = (
        np.linspace(0, len(factors) - 1, CHECKED).astype(int) if len(factors) else []
    )
    factors, sums = factors[checked], sums[checked]
    bins, believed = np.empty((view.n_rows, len(widths))), np.zeros(len(widths), bool)
    for j, allowed in enumerate(narrowed(view, sender, columns)):
        cells = slice(stops[j] - widths[j], stops[j])
        likely = np.where(allowed, found[:, cells], -np.inf)
        # Of bins that nothing tells apart, the one in the middle.
        best = likely >= likely.max(axis=1, keepdims=True) - 1e-12
        places = (best * np.arange(widths[j])).sum(axis=1) / best.sum(axis=1)
        bins[:, j] = np.rint(places)
        inside = bins[:, [j]] == np.arange(widths[j])
        believed[j] = gives_back(factors, inside, sums[:, cells])
    return bins, believed


def gives_back(factors, inside, sums):
    """Whether who lies in which bin explains sums, more than shares of rows do."""
    if not len(factors):
        return False
    # Added up along the bins, so that the next bin is nearly right.
    inside, sums = np.cumsum(inside, axis=1), np.cumsum(sums, axis=1)
    by_share = factors.sum(axis=1, keepdims=True) * inside.mean(axis=0)
    left = ((factors @ inside - sums) ** 2).sum()
    return left < (1 - GIVEN_BACK) * ((by_share - sums) ** 2).sum()


def exchanged(view, sender, *operations):
    """Pairs of what the sender was asked and what it answered, one after another."""
    asked = (
        seen.content
        for seen in view.given
        if seen.receiver == sender and seen.operation in operations
    )
    answered = (
        seen.content
        for seen in view.messages
        if seen.sender == sender and seen.operation in operations
    )
    # A fit that was cut short may have a request without an answer.
    return zip(asked, answered, strict=False)


def equations(view, sender, n_cells, most):
    """Factors of every row in every sum, and the sums by bin.

    Returns
    -------
    factors : ndarray of shape (n_equations, n_rows)
    sums : ndarray of shape (n_equations, n_cells)
    """
    factors, sums, slopes = [], [], []
    learnt = np.ones(view.n_rows)
    summing = ("prepare", "begin_trees", "add_up")
    for request, reply in exchanged(view, sender, *summing):
        if "gradients" in request:
            seconds = request.get("hessians")
            slopes = [
                [first, np.ones(view.n_rows)]
                if seconds is None
                else [first, seconds[output], np.ones(view.n_rows)]
                for output, first in enumerate(request["gradients"])
            ]
            nodes = [(output, learnt) for output in range(len(slopes))]
        elif "ends" in request:
            nodes = nodes_of(request, view.n_rows)
        else:
            if request.get("rows") is not None:
                learnt = np.isin(np.arange(view.n_rows), request["rows"])
            continue
        for (output, inside), line in zip(nodes, reply, strict=True):
            parts = slopes[output]
            factors += [part * inside for part in parts]
            sums.append(line.reshape(len(parts), -1))
        if len(factors) > most:
            break
    if not factors:
        return np.zeros((0, view.n_rows)), np.zeros((0, n_cells))
    return np.array(factors, float), np.concatenate(sums)


def solved(factors, sums):
    """Who lies in which bin: the smallest solution, or what is nearest to one."""
    # Sums over many rows are no better known than those over few.
    size = np.linalg.norm(factors, axis=1, keepdims=True)
    factors, sums = factors / size.clip(1e-12), sums / size.clip(1e-12)
    n_equations, n_rows = factors.shape
    few = n_equations < n_rows
    inner = factors @ factors.T if few else factors.T @ factors
    inner[np.diag_indices_from(inner)] += RIDGE * np.trace(inner) / len(inner)
    inverse = cho_factor(inner, overwrite_a=True, check_finite=False)
    if few:
        return factors.T @ cho_solve(inverse, sums)
    return cho_solve(inverse, factors.T @ sums)


def narrowed(view, sender, columns):
    """Which bins of each column the sides of its splits allow.

    Returns
    -------
    allowed : list of ndarray of bool of shape (n_rows, n_bins)
    """
    allowed = [
        np.ones((view.n_rows, n), bool)
        for n in columns["n_bins"] + columns["has_missing"]
    ]
    n_seen = 0
    for request, reply in exchanged(view, sender, "split"):
        sides = np.unpackbits(reply, axis=1, count=view.n_rows).astype(bool)
        sets = request.get("categories")
        for i, (column, last, missing_left, is_set) in enumerate(request["splits"]):
            n_bins = columns["n_bins"][column]
            left = np.arange(allowed[column].shape[1]) <= last
            if is_set:
                left = np.unpackbits(sets[i]).astype(bool)[: len(left)]
            # The last bin is that of missing values, where there are some.
            left[n_bins:] = missing_left
            allowed[column] &= sides[i][:, None] == left
            n_seen += 1
        if n_seen > MOST_SPLITS:
            break
    return allowed
