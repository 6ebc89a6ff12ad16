"""Pictures of utility and leakage: what is drawn, refused, and told apart."""

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV

from skvfl.privacy import PrivacyUtilityDisplay

NAMES = ["plain", "noise", "clipped", "both"]


@pytest.fixture(autouse=True)
def agg():
    with mpl.rc_context({"backend": "Agg"}):
        yield
        plt.close("all")


def labels(display):
    return [text.get_text() for text in display.ax_.get_legend().get_texts()]


def centres(display):
    """Where points are on the paper, in points of 1/72 inch."""
    display.figure_.canvas.draw()
    scale = 72 / display.figure_.dpi
    lines = [bar.lines[0] for bar in display.ax_.containers]
    return np.array(
        [line.get_transform().transform(line.get_xydata()[0]) * scale for line in lines]
    )


def test_the_frontier_joins_what_nothing_beats():
    display = PrivacyUtilityDisplay(NAMES, [0.9, 0.9, 0.7, 0.8], [0.9, 0.5, 0.6, 0.2])
    assert display.plot().frontier_ == ["both", "noise"]
    assert labels(display) == NAMES
    assert "0: no better than guessing" in display.ax_.get_xlabel()


def test_points_at_one_place_are_told_apart():
    display = PrivacyUtilityDisplay(NAMES, [0.9] * 4, [0.5] * 4).plot()
    drawn = centres(display)
    gaps = np.linalg.norm(drawn[:, None] - drawn[None], axis=2)[np.triu_indices(4, 1)]
    assert gaps.min() > 8
    assert len({bar.lines[0].get_marker() for bar in display.ax_.containers}) == 4
    # Points far apart stay where they are.
    apart = PrivacyUtilityDisplay(
        NAMES, [0.9, 0.8, 0.7, 0.6], [0.1, 0.4, 0.7, 1]
    ).plot()
    drawn = centres(apart)
    data = [bar.lines[0].get_xydata()[0] for bar in apart.ax_.containers]
    expected = apart.ax_.transData.transform(data) * 72 / apart.figure_.dpi
    np.testing.assert_allclose(drawn, expected)


def test_what_was_not_measured_is_left_out():
    display = PrivacyUtilityDisplay(NAMES, [0.9, np.nan, 0.7, 0.8], [0.9, 0, 0.6, 0.2])
    assert labels(display.plot()) == ["plain", "clipped", "both"]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (([], [], []), "no setting"),
        ((["a"], [np.nan], [0.1]), "no setting has both"),
        ((["a", "b"], [0.5], [0.1]), "2 names and 1 points"),
    ],
)
def test_empty_data_are_refused_in_words(values, words):
    with pytest.raises(ValueError, match=words):
        PrivacyUtilityDisplay(*values).plot()


def _share_of_ones(estimator, X, y):
    return float(np.mean(estimator.predict(X)))


def test_a_search_is_drawn_by_the_names_of_its_scorers():
    X, y = load_breast_cancer(return_X_y=True)
    search = GridSearchCV(
        LogisticRegression(solver="liblinear"),
        {"C": [0.01, 1.0], "tol": [1e-3]},
        scoring={"auc": "roc_auc", "ones": _share_of_ones},
        refit="auc",
        cv=2,
    ).fit(X[:, :3], y)
    results = search.cv_results_
    for given in (results, pd.DataFrame(results)):
        display = PrivacyUtilityDisplay.from_cv_results(
            given, utility="auc", leakage="ones"
        )
        assert labels(display) == ["C=0.01", "C=1.0"]
        np.testing.assert_array_equal(display.leakage, results["mean_test_ones"])
    turned = PrivacyUtilityDisplay.from_cv_results(
        results, utility="auc", leakage="ones", negated=True
    )
    np.testing.assert_array_equal(turned.leakage, -results["mean_test_ones"])
    with pytest.raises(
        ValueError, match=r"no scorer 'leakage', only \['auc', 'ones'\]"
    ):
        PrivacyUtilityDisplay.from_cv_results(results, utility="auc")
    failed = results | {"mean_test_ones": np.array([np.nan, np.nan])}
    with pytest.raises(ValueError, match="no setting has both 'auc' and 'ones'"):
        PrivacyUtilityDisplay.from_cv_results(failed, utility="auc", leakage="ones")


def test_estimators_are_cross_validated_and_drawn():
    X, y = load_breast_cancer(return_X_y=True)
    models = {
        "little": LogisticRegression(solver="liblinear", C=0.01),
        "much": LogisticRegression(solver="liblinear"),
    }
    display = PrivacyUtilityDisplay.from_estimators(
        models, X[:, :3], y, leakage=_share_of_ones, cv=2
    )
    assert labels(display) == ["little", "much"]
    assert np.shape(display.utility) == np.shape(display.leakage) == (2,)
    with pytest.raises(ValueError, match="no setting"):
        PrivacyUtilityDisplay.from_estimators({}, X, y, leakage=_share_of_ones)
    with pytest.raises(ValueError, match="give each a name"):
        PrivacyUtilityDisplay.from_estimators([*models.values()], X, y, leakage=None)
