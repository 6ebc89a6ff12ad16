"""Columns of text that are numbers or times, or that say less than they seem to."""

import pickle
import warnings
from datetime import UTC, datetime, timedelta

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from skvfl import (
    FedOnceClassifier,
    PartyPreprocessor,
    SplitNNClassifier,
    VerticalPartitioner,
)
from skvfl.exceptions import ColumnWarning, InvalidColumnError

RNG = np.random.default_rng(0)
WHOLE = RNG.integers(1, 900_000, 200)
SMALL = RNG.integers(1, 5_000, 200)
REAL = RNG.normal(0, 5_000, 200).round(2)
DAYS = pd.Timestamp("1980-01-01") + pd.to_timedelta(RNG.integers(0, 15_000, 200), "D")
SECONDS = RNG.integers(0, 86_400, 200)


def frame(column):
    return pd.DataFrame({"noise": np.zeros(len(column)), "amount": column})


def out(fitted, column):
    return fitted.transform(frame(column))[:, 1:]


def fit(column):
    return PartyPreprocessor(dtype="float64").fit(frame(column))


def swap(text):
    return text.translate(str.maketrans(",.", ".,"))


def lakhs(x):
    return f"{x // 100_000},{x // 1000 % 100:02},{x % 1000:03}"


def accounting(x, form):
    return form.format(f"{x:,.2f}") if x >= 0 else "(" + form.format(f"{-x:,.2f}") + ")"


NUMBERS = {
    "plain": (REAL, [str(x) for x in REAL]),
    "thousands, comma": (WHOLE, [f"{x:,}" for x in WHOLE]),
    "thousands, comma, small": (SMALL, [f"{x:,}" for x in SMALL]),
    "thousands, point, small": (SMALL, [swap(f"{x:,}") for x in SMALL]),
    "thousands, blank": (WHOLE, [f"{x:,}".replace(",", " ") for x in WHOLE]),
    "thousands, narrow": (WHOLE, [f"{x:,}".replace(",", "\u202f") for x in WHOLE]),
    "thousands, apostrophe": (SMALL, [f"{x:,}".replace(",", "\u2019") for x in SMALL]),
    "lakhs": (WHOLE, [lakhs(x) if x >= 100_000 else f"{x:,}" for x in WHOLE]),
    "thousands and decimals": (REAL, [f"{x:,.2f}" for x in REAL]),
    "European": (REAL, [swap(f"{x:,.2f}") for x in REAL]),
    "French": (REAL, [f"{x:,.2f}".replace(",", " ").replace(".", ",") for x in REAL]),
    "decimal comma": (REAL, [swap(str(x)) for x in REAL]),
    "euro before": (WHOLE, [f"€ {x}" for x in WHOLE]),
    "euro behind": (REAL, [swap(f"{x:,.2f} €") for x in REAL]),
    "dollar": (REAL, [f"${x:,.2f}".replace("$-", "-$") for x in REAL]),
    "code": (WHOLE, [f"USD {x:,}" for x in WHOLE]),
    "percent": (REAL, [f"{x:.2f}%" for x in REAL]),
    "percent, comma": (REAL, [swap(f"{x:.2f} %") for x in REAL]),
    "accounting": (REAL, [accounting(x, "{}") for x in REAL]),
    "accounting, dollar": (REAL, [accounting(x, "${}") for x in REAL]),
    "minus behind": (REAL, [f"{-x:.2f}-" if x < 0 else f"{x:.2f}" for x in REAL]),
    "minus sign": (REAL, [str(x).replace("-", "\N{MINUS SIGN}") for x in REAL]),
    "unit": (SMALL, [f"{x} kg" for x in SMALL]),
    "scientific": (SMALL, [f"{x:.3e}" for x in SMALL]),
    "blanks": (WHOLE, [f"  {x} " for x in WHOLE]),
}


