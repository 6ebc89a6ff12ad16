import pickle
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.cluster import KMeans
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import adjusted_rand_score
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.neighbors import (
    KNeighborsClassifier,
    LocalOutlierFactor,
    NearestNeighbors,
)
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR, LinearSVC

from skvfl import (
    GaussianProjection,
    PartyPreprocessor,
    RandomProjectionVFL,
    VerticalPartitioner,
    record_communication,
)
from skvfl._random import seed_sequence
from skvfl._sklearn import CallbackSupportMixin
from skvfl.exceptions import ColumnWarning, PartyError, PrivacyLeakWarning
from skvfl.federation import Holding, Member
from skvfl.rap._parties import PartySettings, PseudoTarget

WIDE = VerticalPartitioner(PartyPreprocessor(dtype="float64"), parties=3)


@pytest.fixture(scope="module")
def cancer():
    return load_breast_cancer(return_X_y=True)


@pytest.fixture(scope="module")
def diabetes():
    return load_diabetes(return_X_y=True)


def prepared(X):
    return clone(WIDE).fit_transform(X)


def test_rotated_logistic_regression_equals_the_centralised_one(cancer):
    """An L2 penalty does not see a rotation, so nothing may change."""
    X, y = cancer
    model = LogisticRegression(tol=1e-10, max_iter=10_000)
    vfl = RandomProjectionVFL(
        model, parties=WIDE, label_protection=False, random_state=0
    ).fit(X, y)
    expected = clone(model).fit(prepared(X), y).predict_proba(prepared(X))
    assert_allclose(vfl.predict_proba(X), expected, atol=1e-6)


@pytest.mark.parametrize("label_protection", [True, False])
def test_ridge_equals_the_centralised_one_whatever_the_pseudo_target(
    diabetes, label_protection
):
    X, y = diabetes
    vfl = RandomProjectionVFL(
        Ridge(), parties=WIDE, label_protection=label_protection, random_state=0
    ).fit(X, y)
    expected = Ridge().fit(prepared(X), y).predict(prepared(X))
    assert_allclose(vfl.predict(X), expected, rtol=1e-9)


def test_neighbours_equal_the_centralised_ones(cancer):
    X, y = cancer
    vfl = RandomProjectionVFL(
        KNeighborsClassifier(7), parties=WIDE, label_protection=False, random_state=0
    ).fit(X, y)
    expected = KNeighborsClassifier(7).fit(prepared(X), y).predict(prepared(X))
    assert_array_equal(vfl.predict(X), expected)


def test_float32_on_the_wire_changes_nothing_that_matters(cancer):
    X, y = cancer
    args = {"label_protection": False, "random_state": 0}
    narrow = RandomProjectionVFL(LogisticRegression(), parties=3, **args).fit(X, y)
    wide = RandomProjectionVFL(LogisticRegression(), parties=WIDE, **args).fit(X, y)
    assert_allclose(narrow.predict_proba(X), wide.predict_proba(X), atol=1e-3)
    assert narrow.transform(X).dtype == np.float32
    assert wide.communication_.n_bytes > 1.8 * narrow.communication_.n_bytes


def test_one_round_one_message_per_party_and_one_for_the_labels(cancer):
    X, y = cancer
    log = (
        RandomProjectionVFL(LogisticRegression(), parties=5, random_state=0)
        .fit(X, y)
        .communication_
    )
    assert log.n_rounds == 1
    assert log.n_messages == 5 + 1
    payload = len(X) * (X.shape[1] * 4 + 8)
    assert payload < log.n_bytes < payload + 12 * 150
    longer = RandomProjectionVFL(
        MLPClassifier((4,), max_iter=30, tol=1), parties=5, random_state=0
    )
    assert longer.fit(X, y).communication_.n_bytes == log.n_bytes


def test_prediction_is_two_rounds_and_stays_with_the_label_owner(cancer):
    X, y = cancer
    vfl = RandomProjectionVFL(LogisticRegression(), parties=3, random_state=0).fit(X, y)
    before = list(vfl.communication_.messages)
    with record_communication() as log:
        vfl.predict(X[:7])
    assert (log.n_rounds, log.n_messages) == (2, 3 + 1)
    last = log.messages[-1]
    assert last.sender == last.receiver == "party0"
    assert not last.data_bearing
    assert vfl.communication_.messages == before


