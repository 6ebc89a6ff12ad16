"""Private set intersection: which rows organisations share, without showing the others.

Two organisations turn their ids into points of the curve P-256, and each multiplies
them by a secret number of its own. Points that both have multiplied are equal where the
ids are, whoever was first; points that one has multiplied say nothing to the other.
With more organisations the active one does this with each of the others by itself.

What remains visible, to organisations that keep to the protocol:

- each of the two learns how many ids the other has, and of which kind they are;
- the active party learns which of its ids the other has, or only how many;
- when rows are agreed on, the other learns which of its rows they are, and, where rows
  of the active party that it does not hold are among them, how many these are;
- nothing about the order of anybody's table: what crosses is sorted by masked ids, and
  the agreed list is in an order that is drawn;
- the active party learns that a partner's table is the same as the last time, see
  :class:`Masking`.

An organisation can put ids on its list that it only guesses, and learns whether the
other has them. Nothing in the protocol prevents that; limits on how long lists may be,
and how often they are compared, bound it.
"""

from __future__ import annotations

import hashlib
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from cryptography.hazmat.primitives.asymmetric import ec

from skvfl.alignment import _kind, _plain
from skvfl.exceptions import AlignmentError, PartyError, ShareableError, StateError
from skvfl.federation import (
    CommunicationLog,
    Holding,
    LocalTransport,
    Member,
    Party,
    Session,
    Settings,
    operation,
)
from skvfl.federation._replies import NOTHING, Count, Fields, Reply
from skvfl.partition._kinds import missing_objects

# Of one organisation. An hour of work for one who is sent as many.
MOST_IDS = 10_000_000
KINDS = ("text", "whole numbers")
# A point is sent as its first coordinate. Of the two points that have it either will
# do, because both have the same multiples but for the second coordinate.
_WIDTH = 32
_EVEN = b"\x02"
_CURVE, _MULTIPLY = ec.SECP256R1(), ec.ECDH()
_PURPOSE = b"skvfl ids 1"


def as_ids(values: Any) -> Ids:
    """Ids that were looked at before as they are, and others looked at."""
    return values if isinstance(values, Ids) else Ids(values)


class SharedIdsError(ShareableError, AlignmentError):
    """Ids cannot be compared; the message has counts and kinds, and no id."""


class Ids:
    """The ids of one organisation's rows, which can be told apart and compared.

    ``masking`` is how they are masked for the peer that they are compared with; None
    where every comparison is to be by itself.

    Parameters
    ----------
    values : array-like of str or int
        One for each row of its table.

    Raises
    ------
    SharedIdsError
        If there are none, or some are missing, repeated, or of different kinds.
    """

    masking: Masking | None = None

    def __init__(self, values: Any) -> None:
        for method in ("to_list", "tolist"):
            if hasattr(values, method):
                values = getattr(values, method)()
                break
        cells = np.empty(len(values), object)
        cells[:] = values
        if not len(cells):
            raise SharedIdsError("its table has no rows, and so no ids")
        if n_missing := int(missing_objects(cells).sum()):
            raise SharedIdsError(f"{n_missing} of its {len(cells)} ids are missing")
        self.values = [_plain(each) for each in cells]
        kinds = Counter(map(_kind, self.values))
        if len(kinds) > 1 or not kinds.keys() <= {*KINDS}:
            counts = ", ".join(f"{n} {kind}" for kind, n in sorted(kinds.items()))
            raise SharedIdsError(
                f"its ids are {counts}, and ids are compared where all are text or all "
                "are whole numbers: convert them"
            )
        (self.kind,) = kinds
        if self.kind == "whole numbers":
            self._check_exact(cells)
        if n_repeated := len(self.values) - len(set(self.values)):
            raise SharedIdsError(
                f"{n_repeated} of its {len(cells)} ids repeat an earlier one: keep one "
                "row of each"
            )

    @staticmethod
    def _check_exact(cells: np.ndarray) -> None:
        vague = sum(isinstance(each, float) and abs(each) >= 2**53 for each in cells)
        if vague:
            raise SharedIdsError(
                f"{vague} of its ids are floats too large to be told apart: read them "
                "as integers or text"
            )

    def __len__(self) -> int:
        return len(self.values)

    def find(self, wanted: Iterable[Any]) -> np.ndarray:
        """Positions of ids, -1 where an id is None.

        Raises
        ------
        SharedIdsError
            If some are not here.
        """
        place: dict[Any, int] = {each: i for i, each in enumerate(self.values)}
        place[None] = -1
        found = [place.get(each, -2) for each in wanted]
        if n_lost := found.count(-2):
            raise SharedIdsError(
                f"{n_lost} of the {len(found)} ids that were agreed on are no longer "
                "in its table: compare the ids again"
            )
        return np.array(found, np.int64)


