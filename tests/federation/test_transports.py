import contextlib
import copy
import gc
import inspect
import math
import os
import pickle
import re
import signal
import struct
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.datasets import make_classification
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.preprocessing import MaxAbsScaler, StandardScaler

from skvfl import (
    CommunicationLog,
    LocalTransport,
    ProcessTransport,
    RandomProjectionVFL,
    VerticalPartitioner,
    record_communication,
)
from skvfl.exceptions import PartyError, PartyValueError
from skvfl.federation import Holding, Member, Party, _process, _wire, operation
from skvfl.federation._party import SealedParty
from skvfl.federation._replies import ANYTHING
from skvfl.federation._transport import check_rows
from skvfl.privacy import record_views

CANARY = "4711-canary"
TRANSPORTS = {"local": LocalTransport, "process": ProcessTransport}
PATIENCE = 120
# Seconds after which a party counts as late where another one must be in time, also on
# a machine that has more to do than it can.
LATE = 3


@pytest.fixture(autouse=True)
def no_hang():
    """A hang fails the test instead of stopping the suite."""

    def stop(signum, frame):
        pytest.fail(f"no answer within {PATIENCE} seconds")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(PATIENCE)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


class Tape:
    """Processes started, and the bytes that passed on their channels and doors."""

    def __init__(self):
        self.pids, self.frames, self.doors = {}, [], []

    def sizes(self, party, way):
        """Lengths of the frames of one party in one direction, the final one apart."""
        return [len(f) for name, w, f in self.frames if (name, w) == (party, way) and f]


@contextlib.contextmanager
def taping():
    tape = Tape()
    start = _process._ProcessSession._start
    send, receive = _process.send, _process.receive
    notes = {}

    def start_and_tap(session, name):
        start(session, name)
        tape.pids[name] = session._processes[name].pid
        notes[session._channels[name]] = name, tape.frames
        notes[session._doors[name]] = name, tape.doors

    def send_and_note(connection, message, number, seconds):
        name, frames = notes[connection]
        frames.append((name, "sent", bytes(message)))
        send(connection, message, number, seconds=seconds)

    def receive_and_note(connection, most, seconds):
        frame = receive(connection, most, seconds)
        name, frames = notes[connection]
        message = frame if frames is tape.doors else frame[: -_process._NUMBER_BYTES]
        frames.append((name, "received", bytes(message)))
        return frame

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_process._ProcessSession, "_start", start_and_tap)
        patch.setattr(_process, "send", send_and_note)
        patch.setattr(_process, "receive", receive_and_note)
        yield tape


@pytest.fixture
def tape():
    with taping() as tape:
        yield tape
    assert tape.pids
    assert not any(map(is_alive, tape.pids.values()))


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    with contextlib.suppress(FileNotFoundError):
        return stat.read_text().rpartition(")")[2].split()[0] != "Z"
    return not Path("/proc").exists()


def assert_goes(pid):
    """Whoever is not our own child can be told to go, but not waited for."""
    deadline = time.monotonic() + PATIENCE / 2
    while is_alive(pid):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def open_files():
    return len(os.listdir("/dev/fd"))


class Clerk(Party):
    """A party that does whatever a test needs."""

    @operation
    def echo(self, payload):
        return payload

    @operation
    def mean(self):
        self.learnt = self.held(Holding).block.mean(axis=0)
        return self.learnt

    @operation
    def echo_block(self):
        return self.held(Holding).block

    @operation
    def nap(self, who=None):
        time.sleep(0.3 if self.name == who else 0)

    @operation
    def oversleep(self):
        time.sleep(10 * PATIENCE)

    @operation
    def sockets(self):
        files = [file for file in Path("/proc/self/fd").iterdir() if int(file.name) > 2]
        targets = [os.readlink(file) for file in files if os.path.lexists(file)]
        return sum(target.startswith("socket:") for target in targets)

    @operation
    def fail(self):
        raise ValueError(f"cannot use {CANARY}")

    @operation
    def send_object(self):
        return [object()]

    @operation
    def send_number_as_key(self):
        return {1: 2}

    @operation
    def be_killed(self):
        os.kill(os.getpid(), signal.SIGKILL)

    @operation
    def leave(self):
        os._exit(3)

    @operation
    def leave_amid_a_frame(self):
        frame = inspect.currentframe()
        while "channel" not in frame.f_locals:
            frame = frame.f_back
        os.write(
            frame.f_locals["channel"].fileno(), struct.pack("!i", 1000) + b"skvfl1"
        )
        os._exit(3)

    @operation
    def leave_a_child_behind(self):
        child = os.fork()
        if child:
            Path(self.held(Holding).block).write_text(str(child))
            os._exit(3)
        time.sleep(10 * PATIENCE)

    @operation
    def become_unfit_to_travel(self):
        self.lock = threading.Lock()


