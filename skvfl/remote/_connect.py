"""The parties of an estimator, at organisations of their own."""

from __future__ import annotations

import hashlib
import os
import threading
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np

from skvfl.federation import (
    CommunicationLog,
    Federation,
    Member,
    Party,
    Session,
    _wire,
)
from skvfl.federation._log import current_log
from skvfl.partition._names import canonical_order
from skvfl.remote._config import PartyConfig
from skvfl.remote._intersection import Ids, IdsSettings, count_shared, intersect
from skvfl.remote._session import RemoteSession

# Sessions with several partners may be opened at once, and each by several threads.
_LOCKS: defaultdict[str, threading.RLock] = defaultdict(threading.RLock)


def connect(
    path: str | Path,
    ids: str | int | None = None,
    *,
    partners: Sequence[str] | None = None,
    timeout: float = 600.0,
    folder: str | Path | None = None,
) -> Link:
    """Reach partners at organisations of their own, as ``parties`` of an estimator.

    Nothing is sent before an estimator is fitted. Before the first fit the ids of its
    rows are compared with the partners', see ``Link.agree``.

    Read more in the :ref:`User Guide <between_organisations>`.

    Parameters
    ----------
    path : str or Path
        The file of this organisation.
    ids : str or int, default=None
        The column of ``X`` with the ids, by name, or by position where ``X`` is an
        array; by default the one that the file names. Nothing is learnt from it.
    partners : list of str, default=None
        Which peers take part; by default all that the file names.
    timeout : float, default=600.0
        Seconds that a partner has for a reply; large messages have more. A partner
        that is gone or stands still is noticed earlier.
    folder : str or path, default=None
        Where files are exchanged that take the place of connections, for methods of one
        round. Calls then write a plan for each partner and end with a
        :class:`~skvfl.exceptions.WaitingError`; with the partners' replies in the same
        folder the same call goes on.

    Returns
    -------
    link : Link
        For the parameter ``parties``, with this organisation as ``active``.

    Raises
    ------
    ConfigurationError
        If the file cannot be used; the message names the key and the cure.

    See Also
    --------
    compare : Methods between organisations beside the active party alone.

    Examples
    --------
    >>> import skvfl
    >>> link = skvfl.connect("bank.toml", ids="customer")  # doctest: +SKIP
    >>> vfl = skvfl.FedOnceClassifier(parties=link)  # doctest: +SKIP
    >>> vfl.fit(bank, churn)  # doctest: +SKIP
    """
    path = Path(path).resolve()
    if folder is None:
        # Here and not in the middle of a fit it is said that an extra is missing.
        import_module("skvfl.remote._grpc")
        return Link(path, ids, partners, timeout)
    # It is a kind of link itself, so it cannot be imported before this module.
    from skvfl.remote._files import Files

    return Files(path, ids, partners, timeout, Path(folder).resolve())