class Masking:
    """An organisation's ids as it masks them for one peer, again and again.

    The masked ids of one table are the same in every comparison with a peer then, so
    that only the peer's own ids cost anything from the second one on. The peer sees
    that the table is the same, and finds a row again on a later list, as it does in all
    runs by one list. Nothing else follows where the table is the same, the peer is, and
    it is told which ids are shared. Otherwise it could follow an id that it does not
    have from one table to the next, two peers could compare what they were sent, and
    counts would say of each id whether it is among those counted: in few comparisons
    every id can have a pattern of its own of those in which it occurs.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made: tuple[Secret, np.ndarray, np.ndarray] | None = None

    def of(self, ids: Ids) -> tuple[Secret, np.ndarray, np.ndarray]:
        """The secret, the masked ids, and where each of them is in the table."""
        # Two sessions at once would otherwise both take the time.
        with self._lock:
            if self._made is None:
                secret = Secret()
                self._made = (secret, *secret.mask(ids))
            return self._made


class Secret:
    """The number by which one organisation multiplies the points of one comparison.

    Parameters
    ----------
    number : int, default=None
        Drawn by default. It is of one comparison, or of a :class:`Masking`, so that
        what one organisation was sent is of no use to another, nor later.
    """

    def __init__(self, number: int | None = None) -> None:
        if number is None:
            self._key = ec.generate_private_key(_CURVE)
        else:
            self._key = ec.derive_private_key(number, _CURVE)

    @property
    def number(self) -> int:
        """What to keep at home where the answer takes days."""
        return self._key.private_numbers().private_value

    def mask(self, ids: Ids) -> tuple[np.ndarray, np.ndarray]:
        """Masked ids, sorted, and where each of them is in the table."""
        masked = [self._key.exchange(_MULTIPLY, each) for each in _points_of(ids)]
        # The order of multiples of a secret number is as good as drawn.
        order = sorted(range(len(masked)), key=masked.__getitem__)
        return _as_array([masked[i] for i in order]), np.array(order, np.int64)

    def mask_again(self, masked: np.ndarray) -> list[bytes]:
        """What another organisation has masked, masked by this one as well."""
        raw = masked.tobytes()
        steps = range(0, len(raw), _WIDTH)
        try:
            # Every point of the curve but the one at infinity, which has no first
            # coordinate, generates the same group: no point gives away a bit.
            return [
                self._key.exchange(_MULTIPLY, _point(raw[i : i + _WIDTH]))
                for i in steps
            ]
        except ValueError:
            raise SharedIdsError("what it was sent are no masked ids") from None


def _point(first: bytes) -> ec.EllipticCurvePublicKey:
    """The point with this first coordinate; a ValueError where there is none."""
    return ec.EllipticCurvePublicKey.from_encoded_point(_CURVE, _EVEN + first)


def _points_of(ids: Ids) -> Iterable[ec.EllipticCurvePublicKey]:
    """The point of each id, which anybody who knows the id can compute."""
    prefix = f"|{ids.kind}|".encode()
    for each in ids.values:
        content = prefix + str(each).encode(errors="surrogatepass")
        attempt = 0
        # Half of all numbers are the first coordinate of a point.
        while True:
            start = _PURPOSE + attempt.to_bytes(2)
            try:
                yield _point(hashlib.sha256(start + content).digest())
                break
            except ValueError:
                attempt += 1


def _as_array(points: Sequence[bytes]) -> np.ndarray:
    return np.frombuffer(b"".join(points), np.uint8).reshape(-1, _WIDTH)


def _fault(masked: Any, n_ids: int | None = None) -> str | None:
    """What is wrong with masked ids that arrived, if anything is."""
    if (
        not isinstance(masked, np.ndarray)
        or masked.dtype != np.uint8
        or masked.ndim != 2
        or masked.shape[1] != _WIDTH
        or not 0 < len(masked) <= MOST_IDS
    ):
        return "what it sent are no masked ids"
    if n_ids is not None and len(masked) != n_ids:
        return f"it sent {len(masked)} masked ids where {n_ids} are due"
    if len(np.unique(np.ascontiguousarray(masked).view(f"V{_WIDTH}"))) < len(masked):
        return "it sent a masked id twice"
    return None


class _Masked(Reply):
    """Masked ids, all different."""

    def __init__(self, n_ids: int) -> None:
        super().__init__(n_ids * _WIDTH)
        self.n_ids = n_ids

    def fault(self, reply: Any) -> str | None:
        return _fault(reply, self.n_ids)


def masked_twice(n_own: int, n_theirs: int) -> Reply:
    """What is expected of who is asked to mask ids."""
    return Fields({"again": _Masked(n_own), "masked": _Masked(n_theirs)})


class _Kind(Reply):
    """A word for what ids are."""

    def fault(self, reply: Any) -> str | None:
        return None if reply in KINDS else "its ids are of no kind that is compared"


def described() -> Reply:
    """What is expected of who is asked for its ids' number and kind."""
    return Fields({"kind": _Kind(0), "n_ids": Count(1, MOST_IDS)})


