"""What a comparison may be believed for: gains, parties, costs, limits and refusals."""

import threading
import time

import numpy as np
import pandas as pd
import pytest
from _apart import Apart, Elsewhere
from joblib import parallel_config
from scipy import stats
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.callback import ProgressBar
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import make_scorer, max_error
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    RepeatedStratifiedKFold,
    ShuffleSplit,
    StratifiedKFold,
    cross_val_score,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import skvfl
from skvfl import (
    Contiguous,
    FedOnceClassifier,
    RandomProjectionVFL,
    SplitNNClassifier,
    VerticalPartitioner,
    VFedSecClassifier,
    compare,
)
from skvfl._methods import METHODS, who_sees_what
from skvfl.datasets import load
from skvfl.evaluation import ComparisonDisplay, all_methods
from skvfl.evaluation._gain import corrected_interval, verdict

MODEL = LogisticRegression()
PARTIES = {"bank": [0, 1, 2], "shop": [3, 4], "telco": slice(5, None)}
QUICK = {"baseline": MODEL, "parties": PARTIES, "cv": 2, "random_state": 0}


@pytest.fixture(scope="module")
def cancer():
    X, y = load_breast_cancer(return_X_y=True)
    return X[:, :10], y


@pytest.fixture(scope="module")
def rap():
    return RandomProjectionVFL(MODEL)


class Slow(RegressorMixin, BaseEstimator):
    """Stands for a federated estimator that takes its time, in a search too."""

    def __init__(self, parties=2, active=0, seconds=0.0):
        self.parties = parties
        self.active = active
        self.seconds = seconds

    def fit(self, X, y):
        end = time.monotonic() + self.seconds
        while time.monotonic() < end:
            time.sleep(0.01)
        self.mean_ = np.mean(y)
        return self

    def predict(self, X):
        return np.full(len(X), self.mean_)


# The gain


def test_the_interval_is_nadeaus_and_bengios():
    differences, sizes = [0.01, 0.03, 0.02, 0.06], [(90, 10), (80, 20), (90, 10)]
    mean, low, high = corrected_interval(differences, sizes)
    ratio = (1 / 9 + 1 / 4 + 1 / 9) / 3
    half = stats.t.ppf(0.975, 3) * np.sqrt(
        (1 / 4 + ratio) * np.var(differences, ddof=1)
    )
    assert mean == pytest.approx(0.03)
    assert (mean - low, high - mean) == pytest.approx((half, half))
    # The usual t interval is much narrower.
    usual = stats.t.interval(0.95, 3, mean, stats.sem(differences))
    assert high - low > 1.2 * (usual[1] - usual[0])
    assert np.isnan(corrected_interval([0.1], [(7, 3)])[1:]).all()


def test_the_interval_holds_what_it_promises():
    """Under no difference few intervals miss zero; the usual ones miss it often."""
    rng = np.random.default_rng(0)
    missed = 0
    for _ in range(300):
        # Splits share rows, so differences share a part that is no gain either.
        rows = rng.normal(size=200)
        tests = [rng.choice(200, 40, replace=False) for _ in range(10)]
        differences = [rows[test].mean() for test in tests]
        _, low, high = corrected_interval(differences, [(160, 40)] * 10)
        missed += not low < 0 < high
    assert missed / 300 < 0.1


@pytest.mark.parametrize(
    ("gained", "words"),
    [
        ((0.02, 0.01, 0.03), "better than bank alone"),
        ((-0.02, -0.03, -0.01), "worse than bank alone"),
        ((0.02, -0.01, 0.05), "within noise: no difference to bank alone is shown"),
        ((0.02, np.nan, np.nan), "one split tells nothing about noise: use more"),
        ((np.nan, np.nan, np.nan), "no score"),
    ],
)
def test_a_sentence_says_what_the_interval_shows(gained, words):
    assert verdict(*gained, "bank alone") == words


