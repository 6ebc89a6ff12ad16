"""Column splitters: who holds which columns in a simulated federation."""

from __future__ import annotations

from numbers import Integral, Real

import numpy as np
from scipy import sparse
from scipy.stats import rankdata
from sklearn.base import BaseEstimator
from sklearn.metrics.cluster import (
    contingency_matrix,
    expected_mutual_information,
    mutual_info_score,
)

from skvfl._random import generator
from skvfl._sklearn import (
    Interval,
    _num_samples,
    _safe_indexing,
    check_instances,
    whole_or_unchanged,
)
from skvfl._targets import check_entries, read_column, settle
from skvfl.exceptions import InvalidColumnError
from skvfl.partition._columns import column_names, describe, refuse_masked

# Shares and correlations of columns hardly change with more rows, and time does.
MAX_ROWS = 5_000
MAX_LEVELS = 32
MAX_BINS = 16
N_STARTS = 5

_N_PARTIES = [Interval(Integral, 1, None, closed="left")]


class _ColumnSplitter(BaseEstimator):
    """What the splitters share; a leaf says in ``_assign`` which party gets what."""

    @whole_or_unchanged
    def split_columns(self, X, y=None):
        """Deal the columns of a table to parties.

        Parameters
        ----------
        X : array-like, sparse matrix or dataframe of shape (n_samples, n_features)
            The whole table, before it is divided.
        y : array-like of shape (n_samples,), default=None
            The labels. Only :class:`ImportanceSplit` looks at them, and leaves out
            rows without one.

        Returns
        -------
        columns : dict of {str: ndarray of int}
            For ``"party0"``, ``"party1"``, ... the positions of the party's columns,
            ascending. Every column is in exactly one party, and every party has at
            least one.

        Raises
        ------
        ValueError
            If a parameter is out of range, or ``X`` has too few columns.
        """
        check_instances(self)
        self._validate_params()
        # Before numpy makes an array of it and drops the mask.
        refuse_masked(X)
        if not hasattr(X, "shape"):
            X = np.asarray(X, dtype=object)
        if len(X.shape) != 2:
            raise ValueError(
                f"a table with rows and columns is needed, got {len(X.shape)} "
                "dimension(s): reshape X to (n_samples, n_features)"
            )
        party = self._assign(X, y)
        return {f"party{i}": np.flatnonzero(party == i) for i in range(party.max() + 1)}


class RoundRobin(_ColumnSplitter):
    """Deal the columns to the parties in turn.

    Parties get the same number of columns, give or take one.

    Parameters
    ----------
    n_parties : int, default=2
        Number of parties.
    shuffle : bool, default=False
        Permute the columns before they are dealt, as in the experiments of the RAP
        paper [1]_.
    random_state : int, RandomState instance or None, default=None
        Seed of the permutation; used only with ``shuffle=True``.

    See Also
    --------
    Contiguous : Give every party neighbouring columns.
    VerticalPartitioner : Apply a split, and a transformer at every party.

    References
    ----------
    .. [1] Q. Zhang et al., "RAP: Random Projection is What You Need for Vertical
       Federated Learning", section 4.1: columns in random order, dealt in turn.

    Examples
    --------
    >>> import numpy as np
    >>> from skvfl import RoundRobin
    >>> RoundRobin(n_parties=2).split_columns(np.zeros((3, 5)))
    {'party0': array([0, 2, 4]), 'party1': array([1, 3])}
    """

    _parameter_constraints = {
        "n_parties": _N_PARTIES,
        "shuffle": ["boolean"],
        "random_state": ["random_state"],
    }

    def __init__(self, n_parties=2, *, shuffle=False, random_state=None):
        self.n_parties = n_parties
        self.shuffle = shuffle
        self.random_state = random_state

    def _assign(self, X, y):
        _check_enough_columns(X, self.n_parties)
        turn = np.arange(X.shape[1]) % self.n_parties
        if not self.shuffle:
            return turn
        return generator(self.random_state).permutation(turn)