# The organisation that is asked


@dataclass(frozen=True, kw_only=True)
class IdsSettings(Settings, role="ids.keeper"):
    """What an organisation is told whose ids are to be compared: nothing."""

    def make(self, member: Member) -> IdsParty:
        """A party that has the member's ids."""
        return IdsParty(member.name, member.ids)


class IdsParty(Party):
    """An organisation whose ids are compared with those of the active party.

    Parameters
    ----------
    name : str
        Name of the party.
    ids : array-like of str or int
        One for each row of its table.

    Attributes
    ----------
    agreed : list of (str, int or None)
        Its ids that were agreed on, in their order; None where it has none. It keeps
        ids and no positions, because a table that is read again may have another order.
    n_compared : int
        Number of ids that it was sent to compare.
    """

    made_by: ClassVar = {
        "agreed": "agree_on_ids",
        "_listed": "mask_ids",
        "n_compared": "mask_ids",
    }

    def __init__(self, name: str, ids: Any) -> None:
        super().__init__(name)
        if ids is None:
            raise SharedIdsError("its table has no column of ids")
        self._ids = as_ids(ids)

    @operation
    def describe_ids(self) -> dict[str, Any]:
        """How many ids it has, and of which kind."""
        return {"kind": self._ids.kind, "n_ids": len(self._ids)}

    @operation
    def mask_ids(
        self, kind: str, masked: np.ndarray, only_size: bool
    ) -> dict[str, Any]:
        """Its ids masked, and the asker's masked ids masked again; once.

        Parameters
        ----------
        kind : str
            Of the asker's ids.
        masked : ndarray of uint8 of shape (n_ids, 32)
            The asker's ids, masked by the asker.
        only_size : bool
            Whether the asker is to learn no more than how many ids both have.

        Returns
        -------
        answer : dict
            ``masked``, its own ids, and ``again``, the asker's: in the order in which
            they came, or sorted where only the size is to be learnt.
        """
        if {"_listed", "agreed"} & vars(self).keys():
            # A second list would be compared at the price of one.
            raise StateError("its ids were compared already: open another run")
        if kind != self._ids.kind:
            raise SharedIdsError(
                f"its ids are {self._ids.kind}, and those that it was sent are {kind}: "
                "ids of different kinds can never be equal"
            )
        if fault := _fault(masked):
            raise SharedIdsError(fault.replace("it sent", "it was sent"))
        # Whoever learns no more than a number is sent what nothing else is like.
        kept = None if only_size else self._ids.masking
        secret, own, order = (kept or Masking()).of(self._ids)
        again = secret.mask_again(masked)
        # One place for each of the asker's rows is the longest list.
        self.n_compared = len(masked)
        if only_size:
            again = sorted(again)
        # Those who do not know which ids are shared need no rows.
        self._listed = [] if only_size else [self._ids.values[i] for i in order]
        return {"again": _as_array(again), "masked": own}

    @operation
    def agree_on_ids(self, positions: np.ndarray) -> None:
        """Learn which of its rows later runs are about, and in which order.

        Parameters
        ----------
        positions : ndarray of int64
            Among the masked ids that it sent; -1 for a row that it does not hold.
        """
        if "agreed" in vars(self):
            raise StateError("rows were agreed on already: open another run")
        listed = self._listed
        if (
            not isinstance(positions, np.ndarray)
            or positions.dtype != np.int64
            or positions.ndim != 1
            or len(positions) > self.n_compared
            or positions.min(initial=0) < -1
            or positions.max(initial=-1) >= len(listed)
        ):
            raise SharedIdsError("what it was sent are no positions of its masked ids")
        held = positions[positions >= 0]
        if len(np.unique(held)) < len(held):
            raise SharedIdsError("it was sent a position twice")
        self.agreed = [None if i < 0 else listed[i] for i in positions]
        del self._listed

    def find_rows(self, ids: Any) -> np.ndarray:
        """Rows of a table that were agreed on, in their order; -1 where it has none.

        Where nothing was agreed on yet they are those of its masked ids as it sent
        them, of which the active party knows which it shares.

        Parameters
        ----------
        ids : array-like of str or int
            The id of each row of the table, as it is now.
        """
        return as_ids(ids).find(vars(self).get("agreed") or self._listed)

    def release(self) -> None:
        """Drop the table's ids; what was listed or agreed on is what it learnt."""
        super().release()
        self.__dict__.pop("_ids", None)


