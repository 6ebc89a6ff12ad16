"""Organisations that are reached through an HTTP proxy, and come back on their own."""

import contextlib
import socket
import threading
import time

import numpy as np
import pandas as pd
import pytest
from _partners import bank_file, exchange_keys, free_port, partner_config

from skvfl.exceptions import PartyError
from skvfl.remote import _grpc
from skvfl.remote._config import PartyConfig
from skvfl.remote._endpoint import pack_hello, read_reply
from skvfl.remote._grpc import Server, dial
from skvfl.remote._organisation import Organisation

TABLE = pd.DataFrame({"customer": np.arange(9), "spend": np.arange(9.0)})


class Proxy:
    """Lets connections through that are asked for by CONNECT; a context manager."""

    def __init__(self, refuses=False):
        self.asked, self.n_bytes, self._refuses = [], 0, refuses
        self._listener = socket.create_server(("localhost", 0))
        self.port = self._listener.getsockname()[1]
        self.address = f"http://127.0.0.1:{self.port}"

    def __enter__(self):
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *failure):
        self._listener.close()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, near):
        with near, contextlib.suppress(OSError):
            self._connect(near)

    def _connect(self, near):
        request = b""
        while b"\r\n\r\n" not in request:
            request += near.recv(1000)
        method, target, _ = request.split(b"\r\n")[0].decode().split(" ")
        self.asked.append((method, target))
        if self._refuses:
            near.sendall(b"HTTP/1.1 403 Forbidden\r\n\r\n")
            return
        host, _, port = target.rpartition(":")
        with socket.create_connection((host, int(port))) as far:
            near.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            back = threading.Thread(target=self._pass, args=(far, near), daemon=True)
            back.start()
            self._pass(near, far)
            back.join(10)

    def _pass(self, source, target):
        with contextlib.suppress(OSError):
            while content := source.recv(1 << 16):
                self.n_bytes += len(content)
                target.sendall(content)
            target.shutdown(socket.SHUT_WR)


@pytest.fixture
def folder(tmp_path):
    exchange_keys(tmp_path, ["bank", "shop"])
    return tmp_path


def bank(folder, *, proxy=None, **where):
    path = bank_file(folder, ["shop"], **where)
    if proxy is not None:
        path.write_text(path.read_text() + f'proxy = "{proxy}"\n')
    return PartyConfig.load(path)


def greeted(line):
    line.send(pack_hello(0))
    said = read_reply("shop", line.receive(20), 0, "hello")
    line.close()
    return said["name"]


def shop(folder, **peer):
    return Organisation(partner_config(folder, "shop", ["spend"], **peer), TABLE)


def test_a_partner_is_reached_through_a_proxy(folder):
    organisation = shop(folder)
    with Server(organisation.config, organisation) as server, Proxy() as proxy:
        ports = {"shop": server.port}
        assert greeted(dial(bank(folder, ports=ports), "shop")) == "shop"
        assert not proxy.asked
        through = bank(folder, ports=ports, proxy=proxy.address)
        assert greeted(dial(through, "shop")) == "shop"
        assert proxy.asked == [("CONNECT", f"localhost:{server.port}")]
        # TLS goes through it, certificates and all.
        assert proxy.n_bytes > 2000


def test_a_partner_calls_through_a_proxy(folder):
    port, stop = free_port(), threading.Event()
    with Server(bank(folder, listen=f"localhost:{port}")) as server, Proxy() as proxy:
        address = {"address": f"localhost:{port}", "proxy": proxy.address}
        organisation = shop(folder, dial=True, **address)
        answers = threading.Thread(target=_grpc.run, args=(organisation, stop))
        answers.start()
        for _ in range(2):
            assert greeted(server.take("shop", 20)) == "shop"
        stop.set()
        answers.join(20)
        assert set(proxy.asked) == {("CONNECT", f"localhost:{port}")}


def test_a_proxy_that_lets_nobody_through_is_said(folder):
    organisation = shop(folder)
    with Server(organisation.config, organisation) as server:
        ports = {"shop": server.port}
        with Proxy(refuses=True) as proxy:
            line = dial(bank(folder, ports=ports, proxy=proxy.address), "shop")
            with pytest.raises(PartyError, match=r"party 'shop': .*403"):
                line.receive(20)
        gone = bank(folder, ports=ports, proxy=f"http://localhost:{free_port()}")
        start = time.monotonic()
        with pytest.raises(PartyError, match="party 'shop': nobody listens"):
            dial(gone, "shop").receive(20)
        assert time.monotonic() - start < 5


def test_a_connection_waits_for_a_restart_that_is_quick(folder):
    organisation = shop(folder)
    port = free_port()
    object.__setattr__(organisation.config, "listen", f"localhost:{port}")
    line = dial(bank(folder, ports={"shop": port}), "shop")
    time.sleep(0.3)
    with Server(organisation.config, organisation):
        assert greeted(line) == "shop"
