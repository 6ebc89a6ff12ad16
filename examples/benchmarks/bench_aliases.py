"""Which aliases belong together: what RAP's server finds out from what it receives.

Prints one JSON object per line. A full run also records the lines in
``docs/benchmarks/aliases.jsonl``. Needs adult in the folder that the environment
variable SKVFL_DATA names.

    python bench_aliases.py [--quick]

The server compares the means of the rows behind every alias and pairs each alias with
the nearest other one. ``fits`` says in how many fits it paired all aliases rightly,
``share`` which share of the aliases in all fits. In ``two fits`` it has the aliases of
the same rows from two fits, as cross-validation gives them to it, and pairs two aliases
that meet in the same aliases of the other fit. The control gives it labels that have
nothing to do with the columns.
"""

import numpy as np
from _measure import machine
from _record import command, run
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from skvfl import LocalTransport, RandomProjectionVFL
from skvfl.datasets import load

ADULT_ROWS = 8_000


class Listening(LocalTransport):
    """Keeps what the parties send to the server, by operation."""

    def __init__(self):
        self.received = {}

    def connect(self, parties, log, centre="server"):
        session = super().connect(parties, log, centre)
        call = session.call

        def listen(operation, **arguments):
            self.received[operation] = call(operation, **arguments)
            return self.received[operation]

        session.call = listen
        return session


def server_view(X, y, seed):
    """Projected columns and aliases of all rows."""
    transport = Listening()
    # What the server learns does not matter, only what it is sent.
    model = LogisticRegression(max_iter=2)
    RandomProjectionVFL(model, transport=transport, random_state=seed).fit(X, y)
    (labels,) = transport.received["protect_labels"].values()
    columns = np.hstack(list(transport.received["fit_transform"].values()))
    return columns, labels["labels"]


def nearest(points):
    """Position of every point's nearest other one."""
    distances = ((points[:, None] - points[None]) ** 2).sum(axis=-1)
    np.fill_diagonal(distances, np.inf)
    return distances.argmin(axis=1)


def pair_by_means(columns, aliases):
    """The alias that each alias is paired with."""
    seen = range(aliases.max() + 1)
    return nearest(np.array([columns[aliases == alias].mean(axis=0) for alias in seen]))


def pair_by_two_fits(aliases, others):
    """The alias that each alias is paired with."""
    together = np.zeros((aliases.max() + 1, others.max() + 1))
    np.add.at(together, (aliases, others), 1)
    return nearest(together / together.sum(axis=1, keepdims=True))


def rightly_paired(pairs, aliases, y):
    """Which aliases are paired with the other one of their class."""
    classes = np.array([y[aliases == alias][0] for alias in range(len(pairs))])
    return classes[pairs] == classes


def counted(what, data, found):
    """A line: how often all aliases were paired, and how many of them."""
    found = np.array(found)
    return {
        "what": what,
        "data": data,
        "aliases": found.shape[1],
        "fits": f"{int(found.all(axis=1).sum())} of {len(found)}",
        "share": round(float(found.mean()), 3),
    }


def pair(data, X, y, n_seeds):
    """Lines about one data set."""
    one, two, control = [], [], []
    shuffled = np.random.default_rng(0).permutation(y)
    for seed in range(n_seeds):
        columns, aliases = server_view(X, y, seed)
        _, others = server_view(X, y, n_seeds + seed)
        one.append(rightly_paired(pair_by_means(columns, aliases), aliases, y))
        two.append(rightly_paired(pair_by_two_fits(aliases, others), aliases, y))
        columns, aliases = server_view(X, shuffled, seed)
        pairs = pair_by_means(columns, aliases)
        control.append(rightly_paired(pairs, aliases, shuffled))
    yield counted("one fit, means of the rows behind the aliases", data, one)
    yield counted("two fits on the same rows", data, two)
    yield counted("control: one fit, labels shuffled", data, control)


def measure(quick):
    """Yield every line."""
    n_seeds = 3 if quick else 20
    yield {"what": "machine", **machine(quick, "numpy")}
    adult = load("adult")
    X, y = adult.data.iloc[:ADULT_ROWS], adult.target.iloc[:ADULT_ROWS].to_numpy()
    yield from pair(f"adult, {ADULT_ROWS:,} rows", X, y, n_seeds)
    yield from pair("digits", *load_digits(return_X_y=True), n_seeds)


if __name__ == "__main__":
    run(command(__doc__, page=False).parse_args(), "aliases", measure)