PAYLOAD = {
    "numbers": [1, 2.5, -0.0, float("inf"), 10**40, True, None],
    "text": "ünïcödé",
    "arrays": [
        np.arange(6, dtype="i2").reshape(2, 3).T,
        np.array(7.0, dtype=">f4"),
        np.zeros((0, 2), dtype=bool),
    ],
}
LARGE = np.random.default_rng(0).normal(size=500_000)


def at_home(party):
    """A party as its own process has it."""
    return party.open() if isinstance(party, SealedParty) else party


def converse(transport):
    """Make two parties do everything that may differ between transports."""
    log = CommunicationLog()
    block = np.random.default_rng(1).normal(size=(20, 3))
    parties = [
        Clerk("bank").holding(block=block[:10].copy()),
        Clerk("shop").holding(block=block[10:].copy()),
    ]
    blocks = [weakref.ref(party.held(Holding).block) for party in parties]
    answers = []
    with transport.connect(parties, log) as session:
        alive = [block() is not None for block in blocks]
        session.begin_round()
        answers.append(session.call("mean"))
        answers.append(session.call("echo", payload=PAYLOAD))
        session.begin_round()
        answers.append(session.call("nap", who="bank"))
        answers.append(session.call("echo", to=["shop"], payload=LARGE[::-1]))
        answers.append(session.call("echo", to=["shop", "bank"], payload=LARGE))
        answers.append(session.ask("bank", "echo", reply_to="bank", payload=LARGE[:9]))
        answers.append(session.call("echo", to=[], payload=1))
        messages = list(log.messages)
        sockets = session.call("sockets") if Path("/proc/self/fd").exists() else None
    return {
        "answers": answers,
        "messages": messages,
        "blocks alive": alive,
        "sockets": sockets,
        "home": session.parties,
    }


@pytest.fixture(scope="module")
def conversations():
    before = open_files()
    with taping() as tape:
        told = {name: converse(kind()) for name, kind in TRANSPORTS.items()}
    assert open_files() == before
    return told, tape


def test_answers_are_the_same(conversations):
    told, _ = conversations
    local, process = told["local"]["answers"], told["process"]["answers"]
    assert _wire.pack(local) == _wire.pack(process)
    assert np.array_equal(local[3]["shop"], LARGE[::-1])
    assert [list(replies) for replies in local if isinstance(replies, dict)] == [
        *(["bank", "shop"], ["bank", "shop"], ["bank", "shop"], ["shop"]),
        *(["bank", "shop"], []),
    ]


def test_messages_are_the_same(conversations):
    told, _ = conversations
    local, process = told["local"]["messages"], told["process"]["messages"]
    assert local == process
    assert [m.data_bearing for m in local if m.operation == "nap"] == [False] * 4
    assert local[-2:] == [
        (2, "server", "bank", "echo", _size(["echo", {"payload": LARGE[:9]}]), True),
        (2, "bank", "bank", "echo", _size(["ok", LARGE[:9]]), False),
    ]


def _size(payload):
    return len(_wire.pack(payload))


@pytest.mark.parametrize("party", ["bank", "shop"])
def test_log_has_the_bytes_that_crossed(conversations, party):
    told, tape = conversations
    messages = told["process"]["messages"]
    asked = [m.bytes for m in messages if (m.sender, m.receiver) == ("server", party)]
    answered = [m.bytes for m in messages if m.sender == party]
    extra = told["process"]["sockets"] is not None
    assert tape.sizes(party, "sent")[: -1 if extra else None] == asked
    assert tape.sizes(party, "received")[: -1 if extra else None] == answered


def test_only_the_wire_format_passes_the_channel(conversations):
    _, tape = conversations
    for _, _, frame in tape.frames:
        if frame:
            assert type(_wire.unpack(frame)) is list


def test_blocks_are_gone_from_here_after_the_handover(conversations):
    told, _ = conversations
    assert told["local"]["blocks alive"] == [True, True]
    assert told["process"]["blocks alive"] == [False, False]


def test_parties_come_home_with_what_they_learnt_and_without_their_block(conversations):
    told, tape = conversations
    for conversation in told.values():
        assert list(conversation["home"]) == ["bank", "shop"]
        for name, party in conversation["home"].items():
            assert party.name == name
            party = at_home(party)
            assert vars(party).keys() == {"name", "_states", "learnt"}
            assert party._states == {}
            assert np.array_equal(party.learnt, conversation["answers"][0][name])
    row = np.random.default_rng(1).normal(size=(20, 3))[7].tobytes()
    out, _, home, _ = (frame for _, _, frame in tape.doors)
    assert row in out
    assert row not in home


def test_party_has_no_connection_but_its_own(conversations):
    told, _ = conversations
    if told["process"]["sockets"] is None:
        pytest.skip("needs /proc")
    assert told["process"]["sockets"] == {"bank": 2, "shop": 2}


