"""Whatever a party replies, a protocol gets what it asked for, or the party's name."""

import copy
from numbers import Number

import numpy as np
import pytest
from sklearn.base import is_classifier
from sklearn.linear_model import LinearRegression, LogisticRegression

from skvfl import (
    APCVFLClassifier,
    FedOnceClassifier,
    LocalTransport,
    RandomProjectionVFL,
    SplitNNClassifier,
    TabVFLClassifier,
    VFedSecClassifier,
    VFedSecRegressor,
    VFLBoostingClassifier,
    VFLBoostingRegressor,
)
from skvfl.exceptions import PartyError
from skvfl.federation import Transport
from skvfl.federation._replies import (
    ANYTHING,
    NOTHING,
    NUMBER,
    Array,
    Count,
    Fields,
    Maybe,
    Rows,
    Vector,
    most_columns,
)

MATRIX = np.ones((4, 2), np.float32)
CODES = np.array([0, 1, 1, 0])
# Finite only where there is more than double precision.
BEYOND = np.full(4, np.longdouble("1e4000"))


@pytest.mark.parametrize(
    ("expected", "right", "wrong"),
    [
        (ANYTHING, [None, 7, MATRIX, {"a": [1]}], []),
        (NOTHING, [None], [0, False, "", [], {}, MATRIX]),
        (
            NUMBER,
            [0, 1.5, float("nan"), -(10**300)],
            [None, True, "1", [1], MATRIX, {}, 10**400, -(10**400)],
        ),
        (Count(1, 3), [1, 3], [0, 4, True, 2.0, None, "2", MATRIX, [2], 10**30]),
        (Array(8), [MATRIX, np.zeros(())], [None, 1, [1], {}, "x"]),
        (
            Rows(4, 2),
            [MATRIX, MATRIX.astype(bool)],
            [None, 7, MATRIX[:3], MATRIX[:, :1], MATRIX[None], MATRIX.tolist(), {}],
        ),
        (
            Rows(4, 2, exact=False),
            [MATRIX[:, :1], MATRIX],
            [np.ones((4, 3)), MATRIX[:, :0]],
        ),
        (
            Vector(4),
            [CODES, np.ones(4), np.ones(4, np.longdouble)],
            [MATRIX, CODES[:3], None, [0, 1, 1, 0], np.full(4, np.nan), BEYOND],
        ),
        (
            Vector(4, 2),
            [CODES, CODES.astype("u1")],
            [CODES + 1, CODES - 1, CODES.astype(float), CODES.astype(bool), None],
        ),
        (Vector(0, 2), [CODES[:0]], [CODES]),
        (Maybe(NUMBER), [None, 2], ["2", MATRIX]),
        (
            Fields({"a": NUMBER}, {"b": NOTHING}),
            [{"a": 1}, {"a": 1, "b": None}],
            [{}, {"b": None}, {"a": 1, "c": 2}, {"a": "1"}, [], None, 7, MATRIX, "a"],
        ),
        (Fields({}), [{}], [[], None, {"a": 1}, 0]),
    ],
)
def test_what_is_expected_of_a_reply(expected, right, wrong):
    for reply in right:
        assert expected.fault(reply) is None
    for reply in wrong:
        assert isinstance(expected.fault(reply), str)


def test_sizes_follow_from_what_was_asked_for():
    widest = np.dtype(np.longdouble).itemsize
    assert Rows(10, 3).n_bytes == Vector(30).n_bytes == 30 * widest
    fields = Fields({"a": Rows(10, 3), "b": NUMBER}, {"c": Maybe(Vector(10))})
    assert fields.n_bytes == 40 * widest
    assert NOTHING.n_bytes == NUMBER.n_bytes == Count(0, 9).n_bytes == 0
    assert most_columns(14) < 20_000
    assert most_columns(1) >= 4096
    assert most_columns(784) > 100_000


# --- every reply of every protocol ---------------------------------------------------


class Meddling(Transport):
    """A local transport that puts something else in place of one party's reply."""

    def __init__(self, operation=None, party=None, junk=None):
        self.operation, self.party, self.junk = operation, party, junk
        self.heard = {}

    def connect(self, parties, log, centre="server"):
        session = LocalTransport().connect(parties, log, centre)
        exchange = session._exchange

        def meddle(requests, *args):
            exchanged = exchange(requests, *args)
            for name, (reply, *measures) in exchanged.items():
                operation = requests[name][0]
                self.heard.setdefault((operation, name), copy.deepcopy(reply))
                if (operation, name) == (self.operation, self.party):
                    exchanged[name] = (self.junk(reply), *measures)
            return exchanged

        session._exchange = meddle
        return session


def _altered(reply):
    """The reply with one part of it missing, or of another kind."""
    if isinstance(reply, dict) and reply:
        return {name: reply[name] for name in list(reply)[1:]}
    if isinstance(reply, np.ndarray) and reply.ndim and len(reply):
        return reply[1:]
    return {"surplus": reply}


