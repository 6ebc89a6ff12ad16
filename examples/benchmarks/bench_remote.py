"""What partners at organisations of their own cost, over gRPC with mutual TLS.

Prints one JSON object per line. A full run also records the lines in
``docs/benchmarks/remote.jsonl``.

    python bench_remote.py [--quick]

Partners are processes on this machine. What a network adds is emulated by a relay that
delays whatever passes, and counts it. Secrets are dealt as a simulation deals them in
the comparison of bits alone, where the partner is a thread with a seed.
"""

import contextlib
import os
import queue
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import median

import numpy as np
from _measure import machine
from _record import command, run
from sklearn.datasets import load_breast_cancer, load_diabetes, make_classification
from sklearn.linear_model import LogisticRegression, Ridge

import skvfl
from skvfl import SplitNNClassifier, connect
from skvfl.exceptions import PartyError, RefusedError
from skvfl.federation import Holding, Member, _wire
from skvfl.remote._config import PartyConfig
from skvfl.remote._endpoint import pack_request, read_reply
from skvfl.remote._grpc import Server, reach
from skvfl.remote._idle import Idle
from skvfl.remote._intersection import Ids, IdsParty, IdsSettings, Masking, intersect

# Partners with seeds, and in processes of their own, are played as in the tests.
sys.path.append(str(Path(__file__).parents[2] / "tests" / "remote"))

from _partners import (
    Process,
    bank_file,
    exchange_keys,
    partners,
    seeded,
    split_table,
)

N_OWN = 4
SPREAD = [0.25, 0.75]
METHODS = {
    "RAP": ("RandomProjectionVFL", "RandomProjectionVFL", {}),
    "SplitNN": ("SplitNNClassifier", "SplitNNRegressor", {"max_epochs": 2}),
    "FedOnce": ("FedOnceClassifier", "FedOnceRegressor", {"max_epochs": 2}),
    "APC-VFL": ("APCVFLClassifier", "APCVFLRegressor", {"max_epochs": 2}),
    "vFedSec": ("VFedSecClassifier", "VFedSecRegressor", {"max_epochs": 2}),
    "TabVFL": ("TabVFLClassifier", "TabVFLRegressor", {"max_epochs": 2}),
}


