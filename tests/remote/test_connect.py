"""Six methods between organisations give what a simulation gives, bit for bit."""

import contextlib
import json
import pickle
import subprocess
import sys

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pytest
from _partners import partners, seeded, split_table
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from test_members import CASES, N_OWN, STREAMS

from skvfl import SplitNNClassifier, connect, record_communication
from skvfl.exceptions import AlignmentError, MissingRowsWarning, PartyValueError


@pytest.fixture(scope="module")
def shops(tmp_path_factory):
    """For each table the bank's file, and its half; the shop answers over gRPC."""
    with contextlib.ExitStack() as running:
        made = {}
        for load in (load_breast_cancer, load_diabetes):
            X, y = load(return_X_y=True)
            bank, table = split_table(X, N_OWN)
            folder = tmp_path_factory.mktemp("apart")
            there = partners(folder, {"shop": table}, streams=STREAMS, seed=0)
            made[load] = running.enter_context(there), bank, y
        yield made


@pytest.mark.parametrize("name", CASES)
def test_partners_over_grpc_give_what_the_simulation_gives(name, shops):
    kind, params, load = CASES[name]
    path, bank, y = shops[load]
    X, _ = load(return_X_y=True)
    parties = {"bank": slice(0, N_OWN), "shop": slice(N_OWN, None)}
    together = kind(**params, parties=parties, random_state=0).fit(X, y)
    link = seeded(connect(path, ids="customer"))
    apart = kind(**params, parties=link, active="bank", random_state=0).fit(bank, y)
    some = [40, 3, 3, 17]
    ask = "predict_proba" if hasattr(apart, "predict_proba") else "predict"
    expected = getattr(together, ask)(X[some])
    np.testing.assert_array_equal(getattr(apart, ask)(bank.iloc[some]), expected)
    # What the bank keeps is its own half, and enough to predict.
    assert apart.halves_ == ["bank"]
    assert apart.communication_.n_rounds == together.communication_.n_rounds
    again = pickle.loads(pickle.dumps(apart))
    np.testing.assert_array_equal(getattr(again, ask)(bank.iloc[some]), expected)


@pytest.fixture
def cancer(shops):
    path, bank, y = shops[load_breast_cancer]
    # So that fits can be compared.
    link = seeded(connect(path, ids="customer"))
    return SplitNNClassifier(parties=link, max_epochs=1, random_state=0), bank, y


def test_the_number_of_shared_rows_is_learnt_and_nothing_kept(cancer):
    split, bank, _ = cancer
    some = bank.iloc[:20].copy()
    some.loc[some.index[:3], "customer"] = [-1, -2, -3]
    with record_communication() as log:
        assert split.parties.count_shared(some) == {"shop": 17}
    assert log.n_messages == 0
    assert not {"agree_on_ids"} & {each.operation for each in log.messages}


@pytest.mark.slow
def test_scikit_learns_tools_work_between_organisations(cancer):
    split, bank, y = cancer
    scores = cross_val_score(split, bank, y, cv=3)
    X, _ = load_breast_cancer(return_X_y=True)
    parties = {"bank": slice(0, N_OWN), "shop": slice(N_OWN, None)}
    together = clone(split).set_params(parties=parties)
    np.testing.assert_array_equal(scores, cross_val_score(together, X, y, cv=3))
    grid = {"cut_width": [4, 8]}
    apart = GridSearchCV(split, grid, cv=2, n_jobs=2).fit(bank, y)
    local = GridSearchCV(together, grid, cv=2).fit(X, y)
    for key in ("split0_test_score", "split1_test_score"):
        np.testing.assert_array_equal(apart.cv_results_[key], local.cv_results_[key])
    # A pipeline drops indexes; the ids are a column.
    keep = FunctionTransformer(lambda table: table.reset_index(drop=True))
    piped = make_pipeline(keep, clone(split)).fit(bank, y)
    expected = clone(split).fit(bank, y).predict_proba(bank)
    np.testing.assert_array_equal(piped.predict_proba(bank), expected)