# The active party


class Agreement(NamedTuple):
    """What the active party learns when ids are compared.

    Parameters
    ----------
    rows : ndarray of int64
        For each of its own rows the position in the agreed list, by which all partners
        are asked for it; -1 where it is not on the list.
    held : dict of str to ndarray of bool
        For each partner which of the active party's rows it holds.
    """

    rows: np.ndarray
    held: dict[str, np.ndarray]


def intersect(
    session: Session, values: Any, partners: Sequence[str], keep: str = "intersection"
) -> Agreement:
    """Compare the active party's ids with its partners', and agree on a list of rows.

    Parameters
    ----------
    session : Session
        In which every partner was opened as ``"ids.keeper"``.
    values : array-like of str or int
        The active party's ids, one for each of its rows.
    partners : list of str
        The other organisations; each is compared with by itself.
    keep : {"intersection", "active"}, default="intersection"
        Whether the list has the rows that all partners hold, or every row of the active
        party. Partners learn which rows of theirs are on the list.

    Returns
    -------
    agreement : Agreement

    Raises
    ------
    SharedIdsError
        If ids cannot be compared, or no row would be on the list.
    """
    ids = Ids(values)
    found = _compare(session, ids, partners)
    held = {name: positions >= 0 for name, positions in found.items()}
    kept = np.ones(len(ids), bool)
    if keep == "intersection":
        kept = np.logical_and.reduce(list(held.values()))
        if not kept.any():
            counts = {name: int(rows.sum()) for name, rows in held.items()}
            raise SharedIdsError(
                f"no id is in the tables of all parties; of the {len(ids)} ids of the "
                f"active party they hold {counts}"
            )
    # Drawn, because the order of a table may say something of its rows.
    listed = np.random.default_rng().permutation(np.flatnonzero(kept))
    each = {name: {"positions": found[name][listed]} for name in partners}
    session.call("agree_on_ids", to=partners, each=each, reply=NOTHING, opening=True)
    rows = np.full(len(ids), -1, np.int64)
    rows[listed] = np.arange(len(listed))
    return Agreement(rows, held)


