import copy
import pickle
import subprocess
import sys

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.decomposition import PCA
from sklearn.linear_model import (
    LinearRegression,
    LogisticRegression,
    LogisticRegressionCV,
    Ridge,
)
from sklearn.model_selection import GridSearchCV, cross_val_score, cross_validate
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.preprocessing import OneHotEncoder
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

from skvfl import (
    APCVFLClassifier,
    APCVFLRegressor,
    AutoencoderTransformer,
    ImportanceSplit,
    PartyPreprocessor,
    VerticalPartitioner,
    record_communication,
)
from skvfl.apc._parties import LIKELY, ActiveSettings, PassiveSettings
from skvfl.exceptions import PartyError
from skvfl.federation import Holding, Labels, Member

N_ALIGNED = 80
QUICK = {
    "local_encoder": PCA(3),
    "joint_encoder": PCA(4),
    "active_encoder": AutoencoderTransformer(4, hidden_layer_sizes=(8,), max_epochs=3),
    "random_state": 0,
}


@pytest.fixture(scope="module")
def cancer():
    return load_breast_cancer(return_X_y=True, as_frame=True)


@pytest.fixture(scope="module")
def parties(cancer):
    columns = list(cancer[0].columns)
    return {"clinic": columns[:5], "lab": columns[5:20], "archive": columns[20:]}


@pytest.fixture(scope="module")
def partial(cancer, parties):
    """Only the clinic has more than the first rows."""
    X = cancer[0].copy()
    X.loc[N_ALIGNED:, parties["lab"] + parties["archive"]] = np.nan
    return X


def quick(parties, **params):
    return clone(APCVFLClassifier(parties=parties, **{**QUICK, **params}))


def after_opening(log):
    """Messages that carry data, once it is known who holds which rows."""
    return [message for message in log.messages if message.data_bearing and message[0]]


@pytest.mark.parametrize("distillation", ["representation", "prediction"])
@pytest.mark.parametrize("inference", ["active", "joint"])
@pytest.mark.parametrize("max_epochs", [1, 3])
def test_one_data_bearing_message_per_passive_party(
    cancer, parties, distillation, inference, max_epochs
):
    X, y = cancer
    log = (
        APCVFLClassifier(
            parties=parties,
            distillation=distillation,
            inference=inference,
            max_epochs=max_epochs,
            random_state=0,
        )
        .fit(X, y)
        .communication_
    )
    carrying = after_opening(log)
    assert [message.sender for message in carrying] == ["lab", "archive"]
    assert {message.receiver for message in carrying} == {"clinic"}
    assert {message.operation for message in carrying} == {"encode"}
    assert log.n_rounds == 1
    assert log.n_messages == 2
    before = [m for m in log.messages if m.data_bearing and not m.round]
    assert {m.operation for m in before} == {"say_rows", "agree_on_rows"}
    assert all(569 <= m.bytes < 569 + 200 for m in before)


def test_message_is_the_representation_of_the_aligned_rows(partial, cancer, parties):
    log = quick(parties).fit(partial, cancer[1]).communication_
    for sender in ("lab", "archive"):
        (sent,) = (m for m in log.messages if m.sender == sender and m.round)
        assert N_ALIGNED * 3 * 4 < sent.bytes < N_ALIGNED * 3 * 4 + 200


def test_without_distillation_nobody_is_asked(partial, cancer, parties):
    vfl = quick(parties, distillation=None).fit(partial, cancer[1])
    assert vfl.communication_.n_messages == vfl.communication_.n_rounds == 0
    assert list(vfl._parties) == ["clinic"]


def test_predicting_alone_sends_nothing(partial, cancer, parties):
    X, y = cancer
    alone = quick(parties).fit(partial, y)
    joint = quick(parties, inference="joint").fit(X, y)
    with record_communication() as log:
        alone.predict(X)
    assert {m.sender for m in log.messages} == {"clinic"}
    assert {m.receiver for m in log.messages} == {"clinic"}
    assert log.n_bytes == log.n_messages == log.n_rounds == 0
    with record_communication() as log:
        joint.predict(X)
    assert log.n_messages == 2


@pytest.mark.parametrize("distillation", ["representation", "prediction", None])
def test_passive_columns_are_never_looked_at(partial, cancer, parties, distillation):
    X, y = cancer
    y = y.where(np.arange(len(y)) % 3 == 0)
    vfl = quick(parties, distillation=distillation).fit(partial, y)
    expected = vfl.predict_proba(X)
    passive = parties["lab"] + parties["archive"]
    garbage = X.copy()
    garbage[parties["lab"]] = np.inf
    garbage[parties["archive"]] = "?"
    shuffled = X.copy()
    shuffled[passive] = X[passive].sample(frac=1, random_state=0).to_numpy()
    missing = X.assign(**dict.fromkeys(passive, None))
    alone = X[parties["clinic"]]
    reversed_ = alone[alone.columns[::-1]]
    for table in (garbage, shuffled, missing, alone, reversed_):
        assert_array_equal(vfl.predict_proba(table), expected)
        assert_array_equal(vfl.transform(table), vfl.transform(X))
    assert_array_equal(vfl.active_estimator_.predict_proba(alone), expected)
    assert_array_equal(vfl.predict(alone), vfl.classes_[expected.argmax(axis=1)])


def test_active_columns_by_count(cancer):
    X, y = cancer[0].to_numpy(), cancer[1]
    parties = {"lab": range(20), "clinic": [29, 20, 25], "rest": slice(21, 25)}
    partition = VerticalPartitioner(parties=parties, remainder="drop")
    vfl = quick(partition, active="clinic").fit(X, y)
    expected = vfl.predict_proba(X)
    assert_array_equal(vfl.predict_proba(X[:, [29, 20, 25]]), expected)
    garbage = X.copy()
    garbage[:, :20] = np.nan
    assert_array_equal(vfl.predict_proba(garbage), expected)
    with pytest.raises(ValueError, match=r"X has 4 features, but .* expecting 30"):
        vfl.predict(X[:, :4])


def test_missing_active_column_is_named(partial, cancer, parties):
    vfl = quick(parties).fit(partial, cancer[1])
    with pytest.raises(ValueError, match="party 'clinic': column 'mean texture' is"):
        vfl.predict(partial.drop(columns="mean texture"))


