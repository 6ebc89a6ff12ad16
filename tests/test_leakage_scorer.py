"""Leakage as a scorer: in searches, in cross-validation, in other processes."""

import pickle
from functools import partial

import numpy as np
import pytest
from _toy_attacks import Labels, LeastSquares
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from skvfl import (
    GaussianProjection,
    RandomProjectionVFL,
    SplitNNClassifier,
    VFLBoostingClassifier,
)
from skvfl.privacy import PrivacyUtilityDisplay, make_leakage_scorer
from skvfl.privacy.attacks import (
    AttributeInferenceAttack,
    GradientSignAttack,
    KnownRowsAttack,
    LossThresholdAttack,
    SplitSidesAttack,
)

PARTIES = {"bank": [0, 1, 2], "shop": slice(3, 12)}
KNOWS = LeastSquares(known_rows=30)


@pytest.fixture(scope="module")
def cancer():
    X, y = load_breast_cancer(return_X_y=True)
    return X[:240, :12], y[:240]


@pytest.fixture
def rap():
    return RandomProjectionVFL(LogisticRegression(), parties=PARTIES, random_state=0)


def leakage(**options):
    return make_leakage_scorer(KNOWS, **{"role": "server", "party": "shop", **options})


def test_it_says_how_much_is_found(cancer, rap):
    fitted = rap.fit(*cancer)
    scorer = leakage()
    assert scorer(fitted, *cancer) > 0.99
    assert leakage(greater_is_better=True)(fitted, *cancer) == -scorer(fitted, *cancer)
    # Nine columns and an intercept take ten rows; with fewer there is less to find.
    few = make_leakage_scorer(LeastSquares(known_rows=3), role="server", party="shop")
    assert few(fitted, *cancer) < 0.9


def test_it_refits_a_clone_on_the_rows_that_are_scored(cancer, rap):
    X, y = cancer
    fitted = rap.fit(X, y)
    before = pickle.dumps(fitted)
    assert leakage()(fitted, X[:100], y[:100]) > 0.99
    assert pickle.dumps(fitted) == before


def test_a_prediction_can_be_attacked_instead(cancer, rap):
    X, y = cancer
    assert leakage(when="predict")(rap.fit(X, y), X[:100], y[:100]) > 0.99


def test_every_attack_can_look_at_a_prediction(cancer, rap):
    X, y = cancer
    scorer = partial(make_leakage_scorer, party="shop", when="predict")
    knows = KnownRowsAttack(known_rows=30)
    rap.fit(X, y)
    assert scorer(knows, role="server")(rap, X[:100], y[:100]) > 0.99
    # What a party without labels receives for a prediction says nothing.
    assert scorer(knows, role="bank")(rap, X[:100], y[:100]) == 0
    trees = VFLBoostingClassifier(parties=PARTIES, max_iter=5, random_state=0)
    sides = scorer(SplitSidesAttack(known_rows=50), role="bank")
    assert sides(trees.fit(X, y), X[:100], y[:100]) > 0.2


def test_who_has_the_secret_is_no_attacker(cancer, rap):
    trees = VFLBoostingClassifier(parties=PARTIES, max_iter=2, random_state=0)
    trees.fit(*cancer)
    with pytest.raises(ValueError, match="'shop' has the columns of 'shop'"):
        leakage(role="shop")(trees, *cancer)
    with pytest.raises(ValueError, match="has the columns of 'shop'"):
        leakage(role="bank+shop")(trees, *cancer)
    with pytest.raises(ValueError, match="'bank' has the labels"):
        make_leakage_scorer(GradientSignAttack(), role="bank")(trees, *cancer)


def test_labels_are_attacked_without_a_party(cancer):
    split = SplitNNClassifier(parties=PARTIES, max_epochs=1, random_state=0)
    scorer = make_leakage_scorer(Labels(), role="shop")
    assert np.isfinite(scorer(split.fit(*cancer), *cancer))