def test_gains_are_paired_with_the_active_party_alone(cancer, rap):
    X, y = cancer
    folds = StratifiedKFold(5)
    options = {**QUICK, "cv": folds, "baseline": None, "active": "shop"}
    frame = compare({"RAP": rap}, X, y, **options)
    alone = frame[frame["shares"] == "nothing"]
    best = alone["score"].idxmax()
    assert frame.attrs["reference"] == best
    assert frame.loc[best, ["gain", "gain_low", "gain_high"]].tolist() == [0, 0, 0]
    assert frame.loc[best, "verdict"] == "what gains are measured from"
    model = clone(rap).set_params(parties=PARTIES, active="shop", random_state=0)
    model.set_params(estimator__random_state=0)
    label = best.partition(", ")[2]
    prepare = VerticalPartitioner(parties={"shop": [0, 1]})
    baselines = {
        "linear": LogisticRegression(max_iter=1000),
        "LogisticRegression": MODEL,
    }
    alone = make_pipeline(prepare, baselines[label])
    scores = [cross_val_score(model, X, y, cv=folds)]
    scores.append(cross_val_score(alone, X[:, 3:5], y, cv=folds))
    sizes = [(len(train), len(test)) for train, test in folds.split(X, y)]
    expected = corrected_interval(scores[0] - scores[1], sizes)
    row = frame.loc["RAP"]
    assert row[["gain", "gain_low", "gain_high"]].tolist() == pytest.approx(expected)
    assert row["verdict"].endswith(f"difference to {best} is shown")
    weak = {**QUICK, "parties": {"weak": [9], "strong": slice(0, 9)}, "cv": folds}
    frame = compare({"RAP": rap}, X, y, **weak)
    assert frame.loc["RAP", "verdict"] == "better than weak alone"


def test_without_columns_the_active_party_has_no_score_alone(cancer, rap):
    parties = {**PARTIES, "owner": []}
    frame = compare(rap, *cancer, **{**QUICK, "parties": parties}, active="owner")
    assert frame["gain"].isna().all()
    assert frame.attrs["reference"] is None
    assert "has no score alone" in frame["verdict"].iloc[-1]


def test_a_single_split_says_that_it_tells_nothing_about_noise(cancer, rap):
    split = ShuffleSplit(1, random_state=0)
    row = compare(rap, *cancer, **{**QUICK, "cv": split}).iloc[-1]
    assert "one split" in row["verdict"]
    assert np.isfinite(row["gain"])
    assert np.isnan(row["gain_low"])


# Whose parties


def test_parties_of_the_estimators_are_honoured(cancer):
    options = {**QUICK, "parties": None}
    rap = RandomProjectionVFL(MODEL, parties=PARTIES, active="shop")
    frame = compare({"a": rap, "b": RandomProjectionVFL(MODEL)}, *cancer, **options)
    expected = compare({"a": RandomProjectionVFL(MODEL)}, *cancer, **QUICK, active=1)
    assert [*frame.index[1:4]] == ["bank alone", "shop alone", "telco alone"]
    assert frame.loc["shop alone", "shares"] == "nothing"
    assert frame.loc["b", "score"] == expected.loc["a", "score"]
    # The same, written otherwise.
    names = {name: np.arange(10)[held].tolist() for name, held in PARTIES.items()}
    again = compare(rap, *cancer, **{**QUICK, "parties": names}, active="shop")
    assert again["score"].iloc[-1] == expected.loc["a", "score"]


@pytest.mark.parametrize("wrapped", ["estimator", "pipeline", "search"])
def test_parties_of_an_estimator_are_not_replaced_in_silence(cancer, wrapped):
    rap = RandomProjectionVFL(MODEL, parties=3)
    wraps = {
        "estimator": rap,
        "pipeline": make_pipeline(StandardScaler(), rap),
        "search": GridSearchCV(rap, {"whiten": [True]}),
    }
    mine = {"mine": wraps[wrapped]}
    for options in (QUICK, {**QUICK, "parties": Contiguous(2)}):
        with pytest.raises(ValueError, match="'mine' has other parties than compare"):
            compare(mine, *cancer, **options)
    others = {**mine, "other": RandomProjectionVFL(MODEL, parties=PARTIES)}
    with pytest.raises(ValueError, match="'other' has other parties than 'mine'"):
        compare(others, *cancer, baseline=MODEL)


def test_parties_that_prepare_otherwise_are_others(cancer):
    plain = VerticalPartitioner("passthrough", parties=PARTIES)
    rap = RandomProjectionVFL(MODEL, parties=plain)
    with pytest.raises(ValueError, match="'a' has other parties than compare"):
        compare({"a": rap}, *cancer, **QUICK)
    frame = compare({"a": rap}, *cancer, **{**QUICK, "parties": clone(plain)})
    assert not frame.loc["a", "error"]