class Relay:
    """Passes bytes on, after a delay each way, and counts them."""

    def __init__(self, port, delay=0.0):
        self.delay, self._target = delay, port
        self.n_bytes = 0
        self._listener = socket.create_server(("localhost", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(("localhost", self._target))
                for each in (near, far):
                    each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                for ends in ((near, far), (far, near)):
                    threading.Thread(target=self._pass, args=ends, daemon=True).start()

    def _pass(self, source, target):
        under_way = queue.SimpleQueue()

        def deliver():
            with contextlib.suppress(OSError):
                while (arrived := under_way.get()) is not None:
                    due, content = arrived
                    time.sleep(max(due - time.monotonic(), 0))
                    target.sendall(content)
            with contextlib.suppress(OSError):
                target.shutdown(socket.SHUT_WR)

        threading.Thread(target=deliver, daemon=True).start()
        with contextlib.suppress(OSError):
            while content := source.recv(1 << 16):
                self.n_bytes += len(content)
                under_way.put((time.monotonic() + self.delay, content))
        under_way.put(None)

    def close(self):
        self._listener.close()


@contextlib.contextmanager
def delaying(port, delay):
    """Port of a relay in a process of its own, which takes no time from the bank."""
    asked = [sys.executable, __file__, "--relay", str(port), str(delay)]
    relay = subprocess.Popen(asked, stdout=subprocess.PIPE, text=True)
    try:
        yield int(relay.stdout.readline())
    finally:
        relay.kill()
        relay.communicate()


def round_trip_of(delay):
    """Seconds that a byte takes there and back; relays are later than they should."""
    listener = socket.create_server(("localhost", 0))

    def reply():
        end, _ = listener.accept()
        while content := end.recv(1):
            end.sendall(content)
        end.close()

    threading.Thread(target=reply, daemon=True).start()
    seconds = []
    with (
        delaying(listener.getsockname()[1], delay) as port,
        socket.create_connection(("localhost", port)) as line,
    ):
        for _ in range(30):
            start = time.perf_counter()
            line.sendall(b"x")
            line.recv(1)
            seconds.append(time.perf_counter() - start)
    listener.close()
    return median(seconds)


@contextlib.contextmanager
def shop(table, **options):
    """Folder, and the shop's process."""
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        exchange_keys(folder, ["bank", "shop"])
        with Process(folder, "shop", table, **options) as process:
            yield folder, process


def link_to(folder, port, **options):
    return connect(bank_file(folder, ["shop"], {"shop": port}), **options)


def equal_bits():
    """Six methods, classes and targets: the simulation's bits."""
    for position, load in enumerate((load_breast_cancer, load_diabetes)):
        X, y = load(return_X_y=True)
        bank, table = split_table(X, N_OWN)
        kinds = {name: getattr(skvfl, each[position]) for name, each in METHODS.items()}
        streams = {k.__module__.split(".")[1]: k._streams for k in kinds.values()}
        there = {"streams": streams, "seed": 0}
        with (
            tempfile.TemporaryDirectory() as folder,
            partners(Path(folder), {"shop": table}, **there) as path,
        ):
            link = seeded(connect(path))
            for name, kind in kinds.items():
                params = dict(METHODS[name][2], random_state=0)
                if name == "RAP":
                    models = LogisticRegression(max_iter=500), Ridge()
                    params["estimator"] = models[position]
                columns = {"bank": slice(0, N_OWN), "shop": slice(N_OWN, None)}
                local = kind(parties=columns, **params).fit(X, y)
                apart = kind(parties=link, **params).fit(bank, y)
                ask = "predict" if position else "predict_proba"
                answers = getattr(local, ask)(X), getattr(apart, ask)(bank)
                yield {
                    "what": "predictions over gRPC and of a simulation",
                    "method": name,
                    "data": load.__name__.removeprefix("load_"),
                    "equal bits": bool(np.array_equal(*answers)),
                }


def large():
    """A table of 3,000 rows and 40 columns, half of which are the bank's."""
    X, y = make_classification(3000, 40, n_informative=10, random_state=0)
    return X, y, *split_table(X, 20)


def splitnn(parties, **params):
    params = {"batch_size": 256, "random_state": 0} | params
    return SplitNNClassifier(parties=parties, **params)


class Echo:
    """Answers 256 x 64 numbers, and computes nothing."""

    most_bytes = 1 << 20

    def __init__(self):
        self.idle = Idle(3600)
        self.reply = np.ones((256, 64), np.float32)

    def endpoint(self, peer):
        return self

    def answer(self, peer, frame):
        number, *_ = _wire.unpack(frame)
        return _wire.pack([number, "ok", self.reply])

    def close(self, peer):
        pass


def echo(path):
    """What the process of ``one_round`` does."""
    server = Server(PartyConfig.load(path), Echo())
    print("listening", flush=True)
    server._server.wait_for_termination()


def one_round(folder, process, n_rounds):
    """Milliseconds of a batch's numbers there and back, without any training."""
    process.kill()
    listening = subprocess.Popen(
        [sys.executable, __file__, "--echo", process.path],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert listening.stdout.readline() == "listening\n"
    line = reach(link_to(folder, process.port).config, "shop", 10)
    sent, seconds = np.ones((256, 64), np.float32), []
    for number in range(n_rounds):
        start = time.perf_counter()
        line.send(pack_request(number, "forward", gradient=sent))
        read_reply("shop", line.receive(10), number, "forward")
        seconds.append(time.perf_counter() - start)
    line.close()
    listening.kill()
    listening.communicate()
    process.start()
    yield {
        "what": "round of 256 x 64 float32 each way, two parties, mutual TLS",
        "milliseconds": round(1e3 * median(seconds[10:]), 2),
        "quartiles": [
            round(1e3 * q, 2) for q in np.quantile(seconds[10:], [0.25, 0.75])
        ],
        "rounds": n_rounds,
        "load": round(os.getloadavg()[0], 1),
    }


def fits(folder, process, X, y, bank, n_fits, n_epochs):
    """Wall time of fits over gRPC and in one process."""
    link = link_to(folder, process.port)
    columns = {"bank": slice(0, 20), "shop": slice(20, None)}
    sides = {
        "gRPC": lambda: splitnn(link, max_epochs=n_epochs).fit(bank, y),
        "local": lambda: splitnn(columns, max_epochs=n_epochs).fit(X, y),
    }
    walls = {name: [] for name in sides}
    # A new process is slower for its first few fits.
    for repetition in range(-3, n_fits):
        for name, fit in sides.items():
            start = time.perf_counter()
            fit()
            if repetition >= 0:
                walls[name].append(time.perf_counter() - start)
    ratios = [a / b for a, b in zip(*walls.values(), strict=True)]
    yield {
        "what": "fit of SplitNN over gRPC / LocalTransport, wall time on loopback",
        "ratio": round(median(ratios), 2),
        "load": round(os.getloadavg()[0], 1),
        "spread": [round(min(ratios), 2), round(max(ratios), 2)],
        "seconds": {name: round(median(each), 3) for name, each in walls.items()},
    }


class Clock:
    """Notes when epochs end."""

    def __init__(self):
        self.ends = []

    def setup(self, estimator, context):
        pass

    def on_fit_task_begin(self, estimator, context):
        pass

    def on_fit_task_end(self, estimator, context):
        self.ends.append(time.perf_counter())
        return False

    def teardown(self, estimator, context):
        pass


def far_away(folder, process, bank, y, n_epochs, round_trip=0.02):
    """Round trips for each batch where one takes 20 ms."""
    link_to(folder, process.port).agree(bank["customer"])

    def batch(link):
        clock = Clock()
        splitnn(link, max_epochs=n_epochs + 2).set_callbacks(clock).fit(bank, y)
        # The end of the fit itself is no epoch's.
        return np.diff(clock.ends[: n_epochs + 1]) / -(-len(y) // 256)

    near = batch(link_to(folder, process.port))
    emulated = round_trip_of(round_trip / 2)
    with delaying(process.port, round_trip / 2) as port:
        far = batch(link_to(folder, port))
    yield {
        "what": "a batch of SplitNN at an emulated round trip of 20 ms",
        "milliseconds": round(1e3 * float(np.median(far)), 1),
        "round trips": round(float(np.median(far)) / emulated, 2),
        "best": round(float(far.min()) / emulated, 2),
        "milliseconds of a round trip": round(1e3 * emulated, 1),
        "milliseconds on loopback": round(1e3 * float(np.median(near)), 1),
        "load": round(os.getloadavg()[0], 1),
    }


def counted(folder, process, bank, y, n_epochs):
    """Bytes in the log against bytes that passed, handshakes and ids included."""
    relay = Relay(process.port)
    link = link_to(folder, relay.port)
    for each in link._lists.values():
        each.forget()
    fit = splitnn(link, max_epochs=n_epochs).fit(bank, y)
    time.sleep(0.2)
    yield {
        "what": "bytes in the log / bytes on the wire, one fit",
        "ratio": round(fit.communication_.n_bytes / relay.n_bytes, 4),
        "bytes": fit.communication_.n_bytes,
    }
    relay.close()


def failures(folder, process, bank, y):
    """Seconds until a refusal, a death and a restart show."""
    link = link_to(folder, process.port)
    fit = splitnn(link, max_epochs=1).fit(bank, y)

    def until(kind, ask):
        start = time.perf_counter()
        with contextlib.suppress(kind):
            ask()
            raise AssertionError("it went well")
        return round(time.perf_counter() - start, 3)

    wide = splitnn(link, cut_width=1000)
    yield {
        "what": "seconds until a refusal",
        "seconds": until(RefusedError, lambda: wide.fit(bank, y)),
    }
    killed = []

    def kill():
        os.kill(process.process.pid, signal.SIGKILL)
        killed.append(time.perf_counter())

    threading.Timer(2.0, kill).start()
    until(PartyError, lambda: splitnn(link, max_epochs=10**4).fit(bank, y))
    yield {
        "what": "seconds until a partner that died is named, in a fit",
        "seconds": round(time.perf_counter() - killed[0], 3),
    }
    process.kill()
    yield {
        "what": "seconds until a partner that died is named, in a prediction",
        "seconds": until(PartyError, lambda: fit.predict(bank)),
    }
    process.start()
    start = time.perf_counter()
    fit.predict(bank)
    yield {
        "what": "seconds of a prediction after the partner's restart",
        "seconds": round(time.perf_counter() - start, 3),
    }


def compared(n_ids):
    """CPU seconds of a private set intersection, and of the next one by each side."""
    own, theirs = range(n_ids), Ids(range(n_ids // 2, n_ids + n_ids // 2))
    theirs.masking = Masking()
    seconds = {"active party": [], "partner": []}
    mask_ids = IdsParty.mask_ids

    def timed(party, **arguments):
        start = time.process_time()
        answer = mask_ids(party, **arguments)
        seconds["partner"].append(time.process_time() - start)
        return answer

    timed.__skvfl_operation__ = True
    IdsParty.mask_ids = timed
    for _ in range(2):
        member = Member("shop", Holding(np.empty((len(theirs), 0))), ids=theirs)
        log = skvfl.CommunicationLog()
        start = time.process_time()
        with skvfl.LocalTransport().connect([member], log, "bank") as session:
            session.open({"shop": {"role": IdsSettings.role, "settings": {}}})
            agreed = intersect(session, own, ["shop"])
        total = time.process_time() - start
        seconds["active party"].append(total - seconds["partner"][-1])
        assert (agreed.rows >= 0).sum() == n_ids - n_ids // 2
    IdsParty.mask_ids = mask_ids
    yield {
        "what": "CPU seconds of a private set intersection; again with the same table",
        "ids": n_ids,
        **{who: [round(each, 2) for each in both] for who, both in seconds.items()},
    }


def measure(quick):
    """Yield every line."""
    yield machine(quick, "skvfl", "grpcio", "torch")
    yield from equal_bits()
    X, y, bank, table = large()
    with shop(table, allow={"max_width": 500}) as (folder, process):
        yield from one_round(folder, process, 200 if quick else 2000)
        yield from fits(folder, process, X, y, bank, *((2, 5) if quick else (7, 20)))
        yield from far_away(folder, process, bank, y, 5 if quick else 30)
        yield from counted(folder, process, bank, y, 2)
        yield from failures(folder, process, bank, y)
    yield from compared(1000 if quick else 100_000)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--echo"]:
        sys.exit(echo(sys.argv[2]))
    if sys.argv[1:2] == ["--relay"]:
        print(Relay(int(sys.argv[2]), float(sys.argv[3])).port, flush=True)
        threading.Event().wait()
    run(command(__doc__, page=False).parse_args(), "remote", measure)