def test_several_may_work_together(cancer, rap):
    fitted = rap.fit(*cancer)
    alone = leakage()(fitted, *cancer)
    assert leakage(role=["server", "bank"])(fitted, *cancer) == alone
    assert leakage(role="server+bank")(fitted, *cancer) == alone


def test_knowledge_is_the_same_for_all_candidates_and_can_be_drawn_again(cancer, rap):
    fitted = rap.fit(*cancer)
    few = {"attack": LeastSquares(known_rows=6), "role": "server", "party": "shop"}
    once = make_leakage_scorer(**few)
    assert once(fitted, *cancer) == once(clone(fitted).fit(*cancer), *cancer)
    assert make_leakage_scorer(**few, random_state=1)(fitted, *cancer) != once(
        fitted, *cancer
    )
    assert make_leakage_scorer(**few, n_repeats=3)(fitted, *cancer) != once(
        fitted, *cancer
    )


@pytest.mark.slow
def test_utility_and_leakage_are_two_columns_of_one_search(cancer, rap):
    kinds = [GaussianProjection(kind=kind) for kind in ("orthogonal", "gaussian")]
    search = GridSearchCV(
        rap,
        {"projection": kinds},
        scoring={"score": "accuracy", "leakage": leakage()},
        refit="score",
        cv=2,
        n_jobs=2,
        error_score="raise",
    ).fit(*cancer)
    assert (search.cv_results_["mean_test_leakage"] > 0.98).all()
    assert (search.cv_results_["mean_test_score"] > 0.8).all()
    display = PrivacyUtilityDisplay.from_cv_results(search.cv_results_)
    assert len(display.names) == 2


@pytest.mark.slow
def test_a_search_can_choose_what_leaks_least(cancer, rap):
    scorer = make_leakage_scorer(
        LeastSquares(known_rows=15), role="server", party="shop", greater_is_better=True
    )
    protect = [True, False]
    search = GridSearchCV(rap, {"label_protection": protect}, scoring=scorer, cv=2)
    search.fit(*cancer)
    assert search.best_score_ == search.cv_results_["mean_test_score"].max() <= 0
    # What a search has chosen stands for the search.
    assert scorer(search, *cancer) == scorer(search.best_estimator_, *cancer)


def test_it_finds_the_federation_inside_other_models(cancer, rap):
    piped = make_pipeline(FunctionTransformer(), rap)
    found = cross_validate(
        piped, *cancer, scoring={"leakage": leakage()}, cv=2, error_score="raise"
    )
    assert (found["test_leakage"] > 0.99).all()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"role": "nobody"}, r"role='nobody' took no part in the run: there are \["),
        ({"role": ["server", "nobody"]}, "took no part"),
        ({"party": "nobody"}, "columns of 'nobody' are not here"),
        ({"party": "server"}, "columns of 'server' are not here"),
        ({"party": None}, "say whose, with party= one of"),
    ],
)
def test_mistakes_are_named(cancer, rap, options, words):
    with pytest.raises(ValueError, match=words):
        leakage(**options)(rap.fit(*cancer), *cancer)


@pytest.mark.parametrize(
    ("attack", "party", "words"),
    [
        (LeastSquares(known_rows=240), "shop", "known_rows=240 of 240 rows"),
        (LeastSquares(known_rows=-5), "shop", "known_rows=-5 of 240 rows"),
        (LeastSquares(known_rows=True), "shop", "known_rows=True of 240 rows"),
        (LeastSquares(known_rows=9, sender="x"), "shop", "columns of 'x' are not"),
        (AttributeInferenceAttack(), "nobody", "columns of 'nobody' are not here"),
        (LossThresholdAttack(), "shop", "which no view shows: call asking"),
    ],
)
def test_what_would_look_like_safety_is_refused(cancer, rap, attack, party, words):
    with pytest.raises(ValueError, match=words):
        make_leakage_scorer(attack, role="server", party=party)(rap, *cancer)


SECRET = np.arange(12.0).reshape(6, 2) % 5