def test_two_active_parties_are_refused(cancer):
    rap = RandomProjectionVFL(MODEL, active="shop")
    with pytest.raises(ValueError, match=r"'a' has active='shop' and compare .*'bank'"):
        compare({"a": rap}, *cancer, **QUICK, active="bank")
    frame = compare({"a": rap}, *cancer, **QUICK, active=1)
    assert frame.loc["shop alone", "shares"] == "nothing"


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ({"parties": [2, 3]}, "searches over 'parties'"),
        ([{"active": [0, 1]}], "searches over 'active'"),
        ({"estimator": [RandomProjectionVFL()]}, "holds federated estimators"),
    ],
)
def test_searches_over_parties_are_refused(cancer, rap, grid, message):
    with pytest.raises(ValueError, match=message):
        compare({"grid": GridSearchCV(rap, grid)}, *cancer, **QUICK)


# Elsewhere


@pytest.mark.filterwarnings("default:no row 'centralised'")
def test_columns_elsewhere_cannot_be_pooled(cancer, rap):
    X, y = cancer
    own = np.column_stack([np.arange(len(X)), X[:, :4]])
    streams = {"rap": RandomProjectionVFL._streams}
    with Elsewhere("shop", X[:, 4:], streams, seed=0) as shop:
        there = Apart(["bank", "shop"], "shop", shop.address)
        options = {**QUICK, "parties": there, "active": "bank"}
        with pytest.warns(UserWarning, match=r"no row 'centralised'.*'shop'"):
            frame = compare({"RAP": rap}, own, y, **options)
        assert [*frame.index] == ["bank alone", "RAP"]
        assert "elsewhere" in frame.attrs["notes"][0]
        with pytest.raises(ValueError, match="'RAP' has other parties than compare"):
            compare({"RAP": clone(rap).set_params(parties=3)}, own, y, **options)
    parties = {"bank": slice(0, 4), "shop": slice(4, None)}
    together = compare({"RAP": rap}, X, y, **{**QUICK, "parties": parties})
    assert together.attrs["notes"] == []
    assert "centralised" in together.index
    # A party elsewhere draws the same secrets here, whatever X its fold has.
    assert frame.loc["RAP", "score"] == pytest.approx(
        together.loc["RAP", "score"], abs=0.02
    )


# What may be compared, and how


def test_searches_pipelines_and_meta_estimators(cancer):
    split = SplitNNClassifier(max_epochs=2)
    methods = {
        "search": GridSearchCV(split, {"lr": [1e-9, 0.01]}, cv=2),
        "pipeline": make_pipeline(StandardScaler(), split),
        "both": GridSearchCV(
            make_pipeline(StandardScaler(), split),
            {"splitnnclassifier__lr": [1e-9, 0.01]},
            cv=2,
        ),
        "calibrated": CalibratedClassifierCV(split, cv=2),
        "plain": split,
    }
    before = {name: repr(method) for name, method in methods.items()}
    frame = compare(methods, *cancer, **QUICK, active="telco")
    assert {name: repr(method) for name, method in methods.items()} == before
    assert (frame["error"] == "").all()
    assert (frame.loc[[*methods], "shares"] == "messages").all()
    best = clone(split).set_params(lr=0.01, parties=PARTIES, active="telco")
    expected = cross_val_score(best.set_params(random_state=0), *cancer, cv=2).mean()
    assert frame.loc["search", "score"] == expected
    # Costs are those of the fit that serves: of a search the last, of an ensemble all.
    costs = frame["bytes"]
    assert costs["search"] == pytest.approx(costs["plain"], rel=1e-3)
    assert costs["pipeline"] == pytest.approx(costs["plain"], rel=1e-3)
    assert costs["both"] == pytest.approx(costs["plain"], rel=1e-3)
    assert frame.loc["calibrated", "rounds"] > frame.loc["plain", "rounds"]
    assert frame["who_sees_what"].iloc[-5:].nunique() == 1


def test_every_row_is_scored_alike_whatever_a_search_looks_for(cancer, rap):
    search = GridSearchCV(rap, {"whiten": [False]}, scoring="roc_auc", cv=2)
    frame = compare({"plain": rap, "search": search}, *cancer, **QUICK)
    assert frame.loc["search", "score"] == frame.loc["plain", "score"]