@pytest.mark.parametrize("case", NUMBERS)
def test_numbers_as_text_are_read(case):
    values, column = NUMBERS[case]
    fitted = fit(column)
    assert fitted.kinds_[1] == "numbers"
    assert_allclose(out(fitted, column), out(fit(values), values))
    assert_allclose(out(fitted, column[:1]), out(fitted, column)[:1])


@pytest.mark.parametrize("marker", ["?", "NA", "n/a", "", " ", "-", "NULL", "#N/A"])
def test_markers_of_missing_numbers(marker):
    expected = [NAN if i % 9 == 0 else x for i, x in enumerate(WHOLE)]
    column = [marker if i % 9 == 0 else f"{x:,}" for i, x in enumerate(WHOLE)]
    fitted = fit(column)
    assert_allclose(out(fitted, column), out(fit(expected), expected))
    assert_allclose(out(fitted, [None, marker]), out(fitted, ["-", np.nan]))


NAN = np.nan
CONTAINERS = [
    lambda column: pd.DataFrame({"a": pd.Series(column, dtype=object)}),
    lambda column: pd.DataFrame({"a": pd.array(column, dtype="string")}),
    lambda column: pd.DataFrame({"a": column}, dtype=pd.ArrowDtype(pa.string())),
    lambda column: pl.DataFrame({"a": column}),
    lambda column: pa.table({"a": column}),
    lambda column: np.array(column, dtype=object)[:, None],
    lambda column: [[text] for text in column],
]


@pytest.mark.parametrize("make", CONTAINERS)
def test_text_in_any_container(make):
    column = [*NUMBERS["European"][1][:30], None]
    values = np.array([*REAL[:30], NAN])[:, None]
    assert_allclose(
        PartyPreprocessor(dtype="float64").fit_transform(make(column)),
        PartyPreprocessor(dtype="float64").fit_transform(values),
    )


@pytest.mark.parametrize(
    "X",
    [
        pd.DataFrame({"a": pd.Categorical(["1", "2", "3"] * 4)}),
        pl.DataFrame({"a": ["1", "2", "3"] * 4}, schema={"a": pl.Categorical}),
        pl.DataFrame({"a": ["1", "2", "3"] * 4}, schema={"a": pl.Enum([*"123"])}),
    ],
)
def test_what_is_declared_to_be_categories_stays_so(X):
    assert PartyPreprocessor().fit_transform(X).shape == (12, 3)


@pytest.mark.parametrize(
    "column",
    [
        ["01234", "99999", "10115"],
        ["4111111111111111", "4111111111111112"],
        ["1", "2", "3 or more"],
        ["10-20", "20-30", "30-40"],
        ["C12", "C17", "D3"],
        ["192.168.0.1", "10.0.0.1"],
        ["1.2.3", "1.10.0"],
        ["12/2", "3/4"],
        ["?", "n/a", "?"],
        ["yes", "no", "-"],
        ["(1", "2)"],
        ["1,2,3", "4,5,6"],
        ["31/02/2020", "30/02/2020"],
        ["Foo 12, 2020", "Bar 13, 2020"],
    ],
)
def test_codes_are_categories(column):
    fitted = fit(column)
    assert fitted.kinds_[1] == "strings"
    assert (out(fitted, column).sum(axis=1) == 1).all()


def test_point_with_three_digits_in_all_cells_is_a_decimal_point():
    fitted = fit(["1.753", "1.812", "1.604"])
    assert_allclose(out(fitted, ["1.7530"]), out(fitted, ["1.753"]))


def test_a_few_slips_do_not_change_the_reading_of_all():
    values, column = np.tile(SMALL, 3), [f"{x:,}" for x in np.tile(SMALL, 3)]
    column[17] = "12,5"
    with pytest.warns(ColumnWarning, match=r"'amount' .* 1 of its values cannot"):
        fitted = fit(column)
    expected = np.where(np.arange(600) == 17, NAN, values)
    assert_allclose(out(fitted, column), out(fit(expected), expected))


# Dates and times


