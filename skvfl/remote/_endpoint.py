"""One organisation's side of one session: a frame comes in, a frame goes out.

Nothing here knows how frames travel, so that connections and files use the same. A
session is a fixed sequence: ``hello`` with the version of the protocol, ``open``, the
operations of the method, and ``keep`` at the end of a fit; ``keep_epoch`` may come
between them. Any error ends it.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

import skvfl
from skvfl.exceptions import (
    PartyError,
    PartyTypeError,
    PartyValueError,
    RefusedError,
    SettingsError,
    ShareableError,
)
from skvfl.federation import _wire
from skvfl.federation._member import OPEN, Member
from skvfl.federation._party import LOGGER, serves
from skvfl.federation._transport import lent

# The first message says it, and whoever speaks another one is told both.
PROTOCOL = 2
HELLO, KEEP, SAY_ROWS = "hello", "keep", "say_rows"
KEEP_EPOCH = "keep_epoch"
# Ids are compared by a party of this role, which every peer may ask for; what is
# counted is the comparison.
IDS_ROLE = "ids.keeper"
MOST_HEADER = 1 << 20
# Of one frame, whoever sends it: 10^7 masked ids are the largest thing that crosses.
MOST_BYTES = 1 << 29
# Before a run was opened, which is refused or counted: whoever greets is not known to
# want anything yet, and an opening has the rows, by 8 bytes each.
MOST_GREETING = 1 << 16
_MOST_LETTERS = 4000
_EPOCHS_KEPT = 2
# An error that answers what could not be read has no number to give back.
NO_NUMBER = -1
_KINDS = {
    kind.__name__: kind
    for kind in (PartyError, PartyTypeError, PartyValueError, RefusedError)
}
_ARGUMENTS = {"role", "settings", "rows", "model", "agreed"}
# What a batch of rows goes through while a fit learns, and what all of them do.
# Held-out rows are asked of as often as the others are learnt from.
_OF_A_BATCH = {"forward", "forward_rows", "hide", "represent"}
_OF_ALL_ROWS = {"pretrain_alone", "begin_trees"}
# Parties take memory for as many rows as they are told of.
_ROW_COUNTS = {"n_rows", "n_train"}
# What draws secrets for the rows of a fit, or learns from them. Asked for twice, one
# fit would show as much as two, and count as one.
_ONCE = {
    "rap": {"fit_transform"},
    "splitnn": {"prepare"},
    "fedonce": {"learn"},
    "apc": {SAY_ROWS, "agree_on_rows", "encode"},
    "vfedsec": {"prepare"},
    "tabvfl": {"prepare"},
    "boosting": {"prepare"},
}


def pack_request(
    number: int, operation: str, waits: bool = True, /, **arguments: Any
) -> bytes:
    """The frame that asks for an operation.

    Whoever does not wait for an answer gets none, but for an error.
    """
    request = [number, operation, arguments]
    return _wire.pack(request if waits else [*request, "no answer"])


def pack_hello(number: int) -> bytes:
    """The frame that every session begins with."""
    said = {"protocol": PROTOCOL, "version": skvfl.__version__}
    return pack_request(number, HELLO, **said)


def read_reply(
    name: str,
    frame: _wire.Buffer,
    number: int,
    operation: str,
    first: int | None = None,
) -> Any:
    """What an organisation answered.

    Parameters
    ----------
    name : str
        Of the organisation.
    frame : bytes
        What arrived.
    number : int
        Of the request that it has to answer.
    operation : str
        What was asked for.
    first : int, default=None
        Of the requests before it that wait for no answer, and may have failed.

    Raises
    ------
    PartyError
        If it answered with an error, or with what cannot be read.
    """
    first = number if first is None else first
    try:
        reply = _wire.unpack(frame, MOST_HEADER)
    except ValueError as exc:
        fault = f"its reply to {operation!r} cannot be read: {exc}"
        raise PartyError(name, fault) from None
    match reply:
        case [int(answered), "ok", value] if answered == number:
            return value
        case [int(answered), "error", str(kind), str(message)] if kind in _KINDS and (
            answered == NO_NUMBER or first <= answered <= number
        ):
            raise _KINDS[kind](name, _plain(message))
        case [int(), "ok", _] | [int(), "error", _, _]:
            raise PartyError(
                name,
                f"its reply is not to {operation!r}: it came twice, too late or too "
                "early, or was altered",
            )
    raise PartyError(
        name, f"its reply to {operation!r} is neither an answer nor an error"
    )


def _plain(message: str) -> str:
    """What another organisation says, without what would rule a terminal."""
    shown = message[:_MOST_LETTERS]
    return "".join(each if each.isprintable() else " " for each in shown)


class Endpoint:
    """One organisation's side of one session with one peer.

    Parameters
    ----------
    member : Member
        Made for this session, with what the peer may use of the table.
    policy : Policy
        What the peer is allowed.
    store : Store
        Where fitted parties are kept.
    audit : Audit
        Where the session is written down.
    """

    def __init__(self, member: Member, policy: Any, store: Any, audit: Any) -> None:
        self._member = member
        self._policy = policy
        self._store = store
        self._audit = audit
        self._phase = HELLO
        self._role: str | None = None
        self._about: dict[str, Any] = {}
        self._serves = False
        # Of a run: how many rows it has, and which of them are in the table.
        self._n_named = self._most_named = self._widest = 0
        self._is_held: np.ndarray | None = None
        # Of all batches so far.
        self._n_learnt = 0
        self._counts: Counter[str] = Counter()
        self._bytes = {"bytes_received": 0, "bytes_sent": 0}
        self._was_refused = False
        self._why_over = "the session is over: begin another"
        # Whoever looks how long it was silent is another thread.
        self._lock = threading.Lock()
        self._heard = time.monotonic()
        # Models of the last epochs of this fit, and the one that it has gone on from.
        self._epochs: list[str] = []
        self._goes_on_from: str | None = None

    @property
    def is_over(self) -> bool:
        """Whether nothing is answered any more."""
        return self._phase == "over"

    @property
    def most_bytes(self) -> int:
        """How long the next frame may be."""
        if self._phase == HELLO:
            return MOST_GREETING
        if self._phase == OPEN:
            return min(MOST_BYTES, MOST_HEADER + 8 * self._most_named)
        if self._serves:
            # Predictions are asked for by numbers of rows, and by sealed ids.
            return min(MOST_BYTES, MOST_HEADER + 64 * self._n_named)
        if self._role == IDS_ROLE:
            return min(MOST_BYTES, MOST_HEADER + 32 * self._most_named)
        # Gradients are as wide as what is sent, in TabVFL of all steps.
        return min(MOST_BYTES, MOST_HEADER + 128 * self._widest * self._n_named)

    def answer(self, peer: str, frame: _wire.Buffer) -> bytes:
        """Answer one frame, by an error in words if need be.

        Parameters
        ----------
        peer : str
            Name of the organisation that sent it, as its certificate says.
        frame : bytes
            What it sent.

        Returns
        -------
        frame : bytes
            Empty where the peer waits for none.
        """
        with self._lock:
            try:
                return self._answer(peer, frame)
            finally:
                self._heard = time.monotonic()

    def _answer(self, peer: str, frame: _wire.Buffer) -> bytes:
        number = NO_NUMBER
        self._bytes["bytes_received"] += len(frame)
        try:
            number, operation, arguments, waits = self._read(frame)
            value = self._perform(peer, operation, arguments)
            sent = _wire.pack([number, "ok", value]) if waits else b""
        except PartyError as exc:
            sent = self._fail(peer, number, exc)
        except ShareableError as exc:
            sent = self._fail(peer, number, PartyValueError(self._name, str(exc)))
        except TypeError as exc:
            # Only packing gets here: what operations raise is a PartyError already.
            LOGGER.debug("a reply to %r could not be packed", peer, exc_info=True)
            sent = self._fail(peer, number, PartyError(self._name, f"its reply: {exc}"))
        except Exception as exc:
            LOGGER.debug("a session with %r failed", peer, exc_info=True)
            fault = f"{type(exc).__name__} in its own process; the message stays there"
            sent = self._fail(peer, number, PartyError(self._name, fault))
        self._bytes["bytes_sent"] += len(sent)
        return sent

    def refuse(self, peer: str, why: str) -> bytes:
        """End the session before a frame has arrived as a whole; what says so.

        A refusal, as nobody should take it for an absence.
        """
        return self._fail(peer, NO_NUMBER, RefusedError(self._name, f"refused: {why}"))

    def silent_for(self) -> float:
        """Seconds since it was asked for something; 0 while it answers."""
        return 0.0 if self._lock.locked() else time.monotonic() - self._heard

    def expire(self, peer: str, seconds: float) -> None:
        """End the session if nothing was asked for in so many seconds.

        Parameters
        ----------
        peer : str
            Name of the organisation whose session it is.
        seconds : float
            How long it may be silent.
        """
        # Whoever computes is not silent.
        if not self._lock.acquire(blocking=False):
            return
        try:
            if self.is_over or time.monotonic() - self._heard < seconds:
                return
            self._why_over = (
                f"nothing was asked for in {seconds / 60:g} minutes (idle_minutes), "
                "and the session was ended: begin another"
            )
            self._audit.record("idle", peer, why=self._why_over)
            self._close(peer)
        finally:
            self._lock.release()

    def close(self, peer: str) -> None:
        """End the session, and drop the table and what belongs to this run."""
        with self._lock:
            self._close(peer)

    def _close(self, peer: str) -> None:
        if self._counts or self._was_refused:
            counts = [f"{name} {n}" for name, n in self._counts.items()]
            self._audit.record("end", peer, operations=counts, **self._bytes)
            self._counts.clear()
            self._was_refused = False
        self._end()

    @property
    def _name(self) -> str:
        return self._member.name

    def _end(self) -> None:
        self._phase = "over"
        self._member.release()
        self._member.party = None

    def _read(self, frame: _wire.Buffer) -> tuple[int, str, dict[str, Any], bool]:
        if len(frame) > self.most_bytes:
            raise RefusedError(
                self._name, f"refused: a message of {len(frame)} bytes is too long"
            )
        try:
            request = _wire.unpack(frame, MOST_HEADER)
        except ValueError as exc:
            raise self._error(f"what it was sent cannot be read: {exc}") from None
        match request:
            case [int(number), str(operation), dict(arguments)]:
                return number, operation, arguments, True
            case [int(number), str(operation), dict(arguments), "no answer"]:
                return number, operation, arguments, False
        raise self._error("what it was sent is no request")

    def _error(self, message: str) -> PartyError:
        return PartyError(self._name, message)

    def _fail(self, peer: str, number: int, error: PartyError) -> bytes:
        """The frame of an error, which ends the session."""
        refused = isinstance(error, RefusedError)
        # What comes after the end is no event: a peer could fill the log with it.
        if not self.is_over:
            self._was_refused = True
            self._audit.record(
                "refused" if refused else "failed",
                peer,
                why=error.message[:_MOST_LETTERS],
            )
        self._end()
        kind = type(error).__name__
        kind = kind if kind in _KINDS else "PartyError"
        return _wire.pack([number, "error", kind, error.message[:_MOST_LETTERS]])

    def _perform(self, peer: str, operation: str, arguments: dict[str, Any]) -> Any:
        if self._phase == "over":
            raise self._error(self._why_over)
        if self._phase == HELLO and operation != HELLO:
            raise self._error("a session begins with 'hello'")
        self._counts[operation[:40]] += 1
        if operation == HELLO:
            return self._greet(peer, arguments)
        if operation == OPEN:
            return self._open(peer, arguments)
        if self._phase == OPEN:
            raise self._error(f"it was asked for {operation!r} before 'open'")
        if operation in (KEEP, KEEP_EPOCH):
            return self._keep(peer, operation, arguments)
        return self._ask(peer, operation, arguments)

    def _greet(self, peer: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        if self._phase != HELLO:
            raise self._error("it was greeted already")
        theirs = arguments.get("protocol")
        if theirs != PROTOCOL:
            version = arguments.get("version")
            raise self._error(
                f"it speaks protocol {PROTOCOL} (skvfl {skvfl.__version__}), and "
                f"{peer!r} speaks protocol {theirs!r} (skvfl {version}): install "
                "versions that speak the same"
            )
        self._phase = OPEN
        terms = self._policy.terms(peer)
        self._most_named = terms.get("max_ids", MOST_BYTES)
        self._widest = max(terms.get(each, 1024) for each in ("max_layer", "max_width"))
        said = {
            "name": self._name,
            "protocol": PROTOCOL,
            "version": skvfl.__version__,
            "time": time.time(),
        }
        return said | {"terms": terms}

    def _open(self, peer: str, arguments: dict[str, Any]) -> Any:
        if self._phase != OPEN:
            raise self._error("its run is open already: begin another session")
        if unknown := sorted(arguments.keys() - _ARGUMENTS):
            raise self._error(f"'open' has no arguments {unknown}")
        member = self._member
        member.kept = self._store.shelf(peer)
        n_rows = self._n_rows(peer, arguments)
        # Before anything is computed.
        event = self._allow(peer, arguments, n_rows)
        held = member.perform(OPEN, arguments)
        self._n_named = held["n_rows"]
        self._phase = "running"
        self._audit.record(event, peer, role=self._role, rows=n_rows)
        return held

    def _n_rows(self, peer: str, arguments: Mapping[str, Any]) -> int:
        """How many rows of its table a run is about."""
        member, rows = self._member, arguments.get("rows")
        if isinstance(rows, np.ndarray):
            self._policy.check_named(peer, rows.size)
        if member.ids is None or arguments.get("role") == IDS_ROLE:
            if isinstance(rows, np.ndarray) and rows.ndim:
                return len(rows)
            return member.holding.n_rows
        agreed = arguments.get("agreed")
        if agreed is None or not isinstance(rows, np.ndarray):
            # By positions in the table itself a peer could walk through rows that it
            # does not have, too.
            raise RefusedError(
                self._name,
                "refused: rows are named by places on a list that was agreed on; "
                "compare the ids first",
            )
        # Rows that it does not have count for nothing: a list can be padded with them.
        listed = member.rows_listed(agreed)
        member.check_rows(rows, listed, learns=False)
        self._check_shared(agreed, rows, len(listed))
        self._is_held = (rows >= 0) & (listed[rows] >= 0)
        return int(np.count_nonzero(self._is_held))

    def _check_shared(self, agreed: str, rows: np.ndarray, n_listed: int) -> None:
        """Refuse more rows of a list, in all runs, than the peer has compared ids.

        It cannot share more, and a list on which nothing was agreed has every row.
        """
        shelf = self._member.kept
        most = (shelf.about(agreed) or {}).get("n_compared", 0)
        if n_listed > most and not shelf.name_rows(agreed, rows[rows >= 0], most):
            raise RefusedError(
                self._name,
                "refused: with these, more rows of the list are named than the "
                f"{most} ids that were compared for it",
            )

    def _allow(self, peer: str, arguments: Mapping[str, Any], n_rows: int) -> str:
        """Look whether a run is allowed; what it is called in the audit log."""
        role = arguments.get("role")
        if role is None:
            model = arguments.get("model")
            self._role, self._serves = self._role_of(model), True
            fitted = self._member.kept.about(model).get("settings")
            self._policy.check_model(peer, self._role, fitted)
            self._policy.check_prediction(peer, n_rows)
            return "predict"
        if not isinstance(role, str):
            raise PartyValueError(self._name, "a role is a word")
        self._role = role
        if role == IDS_ROLE:
            return "compare ids"
        model = arguments.get("model")
        if model is not None and _method_of(self._role_of(model)) != self._method:
            raise PartyValueError(
                self._name,
                "that model is of another method, and cannot be gone on from",
            )
        self._goes_on_from = model
        settings = arguments.get("settings")
        columns = [str(n) for n in getattr(self._member.holding.block, "columns", [])]
        told = peer, self._method, role, settings, columns, n_rows
        self._policy.check_opening(*told)
        self._about = {"settings": settings}
        return "fit"

    def _role_of(self, model: Any) -> str:
        """The part in which a model was fitted."""
        about = self._member.kept.about(model)
        if about is None:
            raise PartyValueError(
                self._name,
                "it has no such model of an earlier fit with you; models are kept for "
                "a while only: fit again",
            )
        return str(about["role"])

    @property
    def _method(self) -> str:
        return _method_of(self._role)

    def _ask(self, peer: str, operation: str, arguments: dict[str, Any]) -> Any:
        self._policy.check_operation(peer, self._method, operation, arguments)
        self._check_rows(peer, operation, arguments)
        party = self._member.party
        if self._serves and not serves(type(party), operation):
            raise RefusedError(
                self._name,
                f"refused: {operation!r} is nothing that it does for predictions",
            )
        learns = operation in _OF_A_BATCH | _OF_ALL_ROWS and not self._serves
        # The server of vFedSec has held-out rows go through the same operation.
        if learns := learns and arguments.get("training") is not False:
            self._policy.check_passes(peer, self._n_learnt, self._n_named)
        value = self._member.perform(operation, arguments)
        self._policy.check_reply(peer, operation, value)
        if learns:
            # A few rows taken again and again are as many as all of them, and noise
            # that is drawn again averages out.
            self._policy.check_passes(peer, getattr(party, "n_times", 0) - 1, 1)
            n_rows = self._n_named
            self._n_learnt += n_rows if operation in _OF_ALL_ROWS else _rows_in(value)
        return value

    def _check_rows(
        self, peer: str, operation: str, arguments: Mapping[str, Any]
    ) -> None:
        """Refuse what is about more rows, or fewer, than the run was opened with."""
        again = not self._serves and self._counts[operation] > 1
        if again and operation in _ONCE.get(self._method, ()):
            raise RefusedError(
                self._name,
                f"refused: {operation!r} was asked for already: begin another fit",
            )
        for name in _ROW_COUNTS & arguments.keys():
            count = arguments[name]
            if type(count) is not int or not 0 <= count <= self._n_named:
                raise PartyValueError(
                    self._name,
                    f"{name} of {operation!r} is no number of the run's "
                    f"{self._n_named} rows",
                )
        told = arguments.get("told")
        if operation == SAY_ROWS and told is not None:
            is_held = self._is_held
            if is_held is None:
                is_held = np.ones(self._n_named, bool)
            if (
                not isinstance(told, np.ndarray)
                or told.dtype != bool
                or told.shape != is_held.shape
            ):
                raise PartyValueError(self._name, "it was told of no rows of the run")
            self._policy.check_rows(peer, int(np.count_nonzero(told & is_held)))

    def _keep(self, peer: str, operation: str, arguments: dict[str, Any]) -> str:
        """Keep what the party has learnt; the name under which it is kept."""
        if self._serves:
            raise self._error("there is nothing to keep of a prediction")
        shelf = self._store.shelf(peer)
        about = {"role": self._role, **self._about}
        try:
            if operation == KEEP_EPOCH:
                return self._keep_epoch(peer, about, arguments.get("model"))
            party = self._member.dismiss()
            if self._role == IDS_ROLE:
                about["n_compared"] = getattr(party, "n_compared", 0)
            model: str = shelf.keep(party, about)
        except SettingsError as exc:
            why = f"it cannot keep its model: {exc}"
            raise PartyValueError(self._name, why) from None
        self._drop_epochs(shelf)
        self._audit.record("keep", peer, role=self._role, model=model)
        self._end()
        return model

    def _keep_epoch(self, peer: str, about: dict[str, Any], model: Any) -> str:
        """Keep what was learnt so far, under a name that the peer has drawn.

        So the peer has it before it is answered, and waits for nothing. It may have to
        go back to the epoch before, of which all have kept their halves; hence two.
        """
        if self._role == IDS_ROLE:
            raise self._error("a comparison of ids has no epochs")
        # The one before it goes with it.
        about = {**about, "epoch": [*self._epochs]}
        # Writing takes time and wears out a disk.
        self._policy.check_passes(peer, self._counts[KEEP_EPOCH] - 1, 1)
        shelf = self._store.shelf(peer)
        # The others of this fit take the place of one before them.
        tidies = not self._epochs
        # A copy that has come home, because its networks may be elsewhere.
        party = lent(self._member)
        kept: str = shelf.keep(party, about, str(model), tidies=tidies)
        self._epochs.append(kept)
        for each in self._epochs[:-_EPOCHS_KEPT]:
            shelf.drop(each)
        del self._epochs[:-_EPOCHS_KEPT]
        return kept

    def _drop_epochs(self, shelf: Any) -> None:
        """Forget halves of a fit that has been completed."""
        before = self._goes_on_from
        about = None if before is None else shelf.about(before)
        # A model of a completed fit may be in use; one of an epoch was for this fit.
        if before is not None and about is not None and "epoch" in about:
            self._epochs += [*about["epoch"], before]
        for each in self._epochs:
            shelf.drop(each)
        self._epochs.clear()


def _rows_in(reply: Any) -> int:
    """Number of rows that an answer has a part for."""
    parts = [*reply.values()] if isinstance(reply, dict) else [reply]
    arrays = [each for each in parts if isinstance(each, np.ndarray) and each.ndim > 1]
    return max(map(len, arrays), default=0)


def _method_of(role: str | None) -> str:
    return str(role).partition(".")[0]