class Link(Federation):
    """Partners at organisations of their own; made by :func:`connect`.

    It holds settings alone, so that it can be copied, kept in files and sent to other
    processes; connections are opened for each session.

    Attributes
    ----------
    names : list of str
        This organisation, and then its partners by name.
    """

    def __init__(
        self,
        path: Path,
        ids: str | int | None,
        partners: Sequence[str] | None,
        timeout: float,
    ) -> None:
        if not timeout > 0:
            raise ValueError(f"timeout is a positive number of seconds, got {timeout}")
        self.path, self.partners = path, partners
        self.timeout = self._seconds = float(timeout)
        self.config = PartyConfig.load(path)
        self.ids = self.config.ids if ids is None else ids
        others = [*self.config.peers] if partners is None else [*partners]
        if unknown := sorted(set(others) - self.config.peers.keys()):
            raise ValueError(
                f"partners {unknown} are no peers in {path}, which names "
                f"{[*self.config.peers]}"
            )
        others = [*canonical_order(dict.fromkeys(others, ()))]
        self.names = [self.config.name, *others]
        self._lists = {name: _List(self, name) for name in others}

    def __repr__(self) -> str:
        return f"connect({str(self.path)!r}, ids={self.ids!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        # By the file, which is read again where it is opened: it may have changed, and
        # copies hold no connection and no id.
        made = type(self), (self.path, self.ids, self.partners, self._seconds)
        return (*made, {"deals_secrets": True}) if self.deals_secrets else made

    def __deepcopy__(self, memo: Any) -> Link:
        return self

    def agree(self, ids: Any) -> None:
        """Compare ids with all partners, and agree on a list that names rows.

        Estimators do so where they meet ids that are not on the list yet. To do it
        once, for all rows that will ever be used, saves time, and tells partners
        nothing of which rows are in a training set and which are not.

        Parameters
        ----------
        ids : array-like of str or int
            Of the rows; each may occur more than once.

        Raises
        ------
        AlignmentError
            If the ids of two organisations cannot be compared, or have nothing in
            common. The message has counts, and no id.
        """
        asked = _Asked(in_a_row(ids))
        for name in self._lists:
            self.ask_for(name, asked, current_log())

    def held(self, X: Any) -> dict[str, np.ndarray]:
        """Which rows of a table each partner holds.

        Parameters
        ----------
        X : DataFrame or ndarray of shape (n_samples, n_features)
            A table with the column of ids.

        Returns
        -------
        held : dict of str to ndarray of bool
            By partner; for ``fit(..., aligned=held)`` of APC-VFL, for example.
        """
        asked, log = self.rows(X), current_log()
        return {name: each.held(asked.ids, log) for name, each in self._lists.items()}

    def count_shared(self, X: Any) -> dict[str, int]:
        """How many rows of a table each partner holds, and not which.

        For a first look, before a contract says what may be learnt: neither side
        learns which rows they are, and nothing is agreed on.

        Parameters
        ----------
        X : DataFrame or ndarray of shape (n_samples, n_features)
            A table with the column of ids.

        Returns
        -------
        n_shared : dict of str to int
            By partner.
        """
        ids = [*dict.fromkeys(in_a_row(self._ids_of(X)))]
        opening = {"role": IdsSettings.role, "settings": {}}
        counts = {}
        for name in self._lists:
            log, own = current_log(), self.config.name
            with self.connect([], log, own, names=[name]) as session:
                session.open({name: opening}, to=[name])
                counts[name] = count_shared(session, ids, name)
        return counts

    def own_columns(self, X: Any) -> Any:
        """All columns but the ids."""
        if isinstance(self.ids, int) or not hasattr(X, "columns"):
            position = self._position(X)
            return [i for i in range(X.shape[1]) if i != position]
        self._ids_of(X)
        return [name for name in X.columns if name != self.ids]

    def rows(self, X: Any) -> Any:
        """Ids of the rows; see :meth:`ask_for`."""
        return _Asked(in_a_row(self._ids_of(X)))

    def ask_for(self, name: str, rows: Any, log: CommunicationLog) -> dict[str, Any]:
        """How a partner is told which rows a run is about: by places on a list.

        The ids are compared first, where some of them are not on the list yet.
        """
        self.check_partner(name)
        return self._lists[name].find(rows.ids, log)

    def check_partner(self, name: str) -> None:
        """Refuse to ask this organisation itself, as if it were elsewhere."""
        if name not in self._lists:
            raise ValueError(
                f"labels are at home at {name!r}, and another party is active: set "
                f"active={name!r}"
            )

    def connect(
        self,
        parties: Sequence[Party | Member],
        log: CommunicationLog,
        centre: str = "server",
        *,
        names: Sequence[str] | None = None,
    ) -> Session:
        """Open a session, see :meth:`Federation.connect`."""
        # gRPC is an extra, and files do without it.
        from skvfl.remote._grpc import reach

        asked = [n for n in self.names if names is None or n in names]
        members = [each for each in parties if isinstance(each, Member)]
        return RemoteSession(
            *(members, log, centre, asked),
            lambda name: reach(self.config, name, self._seconds),
            self._seconds,
            lambda name: self._lists[name].forget(),
        )

    def _position(self, X: Any) -> int:
        if isinstance(self.ids, str):
            raise ValueError(
                f"X has no column names, and so no column {self.ids!r}: give a table, "
                "or the position of the ids as connect(..., ids=0)"
            )
        if not -X.shape[1] <= self.ids < X.shape[1]:
            raise ValueError(f"X has no column {self.ids}, where the ids are to be")
        return self.ids % int(X.shape[1])

    def _ids_of(self, X: Any) -> Any:
        frame = nw.from_native(X, eager_only=True, pass_through=True)
        if not isinstance(frame, nw.DataFrame):
            return X[:, self._position(X)]
        if isinstance(self.ids, int):
            return frame[:, self._position(X)]
        if self.ids not in frame.columns:
            raise ValueError(
                f"X has no column {self.ids!r}, which names its rows: keep the ids as "
                "a column, and not as an index"
            )
        return frame[self.ids]