def _deeper(reply):
    """The reply with one part of another shape."""
    if isinstance(reply, dict) and reply:
        name = list(reply)[-1]
        return {**reply, name: _deeper(reply[name])}
    if isinstance(reply, np.ndarray):
        return reply[None]
    return [reply]


def _single(reply):
    """The reply with an array of no dimension in place of its first part."""
    if isinstance(reply, dict) and reply:
        return {**reply, next(iter(reply)): np.array(1)}
    return np.array(1)


JUNK = {
    "nothing": lambda reply: None,
    "a number": lambda reply: 7.5,
    "text": lambda reply: "loss",
    "a list": lambda reply: [reply],
    "an empty dict": lambda reply: {},
    "a wide matrix": lambda reply: np.zeros((24, 20_000), np.float32),
    "a number beyond all others": lambda reply: 10**400,
    "a single number as an array": _single,
    "one part less": _altered,
    "one part of another shape": _deeper,
}
PARTIES = {"bank": [0, 1], "shop": [2, 3], "telco": [4, 5]}
QUICK = {"parties": PARTIES, "max_epochs": 1, "random_state": 0}
SMALL = {"n_steps": 1, "n_shared": 1, "n_independent": 1}
EARLY = {"early_stopping": True, "validation_fraction": 0.25}
CLUSTERS = {"clients": {"telco": 2}, "bottom": (4,), "top": (4,), "cut_width": 3}
TREES = {"parties": PARTIES, "max_iter": 1, "min_samples_leaf": 3, "random_state": 0}
ESTIMATORS = {
    "RAP": RandomProjectionVFL(
        LogisticRegression(), parties=PARTIES, class_weight="balanced", random_state=0
    ),
    "RAP, labels only": RandomProjectionVFL(
        "classifier", parties=PARTIES, random_state=0
    ).set_params(estimator=LogisticRegression(max_iter=5), label_protection=False),
    "RAP, a target": RandomProjectionVFL(
        LinearRegression(), parties=PARTIES, random_state=0
    ),
    "SplitNN": SplitNNClassifier(**QUICK, **EARLY, cut_width=3),
    "FedOnce": FedOnceClassifier(**QUICK, n_split_epochs=1),
    "FedOnce, private": FedOnceClassifier(
        **QUICK, n_split_epochs=1, epsilon=2.0, delta=1e-3, batch_size=8
    ),
    "APC": APCVFLClassifier(**QUICK),
    "APC, joint": APCVFLClassifier(**QUICK, inference="joint"),
    "TabVFL": TabVFLClassifier(**QUICK, **EARLY, **SMALL),
    "TabVFL, local encoders": TabVFLClassifier(
        **QUICK, **SMALL, design="local_encoder"
    ),
    "TabVFL, local": TabVFLClassifier(**QUICK, **EARLY, **SMALL, design="local"),
    "vFedSec": VFedSecClassifier(**QUICK, **EARLY, **CLUSTERS),
    "vFedSec, unmasked": VFedSecClassifier(**QUICK, **CLUSTERS, masked=False),
    "vFedSec, a target": VFedSecRegressor(**QUICK, masked=False),
    "Boosting, stopped early": VFLBoostingClassifier(**TREES, early_stopping=True),
    "Boosting, a target": VFLBoostingRegressor(**TREES, max_leaf_nodes=None),
}


def fit_and_predict(estimator, transport):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(24, 6))
    y = X[:, 0] + X[:, 5]
    if is_classifier(estimator):
        y = (y > 0).astype(int)
    estimator = copy.deepcopy(estimator).set_params(transport=transport)
    estimator.fit(X, y).predict(X)


def heard(transport):
    """Replies of one party for every operation: of a cluster's, if it was asked."""
    return sorted(transport.heard.items(), key=lambda item: "." in item[0][1])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "name",
    [
        # A variant has the operations of its method, and few others.
        pytest.param(name, marks=[pytest.mark.slow] if "," in name else [])
        for name in ESTIMATORS
    ],
)
def test_no_reply_is_used_unchecked(name):
    estimator = ESTIMATORS[name]
    control = Meddling()
    fit_and_predict(estimator, control)
    assert {party for _, party in control.heard} >= {"bank", "shop"}
    asked = {operation: (party, reply) for (operation, party), reply in heard(control)}
    for operation, (party, reply) in asked.items():
        for kind, junk in JUNK.items():
            if (
                (reply is None and kind not in ("a number", "an empty dict"))
                or (isinstance(reply, Number) and kind == "a number")
                or (isinstance(reply, dict) and not reply and kind == "an empty dict")
                # Their networks are made anew for every fit.
                or ("TabVFL" in name and kind in ("text", "a list", "an empty dict"))
            ):
                continue
            transport = Meddling(operation, party, junk)
            named = None
            try:
                fit_and_predict(estimator, transport)
            except PartyError as error:
                named = error.party
            assert named == party, f"{kind} in reply to {operation!r}"