def test_transform_is_what_the_server_received(cancer):
    X, y = cancer
    vfl = RandomProjectionVFL(LogisticRegression(), parties=3, random_state=0)
    received = {}

    def gather(self, session, n_rows):
        Z, labels = RandomProjectionVFL._gather(self, session, n_rows)
        received.update(Z=Z, labels=labels["labels"])
        return Z, labels

    class Server(RandomProjectionVFL):
        _gather = gather

    server = Server(**vfl.get_params(deep=False)).fit(X, y)
    assert_array_equal(server.transform(X), received["Z"].astype(np.float32))
    assert set(received["labels"]) == {0, 1, 2, 3}
    assert server.get_feature_names_out().shape == (30,)
    framed = server.set_output(transform="pandas").transform(X)
    assert framed.columns[0] == "party0__projection0"


def test_label_owner_may_hold_no_column(cancer):
    X, y = cancer
    parties = {"bank": [], "lab": range(15), "shop": range(15, 30)}
    vfl = RandomProjectionVFL(
        LogisticRegression(), parties=parties, active="bank", random_state=0
    ).fit(X, y)
    assert vfl.score(X, y) > 0.95
    assert vfl.communication_.n_messages == 3
    with pytest.raises(ValueError, match="'bank' holds no column"):
        RandomProjectionVFL(LogisticRegression(), parties=parties, active="lab").fit(
            X, y
        )


def test_active_party_by_name_or_position(cancer):
    X, y = cancer
    parties = {"a": range(15), "b": range(15, 30)}
    for active in ("b", 1, -1):
        vfl = RandomProjectionVFL(
            LogisticRegression(), parties=parties, active=active, random_state=0
        )
        log = vfl.fit(X, y).communication_
        assert log.by_party()["b"]["messages_sent"] == 2
    with pytest.raises(ValueError, match=r"active='c' .*\['a', 'b'\]"):
        RandomProjectionVFL(LogisticRegression(), parties=parties, active="c").fit(X, y)


def test_every_party_draws_its_own_matrix():
    X, y = load_iris(return_X_y=True)
    X = np.hstack([X, X])
    parties = {"a": range(4), "b": range(4, 8)}
    vfl = RandomProjectionVFL(
        LogisticRegression(),
        parties=parties,
        projection=GaussianProjection(random_state=0),
        random_state=0,
    ).fit(X, y)
    left, right = np.hsplit(vfl.transform(X), 2)
    assert np.abs(left - right).max() > 0.1


def test_same_seed_same_bytes_and_the_global_generator_is_left_alone(cancer, rng_guard):
    X, y = cancer
    model = MLPClassifier((8,), max_iter=200, tol=1e-2)
    first, second, other = (
        RandomProjectionVFL(model, random_state=seed).fit(X, y) for seed in (0, 0, 1)
    )
    assert_array_equal(first.predict_proba(X), second.predict_proba(X))
    assert np.abs(first.transform(X) - other.transform(X)).max() > 0.1
    RandomProjectionVFL(model).fit(X, y)


def test_regression_fits_one_model_where_two_outputs_are_learnt(diabetes):
    X, y = diabetes
    single = RandomProjectionVFL(
        MLPRegressor(hidden_layer_sizes=(16,), max_iter=2000),
        parties=2,
        random_state=0,
    ).fit(X, y)
    assert isinstance(single.estimator_, MLPRegressor)
    double = RandomProjectionVFL(SVR(), parties=2, random_state=0).fit(X, y)
    assert [type(model) for model in double.estimator_] == [SVR, SVR]
    for vfl in (single, double):
        assert is_regressor(vfl)
        assert vfl.score(X, y) > 0.3
    assert double.predict(X).mean() == pytest.approx(y.mean(), rel=0.05)


def test_default_models_are_the_papers_perceptron(cancer, diabetes):
    vfl = RandomProjectionVFL(random_state=0)
    assert is_classifier(vfl)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # 200 epochs may end before convergence
        vfl.fit(*cancer)
        reg = RandomProjectionVFL("regressor", random_state=0).fit(*diabetes)
    assert vfl.estimator_.hidden_layer_sizes == (128,)
    assert vfl.estimator_.solver == "adam"
    assert vfl.score(*cancer) > 0.97
    assert is_regressor(reg)
    assert reg.score(*diabetes) > 0.5