@dataclass(frozen=True)
class _Asked:
    """Rows by their ids, which stay here."""

    ids: list[Any]

    def __len__(self) -> int:
        return len(self.ids)


class _List:
    """The list of rows that a partner knows as well, and which ids are on it.

    It is kept in this organisation's own folder, for other processes.
    """

    def __init__(self, link: Link, name: str) -> None:
        self._link = link
        self._name = name
        self._places: dict[Any, int] = {}
        self._shared: set[Any] = set()
        self._model = ""

    def find(self, wanted: list[Any], log: CommunicationLog) -> dict[str, Any]:
        with _LOCKS[self._name]:
            if not self._has(wanted):
                self._read()
            if not self._has(wanted):
                # With what is there already, so that one list is enough from now on.
                self._compare([*dict.fromkeys([*self._places, *wanted])], log)
            places = [self._places[each] for each in wanted]
            return {"rows": np.array(places, np.int64), "agreed": self._model}

    def held(self, wanted: list[Any], log: CommunicationLog) -> np.ndarray:
        """Which of some ids the partner has as well."""
        self.find(wanted, log)
        return np.array([each in self._shared for each in wanted], bool)

    def forget(self) -> None:
        """Compare the ids again before the next run."""
        self._places, self._model = {}, ""
        self._path.unlink(missing_ok=True)

    def _has(self, wanted: list[Any]) -> bool:
        return bool(self._model) and all(each in self._places for each in wanted)

    def _compare(self, ids: list[Any], log: CommunicationLog) -> None:
        link, name, own = self._link, self._name, self._link.config.name
        opening = {name: {"role": IdsSettings.role, "settings": {}}}
        with link.connect([], log, own, names=[name]) as session:
            session.open(opening, to=[name])
            # All rows of this organisation: methods know what to do with rows that a
            # partner does not hold, and say so.
            agreement = intersect(session, ids, [name], keep="active")
        self._places = dict(zip(ids, map(int, agreement.rows), strict=True))
        held = agreement.held[name]
        self._shared = {each for each, both in zip(ids, held, strict=True) if both}
        kept: Any = session.parties[name]
        self._model = kept.model
        self._write()

    @property
    def _path(self) -> Path:
        named = f"{self._link.ids}\n{self._name}".encode()
        return self._link.config.store / f"ids-{hashlib.sha256(named).hexdigest()[:16]}"

    def _read(self) -> None:
        try:
            kept = _wire.unpack(self._path.read_bytes())
            self._places = dict(zip(kept["ids"], kept["places"].tolist(), strict=True))
            self._shared = set(kept["shared"])
            self._model = kept["list"]
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            return

    def _write(self) -> None:
        path = self._path
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        content = _wire.pack(
            {
                "ids": [*self._places],
                "places": np.array([*self._places.values()], np.int64),
                "shared": [*self._shared],
                "list": self._model,
            }
        )
        partly = path.with_suffix(f".{os.getpid()}")
        with open(os.open(partly, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
            file.write(content)
        partly.replace(path)


def in_a_row(ids: Any) -> list[Any]:
    """Ids as plain text and whole numbers; a row may occur more than once."""
    for method in ("to_list", "tolist"):
        if hasattr(ids, method):
            ids = getattr(ids, method)()
            break
    ids = list(ids)
    first = {each: i for i, each in reversed([*enumerate(ids)])}
    plain = dict(zip(first, Ids([*first]).values, strict=True))
    return [plain[each] for each in ids]
