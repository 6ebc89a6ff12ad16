"""A passive party in another process, with its own table and its own secrets.

Run as a script it is that party: it reads its own file, listens, and keeps what it
learns. Only plain messages pass. Given a seed, it draws its secrets as a simulation
would deal them; that switch is for tests alone.
"""

import subprocess
import sys
import tempfile
import threading
import warnings
from multiprocessing.connection import Client, Listener
from pathlib import Path

import numpy as np

from skvfl._random import branch, deal
from skvfl.exceptions import PartyError
from skvfl.federation import Federation, Handle, Holding, Member, Session, _wire
from skvfl.federation._transport import answer


class Apart(Federation):
    """Members at home here, and one that listens elsewhere.

    The first column of the table has the positions of the rows in the other's table.
    """

    # Bits are compared with those of a simulation.
    deals_secrets = True

    def __init__(self, names, elsewhere, address):
        self.names = names
        self.elsewhere = elsewhere
        self.address = address

    def own_columns(self, X):
        return slice(1, None)

    def rows(self, X):
        return X[:, 0].astype(np.int64)

    def connect(self, parties, log, centre="server", *, names=None):
        names = self.names if names is None else names
        asked = [name for name in self.names if name in names]
        return _Apart(parties, log, centre, asked, self)


class _Apart(Session):
    def __init__(self, members, log, centre, names, federation):
        super().__init__(members, log, centre)
        self.names = names
        self._home = {member.name: member for member in members}
        self._elsewhere = federation.elsewhere
        self._line = None
        if self._elsewhere in names:
            self._line = Client(federation.address, "AF_UNIX")

    def _exchange(self, requests, skip_late):
        exchanged = {}
        for name, request in requests.items():
            sent = _wire.measure(request)
            if name in self._home:
                (operation, arguments), _ = _wire.deliver(request)
                reply, received = answer(self._home[name], operation, arguments)
            else:
                reply = self._ask(request)
                received = _wire.measure(reply)
                if reply[0] == "error":
                    raise PartyError(name, reply[1])
            exchanged[name] = (reply[1], sent, received)
        return exchanged

    def _ask(self, request):
        self._line.send_bytes(_wire.pack(request))
        return _wire.unpack(self._line.recv_bytes())

    def _dismiss(self):
        parties = {}
        for name in self.names:
            if name in self._home:
                parties[name] = self._home[name].dismiss()
            else:
                _, model = self._ask(["keep", {}])
                parties[name] = Handle(name, model)
        return parties

    def _abort(self):
        if self._line is not None:
            self._line.close()
        for member in self._home.values():
            member.release()


class Elsewhere:
    """The process of the other party; a context manager.

    Parameters
    ----------
    name : str
        Name of the party.
    table : ndarray
        Its columns.
    streams : dict of str to dict of str to tuple of int
        For every method, where a simulation's streams branch off its root.
    seed : int or None
        Of the simulation, for tests; None draws secrets from the operating system.
    """

    def __init__(self, name, table, streams, seed=None):
        self._folder = tempfile.TemporaryDirectory()
        folder = Path(self._folder.name)
        self.address = str(folder / "line")
        np.savez(folder / "own.npz", table=table)
        self._command = [
            *(sys.executable, __file__, str(folder), name, repr(streams), repr(seed))
        ]

    def __enter__(self):
        self._process = subprocess.Popen(
            self._command, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout.readline() == "listening\n"
        return self

    def __exit__(self, *failure):
        self._process.kill()
        self._process.communicate()
        self._folder.cleanup()


def serve(folder, name, streams, seed):
    warnings.simplefilter("ignore")
    table = np.load(folder / "own.npz")["table"]
    kept = {}

    def secrets(role):
        if seed is None or role is None:
            return None
        root, paths = np.random.SeedSequence(seed), streams[role.partition(".")[0]]
        roots = {what: branch(root, *path) for what, path in paths.items()}
        return deal(roots, [name])[name]

    def talk(line):
        member = Member(name, Holding(table), kept=kept)
        try:
            while True:
                operation, arguments = _wire.unpack(line.recv_bytes())
                if operation == "open":
                    member.streams = secrets(arguments["role"])
                if operation == "keep":
                    model = f"model {len(kept)}"
                    kept[model] = member.dismiss()
                    line.send_bytes(_wire.pack(["ok", model]))
                    continue
                try:
                    reply, _ = answer(member, operation, arguments)
                except PartyError as error:
                    reply = ["error", error.message]
                line.send_bytes(_wire.pack(reply))
        except EOFError:
            line.close()

    with Listener(str(folder / "line"), "AF_UNIX") as listener:
        print("listening", flush=True)
        while True:
            threading.Thread(target=talk, args=(listener.accept(),)).start()


if __name__ == "__main__":
    import ast

    import torch

    torch.set_num_threads(1)
    serve(
        Path(sys.argv[1]),
        sys.argv[2],
        ast.literal_eval(sys.argv[3]),
        ast.literal_eval(sys.argv[4]),
    )