def test_no_process_outlives_the_session(conversations):
    _, tape = conversations
    assert list(tape.pids) == ["bank", "shop"]
    assert not any(map(is_alive, tape.pids.values()))


def connect(transport, *names, block=None):
    return transport.connect(
        [Clerk(name).holding(block) for name in names], CommunicationLog()
    )


def run(session, *operations, kill=None):
    """Ask for operations that need no arguments, after killing a process."""
    with session:
        if kill is not None:
            os.kill(kill, signal.SIGKILL)
        for operation in operations:
            session.call(operation, to=["bank"])


def assert_over(session):
    """Whoever goes on with a session that failed gets an error, not an old reply."""
    with pytest.raises(PartyError, match="party 'bank'"):
        session.ask("bank", "mean")


@pytest.mark.parametrize(
    "what", ["be_killed", "leave", "leave_amid_a_frame", "leave_a_child_behind"]
)
def test_death_of_a_party_is_an_error_that_names_it(tape, tmp_path, what):
    note = tmp_path / "pid"
    code = -signal.SIGKILL if what == "be_killed" else 3
    expected = f"party 'bank': its process ended with exit code {code} during '{what}'"
    before = open_files()
    names = ["bank", "shop"] if what == "be_killed" else ["bank"]
    session = connect(ProcessTransport(), *names, block=str(note))
    with pytest.raises(PartyError, match=expected) as info:
        run(session, "nap", what)
    assert info.value.party == "bank"
    assert not any(map(is_alive, tape.pids.values()))
    assert open_files() == before
    if what == "leave_a_child_behind":
        assert_goes(int(note.read_text()))
    assert_over(session)


@pytest.mark.parametrize("operations", [["mean"], []])
def test_death_between_calls_is_noticed(tape, operations):
    moment = operations[0] if operations else "coming home"
    expected = f"party 'bank': its process ended with exit code -9 during '{moment}'"
    session = connect(ProcessTransport(), "bank")
    with pytest.raises(PartyError, match=expected):
        run(session, *operations, kill=tape.pids["bank"])


def test_party_that_cannot_come_home_is_named(tape, capfd):
    expected = "party 'bank': its process ended with exit code 1 during 'coming home'"
    session = connect(ProcessTransport(), "bank")
    with pytest.raises(PartyError, match=expected):
        run(session, "become_unfit_to_travel")
    assert "cannot pickle" in capfd.readouterr().err


def test_timeout_names_the_party(tape):
    expected = re.escape("party 'bank': no reply to 'oversleep' within 0.2 seconds")
    session = connect(ProcessTransport(timeout=0.2), "bank", "shop")
    with pytest.raises(PartyError, match=expected):
        run(session, "oversleep")
    assert_over(session)


def wait_for_answers(session):
    while session.late():
        time.sleep(0.01)


@pytest.mark.slow
def test_who_is_late_is_left_out_until_it_has_answered(tape):
    with connect(ProcessTransport(timeout=PATIENCE), "bank", "shop") as session:
        session.call("nap")
        session._timeout = LATE
        os.kill(tape.pids["bank"], signal.SIGSTOP)
        assert session.call("nap", skip_late=True) == {"shop": None}
        assert session.late() == {"bank"}
        assert session.call("echo", payload=1, skip_late=True) == {"shop": 1}
        os.kill(tape.pids["bank"], signal.SIGCONT)
        wait_for_answers(session)
        replies = session.call("echo", payload=2, skip_late=True)
        assert replies == {"bank": 2, "shop": 2}
    assert session.parties.keys() == {"bank", "shop"}
    messages = session.log.messages
    asked = [m.operation for m in messages if m.receiver == "bank"]
    answered = [m.operation for m in messages if m.sender == "bank"]
    assert asked == answered == ["nap", "nap", "echo"]


def test_a_reply_that_came_too_late_is_seen(tape):
    with (
        record_views() as views,
        connect(ProcessTransport(timeout=PATIENCE), "bank") as session,
    ):
        session.call("nap")
        session._timeout = 0.3
        os.kill(tape.pids["bank"], signal.SIGSTOP)
        assert session.call("echo", payload=7, skip_late=True) == {}
        os.kill(tape.pids["bank"], signal.SIGCONT)
        wait_for_answers(session)
        session._timeout = PATIENCE
        session.call("echo", payload=8)
    seen = [each for each in views["server"].messages if each.operation == "echo"]
    assert [each.content for each in seen] == [7, 8]


@pytest.mark.parametrize("wakes", [True, False])
def test_a_call_that_needs_everybody_waits_for_who_is_late(tape, wakes):
    session = connect(ProcessTransport(timeout=PATIENCE), "bank")
    session.call("nap")
    session._timeout = 0.3
    os.kill(tape.pids["bank"], signal.SIGSTOP)
    assert session.call("nap", skip_late=True) == {}
    if wakes:
        session._timeout = PATIENCE
        os.kill(tape.pids["bank"], signal.SIGCONT)
        assert session.call("echo", payload=1) == {"bank": 1}
        run(session)
    else:
        with pytest.raises(PartyError, match=r"no reply to 'nap' within 0\.3 seconds"):
            run(session, "mean")