DATES = [
    *["%Y-%m-%d", "%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y", "%d-%m-%Y", "%m/%d/%y"],
    *["%Y/%m/%d", "%d %b %Y", "%d-%b-%Y", "%B %d, %Y", "%b. %d, %Y", "%d. %m. %Y"],
]


@pytest.mark.parametrize("form", DATES)
def test_dates_as_text_are_read(form):
    column = list(DAYS.strftime(form))
    fitted = fit(column)
    assert fitted.kinds_[1] == "datetimes"
    assert_allclose(out(fitted, column), out(fit(DAYS), DAYS))


@pytest.mark.parametrize(
    "form",
    [
        *["%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S.%f", "%d.%m.%Y %H:%M:%S"],
        *["%m/%d/%Y %I:%M:%S %p", "%d %b %Y, %H:%M:%S"],
    ],
)
def test_times_as_text_are_read(form):
    times = DAYS + pd.to_timedelta(SECONDS, "s")
    column = list(times.strftime(form))
    assert_allclose(out(fit(column), column), out(fit(times), times))


@pytest.mark.parametrize("zone", ["Z", " UTC", "+00:00", "+0000"])
def test_times_with_a_zone_are_instants(zone):
    times = DAYS.tz_localize("UTC")
    fitted = fit(list(DAYS.strftime("%Y-%m-%dT%H:%M:%S" + zone)))
    assert fitted.kinds_[1] == "datetimes with time zone"
    assert_allclose(out(fitted, times), out(fit(times), times))
    moved = ["1990-01-01T12:00:00+02:00", "1990-01-01T10:00:00Z"]
    assert len(set(out(fitted, moved).ravel())) == 1
    with pytest.raises(InvalidColumnError, match="'amount'"):
        out(fitted, ["1990-01-01T12:00:00"])


def test_months_and_times_of_day():
    assert fit(["2020-01", "2021-12"]).kinds_[1] == "datetimes"
    fitted = fit(["0:30", "12:30", "23:59"])
    assert fitted.kinds_[1] == "durations"
    half = timedelta(hours=12, minutes=30)
    assert_allclose(
        out(fitted, ["12:30", "12:30 PM", "12:30:00"]), out(fitted, [half] * 3)
    )


def test_day_or_month():
    ambiguous = ["01/02/2020", "03/04/2020", "05/06/2020"]
    with pytest.warns(ColumnWarning, match=r"'amount' .* the day or the month"):
        fitted = fit(ambiguous)
    assert_allclose(out(fitted, ambiguous[:1]), out(fitted, ["2020-01-02"]))
    day_first = fit([*ambiguous, "31/12/2020"])
    assert_allclose(out(day_first, ambiguous[:1]), out(day_first, ["2020-02-01"]))
    points = fit(["01.02.2020", "03.04.2020"])
    assert_allclose(out(points, ["01.02.2020"]), out(points, ["2020-02-01"]))


def test_days_and_months_that_contradict_each_other():
    column = [f"{13 + i % 10}/{1 + i % 12}/2020" for i in range(30)]
    column += [f"{1 + i % 12}/{13 + i % 10}/2020" for i in range(30)]
    with pytest.warns(ColumnWarning, match=r"'amount' .* dates, but not in one format"):
        fit(column)


# Ambiguity, mixtures, changes


@pytest.mark.parametrize(
    ("column", "taken"),
    [
        (["1.234", "567", "2.345"], r"thousands"),
        (["1,234", "567891", "2,345"], r"thousands"),
        (["1,234", "5.678", "9"], r"decimals where it is '\.' and thousands"),
    ],
)
def test_separators_that_may_be_either(column, taken):
    with pytest.warns(ColumnWarning, match=rf"'amount' .* is taken for {taken}"):
        fit(column)


