"""Settings and fixtures that all tests share."""

import os
import pickle
import random
import sys
from pathlib import Path

# Before numpy or torch is imported: small networks only lose time to more threads.
os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

# A run must not fail by chance or because a machine is slow. New examples are searched
# for on purpose: python -m pytest --hypothesis-profile=exploring
settings.register_profile(
    "exploring", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "repeatable", settings.get_profile("exploring"), derandomize=True
)
settings.load_profile("repeatable")


@pytest.fixture(scope="session")
def data_home():
    """Folder of the real data sets; whatever asks for it is marked ``data``."""
    folder = os.environ.get("SKVFL_DATA")
    if not folder:
        pytest.skip("SKVFL_DATA is unset")
    if not Path(folder).is_dir():
        pytest.fail(f"SKVFL_DATA is not a folder: {folder}")
    return Path(folder)


def pytest_collection_modifyitems(items):
    for item in items:
        if "data_home" in getattr(item, "fixturenames", ()):
            item.add_marker("data")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport():
    """Where SKVFL_REQUIRE_DATA is set, a test that lacks the data folder fails."""
    report = yield
    if os.environ.get("SKVFL_REQUIRE_DATA") and report.skipped:
        reason = str(report.longrepr)
        if "SKVFL_DATA" in reason:
            report.outcome = "failed"
            report.longrepr = reason
    return report


@pytest.fixture
def rng_guard():
    """Fail if the test changes the global random state of Python, numpy or torch."""
    before = _global_random_states()
    yield
    after = _global_random_states()
    changed = [name for name in before if before[name] != after[name]]
    assert not changed, f"global random state changed: {changed}"


def _global_random_states():
    numpy_state = pickle.dumps(np.random.get_state())  # noqa: NPY002
    states = {"random": random.getstate(), "numpy": numpy_state}
    if "torch" in sys.modules:
        states["torch"] = sys.modules["torch"].get_rng_state().tolist()
    return states
