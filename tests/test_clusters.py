"""Inside one organisation: scikit-learn's loops on a cluster, through joblib.

Nothing of it is this package's own. What is tested is that estimators travel to workers
and that scores are those of a serial run.
"""

import contextlib
import importlib.util
import os

import joblib
import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score

from skvfl import FedOnceClassifier, RandomProjectionVFL, SplitNNClassifier, compare

PARTIES = {"bank": slice(0, 10), "shop": slice(10, 30)}


@contextlib.contextmanager
def dask():
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster),
        joblib.parallel_config(backend="dask"),
    ):
        yield


@contextlib.contextmanager
def ray():
    # Of 200 MB, so that it is no requirement of the tests: installed by whoever wants
    # to run this one.
    if importlib.util.find_spec("ray") is None:
        pytest.skip("Ray is not installed; this test runs where it is")
    import ray
    from ray.util.joblib import register_ray

    register_ray()
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        with joblib.parallel_config(backend="ray"):
            yield
    finally:
        ray.shutdown()


def loops():
    """What a user runs: scores of three loops."""
    X, y = load_breast_cancer(return_X_y=True)
    split = SplitNNClassifier(parties=PARTIES, max_epochs=2, random_state=0)
    scores = cross_val_score(split, X, y, cv=3, n_jobs=2)
    grid = {"cut_width": [4, 8]}
    search = GridSearchCV(split, grid, cv=2, n_jobs=2).fit(X, y)
    model = LogisticRegression(max_iter=500)
    methods = {
        "RAP": RandomProjectionVFL(model),
        "FedOnce": FedOnceClassifier(max_epochs=2),
    }
    given = {"parties": PARTIES, "baseline": model, "cv": 2, "random_state": 0}
    frame = compare(methods, X, y, n_jobs=2, **given)
    costs = frame[["score", "score_std", "rounds", "messages", "bytes"]].to_numpy()
    return scores, search.cv_results_["mean_test_score"], costs


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
@pytest.mark.parametrize("cluster", [dask, ray])
def test_loops_on_a_cluster_give_what_a_serial_run_gives(cluster):
    with joblib.parallel_config(backend="sequential"):
        serial = loops()
    with cluster():
        pids = joblib.Parallel(n_jobs=2)(joblib.delayed(os.getpid)() for _ in range(4))
        assert os.getpid() not in pids
        spread = loops()
    for one, other in zip(serial, spread, strict=True):
        np.testing.assert_array_equal(one, other)