def test_a_failure_that_comes_late_is_not_lost(tape):
    session = connect(ProcessTransport(timeout=PATIENCE), "bank")
    session.call("nap")
    session._timeout = 0.3
    os.kill(tape.pids["bank"], signal.SIGSTOP)
    assert session.call("fail", skip_late=True) == {}
    os.kill(tape.pids["bank"], signal.SIGCONT)
    with pytest.raises(PartyValueError, match="ValueError in 'fail'"):
        wait_for_answers(session)
    assert_over(session)


def test_who_takes_nothing_in_is_named(tape):
    expected = "party 'bank': it did not take in 'echo' within 0.5 seconds"
    session = connect(ProcessTransport(timeout=0.5), "bank")
    os.kill(tape.pids["bank"], signal.SIGSTOP)
    with pytest.raises(PartyError, match=expected):
        session.ask("bank", "echo", payload=LARGE)


def test_a_reply_that_stands_still_half_way_is_an_error(tape):
    session = connect(ProcessTransport(timeout=PATIENCE), "bank", block=LARGE)
    session.call("nap")
    session._timeout = 0.3
    for connection in (session._channels["bank"], session._doors["bank"]):
        _process.limit_blocking(connection, 0.3)
    channel = session._channels["bank"]
    session._ask("bank", ["echo_block", {}], ANYTHING)
    assert channel.poll(PATIENCE)
    time.sleep(0.5)
    os.kill(tape.pids["bank"], signal.SIGSTOP)
    with pytest.raises(PartyError, match=r"reply to 'echo_block' stood still"):
        session.late()
    assert_over(session)


@pytest.mark.slow
def test_two_who_are_late_are_waited_for_once(tape):
    with connect(ProcessTransport(timeout=PATIENCE), "bank", "shop") as session:
        session.call("nap")
        session._timeout = LATE
        for pid in tape.pids.values():
            os.kill(pid, signal.SIGSTOP)
        start = time.monotonic()
        assert session.call("nap", skip_late=True) == {}
        assert time.monotonic() - start < 2 * LATE
        session._timeout = PATIENCE
        for pid in tape.pids.values():
            os.kill(pid, signal.SIGCONT)


@pytest.mark.slow
@pytest.mark.parametrize("timeout", [math.inf, 1e300])
def test_a_timeout_may_be_as_long_as_one_likes(tape, timeout):
    with connect(ProcessTransport(timeout=timeout), "bank") as session:
        assert session.ask("bank", "echo", payload=1) == 1


@pytest.mark.slow
def test_interruption_ends_the_processes(tape):
    session = connect(ProcessTransport(), "bank", "shop")
    session.call("nap")
    # Workers of a parallel run ignore the signal, so the test says what it does.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        threading.Timer(1, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            run(session, "oversleep")
    finally:
        signal.signal(signal.SIGINT, before)


def test_start_that_fails_leaves_nothing(tape, monkeypatch):
    def fail(session, party):
        raise ZeroDivisionError

    before = open_files()
    monkeypatch.setattr(_process._ProcessSession, "_hand_over", fail)
    with pytest.raises(ZeroDivisionError):
        connect(ProcessTransport(), "bank", "shop")
    assert open_files() == before
    assert len(tape.pids) == 2


@pytest.mark.parametrize("transport", sorted(TRANSPORTS))
def test_failure_stays_with_the_party(transport, capfd):
    with taping() as tape:
        session = connect(TRANSPORTS[transport](), "bank", "shop", block=np.eye(2))
        with pytest.raises(PartyError) as info:
            session.call("fail")
        with pytest.raises(PartyError, match=r"party 'shop': .* 'mean'"):
            session.ask("shop", "mean")
    assert type(info.value) is PartyValueError
    assert str(info.value) == (
        "party 'bank': ValueError in 'fail'; the message stays with the party, whose "
        "own traceback has it"
    )
    for _, _, frame in tape.frames:
        assert CANARY.encode() not in frame
    assert not any(map(is_alive, tape.pids.values()))
    if transport == "process":
        assert CANARY in capfd.readouterr().err


@pytest.mark.parametrize(
    ("transport", "what", "why"),
    [
        ("local", "send_object", "object does not cross the wire"),
        ("local", "send_number_as_key", "keys of a dict .* must be strings"),
        ("process", "send_number_as_key", "keys of a dict .* must be strings"),
    ],
)
def test_reply_that_cannot_cross_is_the_partys_error(transport, what, why):
    session = connect(TRANSPORTS[transport](), "bank")
    with pytest.raises(PartyError, match=f"party 'bank': its reply to '{what}': {why}"):
        run(session, what)