def test_predict_agrees_with_the_summed_probabilities():
    X, y = load_iris(return_X_y=True)
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    vfl = RandomProjectionVFL(LogisticRegression(), random_state=0).fit(X, names)
    proba = vfl.predict_proba(X)
    assert_allclose(proba.sum(axis=1), 1)
    assert_array_equal(vfl.classes_[proba.argmax(axis=1)], vfl.predict(X))
    assert len(vfl.estimator_.classes_) == 6


@pytest.mark.parametrize("label_protection", [True, False])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_decision_function_agrees_with_predict(label_protection, n_classes):
    X, y = load_iris(return_X_y=True)
    X, y = X[y < n_classes], y[y < n_classes]
    vfl = RandomProjectionVFL(
        LinearSVC(), label_protection=label_protection, random_state=0
    ).fit(X, y)
    assert not hasattr(vfl, "predict_proba")
    scores = vfl.decision_function(X)
    if n_classes == 2:
        assert_array_equal((scores > 0).astype(int), vfl.predict(X))
    else:
        assert_array_equal(scores.argmax(axis=1), vfl.predict(X))
    assert vfl.score(X, y) > 0.9


def test_whitening_repairs_a_badly_conditioned_projection(cancer):
    X, y = cancer

    class Spy(LogisticRegression):
        def fit(self, X, y, sample_weight=None):
            self.covariance_ = np.cov(X, rowvar=False)
            return super().fit(X, y, sample_weight)

    vfl = RandomProjectionVFL(
        Spy(),
        projection=GaussianProjection(kind="gaussian"),
        whiten=True,
        random_state=0,
    ).fit(X, y)
    covariance = vfl.estimator_.covariance_
    assert_allclose(covariance, np.eye(len(covariance)), atol=1e-6)
    assert vfl.score(X, y) > 0.95


def test_whitening_keeps_the_numerical_rank_only():
    frame = pd.DataFrame({"a": list("xyzxyz") * 20, "b": np.arange(120.0)})
    y = (frame["a"] == "x").to_numpy()
    vfl = RandomProjectionVFL(
        LogisticRegression(), parties={"p": ["a", "b"]}, whiten=True, random_state=0
    ).fit(frame, y)
    assert vfl.transform(frame).shape[1] == 4
    assert vfl.estimator_.n_features_in_ == 3
    assert vfl.score(frame, y) == 1


def test_class_weight_is_weights_of_rows_and_warns(cancer):
    X, y = cancer
    model = LogisticRegression(max_iter=1000)
    weighted = RandomProjectionVFL(model, class_weight={0: 5, 1: 1}, random_state=0)
    with pytest.warns(PrivacyLeakWarning, match="aliases"):
        weighted.fit(X, y)
    rows = RandomProjectionVFL(model, random_state=0)
    rows.fit(X, y, sample_weight=np.where(y == 0, 5.0, 1.0))
    assert_array_equal(weighted.predict_proba(X), rows.predict_proba(X))
    plain = RandomProjectionVFL(model, random_state=0).fit(X, y)
    assert weighted.predict_proba(X)[:, 0].mean() > plain.predict_proba(X)[:, 0].mean()


def test_weights_need_a_model_that_takes_them(cancer, diabetes):
    X, y = cancer
    with pytest.raises(ValueError, match="KNeighborsClassifier does not support"):
        RandomProjectionVFL(KNeighborsClassifier()).fit(X, y, np.ones(len(y)))
    with pytest.raises(ValueError, match="classifiers only"):
        RandomProjectionVFL(Ridge(), class_weight="balanced").fit(*diabetes)


def test_bad_labels_are_refused_in_words(cancer):
    X, _ = cancer
    vfl = RandomProjectionVFL(LogisticRegression())
    with pytest.raises(ValueError, match="one class"):
        vfl.fit(X, np.ones(len(X)))
    with pytest.raises(ValueError, match="continuous"):
        vfl.fit(X, np.linspace(0, 1, len(X)))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        vfl.fit(X, np.arange(5) % 2)
    with pytest.raises(ValueError, match="NaN"):
        RandomProjectionVFL(Ridge()).fit(X, np.full(len(X), np.nan))


