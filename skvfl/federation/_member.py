"""A member: one organisation at home, and the parties that it makes of what it has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from skvfl._random import branch, seed_party
from skvfl._rows import rows_without_values
from skvfl.exceptions import PartyError, PartyValueError, SettingsError, StateError
from skvfl.federation._holding import Holding, Labels
from skvfl.federation._party import Earlier, Party, SealedParty, bare, shielded
from skvfl.federation._settings import Settings, settings_of
from skvfl.partition._transformers import resolve_transformer

OPEN = "open"


@dataclass
class Member:
    """One organisation, with all that is its own and that nobody else sees.

    A session asks it to open a run: it is sent settings and rows, and makes its party
    of them. From then on it hands operations on to this party. What the party has
    learnt stays here when the run is over.

    Parameters
    ----------
    name : str
        Name of the organisation.
    holding : Holding
        Its table.
    streams : dict of str to SeedSequence, default=None
        Its secret randomness, one stream for each purpose. By default every stream is
        drawn anew from the operating system; only a simulation, and tests, deal them.
    own : dict of str to object, default=None
        Its own objects that settings can refer to by name: networks, optimisers, key
        rings; and settings of roles that are not this package's, by the role's name.
    fitted : Party or None, default=None
        What it learnt in an earlier run, of which the settings need not speak.
    kept : dict of str to Party, default=None
        What it learnt in all earlier runs, by the names under which it kept them; only
        ``get`` is used.
    agree : callable, default=None
        ``agree(settings)`` looks at what it is told, and raises a
        :class:`~skvfl.exceptions.SettingsError` where the organisation will not have
        it. By default it plays any role: settings say what leaves it, so an
        organisation with a table of its own should look at them.
    ids : array-like of str or int, default=None
        The id of each row of its table, where it has ids; by them rows are agreed on.
    device : str, default="cpu"
        Where it trains its networks. No setting that is sent speaks of it, because it
        is a matter of its own machine.
    callbacks : list of skorch.callbacks.Callback, default=()
        Its own, which hear of its training.
    lent : list of (transformer, str), default=[]
        Encoders that were given the callbacks for a run, and by which parameter.
    party : Party or None, default=None
        The party of the run that is open; :meth:`open` makes it.
    listed : tuple or None, default=None
        The list of rows that was asked for last, and its rows; :meth:`rows_listed`
        keeps it.

    See Also
    --------
    Party : What it makes for a run.
    Settings : What it is told.

    Examples
    --------
    >>> import numpy as np
    >>> from skvfl.federation import Holding, Member
    >>> shop = Member("shop", Holding(np.ones((4, 3))))
    >>> settings = {"bottom": [64], "cut_width": 32, "lr": 0.001}
    >>> shop.perform("open", {"role": "splitnn.passive", "settings": settings})
    {'n_columns': 3, 'n_rows': 4, 'n_empty': 0}
    """

    name: str
    holding: Holding
    streams: Mapping[str, np.random.SeedSequence] | None = None
    own: dict[str, Any] = field(default_factory=dict)
    fitted: Party | None = None
    kept: Any = field(default_factory=dict)
    agree: Callable[[Settings], None] | None = None
    ids: Any = None
    device: str = "cpu"
    callbacks: Any = ()
    lent: list[tuple[Any, str]] = field(default_factory=list)
    # Made by ``open``.
    party: Party | None = None
    # The list that was asked for last, by its name, and its rows.
    listed: tuple[Any, np.ndarray] | None = None

    def __post_init__(self) -> None:
        # Each its own copy: to spawn from a stream changes what comes next, and
        # somebody else may have been given the same object.
        if self.streams is not None:
            self.streams = {what: branch(each) for what, each in self.streams.items()}

    @property
    def n_columns(self) -> int:
        """Number of columns that it holds."""
        return self.holding.n_columns

    @property
    def labels(self) -> Labels:
        """Its labels, which only the active party has."""
        if self.holding.labels is None:
            raise SettingsError("it has no labels, and cannot be the active party")
        return self.holding.labels

    def stream(self, purpose: str) -> np.random.SeedSequence:
        """The secret stream for one purpose, which only this organisation has."""
        if self.streams is None:
            return np.random.SeedSequence()
        if purpose not in self.streams:
            raise SettingsError(f"it was dealt no stream for {purpose!r}")
        return self.streams[purpose]

    def transformer(self, said: Any) -> Any:
        """Its transformer, or None where it holds no column.

        Parameters
        ----------
        said : {"auto", "passthrough"} or transformer
            As the settings say.
        """
        # The label owner of some methods has labels only.
        if not self.n_columns:
            return None
        # A word is resolved here, so that its random numbers are this organisation's.
        transformer = resolve_transformer(said)
        if isinstance(said, str):
            seed_party(transformer, self.stream("prepare"), self.name)
        return transformer

    def lend(self, encoder: Any) -> Any:
        """An encoder with this organisation's device and callbacks, if it can.

        Parameters
        ----------
        encoder : transformer or None
            What is set in it by its own parameters stays.
        """
        if not hasattr(encoder, "get_params"):
            return encoder
        for key, value in encoder.get_params().items():
            own = key.rpartition("__")[2]
            if own == "device" and value == "cpu" and self.device != "cpu":
                encoder.set_params(**{key: self.device})
            if own == "callbacks" and not value and self.callbacks:
                encoder.set_params(**{key: list(self.callbacks)})
                self.lent.append((encoder, key))
        return encoder

    def perform(self, operation: str, arguments: dict[str, Any]) -> Any:
        """Carry out an operation: open a run, or what the run's party offers.

        Raises
        ------
        PartyError
            As for :meth:`Party.perform`.
        """
        if not isinstance(operation, str):
            raise PartyError(self.name, "it was asked for what is no operation")
        if operation == OPEN:
            return shielded(self.name, operation, self.open, arguments)
        if self.party is None:
            raise PartyError(
                self.name, f"it was asked for {operation!r} before the run was opened"
            )
        return self.party.perform(operation, arguments)

    def open(
        self,
        role: str | None,
        settings: dict[str, Any] | None = None,
        rows: np.ndarray | None = None,
        model: str | None = None,
        agreed: str | None = None,
    ) -> dict[str, int]:
        """Make the party of a run, or take the one that was fitted.

        Parameters
        ----------
        role : str or None
            Which part it plays; None for the one in which it was fitted.
        settings : dict, default=None
            As :meth:`Settings.pack` wrote them.
        rows : ndarray of int, default=None
            Positions of the run's rows in its table; all, in their order, by default.
        model : str, default=None
            Name of the fitted party that is taken or gone on from, where it has kept
            several.
        agreed : str, default=None
            Name of the kept list of rows in which ``rows`` are positions, or -1: of a
            row that it does not hold all cells are missing.

        Returns
        -------
        held : dict
            ``n_columns`` and ``n_rows``, and ``n_empty``, the number of rows in which
            it holds no value.
        """
        if self.party is not None:
            # Aliases, masks or noise that are drawn again for the same rows average
            # out, or show what the first draw hides.
            raise StateError(
                "its run is open already: begin another, because a second party would "
                "draw its secrets again"
            )
        holding, listed = self.holding, None
        if agreed is not None:
            listed = self.rows_listed(agreed)
            rows = np.arange(len(listed)) if rows is None else rows
        if rows is not None:
            self.check_rows(rows, listed, learns=role is not None)
            if listed is not None:
                rows = np.where(rows < 0, -1, listed[rows])
            holding = holding.take(rows)
        # An index or attributes of the whole table say more than the columns do.
        holding = Holding(bare(holding.block), holding.rows, holding.labels)
        if model is not None:
            self.fitted = self.kept.get(str(model))
            self.go_on()
        self.party = self.go_on() if role is None else self._make(role, settings)
        self.party.hold(holding)
        if role is not None and self.fitted is not None:
            self.party.hold(Earlier(self.fitted))
        empty = rows_without_values(holding.block)
        return {
            "n_columns": holding.n_columns,
            "n_rows": holding.n_rows,
            "n_empty": int(np.count_nonzero(empty)),
        }

    def rows_listed(self, agreed: Any) -> np.ndarray:
        """Rows of its table that are on a list which it agreed on; -1 for others'."""
        # Looked up once: whoever decides whether a run is allowed asks as well.
        if self.listed is None or self.listed[0] != agreed:
            find_rows = getattr(self.kept.get(str(agreed)), "find_rows", None)
            if find_rows is None:
                raise SettingsError(
                    "it has no such list of rows: compare the ids again"
                )
            self.listed = agreed, find_rows(self.ids)
        return self.listed[1]

    def check_rows(self, rows: Any, listed: np.ndarray | None, *, learns: bool) -> None:
        """Refuse what are no positions of rows, in its table or on a list."""
        kind = rows.dtype.kind if isinstance(rows, np.ndarray) else "O"
        if kind not in "iu" or rows.ndim != 1:
            raise SettingsError("rows are no positions: send an array of whole numbers")
        n_rows, first = self.holding.n_rows, 0
        if listed is not None:
            n_rows, first = len(listed), -1
        if rows.size and not first <= rows.min() <= rows.max() < n_rows:
            raise SettingsError(
                f"it was asked for rows that are not among its {n_rows}: positions "
                "count from 0"
            )
        # What bounds or hides a row's part counts every row once.
        held = rows[rows >= 0]
        if learns and np.unique(held).size < held.size:
            raise SettingsError("it was asked to learn from a row twice")

    def _make(self, role: str, settings: Any) -> Party:
        """The party of a role, if the organisation agrees to what it is told."""
        kind = self.own.get(role) if isinstance(role, str) else None
        if not isinstance(kind, type) or not issubclass(kind, Settings):
            kind = settings_of(role)
        said = kind.unpack({} if settings is None else settings, self)
        # It looks at the objects that would be used, whichever words they arrived in.
        if self.agree is not None:
            self.agree(said)
        return said.make(self)

    def go_on(self) -> Party:
        """The party that was fitted, for another run.

        Raises
        ------
        SettingsError
            If there is none.
        """
        if self.fitted is None:
            raise SettingsError("it has no such model of an earlier fit")
        return self.fitted.again()

    def go_home(self) -> None:
        """Open what was sealed, in a process of this organisation's own."""
        if isinstance(self.fitted, SealedParty):
            self.fitted = self.fitted.open()

    def dismiss(self) -> Party:
        """The party without what it held, when the run is over."""
        if self.party is None:
            raise PartyValueError(self.name, "the run was never opened")
        # Callbacks know networks and losses, and are no part of what was learnt.
        for encoder, key in self.lent:
            encoder.set_params(**{key: None})
        self.party.release()
        return self.party

    def release(self) -> None:
        """Drop the table and the secrets of this run."""
        if self.party is not None:
            self.party.release()
        # A session that failed may be kept alive by a traceback; the table must not be.
        self.holding = Holding(np.empty((0, 0)))
        self.streams = {}
        self.own = {}
        self.callbacks = ()
        self.ids = self.listed = None


class Handle(NamedTuple):
    """Stands for a fitted party that stayed with its organisation.

    Parameters
    ----------
    name : str
        Name of the organisation.
    model : str
        Under which it kept the party.

    See Also
    --------
    Federation : Whose members keep what they have learnt.

    Examples
    --------
    >>> from skvfl.federation import Handle
    >>> Handle("telecom", "7937")
    Handle(name='telecom', model='7937')
    """

    name: str
    model: str


class Roster(NamedTuple):
    """Who takes part in a run, as far as it is known here.

    Parameters
    ----------
    home : list of Member
        Members that are at home here: all of them in a simulation.
    rows : ndarray of int or None
        Which rows the others are asked for.
    sizes : dict of str to tuple of int
        Numbers of rows and columns that members at home must say. Whoever made the
        members knows them; nobody reads them off what a member holds.
    """

    home: list[Member]
    rows: np.ndarray | None
    sizes: Mapping[str, tuple[int, int]]
