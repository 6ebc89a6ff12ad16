"""Two companies' tables about some of the same people, with a gain that is known."""

from __future__ import annotations

from numbers import Integral, Real

import numpy as np
from sklearn.utils import Bunch, check_random_state

from skvfl._sklearn import Interval, validate_params

JOBS = {
    "employee": -0.5,
    "self-employed": 0.6,
    "student": 0.9,
    "retired": -0.8,
    "none": 1.4,
}
JOB_SHARES = (0.5, 0.15, 0.1, 0.15, 0.1)
CATEGORIES = {"food": -0.7, "garden": -0.4, "electronics": 0.7, "travel": 0.9}
CATEGORY_SHARES = (0.4, 0.2, 0.25, 0.15)
INTERCEPT = -0.3
# Enough for the third digit of the accuracies that are known.
POPULATION = 100_000
DESCR = """\
Generated: a bank that wants to know who will default, and a shop that knows the same
people from elsewhere. Columns are numbers, words, truth values and dates, with missing
cells; rows are customers, in an order of each company's own. What the two know is
independent, and the odds of a default are the product of what each says of it."""


@validate_params(
    {
        "n_samples": [Interval(Integral, 10, None, closed="left")],
        "overlap": [Interval(Real, 0, 1, closed="right")],
        "missing": [Interval(Real, 0, 1, closed="left")],
        "random_state": ["random_state"],
    },
    prefer_skip_nested_validation=True,
)
def make_two_companies(n_samples=2000, *, overlap=0.8, missing=0.03, random_state=None):
    """Generate a bank's and a shop's tables with ids, mixed types and a known gain.

    For examples and tests that anybody can run: nothing is read or downloaded.

    Parameters
    ----------
    n_samples : int, default=2000
        Customers of the bank. The shop has as many, some of them the same.
    overlap : float, default=0.8
        Share of the bank's customers whom the shop knows, too.
    missing : float, default=0.03
        Share of the cells that are missing.
    random_state : int, RandomState instance or None, default=None
        Chooses the customers.

    Returns
    -------
    dataset : :class:`sklearn.utils.Bunch`
        ``tables`` (dict of the companies' DataFrames, ``"bank"`` and ``"shop"``);
        ``on`` (name of the column of ids); ``target`` (Series: whether a customer of
        the bank defaulted, indexed by id); ``best_alone`` and ``best_together`` (the
        accuracy that no model can pass, from the bank's complete columns and from
        both companies'); ``gain`` (their difference); ``DESCR``.

    Raises
    ------
    ImportError
        If pandas is missing.

    See Also
    --------
    load : Real data sets.
    skvfl.alignment.align : From tables with ids to one table.

    Examples
    --------
    >>> from skvfl.alignment import align
    >>> from skvfl.datasets import make_two_companies
    >>> companies = make_two_companies(n_samples=500, random_state=0)
    >>> companies.tables["shop"].columns.tolist()
    ['customer', 'spend', 'visits', 'returns', 'favourite', 'loyalty', 'last_visit']
    >>> aligned = align(companies.tables, on=companies.on, keep="intersection")
    >>> y = companies.target[aligned.ids]
    >>> aligned.table.shape, y.shape
    ((400, 11), (400,))
    >>> round(companies.best_alone, 2), round(companies.best_together, 2)
    (0.69, 0.78)
    """
    try:
        import pandas
    except ImportError as error:
        message = "make_two_companies needs pandas: pip install 'skvfl[frames]'"
        raise ImportError(message) from error
    rng = check_random_state(random_state)
    n_common = max(1, round(overlap * n_samples))
    names = rng.permutation(10 * n_samples)[: 2 * n_samples - n_common]
    ids = np.array([f"C{number:07d}" for number in names])
    bank, bank_odds = _bank(n_samples, rng)
    shop, shop_odds = _shop(n_samples, rng)
    # The shop says something of all the bank's customers, also of those that it does
    # not know; its first rows are those that both know.
    unknown = _shop(n_samples - n_common, rng)[1]
    odds = INTERCEPT + bank_odds + np.concatenate([shop_odds[:n_common], unknown])
    defaulted = rng.uniform(size=n_samples) < _probability(odds)
    known = {
        "bank": (bank, ids[:n_samples]),
        "shop": (shop, np.concatenate([ids[:n_common], ids[n_samples:]])),
    }
    tables = {}
    for company, (columns, own_ids) in known.items():
        frame = pandas.DataFrame(columns)
        # Truth values of numpy cannot be missing.
        truths = frame.select_dtypes("bool").columns
        frame = frame.astype(dict.fromkeys(truths, "boolean"))
        frame = frame.mask(rng.uniform(size=frame.shape) < missing)
        frame.insert(0, "customer", own_ids)
        order = rng.permutation(n_samples)
        tables[company] = frame.iloc[order].reset_index(drop=True)
    index = pandas.Index(ids[:n_samples], name="customer")
    target = pandas.Series(defaulted, index=index, name="defaulted")
    alone, together = _best()
    return Bunch(
        tables=tables,
        on="customer",
        target=target.loc[tables["bank"]["customer"]],
        best_alone=alone,
        best_together=together,
        gain=together - alone,
        DESCR=DESCR,
    )


