"""Ids that were compared by files: what the active party remembers of it, at home.

To compare takes a plan and a reply, and days may lie between them, so the active party
keeps the secret of a comparison until the reply is here, and which of its ids the other
organisation has from then on. Its own ids have numbers in a register, by which runs
name rows before each partner's list names them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from skvfl.exceptions import PartyValueError, WaitingError
from skvfl.federation import _wire
from skvfl.federation._member import OPEN
from skvfl.federation._replies import Count
from skvfl.federation._transport import _MOST_COLUMNS as MOST_COLUMNS
from skvfl.remote._endpoint import KEEP, pack_hello, pack_request
from skvfl.remote._intersection import (
    Ids,
    IdsSettings,
    Secret,
    SharedIdsError,
    described,
    find_shared,
    masked_twice,
)
from skvfl.remote._mailbox import (
    Mailbox,
    Reply,
    as_arrays,
    as_file_name,
    digests,
    file_stem,
    write_private,
)

_ASKED = ("hello", OPEN, "describe_ids", "mask_ids", KEEP)


class Listed(NamedTuple):
    """Rows as one organisation knows them.

    Parameters
    ----------
    model : str
        Under which it keeps its list.
    rows : ndarray of int64
        Positions in the list; -1 of rows that it does not hold.
    """

    model: str
    rows: np.ndarray


class Register:
    """The active party's own ids, which have numbers in the order in which they came.

    Parameters
    ----------
    store : path
        The active party's own folder.
    """

    def __init__(self, store: Path) -> None:
        self._path = store / "compared" / "register"

    @property
    def ids(self) -> list[Any]:
        """All of them, by their numbers."""
        if not self._path.exists():
            return []
        known: list[Any] = _wire.unpack(self._path.read_bytes())
        return known

    def numbers(self, ids: list[Any]) -> np.ndarray:
        """Numbers of ids in the register, which new ones are entered into.

        Parameters
        ----------
        ids : list of str or int
            A row that is asked for twice has its id twice.
        """
        place = {each: i for i, each in enumerate(self.ids)}
        n_known = len(place)
        for each in ids:
            place.setdefault(each, len(place))
        if len(place) > n_known:
            write_private(self._path, [*place])
        return np.array([place[each] for each in ids], np.int64)


class Compared:
    """What was compared with one organisation.

    Parameters
    ----------
    mailbox : Mailbox
        Of the other organisation.
    """

    def __init__(self, mailbox: Mailbox) -> None:
        self._mailbox = mailbox
        self._name = mailbox.name
        store = mailbox.desk.store
        self._folder = store / "compared" / "with" / as_file_name(mailbox.name)

    def require(self, numbers: np.ndarray) -> None:
        """Compare ids that were not compared yet.

        Raises
        ------
        WaitingError
            If the reply is due.
        """
        if self._covering(numbers, "positions") is not None:
            return
        pending = self._covering(numbers, "secret")
        if pending is None:
            raise WaitingError([self._mailbox.write(self._ask(numbers))])
        frames = [each.tobytes() for each in pending[1]["frames"]]
        # All plans that compare ids have the same opening.
        for reply in self._mailbox.replies(frames[1]):
            if np.array_equal(reply.asked, digests(frames)):
                return self._learn(*pending, reply)
        raise WaitingError([self._mailbox.write(frames)])

    def find(self, numbers: np.ndarray) -> Listed:
        """Rows as the other organisation's list names them.

        Raises
        ------
        PartyValueError
            If they were not compared.
        """
        covering = self._covering(numbers, "positions")
        if covering is None:
            raise PartyValueError(self._name, "ids of some rows were not compared yet")
        record = covering[1]
        place = np.full(int(record["numbers"].max()) + 1, -1, np.int64)
        place[record["numbers"]] = record["positions"]
        return Listed(record["model"], place[numbers])

    def n_columns(self, model: str) -> int:
        """How many columns the other organisation said to have with a list."""
        for path in self._paths():
            record = _wire.unpack(path.read_bytes())
            if record.get("model") == model:
                return int(record["n_columns"])
        raise PartyValueError(self._name, "its list of rows is not known here any more")

    def _covering(
        self, numbers: np.ndarray, what: str
    ) -> tuple[Path, dict[str, Any]] | None:
        """The newest record that has something of all these rows, and its path."""
        for path in self._paths():
            record = _wire.unpack(path.read_bytes())
            if what in record and np.isin(numbers, record["numbers"]).all():
                return path, record
        return None

    def _paths(self) -> list[Path]:
        """Files of all comparisons, the newest first."""
        paths = self._folder.glob("[!.]*")
        return sorted(paths, key=lambda each: each.stat().st_mtime_ns, reverse=True)

    def _ask(self, numbers: np.ndarray) -> list[bytes]:
        """Frames that ask to compare ids; the secret is kept."""
        known = Register(self._mailbox.desk.store).ids
        numbers = np.unique(numbers)
        ids = Ids([known[i] for i in numbers])
        secret = Secret()
        masked, order = secret.mask(ids)
        asked = {"kind": ids.kind, "masked": masked, "only_size": False}
        arguments = {OPEN: {"role": IdsSettings.role, "settings": {}}}
        arguments["mask_ids"] = asked
        frames = [pack_hello(0)]
        for number, operation in enumerate(_ASKED[1:], 1):
            said: dict[str, Any] = arguments.get(operation, {})
            frames.append(pack_request(number, operation, **said))
        record = {
            "secret": np.frombuffer(secret.number.to_bytes(32), np.uint8),
            "numbers": numbers[order],
            "frames": as_arrays(frames),
        }
        name = file_stem(self._name, digests(frames))
        write_private(self._folder / name, record)
        return frames

    def _learn(self, path: Path, record: dict[str, Any], reply: Reply) -> None:
        """Read the reply to a comparison, and forget its secret."""
        n_own = len(record["numbers"])
        held, said, answer, model = (
            reply.says(_ASKED.index(each), each) for each in _ASKED[1:]
        )
        fault = described().fault(said)
        fault = fault or masked_twice(n_own, said["n_ids"]).fault(answer)
        held = held if isinstance(held, dict) else {}
        n_columns = held.get("n_columns")
        fault = fault or Count(0, MOST_COLUMNS).fault(n_columns)
        if fault is not None or not isinstance(model, str):
            why = fault or "its list of rows has no name"
            raise PartyValueError(reply.name, f"{why}, in its reply about ids")
        secret = Secret(int.from_bytes(record["secret"].tobytes()))
        shared = find_shared(secret, reply.name, answer)
        if not shared:
            raise SharedIdsError(
                f"the active party and {reply.name!r} have no id in common: look at "
                "how each writes them (leading zeros, spaces, capitals)"
            )
        positions = np.full(n_own, -1, np.int64)
        positions[[*shared]] = [*shared.values()]
        learnt = {"numbers": record["numbers"], "positions": positions}
        write_private(path, {**learnt, "model": model, "n_columns": n_columns})
