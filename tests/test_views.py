"""Views: everything that crosses to a role is in its view, and nothing else."""

from collections import Counter

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression

import skvfl
from skvfl.federation import _wire
from skvfl.privacy import record_views

METHODS = {
    "RAP": skvfl.RandomProjectionVFL(LogisticRegression(), parties=3),
    "SplitNN": skvfl.SplitNNClassifier(parties=3, max_epochs=2),
    "FedOnce": skvfl.FedOnceClassifier(parties=3, max_epochs=2, n_split_epochs=1),
    "APC-VFL": skvfl.APCVFLClassifier(parties=3, max_epochs=2),
    "vFedSec": skvfl.VFedSecClassifier(parties=3, max_epochs=2),
    "TabVFL": skvfl.TabVFLClassifier(parties=3, max_epochs=2),
    "Boosting": skvfl.VFLBoostingClassifier(parties=3, max_iter=2, max_leaf_nodes=4),
}


@pytest.fixture(scope="module")
def table():
    X, y = load_breast_cancer(return_X_y=True)
    return X[:120], y[:120]


def recorded(estimator, X, y):
    estimator = clone(estimator).set_params(random_state=0)
    with record_views() as views:
        estimator.fit(X, y)
    return estimator, views


def crossed(views):
    return [seen for role in views.roles for seen in views[role].messages]


@pytest.mark.parametrize("name", METHODS)
def test_views_hold_every_message_of_the_log(name, table):
    estimator, views = recorded(METHODS[name], *table)
    log = estimator.communication_.messages
    in_log = Counter(
        (m.sender, m.receiver, m.operation) for m in log if m.sender != m.receiver
    )
    in_views = Counter((m.sender, m.receiver, m.operation) for m in crossed(views))
    assert in_views == in_log
    assert {m.run for m in crossed(views)} == {0}


@pytest.mark.parametrize("name", METHODS)
def test_the_bytes_of_views_are_those_of_the_log(name, table):
    estimator, views = recorded(METHODS[name], *table)
    log = estimator.communication_.messages
    sizes = Counter(
        (m.sender, m.receiver, m.operation, m.bytes)
        for m in log
        if m.sender != m.receiver
    )
    for seen in crossed(views):
        words = ([seen.operation, seen.content], ["ok", seen.content])
        known = (seen.sender, seen.receiver, seen.operation)
        due = [(*known, _wire.measure(each)[0]) for each in words]
        found = [each for each in due if sizes[each] > 0]
        assert found, f"{known} has no message of such a size in the log"
        sizes[found[0]] -= 1


def test_recording_changes_no_result(table):
    X, y = table
    estimator, _ = recorded(METHODS["SplitNN"], X, y)
    plain = clone(METHODS["SplitNN"]).set_params(random_state=0).fit(X, y)
    assert np.array_equal(estimator.predict_proba(X), plain.predict_proba(X))


def test_a_party_has_its_own_columns_and_no_others(table):
    X, y = table
    estimator, views = recorded(METHODS["SplitNN"], X, y)
    own = estimator.partition_.split(X)["party1"]
    assert np.array_equal(views["party1"].blocks["party1"], own)
    assert list(views["party1"].blocks) == ["party1"]
    assert views["party1"].labels is None
    assert np.array_equal(views["party0"].labels, y)


def test_rows_of_batches_are_put_back_in_their_order(table):
    X, y = table
    estimator, _ = recorded(METHODS["SplitNN"], X, y)
    with record_views() as views:
        estimator.predict(X)
    # Activations of a finished model do not depend on the batch they are in.
    whole = views["party0"].matrix(sender="party1").values
    with record_views() as views:
        estimator.predict(X[::-1])
    assert np.allclose(views["party0"].matrix(sender="party1").values[::-1], whole)


def test_gradients_are_about_the_rows_of_their_batch(table):
    X, y = table
    _, views = recorded(METHODS["SplitNN"].set_params(batch_size=50), X, y)
    gradients = views["party1"].matrices(operation="backward")
    assert [each.known.all() for each in gradients] == [True, True]
    # The largest entries of a gradient have opposite signs for opposite labels, so that
    # rows in a wrong order would show.
    values = gradients[-1].values
    first = np.linalg.svd(values, full_matrices=False)[0][:, 0]
    agreement = np.mean((first > 0) == (y == 1))
    assert max(agreement, 1 - agreement) > 0.9


def test_a_coalition_sees_what_its_members_see(table):
    _, views = recorded(METHODS["RAP"], *table)
    both = views.coalition("server", "party1")
    assert both.role == "server+party1"
    alone = len(views["server"].messages) + len(views["party1"].messages)
    assert len(both.messages) == alone
    assert list(both.blocks) == ["party1"]


def test_a_prediction_is_a_run_of_its_own(table):
    X, y = table
    estimator = clone(METHODS["RAP"]).set_params(random_state=0)
    with record_views() as views:
        estimator.fit(X, y)
        estimator.predict(X[:7])
    server = views["server"]
    assert server.runs == [0, 1]
    assert server.fits == [0]
    assert server.fit.n_rows == 120
    assert server.run(1).matrix(sender="party1").values.shape == (7, 10)


def test_parties_in_processes_are_seen_alike(table):
    here = recorded(METHODS["RAP"], *table)[1]
    apart = recorded(clone(METHODS["RAP"]).set_params(transport="process"), *table)[1]
    first, second = (each["server"].matrix(sender="party2") for each in (here, apart))
    assert np.array_equal(first.values, second.values)


def test_guests_that_are_asked_in_threads_are_seen(table):
    _, views = recorded(clone(METHODS["FedOnce"]).set_params(n_jobs=2), *table)
    sent = views["party0"].matrices(operation="learn")
    assert {each.sender for each in sent} == {"party1", "party2"}


def test_what_was_not_recorded_is_said():
    with record_views() as views:
        pass
    with pytest.raises(KeyError, match="no role 'server'"):
        views["server"]


def test_a_kind_that_was_not_received_is_said(table):
    _, views = recorded(METHODS["RAP"], *table)
    with pytest.raises(ValueError, match="received no rows by operation 'forward'"):
        views["server"].matrix(operation="forward")
