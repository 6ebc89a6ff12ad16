"""A bank, and partners that answer over gRPC, each from its own table.

Given a seed, partners draw their secrets as a simulation would deal them; that is for
tests alone, and nothing of it is in the package.
"""

import contextlib
import json
import socket
import subprocess
import sys
import threading
import warnings

import numpy as np
import pandas as pd

from skvfl._random import branch, deal
from skvfl.federation import Member
from skvfl.remote._config import Allowance, PartyConfig, PeerConfig
from skvfl.remote._grpc import Server, run
from skvfl.remote._keys import make_keys
from skvfl.remote._organisation import Organisation

METHODS = ("rap", "splitnn", "fedonce", "apc", "vfedsec", "tabvfl", "boosting")
PLENTY = {
    "methods": METHODS,
    "min_rows": 1,
    "max_width": 100_000,
    "fits_per_day": 10_000,
    "rows_per_day": 10_000_000,
    "alignments_per_day": 1000,
}


class Dealt(Member):
    """Draws what a simulation would deal it."""

    def open(self, role, **arguments):
        if self.dealer is not None and role is not None:
            self.streams = self.dealer(self.name, role)
        return super().open(role, **arguments)


class Seeded(Organisation):
    """An organisation whose secrets come from a simulation's seed."""

    dealer = None

    def member(self, peer):
        member = super().member(peer)
        dealt = Dealt(member.name, member.holding, own=dict(member.own), ids=member.ids)
        dealt.dealer = self.dealer
        return dealt


def dealer_of(streams, seed):
    def secrets(name, role):
        root, paths = np.random.SeedSequence(seed), streams.get(role.partition(".")[0])
        if paths is None:
            return None
        return deal(
            {what: branch(root, *path) for what, path in paths.items()}, [name]
        )[name]

    return secrets


def seeded(link):
    """The same link, over which the bank draws what a simulation would deal it."""
    link.deals_secrets = True
    return link


def bank_file(folder, partners, ports=None, listen=None):
    """Write the bank's file; its path."""
    own = folder / "bank"
    lines = ['name = "bank"', 'ids = "customer"', 'key = "bank.key"']
    lines += ['certificate = "bank.pem"', "active = true"]
    lines += [f'listen = "{listen}"'] if listen else []
    for name in partners:
        lines += [f"[peers.{name}]", f'certificate = "{name}.pem"']
        if ports:
            lines += [f'address = "localhost:{ports[name]}"']
    path = own / "bank.toml"
    path.write_text("\n".join(lines) + "\n")
    return path


def exchange_keys(folder, names):
    """A folder for each organisation, with its key and everybody's certificates."""
    for name in names:
        (folder / name).mkdir(parents=True)
        make_keys(name, folder / name / f"{name}.key", folder / name / f"{name}.pem")
    for name in names:
        for other in names:
            pem = (folder / other / f"{other}.pem").read_bytes()
            (folder / name / f"{other}.pem").write_bytes(pem)


def partner_config(folder, name, columns, *, allow=None, pinned=(), **peer):
    """What a partner has decided about the bank."""
    own = folder / name
    allowed = Allowance(**{**PLENTY, "columns": tuple(columns), **(allow or {})})
    listen = None if peer.get("dial") else "localhost:0"
    return PartyConfig(
        name=name,
        ids="customer",
        key=own / f"{name}.key",
        certificate=own / f"{name}.pem",
        listen=listen,
        store=own / "store",
        audit=own / "audit.jsonl",
        peers={
            "bank": PeerConfig(
                name="bank", certificate=own / "bank.pem", allow=allowed, **peer
            )
        },
        partners={each: own / f"{each}.pem" for each in pinned},
        path=own / f"{name}.toml",
    )


@contextlib.contextmanager
def partners(folder, tables, *, streams=None, seed=None, allow=None):
    """Let partners with these tables listen; path of the bank's file."""
    exchange_keys(folder, ["bank", *tables])
    ports = {}
    with contextlib.ExitStack() as running:
        for name, table in tables.items():
            columns = [each for each in table.columns if each != "customer"]
            config = partner_config(folder, name, columns, allow=allow)
            organisation = Seeded(config, table)
            if seed is not None:
                organisation.dealer = dealer_of(streams, seed)
            server = running.enter_context(Server(config, organisation))
            ports[name] = server.port
        yield bank_file(folder, tables, ports)


def split_table(X, n_own, seed=0, ids=None):
    """The bank's columns with ids, and a partner's in another order of rows."""
    X = np.asarray(X)
    ids = np.arange(1000, 1000 + len(X)) if ids is None else ids
    names = [f"x{i}" for i in range(X.shape[1])]
    whole = pd.DataFrame(X, columns=names)
    bank = whole[names[:n_own]].assign(customer=ids)
    other = whole[names[n_own:]].assign(customer=ids)
    order = np.random.default_rng(seed).permutation(len(X))
    return bank, other.iloc[order].reset_index(drop=True)


def free_port():
    with socket.socket() as held:
        held.bind(("localhost", 0))
        return held.getsockname()[1]


class Process:
    """A partner in a process of its own, which can be stopped and started again.

    Its file and its table are written at first; see :func:`partners` for the rest.
    """

    def __init__(
        self,
        folder,
        name,
        table,
        *,
        allow=None,
        port=None,
        dial=None,
        streams=None,
        seed=None,
    ):
        own = folder / name
        self._dealt = [json.dumps([streams, seed])]
        self.port = free_port() if port is None else port
        table.to_parquet(own / "table.parquet")
        columns = [each for each in table.columns if each != "customer"]
        rules = {**PLENTY, "columns": columns, **(allow or {})}
        lines = [f'name = "{name}"', 'ids = "customer"', f'key = "{name}.key"']
        lines += [f'certificate = "{name}.pem"']
        peer = ["[peers.bank]", 'certificate = "bank.pem"']
        if dial:
            peer += [f'address = "localhost:{dial}"', "dial = true"]
        else:
            lines += [f'listen = "localhost:{self.port}"']
        lines += ["[table]", 'file = "table.parquet"', *peer, "[peers.bank.allow]"]
        lines += [f"{k} = {json.dumps(v)}" for k, v in rules.items()]
        self.path = own / f"{name}.toml"
        self.path.write_text("\n".join(lines) + "\n")

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *failure):
        self.kill()

    def start(self):
        command = [sys.executable, __file__, str(self.path), *self._dealt]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout.readline() == "listening\n"

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def signal(self, number):
        self.process.send_signal(number)


def serve_alone(path, dealt):
    """What the partner's process does."""
    import torch

    from skvfl.remote._tables import open_table

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    config = PartyConfig.load(path)
    organisation = Seeded(config, open_table(config))
    streams, seed = json.loads(dealt)
    if seed is not None:
        organisation.dealer = dealer_of(streams, seed)
    run(organisation, threading.Event(), lambda port: print("listening", flush=True))


if __name__ == "__main__":
    serve_alone(*sys.argv[1:])