@pytest.mark.parametrize(
    "column",
    [
        [f"{x} g" if x % 2 else f"{x / 1000} kg" for x in WHOLE],
        [f"€{x}" if x % 2 else f"${x}" for x in WHOLE],
        [f"{x / 1e3:.2f}k" if x < 500_000 else f"{x / 1e6:.4f}M" for x in WHOLE],
        [str(x) if i % 3 else f"about {x}" for i, x in enumerate(WHOLE)],
    ],
)
def test_column_that_does_not_agree_on_a_format_is_named(column):
    with pytest.warns(ColumnWarning, match=r"'amount' .* numbers, but not in one"):
        assert fit(column).kinds_[1] == "strings"


def test_words_among_numbers_are_missing_and_counted():
    column = ["secret" if i % 4 == 0 else str(x) for i, x in enumerate(WHOLE)]
    with pytest.warns(ColumnWarning, match=r"'amount' .* 50 of its values") as record:
        fitted = fit(column)
    assert not any("secret" in str(each.message) for each in record)
    assert_allclose(out(fitted, column[:4])[0], out(fitted, [None])[0])


def test_text_that_cannot_be_read_later_is_missing_and_counted():
    fitted = fit([str(x) for x in WHOLE])
    message = (
        r"'amount' \(position 1\) .* numbers in 2 of 10 rows; it counts as missing"
    )
    with pytest.warns(ColumnWarning, match=message) as record:
        later = out(fitted, ["5"] * 8 + ["secret", "1,5"])
    assert "secret" not in str(record[0].message)
    assert_allclose(later[8:], out(fitted, [None, None]))


def test_numbers_and_text_may_take_turns():
    numbers, text = fit(WHOLE), fit([str(x) for x in WHOLE])
    for fitted in (numbers, text):
        assert_allclose(out(fitted, ["7", " 8 ", "?"]), out(fitted, [7.0, 8.0, NAN]))
        mixed = np.array([7, "8", "n/a", None], dtype=object)
        assert_allclose(out(fitted, mixed), out(fitted, [7.0, 8.0, NAN, NAN]))
    with pytest.raises(InvalidColumnError, match="held numbers in fit and holds str"):
        out(numbers, ["7,000"])
    dates = fit(DAYS)
    assert_allclose(out(dates, ["1999-12-31"]), out(dates, [datetime(1999, 12, 31)]))
    with pytest.raises(InvalidColumnError, match="'amount'"):
        out(dates, ["31.12.1999"])


@pytest.mark.parametrize("value", [1, 1.5, datetime(2020, 1, 1), timedelta(1)])
def test_objects_mixed_with_other_text_are_refused(value):
    with pytest.raises(InvalidColumnError, match=r"'amount' .* mixes") as info:
        fit(np.array([value, "secret"], dtype=object))
    assert "secret" not in str(info.value)


def test_times_mixed_with_iso_text_are_read():
    column = np.array([datetime(2020, 1, 1), "2020-01-02", "-", None], dtype=object)
    days = pd.Series([datetime(2020, 1, 1), datetime(2020, 1, 2), None, None])
    assert_allclose(out(fit(column), column), out(fit(days), days))
    aware = np.array([datetime(2020, 1, 1, tzinfo=UTC), "2020-01-02"], dtype=object)
    with pytest.raises(InvalidColumnError, match="'amount'"):
        fit(aware)


def test_infinite_text_is_refused():
    with pytest.raises(InvalidColumnError, match=r"'amount' .* infinite"):
        fit(["1", "inf", "3"])


# Categories


ANSWERS = ["yes", "no"] * 40


def test_blanks_are_ignored_and_said():
    fitted = fit(ANSWERS)
    message = r"'amount' .* only by blanks, .* in 80 of 80 rows; that is ignored"
    with pytest.warns(ColumnWarning, match=message):
        later = out(fitted, [f" {text}  " for text in ANSWERS])
    assert_array_equal(later, out(fitted, ANSWERS))


def test_blanks_in_fit_need_no_word():
    fitted = fit([f" {text}" for text in ANSWERS])
    assert_array_equal(out(fitted, ANSWERS), out(fitted, [f"{a} " for a in ANSWERS]))
    assert fitted.get_feature_names_out()[1:].tolist() == ["amount_no", "amount_yes"]


