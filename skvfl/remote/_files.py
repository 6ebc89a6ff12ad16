"""Methods of one round by files: plans go out, replies come back.

A plan is what the active party asks one other organisation in one run, all of it at
once: the frames that would travel over a connection. It is written when the run comes
to its one question, and the run ends there with a :class:`WaitingError`. A reply has
the frames of the answers. When the same run is asked for again, its frames are the
same, and the reply to them takes the other organisation's place.

Rows are named by positions in a list that ids were compared for, which takes a plan and
a reply of its own, see :mod:`skvfl.remote._compared`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from skvfl.exceptions import PartyValueError, WaitingError
from skvfl.federation import (
    CommunicationLog,
    Handle,
    Member,
    Party,
    Session,
    _wire,
)
from skvfl.federation._member import OPEN
from skvfl.federation._transport import answer
from skvfl.remote._compared import Compared, Register
from skvfl.remote._connect import Link, in_a_row
from skvfl.remote._endpoint import HELLO, KEEP, pack_hello, pack_request
from skvfl.remote._mailbox import Desk, Mailbox, Reply, digests

# What is asked once, and what its answer rests on: nothing that is known before it.
QUESTIONS = {"fit_transform", "transform", "learn", "encode", "represent"}


class Files(Link):
    """Other organisations that are reached by files.

    As the ``parties`` of a method of one round it writes what it asks them into a
    folder, as one file for each, and ends with a :class:`WaitingError`. What they send
    back belongs into the same folder, and the same call then goes on. Everything that
    is asked again in the same words is answered by the reply that is there: delete it
    and its plan to ask anew.

    Made by ``connect(..., folder=…)``. What was learnt of the other organisations' ids
    is kept in the store of this one, and nowhere else.
    """

    one_round = True

    def __init__(
        self,
        path: Path,
        ids: str | int | None,
        partners: Sequence[str] | None,
        timeout: float,
        folder: Path,
    ) -> None:
        super().__init__(path, ids, partners, timeout)
        self.folder = folder

    def __repr__(self) -> str:
        named = f"ids={self.ids!r}, folder={str(self.folder)!r}"
        return f"connect({str(self.path)!r}, {named})"

    def __reduce__(self) -> tuple[Any, ...]:
        kind, given, *more = super().__reduce__()
        return kind, (*given, self.folder), *more

    def mailbox(self, name: str) -> Mailbox:
        """Where plans for a partner are written, and its replies are looked for."""
        # Keys are read where they are due, so that no copy of this object has them.
        return Mailbox(Desk.of(self.config), self.folder, name)

    def agree(self, ids: Any) -> None:
        """Compare ids with all partners, see :meth:`Link.agree`.

        Raises
        ------
        WaitingError
            If replies about ids are not here yet.
        """
        self._numbers(in_a_row(ids))

    def rows(self, X: Any) -> np.ndarray:
        """Numbers of the rows in what was compared; ids are compared where due.

        Raises
        ------
        WaitingError
            If replies about ids are not here yet.
        """
        return self._numbers(super().rows(X).ids)

    def _numbers(self, ids: list[Any]) -> np.ndarray:
        numbers = Register(self.config.store).numbers(ids)
        due: list[Path] = []
        # All are asked at once, so that one wait is enough.
        for name in self.names[1:]:
            try:
                Compared(self.mailbox(name)).require(numbers)
            except WaitingError as exc:
                due += exc.plans
        if due:
            raise WaitingError(due)
        return numbers

    def ask_for(self, name: str, rows: Any, log: CommunicationLog) -> dict[str, Any]:
        """How a partner is told which rows a run is about: by places on its list."""
        self.check_partner(name)
        listed = Compared(self.mailbox(name)).find(rows)
        return {"rows": listed.rows, "agreed": listed.model}

    def held(self, X: Any) -> dict[str, np.ndarray]:
        """Which rows of a table each partner holds, see :meth:`Link.held`."""
        numbers = self.rows(X)
        boxes = [self.mailbox(name) for name in self.names[1:]]
        return {box.name: Compared(box).find(numbers).rows >= 0 for box in boxes}

    def count_shared(self, X: Any) -> dict[str, int]:
        """Refuse: by files ids are compared once, and with a list of rows."""
        raise ValueError(
            "how many rows are shared is counted over connections: leave out folder, "
            "or take held(X), which learns which rows they are"
        )

    def connect(
        self,
        parties: Sequence[Party | Member],
        log: CommunicationLog,
        centre: str = "server",
        *,
        names: Sequence[str] | None = None,
    ) -> Session:
        """Open a session of one run; see :meth:`Federation.connect`."""
        asked = [n for n in self.names if names is None or n in names]
        members = [each for each in parties if isinstance(each, Member)]
        return _ByFiles(members, log, centre, asked, self)


class _ByFiles(Session):
    """A run of which other organisations' part is in files."""

    def __init__(
        self,
        members: Sequence[Any],
        log: CommunicationLog,
        centre: str,
        names: list[str],
        files: Files,
    ) -> None:
        super().__init__(members, log, centre)
        self.names = names
        self._home = {member.name: member for member in members}
        self._letters = {
            name: _Letter(files.mailbox(name))
            for name in names
            if name not in self._home
        }

    def _exchange(self, requests: Mapping[str, Any], skip_late: bool) -> dict[str, Any]:
        exchanged: dict[str, Any] = {}
        due: list[Path] = []
        # First, because what is computed here is lost where a reply is due.
        for name in [each for each in requests if each in self._letters]:
            try:
                exchanged[name] = self._letters[name].ask(*requests[name])
            except WaitingError as exc:
                due += exc.plans
        if due:
            raise WaitingError(sorted(due))
        for name in [each for each in requests if each in self._home]:
            (operation, arguments), sent = _wire.deliver(requests[name])
            reply, received = answer(self._home[name], operation, arguments)
            exchanged[name] = (reply[1], sent, received)
        return {name: exchanged[name] for name in requests}

    def _dismiss(self) -> dict[str, Any]:
        for name, letter in self._letters.items():
            # What was not asked for by the run crossed as well.
            for operation, *sizes in letter.around():
                opening = operation == HELLO or not self.log.has_begun
                for ends, size in zip(self._ways(name), sizes, strict=True):
                    self.log.record(*ends, operation, size, False, opening=opening)
        return {
            name: self._home[name].dismiss()
            if name in self._home
            else self._letters[name].handle()
            for name in self.names
        }

    def _ways(self, name: str) -> tuple[tuple[str, str], tuple[str, str]]:
        return (self.centre, name), (name, self.centre)

    def _abort(self) -> None:
        for member in self._home.values():
            member.release()