def test_several_scorers_have_columns_of_their_own(cancer, rap):
    X, y = cancer
    frame = compare({"RAP": rap}, X, y, **QUICK, scoring=["roc_auc", "accuracy"])
    single = compare({"RAP": rap}, X, y, **QUICK, scoring="roc_auc")
    parts = ["", "_std", "_gain", "_gain_low", "_gain_high"]
    own = [f"{each}{part}" for each in ("roc_auc", "accuracy") for part in parts]
    assert [*frame] == [*single, *own]
    for name in single.drop(columns="fit_seconds"):
        pd.testing.assert_series_equal(frame[name], single[name])
    accuracy = compare({"RAP": rap}, X, y, **QUICK)
    names = ["score", "score_std", "gain", "gain_low", "gain_high"]
    assert (frame[own[5:]].to_numpy() == accuracy[names].to_numpy()).all()
    assert (frame[own[:5]].to_numpy() == frame[names].to_numpy()).all()


def test_a_scorer_may_give_several_scores(cancer, rap):
    def both(model, X, y):
        return {"ten": 10.0, "rows": len(X)}

    frame = compare({"RAP": rap}, *cancer, **QUICK, scoring=both)
    assert (frame["score"] == 10).all()
    assert (frame["rows"] == 284.5).all()


@pytest.mark.parametrize(
    ("scoring", "message"),
    [
        ("auc", "'auc' is not a valid scoring value"),
        ([max_error], "holds .*max_error.*dict of names"),
        ({"gain": "r2"}, r"named \['gain'\]"),
        ([], "scoring is empty"),
    ],
)
def test_scorers_that_cannot_be_used(cancer, rap, scoring, message):
    with pytest.raises(ValueError, match=message):
        compare(rap, *cancer, **QUICK, scoring=scoring)


def test_groups_are_kept_together(cancer, rap):
    X, y = cancer
    groups = np.arange(len(y)) % 4
    seen = []

    def note(model, X, y):
        seen.append(len(y))
        return 0.0

    options = {**QUICK, "cv": GroupKFold(4), "scoring": note}
    compare(rap, X, y, **options, groups=groups)
    assert sorted({*seen}) == sorted({*np.bincount(groups)})
    with pytest.raises(ValueError, match="groups"):
        compare(rap, X, y, **options)


def test_weights_count_in_training_and_in_the_score(cancer, rap):
    X, y = cancer
    methods = {"RAP": rap, "pipe": make_pipeline(StandardScaler(), rap)}
    methods["search"] = GridSearchCV(methods["pipe"], {}, cv=2)
    weights = np.where(np.arange(len(y)) % 3 == 0, 0.0, 1.0)
    frame = compare(methods, X, y, **QUICK, sample_weight=weights)
    assert (frame["error"] == "").all()
    expected = []
    for train, test in StratifiedKFold(2).split(X, y):
        pipeline = make_pipeline(VerticalPartitioner(parties=PARTIES), MODEL)
        kept = {"logisticregression__sample_weight": weights[train]}
        fitted = pipeline.fit(X[train], y[train], **kept)
        expected.append(fitted.score(X[test], y[test], sample_weight=weights[test]))
    assert frame.loc["centralised", "score"] == np.mean(expected)
    plain = compare(methods, X, y, **QUICK)
    assert (plain["score"] != frame["score"]).any()
    with pytest.raises(ValueError, match="takes no sample_weight"):
        compare(rap, X, y, **QUICK, sample_weight=weights, scoring=lambda *_: 1.0)
    with pytest.raises(ValueError, match="sample_weight is negative in 569 of 569"):
        compare(rap, X, y, **QUICK, sample_weight=-np.ones(569))


def test_scorers_without_weights_are_refused_for_weighted_rows():
    X, y = load_diabetes(return_X_y=True)
    rap = RandomProjectionVFL(Ridge())
    with pytest.raises(ValueError, match="'score' takes no sample_weight"):
        compare(rap, X, y, sample_weight=np.ones(442), scoring=make_scorer(max_error))


# Failures and limits

# An alarm that rings in a callback of the garbage collector (hypothesis has one) or in
# a finaliser is lost there, with this warning; half a second later it rings again.
rings = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.mark.parametrize("n_jobs", [None, 2])
def test_a_method_that_fails_does_not_end_the_comparison(cancer, rap, n_jobs):
    methods = {"broken": SplitNNClassifier(max_epochs=2, lr=1e30), "RAP": rap}
    with parallel_config(backend="threading"):
        frame = compare(methods, *cancer, **QUICK, n_jobs=n_jobs)
    assert "learning rate" in frame.loc["broken", "error"]
    assert frame.loc["broken", "verdict"] == "no score"
    assert not frame.loc["RAP", "error"]


