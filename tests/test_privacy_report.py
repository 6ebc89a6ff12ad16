"""Reports: what each role saw and can work out, in words that can be trusted."""

import re
from functools import partial
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from skvfl import (
    FedOnceClassifier,
    RandomProjectionVFL,
    SplitNNClassifier,
    VerticalPartitioner,
    VFedSecClassifier,
    VFLBoostingClassifier,
    compare,
)
from skvfl._methods import METHODS
from skvfl.evaluation import all_methods
from skvfl.federation import Federation
from skvfl.privacy import attacks, privacy_report, record_views
from skvfl.privacy._claims import CLAIMS
from skvfl.privacy._suite import SUITES

RAP = RandomProjectionVFL(LogisticRegression(), random_state=0)
quick = partial(privacy_report, membership=False, n_repeats=2)


@pytest.fixture(scope="module")
def cancer():
    X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    columns = [*X.columns[:4], *X.columns[10:13]]
    return X.loc[:160, columns], y.loc[:160]


@pytest.fixture(scope="module")
def parties(cancer):
    return {"clinic": [*cancer[0].columns[:2]], "lab": [*cancer[0].columns[2:]]}


@pytest.fixture(scope="module")
def report(cancer, parties):
    return privacy_report(clone(RAP).set_params(parties=parties), *cancer)


def test_every_method_has_a_suite_and_claims():
    names = {method.name for method in METHODS}
    assert set(SUITES) == names
    assert set(CLAIMS) <= names


def test_every_attack_is_in_some_suite():
    used = {
        rule.attack
        for suite in SUITES.values()
        for rules in suite.values()
        for rule in rules
        if rule.attack
    }
    # These judge a finished model, or fit several of their own.
    others = {"Attack", "LossThresholdAttack", "ShadowModelAttack"}
    assert used == {*attacks.__all__} - others


def test_it_says_what_each_role_was_sent_as_the_log_counts_it(report, cancer, parties):
    log = clone(RAP).set_params(parties=parties).fit(*cancer).communication_
    for role in report.roles[:-1]:
        counted = [each for each in log.messages if each.receiver == role.name]
        received = [each for each in role.received if each.when == "fit"]
        assert sum(each.messages for each in received) == len(counted)
        assert sum(each.bytes for each in received) == sum(m.bytes for m in counted)
    server = report.roles[0]
    assert server.name == "server"
    assert {(r.sender, r.what) for r in server.received if r.when == "fit"} >= {
        ("clinic", "2 numbers for each row"),
        ("lab", "5 numbers for each row"),
    }
    assert {each.when for each in server.received} == {"fit", "predict"}


def test_it_finds_the_worst_attack(report):
    role, outcome = report.worst
    assert role.name == "server"
    assert outcome.score > 0.99
    assert outcome.low <= outcome.score <= outcome.high <= 1
    assert outcome.secret.startswith(("columns of", "labels"))
    frame = report.to_frame()
    best = frame[frame["role"] == "server"].iloc[0]
    assert best["score"] == outcome.score
    assert report.columns == {"clinic": 2, "lab": 5}


def test_a_party_that_receives_nothing_can_do_nothing(report):
    roles = {role.name: role for role in report.roles}
    passive = roles["lab"]
    assert passive.best is None
    assert not passive.outcomes
    assert "learns nothing" in passive.guarantee
    assert "anybody" in roles


def test_text_says_all_that_the_report_knows(report):
    text = report.to_text()
    plain = " ".join(text.split())
    assert str(report) == text
    for role in report.roles:
        for outcome in role.outcomes:
            assert outcome.secret in plain
        for claim in role.claims:
            assert claim in plain
        assert role.guarantee in plain
    assert "nan" not in plain
    assert max(map(len, text.splitlines())) < 100


