"""Views made by hand, and what a score without information must be."""

import numpy as np
from scipy.stats import t as student

from skvfl.privacy import Seen, View
from skvfl.privacy._views import Run

SEEDS = range(10)


def view_of(received, n_rows, *, sent=None, block=None, role="victim's peer"):
    """The view of a role that received, or sent, arrays about all rows.

    Parameters
    ----------
    received, sent : dict of (str, str) to list of ndarray
        By the other party and the operation, what crossed in each epoch.
    n_rows : int
    block : table, default=None
        Own columns.
    """
    rows = np.arange(n_rows)

    def messages(crossed, arrives):
        return [
            Seen(0, epoch, *ends, operation, array, rows, False)
            for (other, operation), epochs in (crossed or {}).items()
            for ends in [(other, role) if arrives else (role, other)]
            for epoch, array in enumerate(epochs, 1)
        ]

    blocks = {} if block is None else {role: block}
    runs = {0: Run(True, n_rows, blocks, {})}
    return View((role,), messages(received, True), runs, messages(sent, False))


def scores(attack, view, truth, seeds=SEEDS):
    """Scores with known rows that are drawn anew for every seed."""
    informed = [attack.informed(truth, random_state=seed) for seed in seeds]
    return np.array([each.fit(view).score(truth) for each in informed])


def scores_of_permuted(attack, view, truth, seeds=SEEDS):
    """Scores where what was seen of a row belongs to another one."""
    permuted = [np.random.default_rng(seed).permutation(len(truth)) for seed in seeds]
    return np.array(
        [scores(attack, view, truth[p], [seed])[0] for seed, p in enumerate(permuted)]
    )


def is_nothing(values, tolerance=0.0):
    """Whether 0 is in the 95 % interval of the mean.

    Parameters
    ----------
    tolerance : float, default=0.0
        For views that are others in every run of the tests.
    """
    deviation = np.std(values, ddof=1) / np.sqrt(len(values))
    interval = student.ppf(0.975, len(values) - 1) * deviation
    return abs(np.mean(values)) <= interval + tolerance