def regression(**methods):
    X, y = load_diabetes(return_X_y=True)
    return compare(methods, X, y, baseline=Ridge(), cv=3, time_limit=0.5)


@rings
@pytest.mark.parametrize("search", [False, True])
def test_a_method_that_takes_too_long_is_stopped(search):
    slow = Slow(seconds=30)
    if search:  # which would go on with other candidates after an error
        slow = GridSearchCV(slow, {"seconds": [20, 30]}, cv=2)
    start = time.monotonic()
    frame = regression(slow=slow, quick=Slow())
    assert time.monotonic() - start < 10
    assert "time_limit=0.5 seconds" in frame.loc["slow", "error"]
    assert frame.loc["quick", "error"] == ""


@rings
def test_the_limit_is_for_all_folds_together():
    frame = regression(slow=Slow(seconds=0.3))
    assert "time_limit=0.5" in frame.loc["slow", "error"]


def test_a_limit_outside_the_main_thread_ends_with_the_fit():
    found = []
    thread = threading.Thread(
        target=lambda: found.append(regression(slow=Slow(seconds=0.7)))
    )
    thread.start()
    thread.join()
    assert "time_limit=0.5" in found[0].loc["slow", "error"]


@rings
def test_a_training_within_a_party_is_stopped(cancer):
    endless = FedOnceClassifier(max_epochs=100_000)
    frame = compare({"endless": endless}, *cancer, **QUICK, time_limit=1.5)
    assert "time_limit=1.5" in frame.loc["endless", "error"]
    assert frame["error"].iloc[0] == ""


class Diary:
    """A callback that notes what it hears of, in nested estimators too."""

    max_propagation_depth = None

    def __init__(self):
        self.heard = []

    def setup(self, estimator, context):
        self.heard.append("setup")

    def on_fit_task_begin(self, estimator, context):
        self.heard.append(context.task_name)

    def on_fit_task_end(self, estimator, context):
        pass

    def teardown(self, estimator, context):
        self.heard.append("teardown")


def test_callbacks_hear_of_rows_folds_and_epochs(cancer):
    diary = Diary()
    split = SplitNNClassifier(max_epochs=3)
    compare({"split": split}, *cancer, **QUICK, callbacks=diary)
    assert (diary.heard[0], diary.heard[-1]) == ("setup", "teardown")
    assert diary.heard[1] == "compare"
    rows = ["centralised", *(f"{name} alone" for name in PARTIES), "split"]
    assert [each for each in diary.heard if each in rows] == rows
    assert diary.heard.count("epoch") == 2 * 3
    compare(split, *cancer, **QUICK, callbacks=[ProgressBar()])
    with pytest.raises(TypeError, match="callbacks must be instances"):
        compare(split, *cancer, **QUICK, callbacks=[7])


# All methods


@pytest.mark.slow
def test_all_methods_are_compared_in_one_call(cancer):
    X, y = cancer
    options = {"parties": PARTIES, "cv": 2, "random_state": 0}
    frame = compare("all", X[::3], y[::3], **options)
    assert (frame["error"] == "").all()
    assert [*frame.index[-len(METHODS) :]] == [each.name for each in METHODS]
    assert "centralised, MLPClassifier" in frame.index
    assert frame["who_sees_what"].tolist()[-len(METHODS) :] == [
        each.sees for each in METHODS
    ]


@pytest.mark.slow
def test_all_methods_of_a_regression():
    X, y = load_diabetes(return_X_y=True)
    with pytest.raises(ValueError, match=r'214 different whole numbers.*"regressors"'):
        compare("all", X, y)
    frame = compare(
        "regressors", X[:90], y[:90], cv=ShuffleSplit(1, random_state=0), random_state=0
    )
    assert (frame["error"] == "").all()
    assert len(frame) == 3 * 3 + len(METHODS)
    assert all(skvfl._base.is_classifier(each) for each in all_methods().values())


@pytest.mark.parametrize(
    ("y", "kind"),
    [
        (["a", "b"] * 5, "Classifier"),
        ([True, False] * 5, "Classifier"),
        ([*range(10)], "Classifier"),
        ([i / 3 for i in range(10)], "Regressor"),
    ],
)
def test_the_target_decides_between_classes_and_amounts(y, kind):
    from skvfl.evaluation._contenders import read_methods

    methods = read_methods("all", y)
    assert type(methods["SplitNN"]).__name__ == f"SplitNN{kind}"