class _Words(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.words = [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)

    def handle_data(self, data):
        self.words.append(data)


def test_html_escapes_every_name(cancer):
    X, y = cancer
    names = {"<script>alert(1)</script>": [0, 1], "a & b": slice(2, None)}
    found = quick(clone(RAP).set_params(parties=names), X.to_numpy(), y)
    for html in (found.to_html(), found._repr_html_(), found.to_page()):
        parsed = _Words()
        parsed.feed(html)
        assert "script" not in parsed.tags
        assert "<script>alert(1)</script>" in " ".join(parsed.words)
        assert "a & b" in " ".join(parsed.words)


def test_the_page_speaks_in_sentences(report):
    page = _Words()
    page.feed(report.to_page())
    words = " ".join(" ".join(page.words).split())
    assert page.tags[0] == "html"
    assert "The server can reconstruct columns of lab nearly exactly" in words
    assert "What is guaranteed" in words
    # Nobody who signs should have to know names of classes or operations.
    assert not re.search(r"[A-Za-z]+Attack", words)


@pytest.mark.slow
def test_recorded_views_spare_the_fit(cancer, parties, monkeypatch):
    vfl = clone(RAP).set_params(parties=parties)
    with record_views() as views:
        vfl.fit(*cancer)
    expected = quick(vfl, *cancer).to_frame()

    def refuse(*args, **kwargs):
        raise AssertionError("fitted again")

    monkeypatch.setattr(RandomProjectionVFL, "fit", refuse)
    found = quick(vfl, *cancer, views=views)
    pd.testing.assert_frame_equal(found.to_frame(), expected)


def test_the_estimator_is_left_as_it_was(cancer, parties):
    vfl = clone(RAP).set_params(parties=parties)
    quick(vfl, *cancer)
    assert not hasattr(vfl, "partition_")


@pytest.mark.slow
def test_it_finds_the_federation_inside_other_models(cancer, parties):
    vfl = clone(RAP).set_params(parties=parties)
    piped = quick(make_pipeline(FunctionTransformer(), vfl), *cancer)
    assert piped.estimator == "RandomProjectionVFL"
    assert piped.worst[1].score > 0.99


def test_attacks_that_find_no_time_are_named(cancer, parties):
    vfl = clone(RAP).set_params(parties=parties)
    found = quick(vfl, *cancer, time_limit=0.0)
    late = [each for role in found.roles for each in role.outcomes]
    assert late
    assert {each.why_not for each in late[1:]} == {"there was no time left for it"}
    assert "no time left" in " ".join(found.to_text().split())


def test_labels_that_are_sent_need_no_attack(cancer, parties):
    vfl = clone(RAP).set_params(parties=parties, label_protection=False)
    found = quick(vfl, *cancer)
    frame = found.to_frame()
    sent = frame[(frame["role"] == "server") & (frame["secret"] == "labels")]
    assert sent["score"].max() == 1
    assert "is sent labels as they are" in found.to_page()


@pytest.mark.slow
def test_a_budget_bounds_what_membership_can_reach(cancer, parties):
    once = FedOnceClassifier(parties=parties, epsilon=1.0, max_epochs=2, random_state=0)
    found = privacy_report(once, *cancer, n_repeats=2)
    role = found.roles[-1]
    assert role.name == "anybody"
    bound = float(re.search(r"scores above (\d\.\d+)", role.guarantee).group(1))
    # What one at ε = 1 leaves: (e - 1) / (e + 1).
    assert bound == pytest.approx(np.tanh(0.5), abs=0.01)
    assert "Not covered" in role.guarantee


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["classifiers", "regressors"])
@pytest.mark.parametrize("name", [method.name for method in METHODS])
def test_there_is_a_report_on_every_method(name, kind, cancer, parties):
    X, y = cancer
    if kind == "regressors":
        y = X.sum(axis=1)
    vfl = all_methods(kind)[name].set_params(parties=parties, random_state=0)
    if "max_epochs" in vfl.get_params():
        vfl.set_params(max_epochs=3)
    found = quick(vfl, X, y)
    assert found.method == name
    failed = [e for role in found.roles for e in role.outcomes if e.why_not]
    assert not failed
    assert found.worst is not None


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n_repeats": 1}, "takes 2 draws"),
        ({"n_repeats": 2.5}, "n_repeats=2.5"),
        ({"random_state": None}, "random_state=None is no seed"),
        ({"time_limit": "1"}, "time_limit='1' is no number of seconds"),
        ({}, "no fitted federated estimator"),
    ],
)
def test_mistakes_are_named(cancer, options, words):
    model = LogisticRegression(max_iter=5000)
    with pytest.raises(ValueError, match=words):
        privacy_report(model, *cancer, **options)


def test_views_of_something_else_are_refused(cancer, parties):
    X, y = cancer
    vfl = clone(RAP).set_params(parties=parties).fit(X, y)
    with record_views() as nothing:
        pass
    with record_views() as predicted:
        vfl.predict(X)
    with record_views() as fewer:
        clone(vfl).fit(X[:80], y[:80])
    with record_views() as others:
        clone(vfl).set_params(parties=2).fit(X, y)
    for views, words in (
        ("views", "those that record_views yields"),
        (nothing, "begin with a fit: call fit"),
        (predicted, "begin with a fit: call fit"),
        (fewer, "of another fit: .* with 80 rows"),
        (others, "of another fit: of .'party0', 'party1'."),
    ):
        with pytest.raises(ValueError, match=words):
            quick(vfl, X, y, views=views)