def _probability(odds):
    return 1 / (1 + np.exp(-odds))


def _bank(n_rows, rng):
    """The bank's columns, and the logarithm of the odds that they say."""
    income = rng.lognormal(10.4, 0.5, n_rows)
    age = rng.randint(18, 80, n_rows)
    jobs = rng.choice([*JOBS], n_rows, p=JOB_SHARES)
    homeowner = rng.uniform(size=n_rows) < 0.4
    days = rng.randint(0, 7000, n_rows)
    odds = (
        -1.1 * (np.log(income) - 10.4) / 0.5
        + np.array([JOBS[job] for job in jobs])
        - 0.7 * (homeowner - 0.4)
        - 0.3 * (days / 3500 - 1)
    )
    columns = {
        "age": age,
        "income": income.round(-1),
        "job": jobs,
        "homeowner": homeowner,
        "opened": np.datetime64("2005-01-01") + days.astype("timedelta64[D]"),
    }
    return columns, odds


def _shop(n_rows, rng):
    """The shop's columns, and the logarithm of the odds that they say."""
    spend = rng.gamma(2.0, 150.0, n_rows)
    visits = rng.poisson(6.0, n_rows)
    returns = rng.beta(1.5, 6.0, n_rows)
    favourite = rng.choice([*CATEGORIES], n_rows, p=CATEGORY_SHARES)
    loyalty = rng.uniform(size=n_rows) < 0.5
    days = rng.randint(0, 700, n_rows)
    odds = (
        7.0 * (returns - 0.2)
        + np.array([CATEGORIES[each] for each in favourite])
        - 0.6 * (visits - 6.0) / np.sqrt(6.0)
        - 0.8 * (loyalty - 0.5)
        + 0.4 * (spend - 300.0) / 212.0
    )
    columns = {
        "spend": spend.round(2),
        "visits": visits,
        "returns": returns.round(3),
        "favourite": favourite,
        "loyalty": loyalty,
        "last_visit": np.datetime64("2024-01-01") + days.astype("timedelta64[D]"),
    }
    return columns, odds


def _best():
    """Accuracies of the best decisions: from the bank's columns, and from both."""
    rng = np.random.RandomState(0)
    bank, shop = _bank(POPULATION, rng)[1], _shop(POPULATION, rng)[1]
    together = _probability(INTERCEPT + bank + shop)
    # Whoever does not know what the shop says takes the mean over all that it may say,
    # and that mean rises with what the bank says.
    grid = np.linspace(bank.min(), bank.max(), 200)
    some = np.quantile(shop, (np.arange(500) + 0.5) / 500)
    means = _probability(INTERCEPT + grid[:, None] + some).mean(axis=1)
    alone = np.interp(bank, grid, means)
    return tuple(float(np.maximum(each, 1 - each).mean()) for each in (alone, together))