class Contiguous(_ColumnSplitter):
    """Give every party a run of neighbouring columns.

    Party ``i`` of ``k`` gets the columns from ``i * n_features // k`` up to
    ``(i + 1) * n_features // k``, as in FedOnce's published experiments.

    Parameters
    ----------
    n_parties : int, default=2
        Number of parties.

    See Also
    --------
    RoundRobin : Deal the columns in turn.
    ImageTiles : Neighbouring pixels of an image.

    Examples
    --------
    >>> import numpy as np
    >>> from skvfl import Contiguous
    >>> Contiguous(n_parties=2).split_columns(np.zeros((3, 5)))
    {'party0': array([0, 1]), 'party1': array([2, 3, 4])}
    """

    _parameter_constraints = {"n_parties": _N_PARTIES}

    def __init__(self, n_parties=2):
        self.n_parties = n_parties

    def _assign(self, X, y):
        _check_enough_columns(X, self.n_parties)
        return _runs(X.shape[1], self.n_parties)


class ImportanceSplit(_ColumnSplitter):
    r"""Divide what the columns say about the label unevenly among the parties.

    A column's importance is measured on the data: its mutual information with ``y``.
    A draw from a symmetric Dirichlet distribution sets the share of the total
    importance that each party should hold, and the columns are dealt, the most
    important first, to the party that is furthest below its share.

    Parameters
    ----------
    n_parties : int, default=2
        Number of parties.
    concentration : float, default=1.0
        Parameter of the Dirichlet distribution. Well below 1, one party holds nearly
        all the importance; well above 1, all parties hold about the same.
    random_state : int, RandomState instance or None, default=None
        Seed of the draw, and of the sample of rows where ``X`` has more than 5,000.

    Attributes
    ----------
    importances_ : ndarray of shape (n_features,)
        Mutual information of each column with ``y`` in nats, less what chance alone
        would show; never negative.
    shares_ : dict of {str: float}
        Each party's share of the total importance; they sum to 1. Equal shares where
        no column has any importance.
    concentration_ : float
        How uneven the shares are: their Gini coefficient, normalised to run from 0
        (equal shares) to 1 (one party has everything). For shares :math:`s_i` of
        :math:`k` parties it is :math:`\sum_{i<j} |s_i - s_j| / (k - 1)`, so with two
        parties it is the difference of their shares. 0 for a single party.

    See Also
    --------
    CorrelationSplit : Divide by how columns relate to each other, not to the label.

    Notes
    -----
    Numbers with more than 32 different values are cut at their ranks into
    :math:`\lfloor n^{1/3} \rfloor` bins of equal count, at least 2 and at most 16;
    other numbers, and text, are used value by value, and missing cells are a value of
    their own. Subtracting the information expected under a random permutation of the
    rows [1]_ keeps an identifier, which is different in every row, from appearing
    important. ``y`` may be classes or numbers and is treated in the same way.

    Importance is measured column by column: two copies of a column count twice, and
    columns that tell something only together count nothing.

    References
    ----------
    .. [1] N. X. Vinh, J. Epps, J. Bailey, "Information Theoretic Measures for
       Clusterings Comparison: Variants, Properties, Normalization and Correction for
       Chance", Journal of Machine Learning Research 11, 2010.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from skvfl import ImportanceSplit
    >>> X, y = load_wine(return_X_y=True)
    >>> even = ImportanceSplit(n_parties=3, concentration=1000, random_state=0)
    >>> columns = even.split_columns(X, y)
    >>> {name: round(share, 2) for name, share in even.shares_.items()}
    {'party0': 0.34, 'party1': 0.33, 'party2': 0.33}
    >>> uneven = ImportanceSplit(n_parties=3, concentration=0.1, random_state=0)
    >>> columns = uneven.split_columns(X, y)
    >>> even.concentration_ < uneven.concentration_
    True
    """

    _parameter_constraints = {
        "n_parties": _N_PARTIES,
        "concentration": [Interval(Real, 0, None, closed="neither")],
        "random_state": ["random_state"],
    }

    def __init__(self, n_parties=2, *, concentration=1.0, random_state=None):
        self.n_parties = n_parties
        self.concentration = concentration
        self.random_state = random_state

    def _assign(self, X, y):
        _check_enough_columns(X, self.n_parties)
        if y is None:
            raise ValueError(
                "ImportanceSplit measures what each column says about the label: pass "
                "y, as in split_columns(X, y)"
            )
        y, missing = read_column(y, "y")
        check_entries(len(y), _num_samples(X), "y")
        # Only to refuse what is neither numbers nor text: the order of ``y`` is
        # measured on its own values below.
        settle(y[~missing], "y")
        rng = generator(self.random_state)
        rows = _sample_rows(X, rng)
        codes, is_text = _encode(y[rows])
        # A mask covers values that look present.
        codes[missing[rows]] = -1
        labelled = codes >= 0
        if not labelled.any():
            raise ValueError("y holds no label that columns could say something about")
        rows, target = rows[labelled], _levels(codes[labelled], is_text)
        self.importances_ = np.array(
            [
                _information(_levels(*encoded), target)
                for encoded in _encoded_columns(X, rows)
            ]
        )
        wanted = rng.dirichlet(np.full(self.n_parties, float(self.concentration)))
        party = _deal(self.importances_, wanted)
        held = np.bincount(party, weights=self.importances_)
        total = held.sum()
        shares = held / total if total else np.full(len(held), 1 / len(held))
        self.shares_ = {f"party{i}": float(share) for i, share in enumerate(shares)}
        self.concentration_ = _gini(shares)
        return party