class _Letter:
    """What one organisation is asked in one run, and what it replied if it did."""

    def __init__(self, mailbox: Mailbox) -> None:
        self._mailbox = mailbox
        self._asked = [pack_hello(0)]
        self._replies: list[Reply] = []
        self._opening: dict[str, Any] = {}

    @property
    def _name(self) -> str:
        return self._mailbox.name

    def ask(self, operation: str, arguments: dict[str, Any]) -> tuple[Any, Any, Any]:
        """Its answer, or what it will be where that follows; and what they measure.

        Raises
        ------
        WaitingError
            If the answer is known to nobody here. The plan is written then.
        """
        if operation == OPEN:
            self._opening = arguments
        number = len(self._asked)
        frame = pack_request(number, operation, **arguments)
        self._asked.append(frame)
        if operation == OPEN:
            self._replies = self._mailbox.replies(frame)
        asked = self._asked
        if operation in QUESTIONS:
            asked = [*self._asked, *self._rest()]
        # Plans with one opening can differ later, by what other organisations said.
        said = digests(asked)
        self._replies = [
            reply
            for reply in self._replies
            if np.array_equal(reply.asked[: len(said)], said)
            and (operation not in QUESTIONS or len(reply.asked) == len(said))
        ]
        sent = len(frame), _wire.measure(arguments)[1]
        if not self._replies:
            value = self._foresee(operation, arguments)
            return value, sent, _wire.measure(value)
        value = self._replies[0].says(number, operation)
        received = len(self._replies[0].frames[number]), _wire.measure(value)[1]
        return value, sent, received

    def around(self) -> list[tuple[str, int, int]]:
        """Frames before and after those of the run: operation, and bytes each way."""
        reply = self._replies[0]
        around = [(HELLO, len(self._asked[0]), len(reply.frames[0]))]
        if self._opening["role"] is not None:
            last = len(reply.frames) - 1
            asked = pack_request(last, KEEP)
            around.append((KEEP, len(asked), len(reply.frames[last])))
        return around

    def handle(self) -> Handle:
        """Stands for what it keeps of the run."""
        model = self._opening.get("model")
        if self._opening["role"] is not None:
            reply = self._replies[0]
            model = reply.says(len(reply.frames) - 1, KEEP)
        return Handle(self._name, str(model))

    def _foresee(self, operation: str, arguments: dict[str, Any]) -> Any:
        rows = self._opening["rows"]
        if operation == OPEN:
            n_empty = int(np.count_nonzero(rows < 0))
            n_columns = Compared(self._mailbox).n_columns(self._opening["agreed"])
            held = {"n_rows": len(rows), "n_columns": n_columns}
            return {**held, "n_empty": n_empty}
        if operation == "say_rows":
            told = arguments.get("told")
            return (rows >= 0 if told is None else told).astype(np.uint8)
        if operation == "agree_on_rows":
            return None
        if operation not in QUESTIONS:
            raise PartyValueError(
                self._name,
                f"a plan has no {operation!r}: files carry one question each, and this "
                "method asks again and again",
            )
        raise WaitingError([self._mailbox.write([*self._asked, *self._rest()])])

    def _rest(self) -> list[bytes]:
        """What is asked after the question, whatever its answer is."""
        rest = []
        settings = self._opening.get("settings") or {}
        # Under a budget a guest says how many noisy steps it took.
        if settings.get("max_grad_norm") is not None:
            rest.append("spent")
        if self._opening["role"] is not None:
            rest.append(KEEP)
        start = len(self._asked)
        return [pack_request(i, each) for i, each in enumerate(rest, start)]