def test_mixed_tables_work_in_pandas_and_polars():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "age": rng.integers(18, 80, 200).astype(float),
            "job": rng.choice(["clerk", "smith", "cook"], 200),
            "member": rng.random(200) > 0.5,
            "spend": rng.exponential(size=200),
        }
    )
    y = np.where((frame["job"] == "cook") | (frame["age"] > 60), "yes", "no")
    frame.loc[::17, "age"] = np.nan
    parties = {"bank": ["age", "job"], "shop": ["member", "spend"]}
    vfl = RandomProjectionVFL(LogisticRegression(), parties=parties, random_state=0)
    pandas = vfl.fit(frame, y).predict_proba(frame)
    assert vfl.score(frame, y) > 0.9
    columns = ["spend", "job", "age", "member"]
    assert_allclose(vfl.predict_proba(frame[columns]), pandas)
    other = pl.from_pandas(frame)
    polars = clone(vfl).fit(other, y)
    assert_allclose(polars.predict_proba(other), pandas, atol=1e-6)
    with pytest.warns(ColumnWarning, match=r"party 'bank': column 'job' .* 200 of 200"):
        unseen = vfl.predict_proba(frame.assign(job="pilot"))
    assert np.isfinite(unseen).all()


def test_everything_is_reached_by_a_grid_search(cancer):
    X, y = cancer
    vfl = RandomProjectionVFL(
        LogisticRegression(),
        parties=VerticalPartitioner(StandardScaler(), parties=2),
        projection=GaussianProjection(),
        random_state=0,
    )
    grid = {
        "estimator__C": [0.1, 1],
        "projection__kind": ["orthogonal", "conditioned"],
        "parties__parties": [2, 4],
        "parties__transformer__with_mean": [True],
    }
    search = GridSearchCV(vfl, grid, cv=2, error_score="raise").fit(X, y)
    serial = search.cv_results_["mean_test_score"]
    search.set_params(n_jobs=2).fit(X, y)
    assert_array_equal(search.cv_results_["mean_test_score"], serial)
    fits = cross_validate(vfl, X, y, cv=2, return_estimator=True)["estimator"]
    assert all(fit.communication_.n_rounds == 1 for fit in fits)


class Recorder:
    def __init__(self):
        self.tasks = []

    def setup(self, estimator, context):
        pass

    def on_fit_task_begin(self, estimator, context):
        pass

    def on_fit_task_end(self, estimator, context):
        self.tasks.append(context.task_name)

    def teardown(self, estimator, context):
        pass


def test_callbacks_see_the_two_tasks(cancer):
    recorder = Recorder()
    vfl = RandomProjectionVFL(LogisticRegression(), random_state=0)
    assert isinstance(vfl, CallbackSupportMixin)
    vfl.set_callbacks(recorder).fit(*cancer)
    assert recorder.tasks == ["project and send", "train the server's model", "fit"]


def test_skorch_nets_are_models(cancer, diabetes):
    torch = pytest.importorskip("torch")
    skorch = pytest.importorskip("skorch")
    torch.manual_seed(0)
    settings = {"max_epochs": 12, "verbose": 0, "train_split": None, "batch_size": 32}
    X, y = cancer
    net = skorch.NeuralNetClassifier(
        torch.nn.Sequential(
            torch.nn.Linear(30, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4)
        ),
        criterion=torch.nn.CrossEntropyLoss,
        lr=0.1,
        **settings,
    )
    vfl = RandomProjectionVFL(net, parties=3, random_state=0).fit(X, y)
    assert vfl.score(X, y) > 0.93
    assert_allclose(vfl.predict_proba(X).sum(axis=1), 1, atol=1e-6)

    X, y = diabetes
    net = skorch.NeuralNetRegressor(torch.nn.Linear(10, 1), lr=0.05, **settings)
    vfl = RandomProjectionVFL(net, parties=3, random_state=0).fit(X, y)
    assert len(vfl.estimator_) == 2
    assert vfl.score(X, y) > 0.4