def count_shared(session: Session, values: Any, partner: str) -> int:
    """How many ids the active party shares with a partner, and not which.

    Parameters
    ----------
    session : Session
        In which the partner was opened as ``"ids.keeper"``.
    values : array-like of str or int
        The active party's ids.
    partner : str
        The other organisation.

    Returns
    -------
    n_shared : int
    """
    ids = Ids(values)
    sizes = _check_kinds(session, ids, [partner])
    shared, _ = _exchange(session, ids, partner, sizes[partner], only_size=True)
    return len(shared)


def _compare(
    session: Session, ids: Ids, partners: Sequence[str]
) -> dict[str, np.ndarray]:
    """Where each of the active party's rows is among a partner's masked ids."""
    found = {}
    for name, n_theirs in _check_kinds(session, ids, partners).items():
        shared, order = _exchange(session, ids, name, n_theirs)
        if not shared:
            raise SharedIdsError(
                f"the active party and {name!r} have no id in common: look at how each "
                "writes them (leading zeros, spaces, capitals)"
            )
        found[name] = np.full(len(ids), -1, np.int64)
        found[name][order[[*shared]]] = [*shared.values()]
    return found


def _check_kinds(session: Session, ids: Ids, partners: Sequence[str]) -> dict[str, int]:
    """How many ids partners have, before anything is computed."""
    said = session.call(
        "describe_ids",
        to=partners,
        reply=described(),
        opening=True,
    )
    for name, each in said.items():
        if each["kind"] != ids.kind:
            raise SharedIdsError(
                "ids of different kinds can never be equal: those of the active party "
                f"are {ids.kind}, and those of {name!r} are {each['kind']}; convert "
                "one to the other (text like '007' loses its zeros as a number)"
            )
    return {name: each["n_ids"] for name, each in said.items()}


def _exchange(
    session: Session, ids: Ids, partner: str, n_theirs: int, *, only_size: bool = False
) -> tuple[dict[int, int], np.ndarray]:
    """Compare with one partner.

    Returns
    -------
    shared : dict of int to int
        Positions among the active party's masked ids, as they were sent (nobody knows
        which, where only the size is learnt), to positions among the partner's.
    order : ndarray of int64
        Where each of the active party's masked ids is in its table.
    """
    secret = Secret()
    masked, order = secret.mask(ids)
    answer = session.call(
        "mask_ids",
        to=[partner],
        kind=ids.kind,
        masked=masked,
        only_size=only_size,
        reply=masked_twice(len(ids), n_theirs),
        opening=True,
    )[partner]
    return find_shared(secret, partner, answer), order


def find_shared(secret: Secret, partner: str, answer: dict[str, Any]) -> dict[int, int]:
    """Positions among the asker's masked ids to those among the partner's.

    Parameters
    ----------
    secret : Secret
        The asker's.
    partner : str
        Name of the other organisation.
    answer : dict
        Of :meth:`IdsParty.mask_ids`.
    """
    try:
        theirs = secret.mask_again(answer["masked"])
    except SharedIdsError:
        raise PartyError(partner, "what it sent are no masked ids") from None
    place = {each: i for i, each in enumerate(theirs)}
    again = answer["again"].tobytes()
    steps = range(0, len(again), _WIDTH)
    found = [place.get(again[i : i + _WIDTH]) for i in steps]
    return {i: j for i, j in enumerate(found) if j is not None}


def match_privately(ids: dict[str, list[Any]], active: str) -> dict[str, np.ndarray]:
    """What :func:`skvfl.alignment.match` gives, by private set intersection."""
    partners = [name for name in ids if name != active]
    own = np.arange(len(ids[active]))
    if not partners:
        return {active: own}
    members = [
        Member(name, Holding(np.empty((len(ids[name]), 0))), ids=ids[name])
        for name in partners
    ]
    with LocalTransport().connect(members, CommunicationLog(), active) as session:
        opening = {
            name: {"role": IdsSettings.role, "settings": {}} for name in partners
        }
        session.open(opening)
        agreed = intersect(session, ids[active], partners, keep="active")
    positions = {
        name: Ids(ids[name]).find(party.agreed)[agreed.rows]
        for name, party in session.parties.items()
    }
    return {name: own if name == active else positions[name] for name in ids}