class CorrelationSplit(_ColumnSplitter):
    """Keep correlated columns together in one party, or spread them over parties.

    Every party gets the same number of columns, give or take one; among such splits,
    swaps of columns between parties look for the least and the greatest correlation
    within parties, and then for a split at the wanted place between the two.

    Parameters
    ----------
    n_parties : int, default=2
        Number of parties.
    level : float, default=1.0
        Where the mean correlation within parties should lie: 0 for the least that was
        found (correlated columns are spread over parties), 1 for the greatest
        (correlated columns are kept together), and proportionally between.
    random_state : int, RandomState instance or None, default=None
        Seed of the splits from which the search starts, and of the sample of rows
        where ``X`` has more than 5,000.

    Attributes
    ----------
    within_correlation_ : float
        Mean absolute rank correlation over the pairs of columns that are in the same
        party; nan where no party has two columns.
    between_correlation_ : float
        The same over the pairs in different parties; nan for a single party.
    correlation_ : float
        ``within_correlation_ - between_correlation_``. Positive where parties hold
        columns that belong together, near 0 for a random split, negative where
        columns that belong together are in different parties.

    See Also
    --------
    ImportanceSplit : Divide by what columns say about the label.

    Notes
    -----
    The correlation is Spearman's. Text is ranked alphabetically, booleans and dates
    in their order; a missing cell counts as the middle of its column; a column with
    one value has correlation 0 with every other. Time and memory grow with the square
    of the number of columns.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from skvfl import CorrelationSplit
    >>> X, _ = load_breast_cancer(return_X_y=True)
    >>> for level in (0, 0.5, 1):
    ...     splitter = CorrelationSplit(n_parties=3, level=level, random_state=0)
    ...     columns = splitter.split_columns(X)
    ...     print(f"{splitter.within_correlation_:.2f}", f"{splitter.correlation_:.2f}")
    0.37 -0.07
    0.49 0.09
    0.60 0.25
    """

    _parameter_constraints = {
        "n_parties": _N_PARTIES,
        "level": [Interval(Real, 0, 1, closed="both")],
        "random_state": ["random_state"],
    }

    def __init__(self, n_parties=2, *, level=1.0, random_state=None):
        self.n_parties = n_parties
        self.level = level
        self.random_state = random_state

    def _assign(self, X, y):
        _check_enough_columns(X, self.n_parties)
        rng = generator(self.random_state)
        correlation = _rank_correlation(X, _sample_rows(X, rng))
        total = correlation.sum() / 2
        turn = np.arange(X.shape[1]) % self.n_parties
        # Swaps end where no single one helps, which is seldom the best there is.
        starts = [rng.permutation(turn) for _ in range(N_STARTS)]
        low = min(
            (_swap_towards(0.0, correlation, start) for start in starts),
            key=lambda found: found[0],
        )
        high = max(
            (_swap_towards(total, correlation, start) for start in starts),
            key=lambda found: found[0],
        )
        # The aim lies between splits that exist, because the theoretical bounds may be
        # out of reach for parties of equal size.
        aim = low[0] + self.level * (high[0] - low[0])
        nearer = low if self.level < 0.5 else high
        within, party = _swap_towards(aim, correlation, nearer[1])
        size = np.bincount(party)
        n_within = (size * (size - 1)).sum() / 2
        n_between = len(party) * (len(party) - 1) / 2 - n_within
        self.within_correlation_ = float(within / n_within) if n_within else np.nan
        self.between_correlation_ = (
            float((total - within) / n_between) if n_between else np.nan
        )
        self.correlation_ = self.within_correlation_ - self.between_correlation_
        return party


