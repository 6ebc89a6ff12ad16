"""How an estimator reaches its parties: who is told what, and what each must hold."""

from __future__ import annotations

from dataclasses import fields
from inspect import signature
from threading import Lock

from sklearn.utils.validation import check_is_fitted

from skvfl._random import branch, deal
from skvfl._warnings import warn
from skvfl.exceptions import MissingRowsWarning, PartyError, PartyValueError
from skvfl.federation import (
    Federation,
    Handle,
    Holding,
    LocalTransport,
    Member,
    ProcessTransport,
    Settings,
)
from skvfl.federation._member import Roster
from skvfl.federation._settings import refuse_own
from skvfl.federation._watching import listening

# Guards the one attribute that sessions opened by several threads write. It belongs to
# the module, because an estimator with a lock could not be pickled.
_ADDING = Lock()
TRANSPORTS = {"local": LocalTransport, "process": ProcessTransport}


class OpeningMixin:
    """Opens sessions with the parties of a fit, and of a prediction.

    The estimator keeps the parties' names in ``_names``, the one with the labels in
    ``_active``, who holds which columns in ``partition_``, and in ``_earlier`` the
    parties that a warm start goes on from.
    """

    # Where the members' streams for each purpose branch off the root of a simulation.
    _streams: dict[str, tuple[int, ...]] = {"prepare": (1, 0)}
    # Settings of a party without labels, and of the active party.
    _roles: tuple[type[Settings], type[Settings]]
    # Who is told how much the members hold; None is whoever runs the protocol.
    _is_told: str | None = None
    # Parameters that a dict may say for each party.
    _by_party: tuple[str, ...] = ()

    def _make_members(self, X, root, labels=None):
        """Members with what they learn from, and their secret streams.

        In a simulation these are all, and the table and the seed are everybody's.
        """
        # By path and not by counting spawns, so that no purpose depends on which others
        # asked before it.
        roots = {what: branch(root, *path) for what, path in self._streams.items()}
        # A seed of the partitioner's own wins, as it does where it is used by itself.
        if "prepare" in roots:
            roots["prepare"] = self.partition_._root(roots["prepare"])
        blocks = self.partition_.split(X)
        dealt = deal(roots, blocks)
        home, sizes = [], {}
        for name, block in blocks.items():
            # Nobody else's holding ever has the labels, not even in a simulation.
            own = labels if name == self._active else None
            holding = Holding(block, labels=own)
            sizes[name] = holding.size
            machine = self._machine(name)
            home.append(Member(name, holding, dealt[name], **machine))
        return Roster(home, self._rows_elsewhere(X), sizes)

    def _rows_elsewhere(self, X):
        return self.parties.rows(X) if isinstance(self.parties, Federation) else None

    def _settings(self, name):
        """What one party is told; by default the parameters that its role names."""
        kind = self._roles[name == self._active]
        said = {
            each.name: self._of(each.name, name)
            for each in fields(kind)
            if each.name != "transformer"
        }
        return kind(transformer=self._transformer(name), **said)

    def _machine(self, name):
        """Device and callbacks of a member at home; no setting that is sent has them.

        A list of callbacks is of whoever knows the loss.
        """
        device, callbacks = (
            getattr(self, each, None) for each in ("device", "callbacks")
        )
        if isinstance(device, dict):
            self._refuse_unknown("device", self._at_home)
            device = device.get(name)
        if isinstance(callbacks, dict):
            self._refuse_unknown("callbacks", self._at_home)
            callbacks = callbacks.get(name)
        elif name != self._listener:
            callbacks = None
        if callbacks or device not in (None, "cpu"):
            # Only here: not every method needs torch.
            from skvfl.nn._device import check_callbacks, check_device

            check_device(device or "cpu")
            check_callbacks(callbacks)
        return {"device": device or "cpu", "callbacks": callbacks or []}

    @property
    def _listener(self):
        return self._active

    @property
    def _at_home(self):
        """Names of those whose machine is this one."""
        elsewhere = isinstance(self.parties, Federation)
        return [self._active] if elsewhere else self._names

    def _refuse_unknown(self, parameter, names):
        """Refuse a dict that names anybody else."""
        if unknown := [each for each in getattr(self, parameter) if each not in names]:
            raise ValueError(
                f"{parameter} names {unknown}, where it can be said of {[*names]}"
            )

    def _of(self, parameter, name, names=None):
        """A parameter as one party is told it; a dict says it for each by name."""
        value = getattr(self, parameter)
        if parameter not in self._by_party or not isinstance(value, dict):
            return value
        self._refuse_unknown(parameter, names or self._names)
        if name in value:
            return value[name]
        # Whoever holds no column, as an active party may, has no use for it.
        if name in self.partition_.parties_ and name not in self._holders:
            return signature(type(self)).parameters[parameter].default
        raise ValueError(
            f"{parameter} has nothing for party {name!r}; it names {[*value]}: give it "
            "for every party with columns"
        )

    def _transformer(self, name):
        """What prepares a party's columns: a word, or a transformer of the user's."""
        if name in self.partition_.parties_:
            return self.partition_._transformer_of(name)
        return "auto"

    def _open(self, roster, log, centre="server", *, names=None):
        """Open a session in which members make their parties.

        Parameters
        ----------
        roster : Roster
            See ``_make_members``.
        log : CommunicationLog
            Where messages are recorded.
        centre : str, default="server"
            Name of the organisation that runs the protocol.
        names : list of str, default=None
            Members that are asked; all of them by default.

        Returns
        -------
        session : Session
            For a ``with`` statement. ``_n_columns`` knows of these members.
        """
        opening = self._opening(roster, names, fitted=self._earlier)
        return self._begin(roster, log, centre, opening, fitting=True)

    def _opening(self, roster, names=None, *, settings=None, fitted=None):
        """How each member is asked to make its party.

        Parameters
        ----------
        roster : Roster
            See ``_make_members``.
        names : list of str, default=None
            Members that are asked; all of them by default.
        settings : callable, default=None
            ``settings(name)`` is what a member is told; ``_settings`` by default.
        fitted : dict of str to Party or Handle, default=None
            What members learnt in an earlier session of this fit, and go on from.

        Returns
        -------
        opening : dict of str to dict
            Arguments of :meth:`Member.open`.

        Raises
        ------
        SettingsError
            If a member cannot be told.
        """
        opening, home = {}, {member.name: member for member in roster.home}
        for name in self._names if names is None else names:
            if fitted is not None and name not in fitted:
                raise PartyValueError(
                    name,
                    "what it learnt in the last fit is not here to go on from: see "
                    "load_half, or set warm_start=False",
                )
            said = (settings or self._settings)(name)
            words = said.pack()
            opening[name] = {"role": said.role, "settings": words}
            if name not in home:
                # It is reached by words alone: an object would have to be unpickled.
                refuse_own(words, name, said)
                if fitted is not None:
                    opening[name]["model"] = fitted[name].model
                continue
            member = home[name]
            member.own.update(said.live(words, member.streams, name))
            # A method from outside this package has roles that only its own module
            # knows, and a process would not have imported that.
            member.own[said.role] = type(said)
            if fitted is not None:
                member.fitted = fitted[name]
        return opening

    def _reopen(self, X, log, centre="server", *, names=None):
        """Open a session in which fitted parties hold their columns of ``X``."""
        roster, opening = self._fitted_members(X, names)
        return self._begin(roster, log, centre, opening, fitting=False)

    def _fitted_members(self, X, names=None):
        """Members with their columns of ``X``, and how each is asked to open."""
        check_is_fitted(self)
        names = self._names if names is None else names
        opening = {name: {"role": None} for name in names}
        holdings = self._holdings(X)
        home, sizes = [], {}
        for name in names:
            half = self._half(name)
            if isinstance(half, Handle):
                opening[name]["model"] = half.model
            else:
                # Popped, so that the coordinator holds no block once the members have
                # theirs.
                holding = holdings.pop(name)
                sizes[name] = holding.size
                home.append(Member(name, holding, fitted=half))
        return Roster(home, self._rows_elsewhere(X), sizes), opening

    def _holdings(self, X):
        """What each member at home holds of a table to be served."""
        return {n: Holding(block) for n, block in self.partition_.split(X).items()}

    def _begin(self, roster, log, centre, opening, *, fitting):
        members = [member for member in roster.home if member.name in opening]
        due = self._due(roster, opening)
        listener = listening.get()
        if listener is not None:
            # Before a transport takes it to another process.
            brought = {member.name: member.holding for member in members}
        # Members at home have their rows already; the others are told which to take.
        if roster.rows is not None:
            home = {member.name for member in members}
            for name, said in opening.items():
                if name not in home:
                    said |= self.parties.ask_for(name, roster.rows, log)
        if isinstance(self.parties, Federation):
            session = self.parties.connect(members, log, centre, names=[*opening])
        else:
            session = self._connect(members, log, centre)
        if listener is not None:
            # A fit that opens several sessions is known by its one log.
            fit = getattr(self, "communication_", log) if fitting else None
            listener.begin(session, members, brought, fit=fit)
        try:
            # A method may have a server that is not to learn how much a member holds.
            held = session.open(opening, to=opening, reply_to=self._is_told)
            # Before anything else uses them: later bounds of replies rest on the sizes.
            self._check_sizes_said(held, due)
            if fitting:
                n_columns = {name: each["n_columns"] for name, each in held.items()}
                # Sessions may be opened by several threads. The old one is left as it
                # is, because others may be reading it.
                with _ADDING:
                    self._n_columns = getattr(self, "_n_columns", {}) | n_columns
                if self._n_columns.keys() == {*self._names} and not self._holders:
                    raise ValueError("no party holds a column")
            self._check_holdings(held, fitting=fitting)
        # An interrupt, too, would otherwise leave processes or members waiting.
        except BaseException:
            session.end()
            raise
        return session

    def _due(self, roster, opening):
        """Numbers of rows and columns that members must say, as far as known.

        Returns
        -------
        due : dict of str to dict
            ``n_rows`` and ``n_columns`` of every member that is asked, or None.
        """
        sizes = roster.sizes
        # Members whose table is elsewhere must hold as many rows as the active party,
        # and in predictions as many columns as in the fit.
        n_rows, _ = sizes.get(self._active, (None, None))
        if roster.rows is not None:
            n_rows = len(roster.rows)
        known = getattr(self, "_n_columns", {})
        due = {name: sizes.get(name, (n_rows, known.get(name))) for name in opening}
        return {n: dict(zip(("n_rows", "n_columns"), due[n], strict=True)) for n in due}

    def _check_sizes_said(self, held, due):
        """Refuse members that say other sizes than are due, or that cannot be."""
        for name, said in held.items():
            for what, size in due[name].items():
                if size is not None and said[what] != size:
                    raise PartyError(
                        name, f"it says {what}={said[what]} where {size} is due"
                    )
            if said["n_empty"] > said["n_rows"]:
                n_empty = said["n_empty"]
                raise PartyError(
                    name, f"it says that {n_empty} of {said['n_rows']} rows are empty"
                )
            if due[name]["n_columns"] is None and not said["n_columns"]:
                raise PartyError(name, "it holds no column: leave it out")

    def _check_holdings(self, held, *, fitting):
        """Look at what all members say that they hold."""
        for name, each in held.items():
            self._check_held(name, each["n_empty"], each["n_rows"], fitting=fitting)

    def _check_held(self, name, n_empty, n_rows, *, fitting):
        """The same, by what a member says that it holds."""
        if self._may_lack_rows(name, fitting):
            n_empty = self._n_unexplained(name, n_empty, n_rows, fitting)
            self._refuse_empty(name, n_empty, n_rows, fitting=fitting)

    def _refuse_empty(self, name, n_empty, n_rows, *, fitting):
        if not n_empty:
            return
        what = f"it holds no value of {n_empty} of {n_rows} rows"
        # A fit is refused, because a model of imputed rows looks as good as any; a
        # prediction goes on, because the other rows of X are as good as ever.
        if not fitting:
            warn(
                f"party {name!r}: {what}; {self._instead_of_rows(name)}",
                MissingRowsWarning,
            )
        elif self.missing_rows == "raise":
            raise PartyValueError(
                name,
                f"{what}: fit on the rows that all parties hold, which "
                'skvfl.alignment.align(..., keep="intersection") gives; or take '
                "APC-VFL (APCVFLClassifier, APCVFLRegressor), which learns from the "
                'others, too; or set missing_rows="impute" to impute them like other '
                "missing values",
            )

    def _may_lack_rows(self, name, fitting):
        """Whether a row without a value is one that a party does not hold.

        In a party of one column it is a missing cell like any other.
        """
        if hasattr(self, "_n_columns"):
            return self._n_columns[name] > 1
        return len(self.partition_.parties_[name]) > 1

    def _instead_of_rows(self, name):
        """What a prediction takes for a party's part of rows that it does not hold."""
        return "imputed values stand for its part of them, as if it held them"

    def _n_unexplained(self, name, n_empty, n_rows, fitting):
        """Of so many rows without a value, those that the method does not expect.

        Parameters
        ----------
        name : str
            Name of the party.
        n_empty, n_rows : int
            Rows of which it holds no value, and all its rows.
        fitting : bool
            Whether they are rows of ``fit``.

        Returns
        -------
        n_unexplained : int
        """
        return n_empty

    @property
    def _transport(self):
        if isinstance(self.parties, Federation):
            return self.parties
        # A word stands for a new transport each time, so nothing outlives a session.
        if isinstance(self.transport, str):
            return TRANSPORTS[self.transport]()
        return self.transport

    def _connect(self, parties, log, centre="server"):
        """Open a session with parties that hold what they need."""
        return self._transport.connect(parties, log, centre)