@pytest.mark.parametrize(
    ("later", "message"),
    [
        (["oui", "non"] * 10, "did not see in 20 of 20 rows"),
        (["yes"] * 4 + ["non"] * 6, "did not see in 6 of 10 rows"),
        (["yes"] * 5 + ["non"] * 5, "did not see in 5 of 10 rows"),
        (["yes"] * 9 + ["YES"], "upper and lower case in 1 of 10 rows"),
    ],
)
def test_unknown_categories_are_counted(later, message):
    fitted = fit(ANSWERS)
    with pytest.warns(ColumnWarning, match=rf"'amount' .*{message}") as record:
        out(fitted, later)
    assert "non" not in str(record[0].message)


def test_few_unknown_categories_need_no_word():
    fitted = fit(ANSWERS)
    out(fitted, ["oui"])
    out(fitted, ["yes"] * 8 + ["non"] * 2)


def test_accents_are_read_in_either_encoding():
    composed = ["caf\u00e9", "th\u00e9"] * 20
    fitted = fit(composed)
    with pytest.warns(ColumnWarning, match="accents are encoded, in 40 of 40 rows"):
        later = out(fitted, [text.replace("\u00e9", "e\u0301") for text in composed])
    assert_array_equal(later, out(fitted, composed))


@pytest.mark.parametrize(
    "column",
    [
        ANSWERS,
        np.arange(80) / 7,
        [f"2020-01-{d:02d}" for d in range(1, 29)],
        [f"{i / 7:.3f}" for i in range(80)],
    ],
)
def test_a_column_without_any_value_later_is_named(column):
    fitted = fit(column)
    with pytest.warns(ColumnWarning, match=r"'amount' .* no value in any of 20 rows"):
        out(fitted, [None] * 20)
    out(fitted, [None] * 9)
    both = {"amount": column, "rest": np.arange(len(column)) / 7}
    two = PartyPreprocessor().fit(pd.DataFrame(both))
    with pytest.warns(ColumnWarning, match="'amount'"):
        two.transform(pd.DataFrame({"amount": [None] * 20, "rest": 1}))
    two.transform(pd.DataFrame({"amount": [None] * 20, "rest": np.nan}))


def test_a_column_that_is_mostly_empty_in_fit_may_be_empty_later():
    for column in ([1.5, *[np.nan] * 59], ["yes", *[None] * 59]):
        out(fit(column), [None] * 20)


@pytest.mark.parametrize("signs", [",.", ".,"])
def test_separators_that_changed_since_fit_are_said(signs):
    """12,345 in fit and 12.345 later is more likely twelve thousand than twelve."""
    amounts = range(1_000, 90_000, 977)
    parts = [f"{each:,}".replace(",", signs[0]) for each in amounts]
    fitted = fit([*parts, parts[0]])  # all different would be an identifier
    with pytest.warns(ColumnWarning, match=r"'amount' .* cannot be read as numbers"):
        later = out(fitted, [f"{a:,}".replace(",", signs[1]) for a in amounts])
    assert len(np.unique(later)) == 1
    halves = fit([f"{each:,}{signs[1]}5".replace(",", signs[0]) for each in range(80)])
    out(halves, [f"1{signs[1]}125"] * 20)