def test_active_estimator_is_saved_and_used_elsewhere(partial, cancer, parties):
    """The lab and the archive occur nowhere in it."""
    vfl = quick(parties, distillation="prediction")
    vfl.fit(partial, cancer[1].where(np.arange(569) % 3 == 0))
    alone = partial[parties["clinic"]]
    stored = pickle.dumps((vfl.active_estimator_, alone))
    model, table = pickle.loads(stored)
    expected = vfl.predict_proba(partial)
    assert_array_equal(model.predict_proba(table), expected)
    for name in ("lab", "archive", *parties["lab"], "EncoderParty"):
        assert name.encode() not in pickle.dumps(vfl.active_estimator_)
    code = "import pickle, sys; model, table = pickle.load(sys.stdin.buffer); "
    code += "print(model.predict_proba(table)[:, 0].tolist())"
    done = subprocess.run(
        [sys.executable, "-c", code], input=stored, capture_output=True, check=True
    )
    assert_array_equal(eval(done.stdout), expected[:, 0])


def test_no_row_is_left_in_a_fitted_estimator(partial, cancer, parties):
    vfl = quick(parties).fit(partial, cancer[1])
    assert all(party._states == {} for party in vfl._parties.values())
    stored = pickle.dumps(vfl)
    for name, columns in parties.items():
        row = partial[columns].to_numpy()[7]
        assert row.tobytes() not in stored
        assert row.astype(np.float32).tobytes() not in stored, name


def steps_by_hand(vfl, X, y, parties, labelled, aligned):
    """Section IV of the paper, step by step, with encoders that do not draw."""
    prepared = {
        name: PartyPreprocessor().fit_transform(
            X[columns] if name == "clinic" else X.loc[aligned, columns]
        )
        for name, columns in parties.items()
    }
    sent = [
        clone(vfl.local_encoder).fit(inputs).transform(inputs)
        for inputs in prepared.values()
    ]
    sent[0] = sent[0][aligned]
    received = np.hstack(sent).astype(np.float32)
    joint = clone(vfl.joint_encoder).fit(received).transform(received)
    return prepared["clinic"], joint


class Imitator(PCA):
    """Linear regression of the target on the columns, deterministic."""

    def fit(self, X, y=None, *, latent_target=None, has_target=None):
        if latent_target is None:
            self.map_ = LinearRegression().fit(X, X[:, :2])
        else:
            self.map_ = LinearRegression().fit(X[has_target], latent_target[has_target])
        return self

    def transform(self, X):
        return self.map_.predict(X)


def standardised(representation):
    return PartyPreprocessor(dtype="float64").fit_transform(representation)


@pytest.fixture(scope="module")
def by_hand(partial, cancer, parties):
    vfl = APCVFLClassifier(
        parties=parties,
        local_encoder=PCA(3),
        joint_encoder=PCA(2),
        active_encoder=Imitator(2),
        teacher=LogisticRegression(C=0.1, max_iter=1000),
        random_state=0,
    )
    labelled = np.arange(569) % 4 == 0
    aligned = np.arange(569) < N_ALIGNED
    y = cancer[1].to_numpy()
    columns, joint = steps_by_hand(vfl, partial, y, parties, labelled, aligned)
    return vfl, columns, joint, y, labelled, aligned


def logistic(*data, weights=None):
    return LogisticRegression(C=0.1, max_iter=1000).fit(*data, weights)


def test_distilling_the_representation_by_hand(by_hand, partial):
    vfl, columns, joint, y, labelled, aligned = by_hand
    enriched = LinearRegression().fit(columns[aligned], joint).predict(columns)
    features = standardised(enriched)
    expected = logistic(features[labelled], y[labelled]).predict_proba(features)
    vfl = clone(vfl).fit(partial, y, labelled=labelled)
    assert_allclose(vfl.transform(partial), enriched, atol=1e-4)
    assert_allclose(vfl.predict_proba(partial), expected, atol=1e-4)


@pytest.mark.parametrize("weighted", [False, True])
def test_distilling_predictions_by_hand(by_hand, partial, weighted):
    """Unlabelled aligned rows once per class, weighted by the teacher's belief."""
    vfl, columns, joint, y, labelled, aligned = by_hand
    weights = np.linspace(1, 3, 569) if weighted else np.ones(569)
    seen = standardised(joint)
    known = labelled[aligned]
    teacher = logistic(
        seen[known], y[aligned & labelled], weights=weights[aligned & labelled]
    )
    belief = teacher.predict_proba(seen[~known])
    features = standardised(columns[:, :2])
    shown = features[aligned & ~labelled]
    mean = weights[labelled].mean()
    student = logistic(
        np.vstack([features[labelled], shown, shown]),
        np.concatenate([y[labelled], [0] * len(shown), [1] * len(shown)]),
        weights=np.concatenate(
            [weights[labelled], mean * belief[:, 0], mean * belief[:, 1]]
        ),
    )
    vfl = clone(vfl).set_params(distillation="prediction")
    vfl.fit(partial, y, weights if weighted else None, labelled=labelled)
    expected = student.predict_proba(features)
    assert_allclose(vfl.predict_proba(partial), expected, atol=1e-4)
    alone = logistic(features[labelled], y[labelled]).predict_proba(features)
    assert np.abs(expected - alone).max() > 0.01


class Counter(GaussianNB):
    """Notes the labels and weights that it learns from."""

    def fit(self, X, y, sample_weight=None):
        Counter.seen = y, sample_weight
        return super().fit(X, y, sample_weight)