def test_nets_that_do_not_fit_the_labels_are_refused_in_words(cancer):
    torch = pytest.importorskip("torch")
    skorch = pytest.importorskip("skorch")
    X, y = cancer
    settings = {"max_epochs": 1, "verbose": 0, "train_split": None}
    narrow = skorch.NeuralNetClassifier(
        torch.nn.Linear(30, 5), criterion=torch.nn.CrossEntropyLoss, **settings
    )
    with pytest.raises(ValueError, match="5 outputs and needs 4"):
        RandomProjectionVFL(narrow, random_state=0).fit(X, y)
    binary = skorch.NeuralNetBinaryClassifier(torch.nn.Linear(30, 1), **settings)
    with pytest.raises(ValueError, match="label_protection=False"):
        RandomProjectionVFL(binary, random_state=0).fit(X, y)
    plain = RandomProjectionVFL(binary, label_protection=False, random_state=0)
    assert plain.fit(X, y).predict_proba(X).shape == (len(X), 2)


def test_nets_inside_pipelines_and_searches_are_seeded_and_survive_rare_classes(
    cancer, rng_guard
):
    torch = pytest.importorskip("torch")
    skorch = pytest.importorskip("skorch")
    X, y = cancer
    y = y.copy()
    y[0] = 7
    net = skorch.NeuralNetClassifier(
        torch.nn.Linear,
        module__in_features=30,
        module__out_features=6,
        criterion=torch.nn.CrossEntropyLoss,
        max_epochs=5,
        lr=0.1,
        verbose=0,
        train_split=None,
    )
    for model in (make_pipeline(StandardScaler(), net), net):
        first, second = (
            RandomProjectionVFL(model, random_state=0).fit(X, y).predict_proba(X)
            for _ in range(2)
        )
        assert_array_equal(first, second)
        assert first.shape == (len(X), 3)
    search = GridSearchCV(net, {"lr": [0.1]}, cv=2)
    vfl = RandomProjectionVFL(search, label_protection=False, random_state=0)
    search.set_params(estimator__module__out_features=2)
    assert vfl.fit(X[1:], y[1:]).score(X[1:], y[1:]) > 0.8


def test_clusterers_are_refused(cancer):
    with pytest.raises(ValueError, match="neither a classifier nor a regressor"):
        RandomProjectionVFL(KMeans(3)).fit(*cancer)


def test_pairwise_scores_are_refused():
    X, y = load_iris(return_X_y=True)
    vfl = RandomProjectionVFL(
        SVC(decision_function_shape="ovo"), label_protection=False, random_state=0
    ).fit(X, y)
    assert vfl.score(X, y) > 0.9
    with pytest.raises(ValueError, match="one score per class"):
        vfl.decision_function(X)


def test_a_failed_refit_answers_as_before(cancer):
    X, y = cancer
    vfl = RandomProjectionVFL(LogisticRegression(), random_state=0).fit(X, y)
    expected = vfl.predict_proba(X)
    vfl.set_params(estimator=LogisticRegression(solver="no such"))
    with pytest.raises(ValueError, match="solver"):
        vfl.fit(X, 1 - y)
    assert_array_equal(vfl.predict_proba(X), expected)


def test_parameters_set_after_fit_wait_for_the_next_fit(cancer):
    X, y = cancer
    vfl = RandomProjectionVFL(LogisticRegression(), random_state=0).fit(X, y)
    expected = vfl.predict_proba(X)
    vfl.set_params(active=1, estimator=Ridge())
    assert_array_equal(vfl.predict(X), expected.argmax(axis=1))


def test_parameters_of_what_is_not_an_estimator_yet_are_refused_in_words():
    vfl = RandomProjectionVFL()
    with pytest.raises(ValueError, match="set projection to an estimator first"):
        vfl.set_params(projection__kind="gaussian")
    vfl.set_params(projection=GaussianProjection(), projection__kind="gaussian")
    assert vfl.projection.kind == "gaussian"


def test_unseeded_secrets_have_more_entropy_than_a_seed(cancer):
    vfl = RandomProjectionVFL(LogisticRegression()).fit(*cancer)
    sequences = [party._transformer[-1]._sequence for party in vfl._parties.values()]
    assert all(sequence.entropy > 2**64 for sequence in sequences)
    assert len({sequence.entropy for sequence in sequences}) == len(sequences)
    assert "random_state" not in repr(vfl._parties["party0"]._transformer[-1])