@pytest.mark.slow
def test_a_saved_estimator_predicts_in_a_fresh_process(cancer, tmp_path):
    split, bank, y = cancer
    split.fit(bank, y)
    joblib.dump(split, tmp_path / "split.joblib")
    bank.to_csv(tmp_path / "bank.csv", index=False)
    code = (
        "import json, sys, joblib, pandas, torch; torch.set_num_threads(1)\n"
        "split = joblib.load(sys.argv[1] + '/split.joblib')\n"
        "path = sys.argv[1] + '/bank.csv'\n"
        "bank = pandas.read_csv(path, float_precision='round_trip')\n"
        "print(json.dumps(split.predict_proba(bank).tolist()))"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == split.predict_proba(bank).tolist()


def test_tables_of_all_kinds_have_ids_as_a_column(cancer):
    split, bank, y = cancer
    expected = clone(split).fit(bank, y).predict_proba(bank)
    frame = pl.from_pandas(bank)
    apart = clone(split).fit(frame, y)
    np.testing.assert_array_equal(apart.predict_proba(frame), expected)
    array = bank.to_numpy()
    link = seeded(connect(split.parties.path, ids=-1))
    apart = clone(split).set_params(parties=link).fit(array, y)
    np.testing.assert_array_equal(apart.predict_proba(array), expected)


def test_ids_that_are_missing_are_named(cancer):
    split, bank, y = cancer
    with pytest.raises(ValueError, match="no column 'customer', which names its rows"):
        split.fit(bank.drop(columns="customer"), y)
    with pytest.raises(ValueError, match="X has no column names"):
        split.fit(bank.to_numpy(), y)
    with pytest.raises(AlignmentError, match="1 of its 569 ids are missing"):
        split.fit(bank.assign(customer=bank["customer"].where(bank.index > 0)), y)
    twice = pd.concat([bank, bank[:1]])
    with pytest.raises(PartyValueError, match="asked to learn from a row twice"):
        split.fit(twice, np.append(y, y[0]))
    with pytest.raises(ValueError, match="labels are at home at 'bank'"):
        clone(split).set_params(active="shop").fit(bank, y)


def test_rows_that_a_partner_lacks_are_missing_rows(cancer):
    split, bank, y = cancer
    known = bank.index > 2
    strangers = bank.assign(customer=bank["customer"].where(known, -bank.index))
    with pytest.raises(PartyValueError, match="'shop': it holds no value of 3 of"):
        split.fit(strangers, y)
    split.fit(bank, y)
    with pytest.warns(MissingRowsWarning, match="no value of 3 of 569 rows"):
        split.predict(strangers)
    held = split.parties.held(strangers)
    np.testing.assert_array_equal(held["shop"], known)


def test_everything_that_crosses_is_counted(cancer):
    split, bank, y = cancer
    split.fit(bank, y)
    operations = {each.operation for each in split.communication_.messages}
    assert {"hello", "open", "keep", "forward", "backward"} <= operations
    with record_communication() as log:
        split.predict(bank)
    assert [each.operation for each in log.messages if each.sender == "shop"] == [
        *("hello", "open", "represent")
    ]
    assert log.by_party()["bank"]["bytes_sent"] > 8 * len(bank)


def test_a_list_that_a_partner_has_forgotten_is_made_again(tmp_path):
    X, y = load_breast_cancer(return_X_y=True)
    bank, table = split_table(X, N_OWN)
    with partners(tmp_path, {"shop": table}) as path:
        split = SplitNNClassifier(parties=connect(path), max_epochs=1).fit(bank, y)
        for kept in (tmp_path / "shop").rglob("*.model"):
            kept.unlink()
        with pytest.raises(
            PartyValueError, match=r"'shop': .*when this is called again"
        ):
            split.fit(bank, y)
        split.fit(bank, y)
        assert split.predict(bank).shape == y.shape


@pytest.mark.slow
def test_what_is_missing_is_named(cancer):
    code = (
        "import sys; sys.modules['grpc'] = None\n"
        "from skvfl import connect\n"
        "connect(sys.argv[1])"
    )
    command = [sys.executable, "-c", code, str(cancer[0].parties.path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert "gRPC: pip install 'skvfl[remote]'" in done.stderr