def test_rare_categories_of_fit_are_not_unknown_later():
    column = ["common"] * 60 + [f"rare{i}" for i in range(30)]
    fitted = PartyPreprocessor(max_categories=2).fit(frame(column))
    fitted.transform(frame(column))
    with pytest.warns(ColumnWarning, match="did not see"):
        fitted.transform(frame(["other"] * 20))


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ([f"customer {i}" for i in range(40)], "identifier: 40 of its 40 values are"),
        (np.arange(40), "identifier: its whole numbers .* narrow range"),
        (RNG.permutation(40) + 10**9, "identifier: its whole numbers .* narrow range"),
        (pd.array(np.arange(40), dtype="Int64"), "identifier"),
        ([str(i) for i in range(500, 540)], "identifier: its whole numbers"),
        (np.arange(40) ** 4, "identifier: .* rising order"),
        ([f"c{x}" for x in RNG.integers(0, 900, 2_000)], "mostly rare .* 7.%"),
        (pd.Categorical([f"{x}" for x in range(40)]), "identifier"),
    ],
)
def test_identifiers_and_rare_categories_are_named(column, message):
    with pytest.warns(ColumnWarning, match=rf"'amount' \(position 1\) .*{message}"):
        fit(column)


def test_a_column_that_is_called_an_identifier():
    numbers = np.arange(40)[::-1] ** 4
    for name in ("id", "customer_id", "ID", "customerId"):
        with pytest.warns(ColumnWarning, match="called one"):
            PartyPreprocessor().fit(pd.DataFrame({name: numbers}))
    PartyPreprocessor().fit(pd.DataFrame({"paid": numbers}))


@pytest.mark.parametrize(
    "column",
    [
        np.arange(40.0),
        np.arange(19),
        RNG.choice(10**6, 40, replace=False),
        RNG.integers(0, 50, 400),
        [f"c{x}" for x in RNG.integers(0, 50, 400)],
    ],
)
def test_ordinary_columns_need_no_word(column):
    fit(column)


PIECES = ["1", "12", "1999", "00", "31", ".", ",", " ", "-", "/", ":", "'", "(", ")"]
PIECES += [
    "+",
    "T",
    "Z",
    "e",
    "€",
    "%",
    "kg",
    "Dec",
    "pm",
    "days",
    "inf",
    "\u00b2",
    "?",
]


@settings(deadline=None, max_examples=200)
@given(st.lists(st.lists(st.sampled_from(PIECES)).map("".join), min_size=1, max_size=9))
@pytest.mark.filterwarnings("ignore::skvfl.exceptions.ColumnWarning")
def test_any_text_gives_finite_numbers_or_an_error_that_names_the_column(column):
    error = ""
    try:
        later = out(fit(column), [*column[::-1], "", None])
    except InvalidColumnError as exc:
        later, error = np.zeros(1), str(exc)
    assert np.isfinite(later).all()
    assert not error or "'amount'" in error


# What crosses, what is kept


@pytest.mark.parametrize("Estimator", [SplitNNClassifier, FedOnceClassifier])
def test_the_party_is_named(Estimator):
    X = pd.DataFrame({"a": np.arange(80.0), "b": ANSWERS})
    parties = {"bank": ["a"], "shop": ["b"]}
    estimator = Estimator(parties=parties, max_epochs=1, random_state=0)
    estimator.fit(X, np.arange(80) % 2)
    later = X.assign(b="secret")
    with pytest.warns(ColumnWarning, match=r"party 'shop': column 'b'") as record:
        estimator.predict(later)
    assert "secret" not in str(record[0].message)
    assert record[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RuntimeError, match=r"^party 'shop': column 'b'"):
            estimator.predict(later)


def test_the_partitioner_names_the_party():
    X = pd.DataFrame({"a": np.zeros(40), "key": [f"k{i}" for i in range(40)]})
    partition = VerticalPartitioner(parties={"bank": ["a"], "shop": ["key"]})
    with pytest.warns(ColumnWarning, match=r"party 'shop': column 'key'") as record:
        partition.fit_transform(X)
    assert record[0].filename == __file__


def test_no_cell_is_kept_in_the_pickle():
    canaries = ["98,765.43", "1,234,567.89"]
    column = [f"{x:,.2f}" for x in REAL] + canaries
    dumped = pickle.dumps(fit(column))
    assert not any(text.encode() in dumped for text in column)
    control = pickle.dumps(fit(pd.Categorical(canaries * 5)))
    assert all(text.encode() in control for text in canaries)