def test_of_many_classes_the_likeliest_are_taught():
    """A row is given once for each, so that many classes are no table of their own."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(100, 40)), np.arange(100) % 25
    labelled = np.arange(100) < 75
    vfl = quick(2, estimator=Counter(), distillation="prediction", max_epochs=1)
    vfl.set_params(teacher=LogisticRegression()).fit(X, y, labelled=labelled)
    labels, weights = Counter.seen
    assert len(labels) == 75 + 25 * LIKELY
    guessed, weights = labels[75:].reshape(25, LIKELY), weights[75:]
    assert all(len(set(row)) == LIKELY for row in guessed)
    # Together they weigh as much as a row with a label.
    assert_allclose(weights.reshape(25, LIKELY).sum(axis=1), 1)


class Keeper(PCA):
    """Keeps what it returns, as some embeddings do."""

    def transform(self, X):
        self.kept = super().transform(X).astype(np.float32)
        self.before = self.kept.copy()
        return self.kept


def test_what_an_encoder_keeps_of_what_it_sent_is_left_alone(cancer, parties):
    """Ours takes the place of what was sent, which is as wide."""
    X, y = cancer
    vfl = quick(parties, local_encoder=Keeper(4))
    vfl.set_params(joint_encoder=AutoencoderTransformer(4, max_epochs=1)).fit(X, y)
    for party in vfl._parties.values():
        encoder = party._encoder
        assert_array_equal(encoder.kept, encoder.before)


class Typed(LogisticRegression):
    """Notes the data type that it learns from."""

    def fit(self, X, y, sample_weight=None):
        Typed.seen = X.dtype
        return super().fit(X, y, sample_weight)


def test_models_learn_in_double_precision_unless_they_stop_early(cancer, parties):
    X, y = cancer
    vfl = quick(parties, distillation=None, max_epochs=1)
    vfl.set_params(estimator=Typed()).fit(X, y)
    assert Typed.seen == np.float64
    for tol, dtype in {1e-4: np.float32, 1e-8: np.float64}.items():
        model = LogisticRegression(C=0.1, max_iter=1000, tol=tol)
        vfl.set_params(estimator=model).fit(X, y)
        assert vfl.active_estimator_[-1].coef_.dtype == dtype
        assert vfl.predict_proba(X).dtype == np.float64


def test_default_teacher_chooses_its_penalty(cancer, parties):
    X, y = cancer
    vfl = quick(parties, distillation="prediction", teacher=None)
    for n_labels in (60, 20):
        labelled = np.arange(569) < n_labels
        folds = min(5, np.bincount(y[labelled]).min())
        assert folds == (5 if n_labels == 60 else 1)
        teacher = LogisticRegression(C=0.1, max_iter=1000)
        if folds == 5:
            teacher = LogisticRegressionCV(
                Cs=1 / np.logspace(0, 3, 7),
                l1_ratios=(0,),
                scoring="neg_log_loss",
                max_iter=1000,
                use_legacy_attributes=False,
            )
        told = clone(vfl).set_params(teacher=teacher)
        expected, found = (
            each.fit(X, y, labelled=labelled).predict_proba(X) for each in (told, vfl)
        )
        assert_allclose(found, expected, atol=1e-10)


def test_joint_inference_by_hand(by_hand, cancer, parties):
    vfl, *_ = by_hand
    X, y = cancer
    labelled = np.arange(569) % 4 == 0
    every = np.ones(569, bool)
    _, joint = steps_by_hand(vfl, X, y, parties, labelled, every)
    features = standardised(joint)
    expected = logistic(features[labelled], y[labelled]).predict_proba(features)
    vfl = clone(vfl).set_params(inference="joint").fit(X, y, labelled=labelled)
    assert_allclose(vfl.transform(X), joint, atol=1e-4)
    assert_allclose(vfl.predict_proba(X), expected, atol=1e-4)


def test_teacher_without_unlabelled_rows_changes_nothing(cancer, parties):
    X, y = cancer
    taught = quick(parties, distillation="prediction").fit(X, y)
    plain = quick(parties, distillation=None).fit(X, y)
    assert_array_equal(taught.predict_proba(X), plain.predict_proba(X))


def test_unlabelled_rows_train_the_encoders_only(cancer, parties):
    X, y = cancer
    labelled = np.arange(569) % 2 == 0
    some = quick(parties).fit(X, y, labelled=labelled)
    every = quick(parties).fit(X, y)
    assert_array_equal(some.transform(X), every.transform(X))
    flipped = np.where(labelled, y, 1 - y)
    other = quick(parties).fit(X, flipped, labelled=labelled)
    assert_array_equal(other.predict_proba(X), some.predict_proba(X))
    assert not np.array_equal(every.predict_proba(X), some.predict_proba(X))


LABELS = [
    lambda y: y.astype(float).where(y.index % 2 == 0),
    lambda y: y.astype(float).where(y.index % 2 == 0).to_numpy(),
    lambda y: y.astype("Int64").where(y.index % 2 == 0),
    lambda y: [label if i % 2 == 0 else None for i, label in enumerate(y.tolist())],
    lambda y: np.array([v if i % 2 == 0 else np.nan for i, v in enumerate(y)], object),
    lambda y: pl.Series([v if i % 2 == 0 else None for i, v in enumerate(y.tolist())]),
]


@pytest.mark.parametrize("hide", LABELS)
def test_missing_labels_of_every_kind(cancer, parties, hide):
    X, y = cancer
    known = np.arange(569) % 2 == 0
    expected = quick(parties).fit(X, y, labelled=known)
    vfl = quick(parties).fit(X, hide(y))
    assert_array_equal(vfl.predict_proba(X), expected.predict_proba(X))
    assert vfl.classes_.tolist() == [0, 1]
    assert vfl.classes_.dtype.kind in "if"


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA])
def test_missing_among_strings(cancer, parties, missing):
    X, y = cancer
    names = np.array(["bad", "good"], dtype=object)[y]
    names[1::2] = missing
    vfl = quick(parties).fit(X, names)
    assert vfl.classes_.tolist() == ["bad", "good"]
    assert set(vfl.predict(X)) == {"bad", "good"}
    texts = pd.Series(names, dtype="string")
    assert_array_equal(quick(parties).fit(X, texts).predict(X), vfl.predict(X))


def test_minus_one_is_a_label(cancer, parties):
    X, y = cancer
    vfl = quick(parties).fit(X, 2 * y - 1)
    assert vfl.classes_.tolist() == [-1, 1]
    assert_array_equal(vfl.predict(X), 2 * quick(parties).fit(X, y).predict(X) - 1)


@pytest.mark.parametrize(
    ("y", "labelled", "message"),
    [
        (np.full(569, np.nan), None, "y holds no label"),
        (np.full(569, np.nan), np.ones(569, bool), "569 rows have a label which is"),
        (np.arange(569) % 2, np.zeros(569, bool), "y holds no label"),
        (np.arange(569) % 2, np.ones(569), "labelled must be one bool for each of the"),
        (np.arange(569) % 2, np.ones(3, bool), r"bool of shape \(3,\)"),
        (np.where(np.arange(569) % 2, 1, np.nan), None, "y holds one class only"),
        (np.array([1, "a", None] * 190, object)[:569], None, "y mixes text with int"),
        (None, None, "requires y"),
    ],
)
def test_labels_that_cannot_be_used(cancer, parties, y, labelled, message):
    with pytest.raises(ValueError, match=message):
        quick(parties).fit(cancer[0], y, labelled=labelled)


def test_rows_not_held_are_those_without_a_cell_or_as_told(partial, cancer, parties):
    X, y = cancer
    mask = np.arange(569) < N_ALIGNED
    expected = quick(parties).fit(partial, y).predict_proba(X)
    frame = pd.DataFrame({"lab": mask, "archive": mask})
    for aligned in (mask, list(mask), frame, frame.to_dict("series")):
        told = quick(parties).fit(X, y, aligned=aligned)
        assert_array_equal(told.predict_proba(X), expected)
    nullable = partial.convert_dtypes()
    assert_array_equal(quick(parties).fit(nullable, y).predict_proba(X), expected)
    polars = pl.from_pandas(partial)
    assert_array_equal(quick(parties).fit(polars, y).predict_proba(polars), expected)


def test_row_held_without_a_value_is_told_by_aligned(cancer):
    X, y = cancer
    X = X.copy()
    X.loc[:99, "mean radius"] = np.nan
    parties = {"clinic": list(X.columns[1:]), "lab": ["mean radius"]}
    vfl = quick(
        parties, local_encoder=PCA(1), joint_encoder=PCA(2), active_encoder=None
    )
    vfl.set_params(distillation="prediction", max_epochs=1)
    logs = [
        vfl.fit(X, y, aligned=aligned).communication_
        for aligned in (None, {"lab": np.ones(569, bool)})
    ]
    by_cells, every = (
        sum(m.bytes for m in log.messages if m.round and m.sender != m.receiver)
        for log in logs
    )
    assert every - by_cells == 100 * 4
    # Whoever is told its rows is sent one byte for each, besides a few words.
    told = logs[1].n_bytes - every - (logs[0].n_bytes - by_cells)
    assert 569 < told < 569 + 60


@pytest.mark.filterwarnings("ignore::skvfl.exceptions.MissingRowsWarning")
def test_parties_train_on_their_own_rows_only(cancer, parties):
    """Rows of one party alone train its encoder; aligned rows are those of all."""
    X, y = cancer
    rows = np.arange(569)
    X = X.copy()
    X.loc[rows < 50, parties["clinic"]] = np.nan
    X.loc[rows >= 200, parties["lab"]] = np.nan
    X.loc[rows < 20, parties["archive"]] = np.nan
    labels = y.astype(float).where(rows >= 50)
    log = quick(parties).fit(X, labels).communication_
    sent = [m.bytes for m in after_opening(log)]
    assert all(150 * 3 * 4 < size < 150 * 3 * 4 + 200 for size in sent)
    changed = X.copy()
    changed.loc[rows < 20, parties["lab"]] *= 5
    before, after = (quick(parties).fit(table, labels) for table in (X, changed))
    assert not np.array_equal(before.transform(X), after.transform(X))
    ablation = [
        quick(parties, distillation=None).fit(table, labels).transform(X)
        for table in (X, changed)
    ]
    assert_array_equal(*ablation)


@pytest.mark.parametrize(
    ("aligned", "message"),
    [
        (np.zeros(569, bool), "party 'lab' holds none of the 569 rows"),
        (
            {"lab": np.arange(569) < 9, "archive": np.arange(569) > 9},
            r"no row is held by every party: .* {'clinic': 569, 'lab': 9, 'archive': 5",
        ),
        (
            np.ones(5, bool),
            r"aligned, party 'lab', must be .* bool of shape \(5,\)",
        ),
        (np.ones(569), "got float64"),
        ({"shop": np.ones(569, bool)}, r"aligned names \['shop'\], and the parties"),
    ],
)
def test_alignment_that_cannot_be_used(cancer, parties, aligned, message):
    with pytest.raises(ValueError, match=message):
        quick(parties).fit(*cancer, aligned=aligned)


def test_no_aligned_row_is_needed_without_distillation(cancer, parties):
    X, y = cancer
    aligned = {"lab": np.arange(569) < 9, "archive": np.arange(569) > 9}
    vfl = quick(parties, distillation=None).fit(X, y, aligned=aligned)
    assert vfl.score(X, y) > 0.85


def test_masks_are_routed_metadata(cancer, parties):
    X, y = cancer
    labelled, aligned = np.arange(569) % 3 == 0, np.arange(569) % 2 == 0
    frame = pd.DataFrame({"lab": aligned, "archive": aligned})
    with sklearn.config_context(enable_metadata_routing=True):
        vfl = quick(parties).set_fit_request(labelled=True, aligned=True)
        found = cross_validate(
            vfl,
            X,
            y,
            cv=[(np.arange(400), np.arange(400, 569))],
            params={"labelled": labelled, "aligned": frame},
            return_estimator=True,
        )
    expected = quick(parties).fit(
        X[:400], y[:400], labelled=labelled[:400], aligned=aligned[:400]
    )
    (routed,) = found["estimator"]
    assert_array_equal(routed.predict_proba(X), expected.predict_proba(X))
    assert found["test_score"] == expected.score(X[400:], y[400:])


@pytest.mark.slow
def test_figure_6_and_our_addition_are_one_search(cancer, parties):
    grid = {
        "distillation": ["representation", "prediction", None],
        "distillation_loss": ["mse", "mae"],
        "max_epochs": [1],
    }
    vfl = APCVFLClassifier(parties=parties, random_state=0)
    search = GridSearchCV(vfl, grid, cv=2, error_score="raise").fit(*cancer)
    assert len(search.cv_results_["params"]) == 6
    parallel = clone(search).set_params(n_jobs=2).fit(*cancer)
    for key in ("mean_test_score", "std_test_score"):
        assert_array_equal(parallel.cv_results_[key], search.cv_results_[key])


def test_classes_weigh_as_their_rows_do(cancer):
    X, y = cancer
    parties = {"a": range(15), "b": range(15, 30)}
    labelled = np.arange(len(y)) % 3 > 0
    weights = {0: 3.0, 1: 0.5}
    rows = np.where(y == 0, 3.0, 0.5)
    by_class = quick(parties, class_weight=weights).fit(X, y, labelled=labelled)
    by_row = quick(parties).fit(X, y, rows, labelled=labelled)
    plain = quick(parties).fit(X, y, labelled=labelled)
    ours, theirs, others = (e.predict_proba(X) for e in (by_class, by_row, plain))
    assert_array_equal(ours, theirs)
    assert (ours != others).any()
    counts = np.bincount(y[labelled])
    balanced = dict(enumerate(labelled.sum() / (2 * counts)))
    first, second = (
        quick(parties, class_weight=each).fit(X, y, labelled=labelled).predict_proba(X)
        for each in ("balanced", balanced)
    )
    assert_array_equal(first, second)
    with pytest.raises(ValueError, match="KNeighborsClassifier has no sample_weight"):
        quick(parties, estimator=KNeighborsClassifier(), class_weight=weights).fit(X, y)


def test_inner_encoders_are_searchable(partial, cancer, parties):
    vfl = quick(parties)
    vfl.set_params(
        local_encoder__n_components=1,
        joint_encoder__n_components=3,
        active_encoder__n_components=3,
        active_encoder__distillation_weight=1.0,
        estimator=DecisionTreeClassifier(),
        estimator__max_depth=1,
    )
    fitted = vfl.fit(partial, cancer[1])
    assert fitted.active_estimator_["model"].get_depth() == 1
    assert fitted._parties["lab"]._encoder.n_components == 1


def test_default_encoders_are_the_papers(partial, cancer, parties):
    vfl = APCVFLClassifier(
        parties=parties, distillation_loss="mae", max_epochs=1, lr=0.1, batch_size=7
    ).fit(partial, cancer[1])
    sizes = {
        name: [*party._encoder.hidden_layer_sizes, party._encoder.n_components]
        for name, party in vfl._parties.items()
    }
    assert sizes == {"clinic": [64, 128], "lab": [128, 256], "archive": [128, 256]}
    clinic = vfl._parties["clinic"]
    assert clinic._joint_encoder.n_features_in_ == 128 + 256 + 256
    for encoder in (clinic._joint_encoder, vfl.active_estimator_["encode"]):
        assert [*encoder.hidden_layer_sizes, encoder.n_components] == [256, 256]
        assert (encoder.lr, encoder.batch_size, encoder.max_epochs) == (0.1, 7, 1)
    assert vfl.active_estimator_["encode"].distillation_loss == "mae"


def test_encoder_per_party(partial, cancer, parties):
    encoders = {"clinic": PCA(1), "lab": PCA(2), "archive": PCA(3)}
    vfl = quick(parties, local_encoder=encoders).fit(partial, cancer[1])
    assert vfl._parties["clinic"]._joint_encoder.n_features_in_ == 6
    del encoders["lab"]
    with pytest.raises(ValueError, match="local_encoder has none for party 'lab'"):
        quick(parties, local_encoder=encoders).fit(partial, cancer[1])


def test_encoder_of_another_width_cannot_imitate(partial, cancer, parties):
    vfl = quick(parties, joint_encoder=PCA(3))
    with pytest.raises(PartyError, match=r"n_components=4 and cannot .* which has 3"):
        vfl.fit(partial, cancer[1])
    vfl.set_params(distillation="prediction").fit(partial, cancer[1])


def test_no_two_parties_draw_the_same_weights(cancer):
    X, y = cancer
    X = X.iloc[:, [0, 1]].assign(a=X.iloc[:, 0], b=X.iloc[:, 1])
    parties = {"clinic": [0, 1], "lab": [2, 3]}
    encoder = AutoencoderTransformer(4, max_epochs=1, random_state=5)
    vfl = quick(parties, local_encoder=encoder).fit(X, y)
    first, second = (
        party._encoder.module_.encoder[0].weight.detach().numpy()
        for party in vfl._parties.values()
    )
    assert not np.allclose(first, second)


@pytest.mark.parametrize("distillation", ["representation", "prediction"])
@pytest.mark.slow
def test_same_seed_same_bytes_over_transports(
    partial, cancer, parties, distillation, rng_guard
):
    labels = cancer[1].where(np.arange(569) % 3 == 0)
    vfl = APCVFLClassifier(
        parties=parties, distillation=distillation, max_epochs=1, random_state=0
    )
    first = clone(vfl).fit(partial, labels)
    second = clone(vfl).set_params(transport="process").fit(partial, labels)
    expected = first.predict_proba(partial)
    assert second.predict_proba(partial).tobytes() == expected.tobytes()
    assert second.communication_.messages == first.communication_.messages
    for copied in (copy.deepcopy(first), pickle.loads(pickle.dumps(first))):
        assert copied.predict_proba(partial).tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    ("models", "weights", "message"),
    [
        ({"teacher": LinearSVC()}, None, "LinearSVC has no predict_proba, which"),
        (
            {"teacher": KNeighborsClassifier()},
            np.ones(569),
            "KNeighborsClassifier has no sample_weight, which",
        ),
        (
            {"estimator": KNeighborsClassifier()},
            None,
            "KNeighborsClassifier has no sample_weight, which",
        ),
    ],
)
def test_models_that_cannot_teach_or_be_taught(
    cancer, parties, models, weights, message
):
    vfl = quick(parties, distillation="prediction", **models)
    with pytest.raises(ValueError, match=message):
        vfl.fit(*cancer, weights)
    vfl.set_params(distillation="representation").fit(*cancer)
    assert vfl.score(*cancer) > 0.8


def test_any_model_teaches_and_is_taught(cancer, parties):
    X, y = cancer
    labelled = np.arange(569) % 10 == 0
    vfl = quick(
        parties,
        distillation="prediction",
        estimator=DecisionTreeClassifier(max_depth=2),
        teacher=KNeighborsClassifier(1),
    )
    for classifier in (vfl.estimator, LinearSVC()):
        taught = clone(vfl).set_params(estimator=classifier)
        taught.fit(X, y, labelled=labelled)
        assert taught.score(X[~labelled], y[~labelled]) > 0.8


def test_weights_of_rows(cancer, parties):
    X, y = cancer
    plain = quick(parties).fit(X, y).predict_proba(X)
    heavy = quick(parties).fit(X, y, np.where(y == 0, 9.0, 1.0)).predict_proba(X)
    balanced = LogisticRegression(C=0.1, max_iter=1000, class_weight={0: 9, 1: 1})
    same = quick(parties, estimator=balanced).fit(X, y).predict_proba(X)
    assert_allclose(heavy, same, atol=1e-6)
    assert heavy[:, 0].mean() > plain[:, 0].mean() + 0.05
    with pytest.raises(ValueError, match="KNeighborsClassifier has no sample_weight"):
        quick(parties, estimator=KNeighborsClassifier()).fit(X, y, np.ones(569))


def test_methods_are_those_of_the_classifier(cancer, parties):
    X, y = cancer
    vector = quick(parties, estimator=LinearSVC()).fit(X, y)
    assert not hasattr(vector, "predict_proba")
    scores = vector.decision_function(X)
    assert_array_equal(vector.predict(X), (scores > 0).astype(int))
    assert not hasattr(quick(parties, estimator=GaussianNB()), "decision_function")
    joint = quick(parties, inference="joint").fit(X, y)
    assert joint.decision_function(X).shape == (569,)
    assert not hasattr(joint, "active_estimator_")


def test_too_few_labelled_aligned_rows_to_teach_by(partial, cancer, parties):
    y = cancer[1]
    labelled = np.arange(569) >= N_ALIGNED
    vfl = quick(parties, distillation="prediction")
    with pytest.raises(
        PartyError, match=r"'clinic': .* 0 have a label, .* two classes"
    ):
        vfl.fit(partial, y, labelled=labelled)


def test_teacher_may_know_fewer_classes(partial, cancer, parties):
    y = cancer[1].to_numpy() + 2 * (np.arange(569) >= 500)
    labelled = (np.arange(569) < 40) | (np.arange(569) >= 500)
    vfl = quick(parties, distillation="prediction")
    probabilities = vfl.fit(partial, y, labelled=labelled).predict_proba(partial)
    assert probabilities.shape == (569, 4)
    assert_allclose(probabilities.sum(axis=1), 1)


def test_joint_inference_needs_every_partys_rows(partial, cancer, parties):
    X, y = cancer
    joint = quick(parties, inference="joint").fit(partial, y)
    with pytest.raises(PartyError, match="'lab': it has no cell of 489 of 569 rows"):
        joint.predict(partial)
    refit = quick(parties, inference="joint").fit(X[:N_ALIGNED], y[:N_ALIGNED])
    assert_allclose(
        joint._parties["lab"]._encoder.components_,
        refit._parties["lab"]._encoder.components_,
    )
    with pytest.raises(ValueError, match="no label of a row that every party holds"):
        joint.fit(partial, y, labelled=np.arange(569) >= N_ALIGNED)


def test_active_party_needs_columns(cancer):
    parties = {"owner": [], "lab": range(30)}
    with pytest.raises(ValueError, match="party 'owner' holds no column; the active"):
        quick(parties, active="owner").fit(*cancer)


def test_categories_and_a_sparse_preparation(cancer):
    X, y = cancer
    X = X.iloc[:, :6].assign(stage=np.where(X["mean area"] > 600, "late", "early"))
    parties = [
        ("clinic", OneHotEncoder(handle_unknown="ignore"), ["stage"]),
        ("lab", PartyPreprocessor(), list(X.columns[:6])),
    ]
    vfl = quick(
        parties, local_encoder=PCA(1), joint_encoder=PCA(1), active_encoder=None
    )
    vfl.set_params(distillation="prediction", max_epochs=20).fit(X, y)
    unseen = pd.DataFrame({"stage": ["early", "late", "none"]})
    assert vfl.predict(unseen)[:2].tolist() == [1, 0]


def test_refit_forgets_the_first_fit(cancer, parties):
    X, y = cancer
    vfl = quick(parties).fit(X, y)
    vfl.set_params(inference="joint", joint_encoder=PCA(2)).fit(X, y)
    assert not hasattr(vfl, "active_estimator_")
    assert vfl.transform(X).shape == (569, 2)
    names = vfl.get_feature_names_out()
    assert list(names) == ["apcvflclassifier0", "apcvflclassifier1"]


def test_global_output_settings_change_nothing(partial, cancer, parties):
    vfl = quick(parties)
    expected = vfl.fit(partial, cancer[1]).predict_proba(partial)
    with sklearn.config_context(transform_output="pandas"):
        vfl.fit(partial, cancer[1])
        assert_array_equal(vfl.predict_proba(partial), expected)
        assert vfl.transform(partial).columns[0] == "apcvflclassifier0"
        alone = partial[parties["clinic"]]
        assert_array_equal(vfl.active_estimator_.predict_proba(alone), expected)


def rows_by_hand(table, labels=None):
    """A member that was asked to open a run of APC-VFL."""
    member = Member("lab", Holding(table, labels=labels))
    said = PassiveSettings(local_encoder=PCA(1))
    if labels is not None:
        said = ActiveSettings(
            local_encoder=PCA(1),
            joint_encoder=PCA(1),
            active_encoder=PCA(1),
            model=GaussianNB(),
            teacher=None,
            distillation=None,
            inference="active",
        )
        member.own["model"] = said.model
    opening = {"role": said.role, "settings": said.pack()}
    held = member.perform("open", opening)
    assert (held["n_rows"], held["n_columns"]) == table.shape
    return member


def test_parties_say_themselves_which_rows_they_hold():
    table = np.arange(12.0).reshape(6, 2)
    table[[1, 4]] = np.nan
    table[2, 0] = np.nan
    lab = rows_by_hand(table)
    assert lab.perform("say_rows", {}).tolist() == [1, 0, 1, 1, 0, 1]
    told = np.array([True, True, False, True, False, True])
    assert lab.perform("say_rows", {"told": told}).tolist() == told.tolist()
    lab.perform("agree_on_rows", {"aligned": told & (np.arange(6) > 0)})
    assert lab.perform("encode", {}).shape == (3, 1)
    known = np.array([False, True, False, True, True, False])
    clinic = rows_by_hand(table, Labels(np.arange(6) % 2, 2, known=known))
    assert clinic.perform("say_rows", {}).tolist() == [1, 1, 1, 1, 1, 1]
    nobody = np.zeros(6, bool)
    assert clinic.perform("say_rows", {"told": nobody}).tolist() == known.tolist()


@pytest.mark.parametrize(
    ("operations", "first"),
    [
        (["agree_on_rows"], "say_rows"),
        (["encode"], "agree_on_rows"),
        (["say_rows", "encode"], "agree_on_rows"),
        (["learn"], "agree_on_rows"),
    ],
)
def test_operations_out_of_order_say_what_comes_first(operations, first):
    arguments = {"agree_on_rows": {"aligned": np.ones(4, bool)}}
    labels = Labels(np.arange(4) % 2, 2, known=np.ones(4, bool))
    party = rows_by_hand(np.eye(4), labels)
    *before, last = operations
    for operation in before:
        party.perform(operation, arguments.get(operation, {}))
    with pytest.raises(PartyError, match=f"{first!r} comes first"):
        party.perform(last, arguments.get(last, {}))


class Seen(PCA):
    """Counts how often an encoder is trained."""

    fits = []

    def fit(self, X, y=None):
        self.fits.append(len(X))
        return super().fit(X)


def test_nothing_is_trained_before_all_rows_and_labels_are_checked(partial, cancer):
    y = cancer[1].astype(float).where(np.arange(569) >= N_ALIGNED)
    columns = list(partial.columns)
    parties = {"clinic": columns[:5], "lab": columns[5:]}
    Seen.fits.clear()
    for params, table in (({"inference": "joint"}, partial), ({}, partial * np.nan)):
        vfl = quick(parties, local_encoder=Seen(3), **params)
        with pytest.raises(ValueError, match=r"holds"):
            vfl.fit(table, y)
        assert Seen.fits == []
    vfl.fit(partial, y)
    assert sorted(Seen.fits) == [N_ALIGNED, 569]


@pytest.mark.slow
@pytest.mark.parametrize("inference", ["active", "joint"])
def test_predicting_over_processes(cancer, parties, inference):
    """Names of classes stay with the active party; no other is asked if it is alone."""
    X, y = (each[:60] for each in cancer)
    names = np.array(["bad", "good"], dtype=object)[y]
    # Few parties and few calls: each call starts a process for every party it asks.
    parties = {"clinic": parties["clinic"], "lab": parties["lab"] + parties["archive"]}
    first, second = (
        quick(parties, inference=inference, transport=transport).fit(X, names)
        for transport in ("local", "process")
    )
    logs, answers = [], []
    for vfl in (first, second):
        with record_communication() as log:
            answers.append(vfl.predict(X))
        logs.append(log.messages)
    assert logs[0] == logs[1]
    assert_array_equal(*answers)
    assert answers[1].dtype == object
    if inference == "active":
        assert_array_equal(second.decision_function(X), first.decision_function(X))
        assert_array_equal(second.transform(X), first.transform(X))
        alone = second.active_estimator_.predict_proba(X[parties["clinic"]])
        assert_array_equal(alone, first.predict_proba(X))


def test_the_active_estimator_goes_with_the_active_partys_half(
    partial, cancer, parties, tmp_path
):
    vfl = quick(parties).fit(partial, cancer[1])
    expected = vfl.predict_proba(partial)
    vfl.save_half("clinic", tmp_path / "half")
    clinic, others = vfl.keep_halves(["clinic"]), vfl.keep_halves(["lab", "archive"])
    assert_array_equal(clinic.predict_proba(partial), expected)
    assert not hasattr(others, "active_estimator_")
    assert b"LogisticRegression" not in pickle.dumps(others.__dict__["_parties"])
    with pytest.raises(PartyError, match="party 'clinic': its half of the fitted"):
        others.predict(partial)
    others.load_half(tmp_path / "half")
    assert_array_equal(others.predict_proba(partial), expected)


def test_seeds_of_the_users_own(cancer, parties):
    """A model keeps the seed it was given; encoders of different parties never do."""
    X, y = cancer
    vfl = quick(
        parties,
        estimator=DecisionTreeClassifier(random_state=3),
        local_encoder=AutoencoderTransformer(2, max_epochs=1, random_state=3),
    ).fit(X, y)
    assert vfl.active_estimator_["model"].random_state == 3
    other = clone(vfl).set_params(estimator__random_state=None).fit(X, y)
    assert other.active_estimator_["model"].random_state is not None
    seeds = {party._encoder.random_state for party in vfl._parties.values()}
    assert len(seeds) == 3
    assert 3 not in seeds


class Recorder:
    """A callback that keeps the names of the tasks that ended."""

    def __init__(self):
        self.tasks = []

    def setup(self, estimator, context):
        pass

    def on_fit_task_begin(self, estimator, context, **kwargs):
        pass

    def on_fit_task_end(self, estimator, context, **kwargs):
        self.tasks.append(context.task_name)

    def teardown(self, estimator, context):
        pass


def test_callbacks_see_the_two_tasks(cancer, parties):
    recorder = Recorder()
    quick(parties).set_callbacks(recorder).fit(*cancer)
    assert recorder.tasks == ["encode and send", "distil and learn", "fit"]


@pytest.fixture(scope="module")
def diabetes():
    return load_diabetes(return_X_y=True, as_frame=True)


def test_regressor_shares_everything(diabetes):
    X, y = diabetes
    parties = {"clinic": list(X.columns[:5]), "lab": list(X.columns[5:])}
    for settings in (
        {},
        {"distillation": "prediction"},
        {"distillation": None},
        {"inference": "joint"},
    ):
        vfl = APCVFLRegressor(
            parties=parties, max_epochs=10, random_state=0, **settings
        ).fit(X, y)
        assert vfl.score(X, y) > (0.45 if settings.get("inference") else 0.3)
        asked = settings.get("distillation", True) is not None
        assert vfl.communication_.n_messages == asked


def test_regressor_predicts_alone_with_missing_targets(diabetes):
    X, y = diabetes
    parties = {"clinic": list(X.columns[:5]), "lab": list(X.columns[5:])}
    known = np.arange(len(y)) < 60
    vfl = clone(
        APCVFLRegressor(
            LinearRegression(), parties=parties, distillation="prediction", **QUICK
        )
    )
    by_mask = vfl.fit(X, y, labelled=known).predict(X)
    assert_array_equal(vfl.fit(X, y.where(known)).predict(X), by_mask)
    assert_array_equal(vfl.predict(X[parties["clinic"]]), by_mask)
    assert_array_equal(vfl.active_estimator_.predict(X[parties["clinic"]]), by_mask)
    alone = clone(vfl).set_params(distillation=None).fit(X, y, labelled=known)
    assert not np.allclose(alone.predict(X), by_mask)
    with pytest.raises(PartyError, match=r"too few to .*; .* needs some of them"):
        vfl.fit(X, y, labelled=known, aligned=np.arange(len(y)) >= 60)


def test_teacher_of_a_regressor_gives_targets(diabetes):
    """A linear teacher and student that see the same are of one mind."""
    X, y = diabetes
    parties = VerticalPartitioner(
        parties={"clinic": slice(None), "lab": slice(None)}, allow_overlap=True
    )
    known = np.arange(len(y)) < 60
    everything = {"local_encoder": PCA(10), "joint_encoder": PCA(10)}
    vfl = APCVFLRegressor(
        LinearRegression(),
        parties=parties,
        distillation="prediction",
        active_encoder=PCA(10),
        teacher=LinearRegression(),
        random_state=0,
        **everything,
    ).fit(X, y, labelled=known)
    plain = LinearRegression().fit(X[known], y[known])
    assert_allclose(vfl.predict(X), plain.predict(X), rtol=1e-2)


def test_a_table_of_all_columns_is_never_taken_for_the_active_ones(cancer):
    """Where the active party holds every column, in an order of its own."""
    X, y = cancer
    X = X.to_numpy()[:, :4]
    parties = VerticalPartitioner(
        parties={"clinic": [3, 1, 0, 2], "lab": [0, 1]}, allow_overlap=True
    )
    vfl = quick(parties, local_encoder=PCA(2)).fit(X, y)
    expected = vfl.active_estimator_.predict_proba(X[:, [3, 1, 0, 2]])
    assert_array_equal(vfl.predict_proba(X), expected)


def test_labels_that_are_hidden_do_not_choose_columns(cancer):
    X, y = cancer
    labelled = np.arange(len(y)) < 200
    flipped = np.where(labelled, y, 1 - y)
    first, second, missing = (
        quick(ImportanceSplit(2, random_state=0)).fit(X, labels, **masks)
        for labels, masks in (
            (y, {"labelled": labelled}),
            (flipped, {"labelled": labelled}),
            (np.where(labelled, y, np.nan), {}),
        )
    )
    for name, held in first.partition_.parties_.items():
        assert_array_equal(held, second.partition_.parties_[name])
        assert_array_equal(held, missing.partition_.parties_[name])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"estimator": Ridge()}, "model Ridge is no classifier"),
        ({"teacher": Ridge()}, "teacher Ridge is no classifier"),
        ({"active_encoder": PCA(2)}, "PCA takes no latent_target"),
    ],
)
def test_models_of_the_wrong_kind_are_refused(cancer, parties, settings, message):
    with pytest.raises(ValueError, match=message):
        quick(parties, **settings).fit(*cancer)


def test_a_regressor_without_weights_learns_from_predictions():
    X, y = load_diabetes(return_X_y=True)
    vfl = APCVFLRegressor(
        KNeighborsRegressor(),
        distillation="prediction",
        max_epochs=1,
        random_state=0,
    )
    hidden = np.where(np.arange(len(y)) < 100, y, np.nan)
    assert np.isfinite(vfl.fit(X, hidden).predict(X)).all()
    lonely = np.where(np.arange(len(y)) < 1, y, np.nan)
    with pytest.raises(PartyError, match="too few to teach"):
        vfl.fit(X, lonely)


def test_a_teacher_leaves_nothing_behind(cancer, parties):
    X, y = cancer
    teacher = KNeighborsClassifier()
    vfl = quick(parties, distillation="prediction", teacher=teacher)
    vfl.fit(X, np.where(np.arange(len(y)) < 200, y, np.nan))
    assert not hasattr(vfl._parties[vfl._active]._teacher, "_fit_X")
    assert not hasattr(teacher, "_fit_X")


def test_a_partner_that_has_left_is_not_needed_without_distillation(cancer, parties):
    X, y = cancer
    gone = X.copy()
    gone[[c for name, held in parties.items() if name != "clinic" for c in held]] = (
        np.nan
    )
    vfl = quick(parties, distillation=None).fit(gone, y)
    assert vfl.score(X, y) > 0.8
    with pytest.raises(ValueError, match="holds none of the 569 rows"):
        quick(parties).fit(gone, y)


class Broken(PCA):
    def transform(self, X):
        return np.full((len(X), 2), np.nan)


def test_a_representation_that_is_not_finite_is_refused(cancer, parties):
    vfl = quick(parties, distillation=None, active_encoder=Broken(2))
    with pytest.raises(PartyError, match="not finite"):
        vfl.fit(*cancer)


def test_scores_that_leave_placeholders_out(cancer, parties):
    X, y = cancer
    labelled = np.arange(len(y)) % 4 == 0
    with sklearn.config_context(enable_metadata_routing=True):
        vfl = (
            quick(parties)
            .set_fit_request(labelled=True, sample_weight=False)
            .set_score_request(sample_weight=True)
        )
        scores = [
            cross_val_score(
                vfl,
                X,
                np.where(labelled, y, placeholder),
                cv=3,
                params={"labelled": labelled, "sample_weight": labelled.astype(float)},
            )
            for placeholder in (-1, 7)
        ]
    assert_array_equal(*scores)
    assert scores[0].mean() > 0.8
