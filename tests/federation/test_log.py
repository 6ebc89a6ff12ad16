import copy
import pickle
import sys
import threading

import numpy as np
import pytest

from skvfl import CommunicationLog, LocalTransport, record_communication
from skvfl.federation import Message, Party, operation
from skvfl.federation._log import current_log


@pytest.fixture
def log():
    """Two rounds between a server and two parties, and one internal message."""
    log = CommunicationLog()
    log.begin_round()
    log.record("server", "bank", "project", 10, False)
    log.record("bank", "server", "project", 1000, True)
    log.record("server", "shop", "project", 10, False)
    log.record("shop", "server", "project", 500, True)
    log.begin_round()
    log.record("server", "bank", "decode", 200, True)
    log.record("bank", "bank", "decode", 100, True)
    return log


def test_totals_leave_out_what_stays_inside(log):
    assert log.n_rounds == 2
    assert log.n_messages == 3
    assert log.n_bytes == 10 + 1000 + 10 + 500 + 200


def test_internal_message_is_listed(log):
    assert log.messages[-1] == Message(2, "bank", "bank", "decode", 100, False)
    assert [message.round for message in log.messages] == [1, 1, 1, 1, 2, 2]


def test_round_without_crossing_messages_is_not_counted():
    log = CommunicationLog()
    log.begin_round()
    log.begin_round()
    log.record("bank", "bank", "decode", 100, True)
    assert (log.n_rounds, log.n_messages, log.n_bytes) == (0, 0, 0)
    log.begin_round()
    log.record("server", "bank", "project", 10, False)
    assert (log.n_rounds, log.n_messages, log.n_bytes) == (1, 0, 10)
    assert log.messages[-1].round == 3


def test_first_message_opens_the_first_round():
    log = CommunicationLog()
    log.record("server", "bank", "project", 10, False)
    assert log.messages[0].round == 1


def test_by_party(log):
    assert log.by_party() == {
        "server": {
            "messages_sent": 1,
            "bytes_sent": 220,
            "messages_received": 2,
            "bytes_received": 1500,
        },
        "bank": {
            "messages_sent": 1,
            "bytes_sent": 1000,
            "messages_received": 1,
            "bytes_received": 210,
        },
        "shop": {
            "messages_sent": 1,
            "bytes_sent": 500,
            "messages_received": 0,
            "bytes_received": 10,
        },
    }


def test_by_party_adds_up_to_the_totals(log):
    traffic = log.by_party().values()
    for way in ("sent", "received"):
        assert sum(row[f"bytes_{way}"] for row in traffic) == log.n_bytes
        assert sum(row[f"messages_{way}"] for row in traffic) == log.n_messages


def test_transfer_time_is_bits_over_bandwidth_and_two_latencies_a_round(log):
    assert log.transfer_time(bandwidth=1000, latency=0.25) == 8 * 1720 / 1000 + 1.0
    assert log.transfer_time(bandwidth=1e3, latency=0) == 13.76
    assert log.transfer_time(bandwidth=float("inf"), latency=0.5) == 2.0
    assert CommunicationLog().transfer_time(bandwidth=1, latency=9) == 0


@pytest.mark.parametrize(
    ("bandwidth", "latency"), [(0, 0), (-1, 0), (float("nan"), 0), (1, -1e-9)]
)
def test_transfer_time_refuses_impossible_networks(log, bandwidth, latency):
    with pytest.raises(ValueError, match="must be positive and latency"):
        log.transfer_time(bandwidth=bandwidth, latency=latency)


def test_to_frame(log):
    frame = log.to_frame()
    assert list(frame.columns) == [
        *("round", "sender", "receiver", "operation", "bytes", "data_bearing")
    ]
    assert list(frame.itertuples(index=False, name=None)) == log.messages
    assert frame["bytes"].dtype == np.int64
    assert frame["data_bearing"].dtype == bool
    assert list(CommunicationLog().to_frame().columns) == list(frame.columns)


def test_plot_draws_the_bytes_of_every_organisation(log):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    ax = log.plot()
    try:
        assert [label.get_text() for label in ax.get_yticklabels()] == [
            *("server", "bank", "shop")
        ]
        assert [bar.get_width() for bar in ax.patches] == [
            220,
            1000,
            500,
            1500,
            210,
            10,
        ]
        edges = [(bar.get_y(), bar.get_y() + bar.get_height()) for bar in ax.patches]
        for tick, sent, received in zip(range(3), edges[:3], edges[3:], strict=True):
            assert tick - 0.5 < sent[0] < sent[1]
            assert sent[1] == pytest.approx(tick) == received[0]
            assert received[0] < received[1] < tick + 0.5
        assert ax.get_title() == "2 round(s), 1,720 bytes"
        assert log.plot(ax=ax) is ax
    finally:
        plt.close(ax.figure)


def test_plot_of_an_empty_log():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    ax = CommunicationLog().plot()
    plt.close(ax.figure)
    assert not ax.patches


@pytest.mark.parametrize(
    ("method", "module", "cure"),
    [("to_frame", "pandas", "frames"), ("plot", "matplotlib.pyplot", "plot")],
)
def test_missing_library_names_the_cure(log, monkeypatch, method, module, cure):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=rf"pip install 'skvfl\[{cure}\]'"):
        getattr(log, method)()


def test_repr(log):
    assert repr(log) == "CommunicationLog(n_rounds=2, n_messages=3, n_bytes=1720)"


@pytest.mark.parametrize(
    "duplicate", [copy.deepcopy, lambda log: pickle.loads(pickle.dumps(log))]
)
def test_copies_are_equal_and_independent(log, duplicate):
    other = duplicate(log)
    assert other.messages == log.messages
    other.begin_round()
    other.record("server", "bank", "project", 1, False)
    assert other.n_rounds == 3
    assert log.n_rounds == 2


class Echo(Party):
    @operation
    def echo(self, payload):
        return payload


def exchange(payload=1):
    with LocalTransport().connect([Echo("bank")], current_log()) as session:
        session.begin_round()
        return session.ask("bank", "echo", payload=payload)


def test_record_communication_sees_every_exchange():
    with record_communication() as log:
        exchange()
        exchange(np.zeros(3))
    assert log.n_rounds == 2
    assert log.n_messages == 2
    exchange()
    assert len(log.messages) == 4


def test_nested_recordings_are_apart():
    with record_communication() as outer:
        exchange()
        with record_communication() as inner:
            exchange()
            exchange()
        exchange()
    assert outer.n_rounds == 2
    assert inner.n_rounds == 2


def test_recording_ends_with_an_exception():
    with pytest.raises(TypeError), record_communication() as log:
        exchange(object())
    exchange()
    assert log.messages == []
    with record_communication() as outer:
        with pytest.raises(TypeError), record_communication():
            exchange(object())
        exchange()
    assert outer.n_rounds == 1


def test_recording_is_of_this_thread_only():
    logs = {}

    def work(name, times):
        with record_communication() as log:
            for _ in range(times):
                barrier.wait()
                exchange()
            logs[name] = log

    barrier = threading.Barrier(3)
    threads = [
        threading.Thread(target=work, args=(name, 20))
        for name in ("one", "two", "three")
    ]
    with record_communication() as here:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert here.messages == []
    assert {name: log.n_rounds for name, log in logs.items()} == {
        "one": 20,
        "two": 20,
        "three": 20,
    }


def test_nothing_is_recorded_unasked():
    assert current_log() is not current_log()
    with record_communication() as log:
        assert current_log() is log
