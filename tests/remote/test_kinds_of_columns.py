"""Columns of all kinds can be learnt from, kept at home, and served."""

import datetime

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal

from skvfl import PartyPreprocessor
from skvfl.federation import _wire
from skvfl.remote._state import from_state, to_state

N = 60
RNG = np.random.default_rng(0)
DAYS = pd.date_range("2020-01-01", periods=N, freq="37h")
WORDS = RNG.choice(["basic", "family"], N)
COLUMNS = {
    "numbers": RNG.normal(size=N),
    "text": WORDS.astype(object),
    "categories": pd.Categorical(WORDS),
    "categories of numbers": pd.Categorical(RNG.choice([1, 2], N)),
    "booleans": RNG.random(N) < 0.5,
    "whole numbers, some missing": pd.array(RNG.choice([1, 2, None], N), "Int64"),
    "dates": DAYS,
    "dates of a zone": DAYS.tz_localize("Europe/Berlin"),
    "dates as text": DAYS.astype(str),
    "dates as objects": np.array([each.date() for each in DAYS], object),
    "durations": DAYS - DAYS[0],
    "one moment": np.array([datetime.datetime(2020, 1, 1)] * N, object),
    "nothing": [np.nan] * N,
    "a column that Arrow keeps": pd.array(WORDS, dtype="string[pyarrow]"),
}


@pytest.mark.parametrize("kind", COLUMNS)
@pytest.mark.filterwarnings("ignore::skvfl.exceptions.ColumnWarning")
def test_what_was_learnt_of_a_column_is_the_same_when_it_was_kept(kind):
    table = pd.DataFrame({kind: COLUMNS[kind], "other": RNG.normal(size=N)})
    fitted = PartyPreprocessor().fit(table)
    kept = from_state(_wire.unpack(_wire.pack(to_state(fitted))))
    assert_array_equal(kept.transform(table), fitted.transform(table))