@pytest.mark.slow
def test_on_adult_pooling_is_as_good_as_the_best_usual_model(data_home):
    adult = load("adult", data_home=data_home, n_rows=3000)
    frame = compare(
        RandomProjectionVFL(MODEL), adult.data, adult.target, parties=4, random_state=0
    )
    pooled = frame["score"][[n for n in frame.index if n.startswith("centralised")]]
    usual = [LogisticRegression(max_iter=1000), HistGradientBoostingClassifier()]
    best = max(
        cross_val_score(
            make_pipeline(VerticalPartitioner(parties=4), model),
            adult.data,
            adult.target,
        ).mean()
        for model in usual
    )
    assert pooled.max() > best - 0.003
    noise = RepeatedStratifiedKFold(n_splits=5, n_repeats=2, random_state=0)
    again = compare(
        RandomProjectionVFL(MODEL),
        adult.data,
        adult.target,
        parties=4,
        cv=noise,
        baseline=MODEL,
        random_state=0,
    )
    assert again.loc["RandomProjectionVFL", "verdict"] == "better than party0 alone"


@pytest.mark.slow
def test_all_methods_take_less_than_five_minutes(data_home):
    adult = load("adult", data_home=data_home, n_rows=5000)
    start = time.process_time()
    frame = compare(
        "all", adult.data, adult.target, parties=adult.parties, cv=3, random_state=0
    )
    assert time.process_time() - start < 300
    assert (frame["error"] == "").all()
    assert frame["score"].iloc[-len(METHODS) :].min() > 0.79


# Costs, and who sees what


def test_the_network_has_a_name(cancer, rap):
    internet = compare(rap, *cancer, **QUICK)
    office = compare(rap, *cancer, **QUICK, network="office")
    assert internet.attrs["network"] == "internet of 100 Mbit/s and 20 ms"
    assert office.attrs["network"] == "office of 1000 Mbit/s and 1 ms"
    seconds = [each["transfer_seconds"].iloc[-1] for each in (office, internet)]
    assert seconds[0] < seconds[1]
    mine = compare(rap, *cancer, **QUICK, bandwidth=5e6)
    assert mine.attrs["network"] == "network of 5 Mbit/s and 20 ms"
    label = ComparisonDisplay(office).plot("transfer_seconds").ax_.get_xlabel()
    assert "office of 1000 Mbit/s" in label
    with pytest.raises(ValueError, match="'network' parameter of compare"):
        compare(rap, *cancer, **QUICK, network="moon")


def test_who_sees_what_depends_on_the_settings():
    said = who_sees_what(RandomProjectionVFL())
    assert "aliases of the labels" in said
    said = who_sees_what(RandomProjectionVFL(label_protection=False))
    assert "and the labels" in said
    assert "every client's contributions" in who_sees_what(
        VFedSecClassifier(masked=False)
    )
    assert "Nobody" in who_sees_what(skvfl.APCVFLClassifier(distillation=None))
    joint = skvfl.APCVFLRegressor(distillation=None, inference="joint")
    assert "every row that it predicts" in who_sees_what(joint)
    assert "documentation" in who_sees_what(Slow())


def test_points_at_one_place_are_told_apart(cancer, rap):
    methods = {name: clone(rap) for name in ("a", "b", "c")}
    methods["far"] = SplitNNClassifier(max_epochs=2)
    frame = compare(methods, *cancer, **QUICK)
    ax = ComparisonDisplay(frame).plot().ax_
    ax.figure.canvas.draw()
    points = {bar.get_label(): bar.lines[0] for bar in ax.containers}
    assert len({line.get_marker() for line in points.values()}) == 4
    drawn = {
        name: line.get_transform().transform(line.get_xydata())[0]
        for name, line in points.items()
    }
    plain = {
        name: ax.transData.transform(line.get_xydata())[0]
        for name, line in points.items()
    }
    for one, other in (("a", "b"), ("b", "c"), ("a", "c")):
        assert np.allclose(plain[one], plain[other])
        assert abs(drawn[one][0] - drawn[other][0]) > 8
    assert np.allclose(drawn["far"], plain["far"])
    assert np.allclose(drawn["a"], plain["a"])
    low, high = ax.get_ylim()
    tops = frame["score"] + frame["score_std"].where(frame["shares"] == "messages", 0)
    assert low < frame["score"].min() <= tops.max() < high