def test_what_goes_wrong_in_one_attack_spares_the_others(cancer, parties, monkeypatch):
    def fails(self, view):
        raise ZeroDivisionError("by nothing")

    monkeypatch.setattr(attacks.KnownRowsAttack, "fit", fails)
    found = quick(clone(RAP).set_params(parties=parties), *cancer).to_frame()
    failed = found.attack == "KnownRowsAttack"
    assert set(found.why_not[failed]) == {"ZeroDivisionError: by nothing"}
    assert failed.any()
    assert found.score[~failed].notna().all()


class Elsewhere(Federation):
    names = ("clinic", "lab")

    def connect(self, *args, **kwargs):
        raise AssertionError


def test_tables_elsewhere_are_refused_before_anything_is_sent(cancer):
    vfl = clone(RAP).set_params(parties=Elsewhere())
    with pytest.raises(ValueError, match="tables are elsewhere"):
        privacy_report(vfl, *cancer)
    with pytest.raises(ValueError, match="tables are elsewhere"):
        privacy_report(make_pipeline(vfl), *cancer)


def test_comparisons_show_the_worst_number_of_every_method(cancer, parties):
    frame = compare(
        {"RAP": clone(RAP), "bad": clone(RAP).set_params(projection=Ridge())},
        *cancer,
        parties=parties,
        baseline=LogisticRegression(max_iter=5000),
        cv=2,
        leakage=True,
    )
    assert [*frame].index("worst_leakage") == [*frame].index("who_sees_what") - 2
    assert frame.loc["RAP", "worst_leakage"] > 0.9
    assert "The server can reconstruct" in frame.loc["RAP", "worst_attack"]
    others = frame.drop(index="RAP")
    assert others["worst_leakage"].isna().all()


@pytest.mark.slow
def test_comparisons_with_regressors_and_searches_are_attacked_too():
    X, y = load_diabetes(return_X_y=True)
    vfl = RandomProjectionVFL(Ridge(), parties=2, random_state=0)
    frame = compare(vfl, X[:120], y[:120], baseline=Ridge(), cv=2, leakage=True)
    assert frame.loc["RandomProjectionVFL", "worst_leakage"] > 0.9


def test_split_learning_is_attacked_from_both_sides(cancer, parties):
    split = SplitNNClassifier(parties=parties, max_epochs=3, random_state=0)
    frame = quick(split, *cancer).to_frame()
    assert set(frame["role"]) == {"clinic", "lab"}
    by_active = frame[frame["role"] == "clinic"]
    assert by_active["score"].max() > 0.5
    assert "labels" in set(frame[frame["role"] == "lab"]["secret"])


def test_the_clients_of_a_cluster_are_one_party():
    X, y = load_breast_cancer(return_X_y=True)
    X, y = StandardScaler().fit_transform(X[:200, :9]), y[:200]
    parties = {"bank": range(3), "telco": range(3, 6), "shop": range(6, 9)}
    vfl = VFedSecClassifier(
        parties=VerticalPartitioner("passthrough", parties=parties),
        active="bank",
        clients={"telco": [*[0, 1] * 99, -1, -1]},
        bottom=(),
        cut_width=16,
        batch_size=10,
        max_epochs=1,
        masked=False,
        random_state=0,
    )
    report = quick(vfl, X, y)
    assert report.columns == {"bank": 3, "telco": 3, "shop": 3}
    found = report.to_frame().set_index(["role", "attack", "secret"])
    assert not found["why_not"].any()
    gradient = found["score"]["server", "ClusterGradientAttack", "columns of telco"]
    assert gradient > 0.9
    assert found["score"]["server", "CollusionAttack", "columns of telco"] > 0.9
    assert ("telco.1", "GradientDirectionAttack", "labels") in found.index


def test_what_boosting_sends_is_said_by_row(cancer, parties):
    vfl = VFLBoostingClassifier(parties=parties, max_iter=3, random_state=0)
    with record_views() as views:
        vfl.fit(*cancer)
    report = quick(vfl, *cancer, views=views)
    said = {
        role.name: {(each.operation, each.what) for each in role.received}
        for role in report.roles
    }
    assert {
        ("begin_trees", "numbers, one for each row"),
        ("add_up", "positions of rows"),
    } <= said["lab"]
    assert ("split", "yes or no for each row, in bits") in said["clinic"]
    assert views["lab"].messages[-1].epoch == 3