@pytest.mark.parametrize("transport", sorted(TRANSPORTS))
def test_request_that_cannot_cross_is_the_callers_error(transport):
    for payload in (object(), {1: 2}):
        with (
            pytest.raises(TypeError, match="cross"),
            connect(TRANSPORTS[transport](), "bank") as session,
        ):
            session.ask("bank", "echo", payload=payload)


def test_parties_answer_in_their_own_order():
    names = list("hbgaecdf")
    with connect(LocalTransport(), *names) as session:
        assert list(session.call("echo", payload=1)) == names
        assert list(session.call("echo", to=sorted(names), payload=1)) == names
        assert list(session.call("echo", to={*"afh"}, payload=1)) == ["h", "a", "f"]


@pytest.mark.parametrize("transport", sorted(TRANSPORTS))
def test_unknown_party_is_refused(transport):
    with (
        pytest.raises(ValueError, match=r"no such party: \['barn'\]"),
        connect(TRANSPORTS[transport](), "bank") as session,
    ):
        session.call("echo", to=["barn", "bank"], payload=1)


@pytest.mark.parametrize(
    ("reply", "complaint"),
    [
        (np.zeros((3, 2)), "it sent 3 rows where 4 were expected"),
        (np.zeros((4, 3)), "it sent 3 columns where 2 were expected"),
        (np.full((4, 2), np.nan), "its reply holds values that are not finite"),
        (np.array([[0, 0]] * 3 + [[0, np.inf]]), "values that are not finite"),
        (np.full((4, 2), np.longdouble("1e4000")), "values that are not finite"),
        (np.zeros(4), "its reply is not a matrix"),
        (np.zeros((4, 2, 1)), "its reply is not a matrix"),
        ([[0, 0]] * 4, "its reply is not a matrix"),
        (None, "its reply is not a matrix"),
    ],
)
def test_wrong_matrix_names_the_party(reply, complaint):
    replies = {"bank": np.zeros((4, 1)), "shop": reply}
    with pytest.raises(PartyError, match=f"party 'shop': .*{complaint}") as info:
        check_rows(replies, 4, {"bank": 1, "shop": 2})
    assert info.value.party == "shop"


@pytest.mark.parametrize("dtype", ["f4", "f8", "i8", "bool"])
def test_right_matrices_pass_in_order(dtype):
    replies = {"shop": np.ones((4, 2), dtype), "bank": np.zeros((4, 1), dtype)}
    for widths in (None, {"bank": 1, "shop": 2}):
        matrices = check_rows(replies, 4, widths)
        assert [id(m) for m in matrices] == [id(reply) for reply in replies.values()]


# RAP over both transports


@pytest.fixture(scope="module")
def data():
    return make_classification(82, 5, random_state=0)


def rap(transport="local", estimator=None, **params):
    return RandomProjectionVFL(
        LogisticRegression() if estimator is None else estimator,
        transport=transport,
        random_state=0,
        **params,
    )


@pytest.fixture(scope="module")
def classifiers(data):
    """RAP fitted over both transports, its predictions, and what was taped."""
    X, y = data
    results = {}
    for transport in TRANSPORTS:
        with taping() as tape, record_communication() as log:
            vfl = rap(transport).fit(X, y)
            results[transport] = {
                "vfl": vfl,
                "pids": list(tape.pids.values()),
                "predict_proba": vfl.predict_proba(X[:9]),
                "log": log,
                "tape": tape,
            }
    return results


def test_answers_of_a_classifier_are_the_same(classifiers):
    local, process = (classifiers[name]["predict_proba"] for name in TRANSPORTS)
    assert local.dtype == process.dtype
    assert np.array_equal(local, process)
    assert local.flags.writeable
    assert process.flags.writeable


def test_fitted_models_are_the_same(classifiers, data):
    local, process = (classifiers[name]["vfl"] for name in TRANSPORTS)
    assert np.array_equal(local.estimator_.coef_, process.estimator_.coef_)
    for name, party in process._parties.items():
        assert vars(party).keys() == {"name", "_states", "_sealed"}
        projections = [
            at_home(each)._transformer[-1]._sequence.generate_state(4).tolist()
            for each in (local._parties[name], party)
        ]
        assert projections[0] == projections[1]


def test_messages_of_a_classifier_are_the_same(classifiers):
    local, process = (classifiers[name] for name in TRANSPORTS)
    fitted = local["vfl"].communication_.messages
    assert fitted == process["vfl"].communication_.messages
    assert [m.operation for m in fitted if m.data_bearing] == [
        *("fit_transform", "fit_transform", "protect_labels")
    ]
    assert local["log"].messages == process["log"].messages
    assert len(local["log"].messages) == 4 + 6