@pytest.mark.parametrize(
    ("known", "truth", "words"),
    [
        (([0, 1], SECRET[:3]), SECRET, "2 positions and 3 values"),
        (([0, -1], SECRET[:2]), SECRET, "whole numbers from 0"),
        ((np.ones(6, bool), SECRET), SECRET, "no mask"),
        (([1, 1], SECRET[:2]), SECRET, "a position twice"),
        (([0, 9], SECRET[:2]), SECRET, "positions beyond the 6 rows"),
        (([0, 1], SECRET[:2] * np.nan), SECRET, "values are missing"),
        ([0, 1, 2], SECRET, "no pair"),
        ("12", SECRET, "no pair"),
        (None, SECRET[:3], "truth has 3 rows"),
        (None, SECRET[:, [0, 1, 1]], "truth has 3 columns"),
        (None, np.where(SECRET == 1, np.nan, SECRET), "truth holds missing"),
    ],
)
def test_an_attack_is_compared_with_nothing_else(known, truth, words):
    class Guess(LeastSquares):
        def __sklearn_is_fitted__(self):
            return True

    attack = Guess(known_rows=known)
    attack.guess_ = SECRET + 0.1
    with pytest.raises(ValueError, match=words):
        attack.score(truth)


@pytest.mark.parametrize("names", [["no", "yes"], [1, 2], [-1, 1]])
def test_classes_without_known_labels_are_positions(names):
    class Guess(Labels):
        def __sklearn_is_fitted__(self):
            return True

    attack, codes = Guess(), np.array([0, 1, 1, 0, 1])
    attack.guess_ = codes
    assert attack.score(codes) == 1.0
    with pytest.raises(ValueError, match=r"np\.searchsorted\(estimator\.classes_, y\)"):
        attack.score(np.array(names)[codes])


def test_mistakes_are_named_at_once(cancer):
    with pytest.raises(ValueError, match="neither 'fit' nor 'predict'"):
        leakage(when="later")
    for name, value in (("n_repeats", 0), ("n_repeats", 2.5), ("role", None)):
        with pytest.raises(ValueError, match=f"{name}={value}"):
            leakage(**{name: value})
    with pytest.raises(ValueError, match="random_state='a' is no whole number"):
        leakage(random_state="a")
    with pytest.raises(ValueError, match="is no attack: give an instance"):
        make_leakage_scorer(LeastSquares, role="server")
    with pytest.raises(ValueError, match="no fitted federated estimator"):
        leakage()(LogisticRegression().fit(*cancer), *cancer)


def test_it_can_be_pickled_and_says_what_it_is(cancer, rap):
    scorer = leakage()
    again = pickle.loads(pickle.dumps(scorer))
    fitted = rap.fit(*cancer)
    assert again(fitted, *cancer) == scorer(fitted, *cancer)
    assert "role='server'" in repr(scorer)


def test_an_attribute_is_a_column_of_a_party(cancer):
    X, y = cancer
    X = X.copy()
    X[:, 4] = X[:, 4] > np.median(X[:, 4])
    split = SplitNNClassifier(parties=PARTIES, max_epochs=3, random_state=0).fit(X, y)
    knows = AttributeInferenceAttack(known_rows=80)
    # The fifth column of the table is the second of the shop's.
    found = make_leakage_scorer(knows, role="bank", party="shop", column=1)(split, X, y)
    assert 0.3 < found <= 1
    for options, message in (
        ({"party": "shop", "column": 9}, "none of 'shop'"),
        ({"party": "shop", "column": "age"}, "none of 'shop'"),
        ({"column": 1}, "tell classes apart"),
        ({"party": "bank", "column": 1}, "'bank' has the columns of 'bank'"),
    ):
        with pytest.raises(ValueError, match=message):
            make_leakage_scorer(knows, role="bank", **options)(split, X, y)
    with pytest.raises(ValueError, match="tell classes apart"):
        leakage(role="bank", column=1)(split, X, y)