def test_projections_are_drawn_at_home():
    """What a party is told leads to nobody's matrix, and to none by itself."""
    default = PartySettings(transformer="passthrough").pack()
    assert default == {"transformer": "passthrough", "projection": None}
    named = PartySettings(projection=GaussianProjection()).pack()
    assert named["projection"]["params"]["dict"]["random_state"] is None
    block = np.random.default_rng(0).normal(size=(9, 4))
    for settings in (default, named):
        sent = []
        for entropy in (0, 0, 1, None, None):
            streams = None
            if entropy is not None:
                streams = dict.fromkeys(["prepare", "project"], seed_sequence(entropy))
            member = Member("shop", Holding(block), streams)
            member.perform("open", {"role": "rap.party", "settings": settings})
            sent.append(member.perform("fit_transform", {}).tobytes())
        assert sent[0] == sent[1]
        assert len(set(sent)) == 4


def test_projections_that_cannot_be_copied_are_refused(cancer):
    class Same:
        def fit_transform(self, X):
            return X

        transform = fit_transform

    vfl = RandomProjectionVFL(LogisticRegression(), projection=Same())
    with pytest.raises(TypeError, match="Cannot clone object"):
        vfl.fit(*cancer)


def test_a_server_may_be_given_the_model_without_the_parties_secrets(cancer):
    vfl = RandomProjectionVFL(LogisticRegression(), random_state=0).fit(*cancer)
    matrix = vfl._parties["party0"]._transformer[-1]._matrix.tobytes()
    assert matrix in pickle.dumps(vfl)
    server = vfl.keep_halves([])
    assert matrix not in pickle.dumps(server)
    assert_array_equal(server.estimator_.coef_, vfl.estimator_.coef_)
    with pytest.raises(PartyError, match="its half of the fitted model is not here"):
        server.predict(cancer[0])


@pytest.mark.parametrize("kind", ["orthogonal", "conditioned", "gaussian"])
def test_single_columns_and_targets_are_never_sent_nearly_in_the_clear(kind):
    rng = np.random.default_rng(0)
    column = rng.normal(size=(2000, 1))
    for seed in range(40):
        projection = GaussianProjection(kind=kind, random_state=seed)
        sent = projection.fit_transform(column)
        assert np.abs(np.corrcoef(sent.T, column.T)[:2, 2]).max() < 0.93
        target = PseudoTarget(column[:, 0], np.random.default_rng(seed), True)
        sent = target.protect(column[:, 0], rng)
        assert np.abs(np.corrcoef(sent.T, column.T)[:2, 2]).max() < 0.93


def test_projected_columns_serve_clustering_outliers_and_search(cancer):
    """Section 3 of the RAP paper, "other applications"; rotations lose nothing."""
    X, _ = cancer
    raw = StandardScaler().fit_transform(X)
    project = VerticalPartitioner(
        make_pipeline(StandardScaler(), GaussianProjection()), parties=4, random_state=0
    )
    kmeans = KMeans(7, random_state=0, n_init=3)
    clusters = make_pipeline(project, kmeans).fit(X)[-1].labels_
    assert adjusted_rand_score(clone(kmeans).fit_predict(raw), clusters) == 1
    received = project.fit_transform(X)
    found = NearestNeighbors(n_neighbors=10).fit(received).kneighbors()[1]
    assert_array_equal(found, NearestNeighbors(n_neighbors=10).fit(raw).kneighbors()[1])
    outliers = LocalOutlierFactor().fit_predict(received)
    assert_array_equal(outliers, LocalOutlierFactor().fit_predict(raw))


def test_refit_forgets_the_first_fit(cancer):
    X, y = cancer
    frame = pd.DataFrame(X[:, :6], columns=list("abcdef"))
    vfl = RandomProjectionVFL(LogisticRegression(), random_state=0).fit(frame, y)
    vfl.fit(X, y)
    assert not hasattr(vfl, "feature_names_in_")
    assert vfl.n_features_in_ == 30
    fresh = RandomProjectionVFL(LogisticRegression(), random_state=0).fit(X, y)
    assert_array_equal(vfl.predict_proba(X), fresh.predict_proba(X))