@pytest.mark.parametrize("party", ["party0", "party1"])
def test_log_of_a_classifier_has_the_bytes_that_crossed(classifiers, party):
    run = classifiers["process"]
    messages = run["vfl"].communication_.messages + run["log"].messages
    asked = [m.bytes for m in messages if (m.sender, m.receiver) == ("server", party)]
    answered = [m.bytes for m in messages if m.sender == party]
    assert run["tape"].sizes(party, "sent") == asked
    assert run["tape"].sizes(party, "received") == answered


def test_no_process_outlives_the_fit(classifiers):
    run = classifiers["process"]
    pids = {*run["pids"], *run["tape"].pids.values()}
    assert len(pids) == 4
    assert not any(map(is_alive, pids))


def cells(X):
    return [X[row, column].tobytes() for row in (7, 30) for column in range(X.shape[1])]


def test_no_row_comes_home(classifiers, data):
    X, _ = data
    out = b"".join(
        f for _, way, f in classifiers["process"]["tape"].doors if way == "sent"
    )
    home = [
        f for _, way, f in classifiers["process"]["tape"].doors if way == "received"
    ]
    assert len(home) == 4
    for cell in cells(X):
        assert cell in out
        assert not any(cell in frame for frame in home)


class Hoarder(TransformerMixin, BaseEstimator):
    """A transformer that keeps its rows."""

    def fit(self, X, y=None):
        self.rows_ = np.array(X)
        return self

    def transform(self, X):
        return np.asarray(X)


def test_no_row_stays_in_the_estimator(classifiers, data):
    X, y = data
    hoard = pickle.dumps(rap(parties=VerticalPartitioner(Hoarder())).fit(X, y))
    for cell in cells(X):
        assert cell in hoard
        for run in classifiers.values():
            assert cell not in pickle.dumps(run["vfl"])


@pytest.mark.parametrize("active", [0, 1])
def test_blocks_die_with_the_fit(data, monkeypatch, active):
    X, y = data
    blocks = watch_blocks(monkeypatch)
    vfl = rap(active=active).fit(X, y)
    gc.collect()
    assert len(blocks) == 2
    assert not any(block() is not None for block in blocks)
    vfl.predict(X)
    gc.collect()
    assert len(blocks) == 4
    assert not any(block() is not None for block in blocks)


def watch_blocks(monkeypatch):
    blocks = []
    split = VerticalPartitioner.split

    def split_and_watch(partition, X):
        dealt = split(partition, X)
        blocks.extend(weakref.ref(block) for block in dealt.values())
        return dealt

    monkeypatch.setattr(VerticalPartitioner, "split", split_and_watch)
    return blocks


@pytest.mark.slow
def test_regression_is_the_same(data, monkeypatch):
    X, _ = data
    blocks, alive = watch_blocks(monkeypatch), []
    exchange = _process._ProcessSession._exchange

    def exchange_and_look(session, *args):
        alive.append([block() is not None for block in blocks[-2:]])
        return exchange(session, *args)

    monkeypatch.setattr(_process._ProcessSession, "_exchange", exchange_and_look)
    local, process = (
        rap(transport, LinearRegression()).fit(X[:, 1:], X[:, 0])
        for transport in TRANSPORTS
    )
    assert np.array_equal(local.estimator_.coef_, process.estimator_.coef_)
    assert local.communication_.messages == process.communication_.messages
    assert np.array_equal(local.predict(X[:5, 1:]), process.predict(X[:5, 1:]))
    assert alive
    assert not any(map(any, alive))


@pytest.mark.slow
def test_sparse_blocks_are_the_same(data):
    X, y = data
    table = sparse.csr_array(np.where(X > 0.5, X, 0))
    partition = VerticalPartitioner(MaxAbsScaler(), parties=1)
    local, process = (
        rap(transport, parties=partition).fit(table, y) for transport in TRANSPORTS
    )
    assert np.array_equal(local.estimator_.coef_, process.estimator_.coef_)
    assert local.communication_.messages == process.communication_.messages
    assert np.array_equal(local.transform(table), process.transform(table))


class Spiteful(TransformerMixin, BaseEstimator):
    """A transformer that quotes a cell."""

    def fit(self, X, y=None):
        raise ValueError(f"cannot use {X[0, 0]!r} {CANARY}")

    def transform(self, X):
        return X


@pytest.mark.parametrize("transport", sorted(TRANSPORTS))
def test_failed_fit_names_the_party_and_leaves_nothing(data, transport, capfd):
    X, y = data
    parties = [("bank", StandardScaler(), [0, 1]), ("shop", Spiteful(), [2, 3, 4])]
    with taping() as tape, pytest.raises(PartyValueError) as info:
        rap(transport, parties=parties).fit(X, y)
    assert info.value.party == "shop"
    assert CANARY not in str(info.value)
    assert repr(X[0, 2]) not in str(info.value)
    assert len(tape.pids) == (2 if transport == "process" else 0)
    assert not any(map(is_alive, tape.pids.values()))
    for _, _, frame in tape.frames:
        assert CANARY.encode() not in frame