class ImageTiles(_ColumnSplitter):
    """Cut images into rectangular tiles, one for every party.

    The parties are the tiles, row by row from the top left. Where a side does not
    divide evenly, tile ``i`` of ``k`` covers the pixels from ``i * side // k`` up to
    ``(i + 1) * side // k``.

    Parameters
    ----------
    shape : tuple of int, default=(28, 28)
        Height and width of an image, or height, width and number of channels; its
        pixels are the columns, in C order.
    tiles : tuple of int, default=(2, 2)
        Number of tiles from top to bottom and from left to right.

    See Also
    --------
    Contiguous : Neighbouring columns of any table.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from skvfl import ImageTiles
    >>> X, _ = load_digits(return_X_y=True)
    >>> columns = ImageTiles(shape=(8, 8), tiles=(2, 2)).split_columns(X)
    >>> columns["party1"]
    array([ 4,  5,  6,  7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31])
    """

    _parameter_constraints = {"shape": [tuple, list], "tiles": [tuple, list]}

    def __init__(self, shape=(28, 28), tiles=(2, 2)):
        self.shape = shape
        self.tiles = tiles

    def _assign(self, X, y):
        shape = _positive_ints("shape", self.shape, (2, 3))
        tiles = _positive_ints("tiles", self.tiles, (2,))
        if tiles[0] > shape[0] or tiles[1] > shape[1]:
            raise ValueError(
                f"tiles={tiles} cuts images of {shape[0]} by {shape[1]} pixels into "
                "tiles without pixels: ask for fewer tiles"
            )
        n_pixels = int(np.prod(shape))
        if X.shape[1] != n_pixels:
            raise ValueError(
                f"images of shape={shape} have {n_pixels} pixels, but X has "
                f"n_features={X.shape[1]} columns: set shape to (height, width) or "
                "(height, width, channels) of the images"
            )
        down, across = _runs(shape[0], tiles[0]), _runs(shape[1], tiles[1])
        tile = tiles[1] * down[:, None] + across
        return np.repeat(tile.ravel(), n_pixels // tile.size)


def _check_enough_columns(X, n_parties):
    if X.shape[1] < n_parties:
        raise ValueError(
            f"a table with n_features={X.shape[1]} columns cannot be split over "
            f"{n_parties} parties, each of which needs at least one column: ask for "
            "fewer parties"
        )


def _positive_ints(name, value, lengths):
    if len(value) not in lengths or not all(
        isinstance(v, Integral) and v > 0 for v in value
    ):
        allowed = " or ".join(str(length) for length in lengths)
        raise ValueError(f"{name} must be {allowed} positive integers, got {value!r}")
    return tuple(int(v) for v in value)


def _runs(n, k):
    """Cut n positions into k runs of about equal length; the run of each position."""
    bounds = np.arange(k + 1) * n // k
    return np.repeat(np.arange(k), np.diff(bounds))


def _sample_rows(X, rng):
    n = _num_samples(X)
    if n == 0:
        raise ValueError("columns are measured on their rows, but X has n_samples=0")
    if n <= MAX_ROWS:
        return np.arange(n)
    return np.sort(rng.choice(n, MAX_ROWS, replace=False))


def _encoded_columns(X, rows):
    """Yield :func:`_encode` of one column after the other, at the given rows."""
    if sparse.issparse(X):
        # Rows are cheap to pick in one format and columns in the other; never all
        # dense.
        X = X.tocsr()[rows].tocsc()
        for j in range(X.shape[1]):
            yield _encode(X[:, [j]].toarray().ravel())
        return
    X = _safe_indexing(X, rows)
    for j in range(X.shape[1]):
        try:
            encoded = _encode(np.asarray(_safe_indexing(X, j, axis=1)))
        except (IndexError, ValueError):
            raise InvalidColumnError(
                f"{describe(j, column_names(X))} has cells that hold several values: "
                "give every value a column of its own, or drop the column"
            ) from None
        yield encoded


def _encode(values):
    """Order of the cells: codes from 0 upwards, -1 where missing; and if it is text.

    Both measures look at ranks and at equality only, so codes say all they need.
    """
    is_text = False
    if values.dtype.kind in "biufmM":
        missing = values != values
    else:
        values = values.astype(object)
        missing = np.array([_is_missing(value) for value in values], dtype=bool)
        is_text = any(isinstance(value, str) for value in values)
    present = values[~missing]
    codes = np.full(len(values), -1)
    try:
        codes[~missing] = np.unique(present, return_inverse=True)[1]
    except TypeError:  # cells without a common order
        is_text = True
        present = np.array([str(value) for value in present])
        codes[~missing] = np.unique(present, return_inverse=True)[1]
    return codes, is_text


def _is_missing(value):
    try:
        return value is None or bool(value != value)
    except TypeError:  # pandas.NA is neither equal nor unequal
        return True


def _levels(codes, is_text):
    """Few levels from many numbers; text is left as it is."""
    if is_text or codes.max() < MAX_LEVELS:
        return codes
    present = codes >= 0
    n = present.sum()
    n_bins = min(max(int(np.cbrt(n)), 2), MAX_BINS)
    levels = codes.copy()
    levels[present] = n_bins * (rankdata(codes[present]) - 0.5) / n
    return levels


def _information(levels, target):
    """Mutual information in nats beyond what a random permutation shows."""
    table = contingency_matrix(target, levels, sparse=True)
    information = mutual_info_score(None, None, contingency=table)
    by_chance = expected_mutual_information(table, len(levels))
    return max(0.0, information - by_chance)


def _deal(importances, wanted):
    """Party of each column so that importance comes near the wanted shares."""
    owed = wanted * importances.sum()
    size = np.zeros(len(wanted), dtype=int)
    party = np.empty(len(importances), dtype=int)
    order = np.argsort(-importances, kind="stable")
    for column in order:
        # Columns that say nothing even out how many each party holds.
        to = np.argmax(owed) if importances[column] else np.argmin(size)
        party[column] = to
        owed[to] -= importances[column]
        size[to] += 1
    for empty in np.flatnonzero(size == 0):
        # The least important column of a party that can spare one.
        spare = order[size[party[order]] > 1][-1]
        size[party[spare]] -= 1
        party[spare] = empty
        size[empty] = 1
    return party


def _gini(shares):
    k = len(shares)
    if k == 1:
        return 0.0
    return float(np.abs(np.subtract.outer(shares, shares)).sum() / 2 / (k - 1))


def _rank_correlation(X, rows):
    """Absolute Spearman correlation of all pairs of columns, 0 on the diagonal."""
    ranks = np.zeros((len(rows), X.shape[1]))
    for j, (codes, _) in enumerate(_encoded_columns(X, rows)):
        present = codes >= 0
        if codes.max() > 0:
            centred = rankdata(codes[present])
            centred -= (present.sum() + 1) / 2
            ranks[present, j] = centred / np.linalg.norm(centred)
    correlation = np.minimum(np.abs(ranks.T @ ranks), 1.0)
    np.fill_diagonal(correlation, 0.0)
    return correlation


def _swap_towards(aim, correlation, start):
    """Swap columns of different parties while the sum within parties nears the aim.

    Returns
    -------
    within : float
        Sum of the correlations of pairs in the same party.
    party : ndarray of int
        Party of each column.
    """
    party = start.copy()
    columns = np.arange(len(party))
    to_party = correlation @ np.eye(party.max() + 1)[party]
    within = to_party[columns, party].sum() / 2
    # Rounding could swap two columns to and fro for ever.
    tolerance = 1e-9 * correlation.sum()
    swapped = True
    while swapped:
        swapped = False
        for i in columns:
            a = party[i]
            # What each swap with i adds within parties. The pair itself is in different
            # parties before and after, and was counted in both sums.
            gain = (
                to_party[i, party]
                - to_party[i, a]
                + to_party[:, a]
                - to_party[columns, party]
                - 2 * correlation[i]
            )
            gap = np.where(party == a, np.inf, np.abs(within + gain - aim))
            j = np.argmin(gap)
            if gap[j] < abs(within - aim) - tolerance:
                b = party[j]
                to_party[:, a] += correlation[j] - correlation[i]
                to_party[:, b] += correlation[i] - correlation[j]
                party[i], party[j] = b, a
                within += gain[j]
                swapped = True
    return within, party