@pytest.mark.slow
def test_grid_search_in_workers_gives_the_same_scores(data):
    X, y = data
    scores = {}
    for transport, n_jobs in {"local": None, "process": 2}.items():
        search = GridSearchCV(
            rap(transport, parties=1),
            {"estimator__C": [0.1]},
            cv=2,
            n_jobs=n_jobs,
            refit=False,
        ).fit(X, y)
        scores[transport] = [search.cv_results_[f"split{i}_test_score"] for i in (0, 1)]
    assert np.array_equal(scores["local"], scores["process"])


@pytest.mark.parametrize("transport", [LocalTransport(), ProcessTransport(timeout=7)])
def test_transport_is_a_parameter_like_any_other(transport, data):
    vfl = rap(transport)
    for other in (clone(vfl), pickle.loads(pickle.dumps(vfl))):
        assert type(other.transport) is type(transport)
        assert repr(other.transport) == repr(transport)
    assert repr(transport) in repr(vfl)
    assert repr(ProcessTransport(timeout=7)) == "ProcessTransport(timeout=7)"


SCRIPT = """
import os, signal
import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.linear_model import LogisticRegression
from skvfl import CommunicationLog, ProcessTransport, RandomProjectionVFL
from skvfl import VerticalPartitioner
from skvfl.federation import Party

class Halve(TransformerMixin, BaseEstimator):
    def fit(self, X, y=None):
        self.process_ = os.getpid()
        return self

    def transform(self, X):
        return np.asarray(X) / 2

X = np.random.default_rng(0).normal(size=(40, 2))
y = (X[:, 0] > 0).astype(int)
parties = VerticalPartitioner(Halve(), parties=1)
local, process = (
    RandomProjectionVFL(
        LogisticRegression(), parties=parties, transport=transport, random_state=0
    ).fit(X, y)
    for transport in ("local", "process")
)
print(np.array_equal(local.estimator_.coef_, process.estimator_.coef_))
session = ProcessTransport().connect([Party("bank")], CommunicationLog())
print(session._processes["bank"].pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
def test_script_needs_no_main_guard_and_takes_its_parties_along(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    run = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False
    )
    assert run.returncode == -signal.SIGKILL, run.stderr
    same, pid = run.stdout.split()
    assert same == "True"
    assert_goes(int(pid))


# The tripwire: no code but the party's own reads what a party holds


class TrippedError(SystemExit):
    """Somebody else read what a party holds; a kind that passes through parties."""


@pytest.fixture
def tripwire(monkeypatch):
    """Let what a party or a member holds be read only while it performs something."""
    performing, reads = [], []

    def guard(kind, attribute):
        perform = kind.perform

        def perform_and_note(self, operation, arguments):
            performing.append(self.name)
            try:
                return perform(self, operation, arguments)
            finally:
                performing.pop()

        def read(self):
            if self.name not in performing:
                raise TrippedError(self.name)
            reads.append(self.name)
            return self.__dict__[f"vault of {attribute}"]

        def write(self, held):
            self.__dict__[f"vault of {attribute}"] = held

        monkeypatch.setattr(kind, "perform", perform_and_note)
        monkeypatch.setattr(kind, attribute, property(read, write), raising=False)

    guard(Party, "_states")
    guard(Member, "holding")
    return reads


@pytest.fixture
def spoil(monkeypatch):
    """Make a table and labels unreadable as soon as the blocks are dealt."""
    spoilt = []
    split = VerticalPartitioner.split

    def split_and_spoil(partition, X):
        blocks = split(partition, X)
        for array in spoilt:
            array[...] = -1 if array.dtype.kind == "i" else np.nan
        return blocks

    monkeypatch.setattr(VerticalPartitioner, "split", split_and_spoil)
    return spoilt.extend


def test_tripwire_fires(tripwire):
    party = Clerk("bank").holding(block=np.ones((2, 2)))
    other = Clerk("shop").holding(block=np.zeros((2, 2)))
    with pytest.raises(TrippedError, match="bank"):
        party.held(Holding)
    assert party.perform("mean", {}).tolist() == [1, 1]
    assert tripwire == ["bank"]

    class Spy(Party):
        @operation
        def look(self):
            return other.held(Holding)

    with pytest.raises(TrippedError, match="shop"):
        Spy("spy").perform("look", {})

    class Nosy(RandomProjectionVFL):
        def _connect(self, parties, log, centre):
            parties[0].holding.block.mean()
            return super()._connect(parties, log, centre)

    with pytest.raises(TrippedError, match="party0"):
        Nosy(LogisticRegression()).fit(np.eye(4), [0, 1, 0, 1])


def test_spoilt_table_would_be_noticed(spoil, data):
    X, y = (array.copy() for array in data)

    class Nosy(RandomProjectionVFL):
        def _connect(self, parties, log, centre):
            assert not np.isnan(X).any()
            return super()._connect(parties, log, centre)

    spoil([X, y])
    with pytest.raises(AssertionError):
        Nosy(LogisticRegression()).fit(X, y)


@pytest.mark.parametrize(
    ("estimator", "methods"),
    [
        (LogisticRegression(), ["predict", "predict_proba", "transform"]),
        (LinearRegression(), ["predict", "transform"]),
    ],
)
@pytest.mark.parametrize("protect", [True, False])
def test_nobody_but_the_party_reads_its_block(
    data, tripwire, spoil, estimator, methods, protect
):
    X, y = data
    y = y if len(methods) == 3 else X[:, 0] * 2
    params = {"estimator": estimator, "label_protection": protect}
    plain = rap(**params).fit(X, y)
    expected = {method: getattr(plain, method)(X) for method in methods}
    table, labels = X.copy(), y.copy()
    spoil([table, labels])
    vfl = rap(**params).fit(table, labels)
    assert np.isnan(table).all()
    assert tripwire.count("party0") >= 2
    assert tripwire.count("party1") >= 1
    for method, answer in expected.items():
        table[...] = X
        assert np.array_equal(getattr(vfl, method)(table), answer)
        assert np.isnan(table).all()


# What comes home stays closed


class Trap:
    """Runs code wherever it is unpickled."""

    def __init__(self, note):
        self.note = note

    def __reduce__(self):
        return os.system, (f"echo $PPID >> {self.note}",)


class Trapper(Clerk):
    """A party whose state runs code where it is opened."""

    @operation
    def set_trap(self, note):
        self.trap = Trap(note)

    @operation
    def sprung(self):
        return os.getpid()


@pytest.mark.slow
def test_what_a_party_sends_home_is_opened_by_nobody_else(tape, tmp_path):
    note = tmp_path / "pids"
    bank = Trapper("bank").holding(block=np.ones((2, 2)))
    with ProcessTransport().connect([bank], CommunicationLog()) as session:
        session.ask("bank", "set_trap", note=str(note))
    home = session.parties["bank"]
    assert type(home) is SealedParty
    copied = copy.deepcopy(pickle.loads(pickle.dumps(home)))
    assert copied.name == "bank"
    refused = pytest.raises(PartyValueError, match=r"'bank': .* keep transport")
    with refused:
        copied.perform("sprung", {})
    with refused:
        LocalTransport().connect([copied], CommunicationLog())
    assert not note.exists()
    # A process of the party's own opens it, with what it is given to hold.
    again = copied.holding(block=np.full((2, 2), 3.0))
    with ProcessTransport().connect([again], CommunicationLog()) as session:
        pid = session.ask("bank", "sprung")
        assert session.ask("bank", "mean").tolist() == [3, 3]
    assert note.read_text().split() == [str(pid)]
    # The trap works: whoever opens it runs its code.
    home.open()
    assert note.read_text().split() == [str(pid), str(os.getpid())]


@pytest.mark.slow
def test_whoever_runs_the_protocol_opens_its_own_party(tape):
    parties = [Clerk(name).holding(block=np.ones((2, 2))) for name in ("bank", "shop")]
    with ProcessTransport().connect(parties, CommunicationLog(), "bank") as session:
        session.call("mean")
    kinds = {name: type(party) for name, party in session.parties.items()}
    assert kinds == {"bank": Clerk, "shop": SealedParty}
    assert session.parties["bank"].learnt.tolist() == [1, 1]


def test_an_estimator_from_processes_stays_with_them(classifiers, data):
    X, _ = data
    fitted = pickle.loads(pickle.dumps(classifiers["process"]["vfl"]))
    with pytest.raises(PartyValueError, match='keep transport="process"'):
        copy.deepcopy(fitted).set_params(transport="local").predict(X)


class Surplus(Clerk):
    """A party that sends more than it is asked for."""

    @operation
    def repeat_replies(self):
        frame = inspect.currentframe()
        while "channel" not in frame.f_locals:
            frame = frame.f_back
        channel = frame.f_locals["channel"]
        send = type(channel).send_bytes

        def send_twice(connection, *args):
            send(connection, *args)
            send(connection, *args)

        type(channel).send_bytes = send_twice


@pytest.mark.parametrize("asked_again", [True, False])
def test_replies_that_come_twice_are_an_error(tape, asked_again):
    party = Surplus("bank").holding(block=np.ones((2, 2)))
    complaint = "not to 'mean'" if asked_again else "it sent more than it was asked for"
    session = ProcessTransport().connect([party], CommunicationLog())
    operations = ["repeat_replies", "mean"] if asked_again else ["repeat_replies"]
    with pytest.raises(PartyError, match=f"party 'bank': .*{complaint}"):
        run(session, *operations)
