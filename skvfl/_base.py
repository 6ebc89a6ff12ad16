"""What the estimators share. Think twice before adding anything."""

from __future__ import annotations

import math
from contextlib import contextmanager
from dataclasses import fields
from inspect import signature
from numbers import Integral
from threading import Lock

import numpy as np
from scipy import sparse
from sklearn.base import (
    BaseEstimator,
    ClassifierMixin,
    RegressorMixin,
    is_classifier,
)
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted, validate_data

from skvfl._course import Course
from skvfl._halves import HalvesMixin
from skvfl._random import branch, deal, seed_sequence
from skvfl._sklearn import (
    CallbackSupportMixin,
    StrOptions,
    _num_samples,
    check_instances,
)
from skvfl._targets import (
    as_classes,
    as_targets,
    check_entries,
    check_total,
    read_labels,
    read_weights,
    weights_of_classes,
)
from skvfl._warnings import warn
from skvfl.exceptions import MissingRowsWarning, PartyError, PartyValueError
from skvfl.federation import (
    CommunicationLog,
    Federation,
    Handle,
    Holding,
    Labels,
    LocalTransport,
    Member,
    ProcessTransport,
    Settings,
    Transport,
)
from skvfl.federation._log import current_log
from skvfl.federation._member import Roster
from skvfl.federation._replies import Count, Rows, most_columns
from skvfl.federation._settings import refuse_own
from skvfl.federation._watching import listening
from skvfl.partition._names import canonical_order, party_name
from skvfl.partition._partitioner import VerticalPartitioner, as_partition
from skvfl.partition._tables import _check_table

# Guards the one attribute that sessions opened by several threads write. It belongs to
# the module, because an estimator with a lock could not be pickled.
_ADDING = Lock()
_TRANSPORTS = {"local": LocalTransport, "process": ProcessTransport}


def read_truth(y, sample_weight, n_rows, *, classifies):
    """True labels or targets and weights, as a score can use them.

    scikit-learn's scores take what lies under a mask for a label, and negative weights.
    """
    y = read_labels(y)
    y = as_classes(y) if classifies else as_targets(y)
    check_entries(len(y), n_rows, "y")
    if sample_weight is not None:
        sample_weight = read_weights(sample_weight, n_rows)
    return y, sample_weight


def check_kind(y, classes):
    """Refuse text where the classes are numbers, and the reverse.

    scikit-learn does so too, with all labels in its message.
    """
    kinds = ["text" if each.dtype.kind in "UO" else "numbers" for each in (y, classes)]
    if kinds[0] != kinds[1]:
        raise ValueError(f"y holds {kinds[0]}, and the labels of fit were {kinds[1]}")


def check_answers(answers):
    """Refuse predictions that are not finite.

    Parameters
    ----------
    answers : ndarray, or dict of str to ndarray
        What a fitted model says of rows.

    Returns
    -------
    answers : the same

    Raises
    ------
    ValueError
        If one of them is NaN or infinite; the message counts the rows.
    """
    for each in answers.values() if isinstance(answers, dict) else [answers]:
        if each.dtype.kind == "f" and not np.isfinite(each).all():
            spoilt = ~np.isfinite(each.reshape(len(each), -1)).all(axis=1)
            raise ValueError(
                f"the answers for {np.count_nonzero(spoilt)} of {len(each)} rows of X "
                "are not finite: their cells lie far outside those of fit, or training "
                "diverged; look at the scales of the columns"
            )
    return answers


def _check_same_columns(before, now):
    """Refuse to go on with models of other columns, or of others' columns."""
    # Networks and what prepares columns would take any others of the same number.
    if {n: [*held] for n, held in before.items()} != {n: [*x] for n, x in now.items()}:
        raise ValueError(
            "warm_start=True goes on with the models of the last fit, and the parties "
            "have other columns than in it: set warm_start=False"
        )


class VFLClassifierMixin(ClassifierMixin):
    """A classifier that predicts what is likeliest, and looks at what it is given."""

    def predict(self, X):
        """Predict classes.

        Parameters
        ----------
        X : DataFrame, ndarray or sparse matrix of shape (n_samples, n_features)
            With the columns of ``fit``, in any order where they have names.

        Returns
        -------
        y : ndarray of shape (n_samples,)
            Of the data type of ``classes_``.
        """
        codes = self.predict_proba(X).argmax(axis=1)
        return self.classes_[codes]

    def score(self, X, y, sample_weight=None):
        """Accuracy.

        Parameters
        ----------
        X : DataFrame, ndarray or sparse matrix of shape (n_samples, n_features)
            With the columns of ``fit``, in any order where they have names.
        y : array-like of shape (n_samples,)
            True labels.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows.

        Returns
        -------
        score : float
        """
        n_rows = _num_samples(_check_table(X))
        check_is_fitted(self)
        y, sample_weight = read_truth(y, sample_weight, n_rows, classifies=True)
        check_kind(y, self.classes_)
        return super().score(X, y, sample_weight)


class VFLRegressorMixin(RegressorMixin):
    """A regressor whose score looks at what it is given."""

    def score(self, X, y, sample_weight=None):
        """R², the share of the target's variance that is predicted.

        Parameters
        ----------
        X : DataFrame, ndarray or sparse matrix of shape (n_samples, n_features)
            With the columns of ``fit``, in any order where they have names.
        y : array-like of shape (n_samples,)
            True targets.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows.

        Returns
        -------
        score : float
        """
        n_rows = _num_samples(_check_table(X))
        return super().score(X, *read_truth(y, sample_weight, n_rows, classifies=False))


class VFLEstimator(HalvesMixin, CallbackSupportMixin, BaseEstimator):
    """Who holds what, and how to reach the parties.

    Subclasses have the parameters ``parties``, ``active`` and ``transport``, keep
    their fitted parties in ``_parties``, and say in ``_roles``, or in ``_settings``,
    what each is told.
    """

    # Where the members' streams for each purpose branch off the root of a simulation.
    _streams: dict[str, tuple[int, ...]] = {"prepare": (1, 0)}
    # Settings of a party without labels, and of the active party.
    _roles: tuple[type[Settings], type[Settings]]
    # Who is told how much the members hold; None is whoever runs the protocol.
    _is_told: str | None = None
    # Parameters that a dict may say for each party.
    _by_party: tuple[str, ...] = ()
    # Whether every member is asked once, when the run is opened.
    _one_round = False

    _parameter_constraints = {
        "parties": [
            *VerticalPartitioner._parameter_constraints["parties"],
            VerticalPartitioner,
            Federation,
        ],
        "active": [str, Integral],
        "missing_rows": [StrOptions({"raise", "impute"})],
        "transport": [StrOptions(set(_TRANSPORTS)), Transport],
        "random_state": ["random_state"],
    }

    def set_params(self, **params):
        """Set parameters, nested ones as ``name__parameter``.

        Parameters
        ----------
        **params : dict
            As named by ``get_params``.

        Returns
        -------
        self : estimator

        Raises
        ------
        ValueError
            If a parameter does not exist, or is nested in one that is not an estimator
            yet.
        """
        for key in params:
            name, nested, parameter = key.partition("__")
            # The new value counts, as scikit-learn sets ``name`` before what is nested.
            # A name that does not exist is left to scikit-learn's own message.
            value = params.get(name, getattr(self, name, self))
            if nested and not hasattr(value, "set_params"):
                raise ValueError(
                    f"{name}={value!r} has no parameter {parameter!r}: set {name} to "
                    "an estimator first, whose parameters can then be reached"
                )
        return super().set_params(**params)

    def __sklearn_is_fitted__(self):
        return hasattr(self, "_parties")

    def _fit_partition(self, X, y, sequence):
        """Find each party's columns and the active party; return the table."""
        if sparse.issparse(X) and not get_tags(self).input_tags.sparse:
            raise TypeError(
                "sparse input is not supported by the parties' transformers; convert "
                "it to a dense array, or choose transformers that take sparse columns"
            )
        X = _check_table(X)
        check_entries(_num_samples(y), _num_samples(X), "y")
        # A fit that fails must not leave the parties of an earlier one to predict with.
        earlier = self.__dict__.pop("_parties", None)
        self._earlier = earlier if getattr(self, "warm_start", False) else None
        self._replaces = earlier is not None and self._earlier is None
        before = None if self._earlier is None else self.partition_.parties_
        self.__dict__.pop("_n_columns", None)
        # A federation knows its members' names alone, so the partition is of the one
        # table that is here, and the order of the names is the federation's.
        if isinstance(self.parties, Federation):
            # Before anything is sent: half a run is of no use to anybody.
            if self.parties.one_round and not self._one_round:
                raise ValueError(
                    f"{type(self).__name__} with these parameters asks the parties "
                    f"again and again, and {type(self.parties).__name__} carries one "
                    "question to each: connect to the parties, or choose RAP, FedOnce "
                    "without split epochs, or APC-VFL"
                )
            self._names = list(self.parties.names)
            self._active = party_name(self._names, self.active)
            own = VerticalPartitioner(
                parties={self._active: self.parties.own_columns(X)}, remainder="drop"
            )
            label_owner = self._active
        else:
            own, label_owner = as_partition(self.parties), self.active
        self.partition_ = own
        check_instances(self.partition_)
        self.partition_._validate_params()
        X = self.partition_._fit_columns(
            X, y, label_owner=label_owner, sequence=sequence
        )
        self.n_features_in_ = self.partition_.n_features_in_
        if hasattr(self.partition_, "feature_names_in_"):
            self.feature_names_in_ = self.partition_.feature_names_in_
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        written = self.partition_.parties_
        if not isinstance(self.parties, Federation):
            self._active = party_name(written, self.active)
            # Everything after this goes through the parties in one order, so that sums
            # and networks do not depend on how a dict was written.
            self.partition_.parties_ = canonical_order(written)
            self._names = list(self.partition_.parties_)
        if before is not None:
            _check_same_columns(before, self.partition_.parties_)
        return X

    def _make_members(self, X, root, labels=None):
        """Members with what they learn from, and their secret streams.

        In a simulation these are all, and the table and the seed are everybody's.
        """
        # By path and not by counting spawns, so that no purpose depends on which others
        # asked before it.
        secret = self._secret_root(root)
        roots = {what: branch(secret, *path) for what, path in self._streams.items()}
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

    def _secret_root(self, root):
        """Where secrets of members at home branch off: weights, noise, drawn labels.

        Of a simulation that is everybody's root. An organisation draws its own from the
        operating system, because others may guess a seed, and would know them all.
        """
        return root if self._deals_secrets else np.random.SeedSequence()

    @property
    def _deals_secrets(self):
        """Whether ``random_state`` decides what members at home keep secret."""
        return not isinstance(self.parties, Federation) or self.parties.deals_secrets

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

    def _last_losses(self, train="loss_curve_", held_out="validation_loss_curve_"):
        """Of the last epoch, by skorch's names for them."""
        losses = {"train_loss": getattr(self, train)[-1]}
        if getattr(self, held_out):
            losses["valid_loss"] = getattr(self, held_out)[-1]
        return losses

    def _ask_callbacks(self, session, losses):
        """Whether callbacks of the party that knows the loss end training."""
        if not self._machine(self._listener)["callbacks"]:
            return False
        ends = Count(0, 1)
        return bool(session.ask(self._listener, "end_epoch", reply=ends, losses=losses))

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

    @contextmanager
    def _training(self, X, y, labels, n_tasks, *, root=None):
        """Session of a fit that the active party runs; for a ``with`` statement.

        Parameters
        ----------
        X, y
            As ``fit`` was given them.
        labels : Labels
            What the active party learns from.
        n_tasks : int
            How many tasks callbacks will hear of at most.
        root : SeedSequence, default=None
            Of all streams; of ``random_state`` by default. A method that branches off
            streams itself gives it.

        Yields
        ------
        session : Session
        course : Course
            Of its tasks.
        """
        # A RandomState gives another root each time, so it is asked once.
        root = seed_sequence(self.random_state) if root is None else root
        X = self._fit_partition(X, y, branch(root, 0))
        members = self._make_members(X, root, labels)
        with Course(self, X, y, n_tasks) as course:
            self.communication_ = CommunicationLog()
            with self._open(members, self.communication_, self._active) as session:
                course.session = session
                yield session, course
            # Only now, when the session has ended well, is the estimator fitted.
            self._parties = session.parties

    def _serving(self, X):
        """Session of a prediction that the active party runs."""
        # Only a fitted estimator knows who is active.
        check_is_fitted(self)
        return self._reopen(X, current_log(), self._active)

    def _begin_curves(self):
        """Curves of the losses; with ``warm_start`` the training loss goes on."""
        before = [] if self._earlier is None else self.loss_curve_
        # A copy, because an earlier fit survives this one if it fails.
        self.loss_curve_, self.validation_loss_curve_ = list(before), []

    def _so_far(self, session, **more):
        """Attributes of an estimator with what has been learnt so far.

        Parameters
        ----------
        session : Session
            Of the fit.
        **more
            What this method sets when its fit has ended.

        Returns
        -------
        attributes : dict
        """
        n_iter = len(self.loss_curve_)
        if hasattr(self, "label_epsilon_"):
            more["label_epsilon_"] = self.label_epsilon_
        return {"_parties": session.halves(), "n_iter_": n_iter, **more}

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
    def _holders(self):
        """Parties that hold columns."""
        if hasattr(self, "_n_columns"):
            return [name for name in self._names if self._n_columns.get(name)]
        return [name for name, held in self.partition_.parties_.items() if held.size]

    @property
    def _n_outputs(self):
        """Number of outputs of a network that predicts."""
        return len(self.classes_) if is_classifier(self) else 1

    @property
    def _any_widths(self):
        """What is expected of parties that say how many columns they will send."""
        # A transformer may widen its columns, and one-hot codes do; a bound keeps a
        # party from making the receiver allocate whatever it says.
        held = {n: len(columns) for n, columns in self.partition_.parties_.items()}
        held |= getattr(self, "_n_columns", {})
        return {n: Count(1, most_columns(held[n])) for n in self._holders}

    def _any_rows(self, n_rows):
        """What is expected of parties that never said how many columns they send."""
        return {
            name: Rows(n_rows, count.high, exact=False)
            for name, count in self._any_widths.items()
        }

    def _encode_classes(self, y):
        """Classes as 0 … K - 1; sets ``classes_``."""
        if y is None:
            validate_data(self, y=None)
        classes, codes = np.unique(as_classes(read_labels(y)), return_inverse=True)
        if len(classes) < 2:
            raise ValueError(
                "y holds one class only; a classifier needs at least two: give rows of "
                "another one, too, or stratify where rows are drawn"
            )
        warm = getattr(self, "warm_start", False) and hasattr(self, "_parties")
        if warm and not np.array_equal(classes, self.classes_):
            raise ValueError(
                "warm_start=True goes on with the models of the last fit, and y has "
                "other classes: set warm_start=False"
            )
        self.classes_ = classes
        return codes.astype(np.int64)

    def _encode_target(self, y):
        """Target as float64."""
        if y is None:
            validate_data(self, y=None)
        # RAP is a classifier or a regressor by its model, and may be fitted as both.
        self.__dict__.pop("classes_", None)
        return as_targets(read_labels(y))

    def _check_label_budget(self):
        """Refuse what a budget of the labels' privacy does not cover."""
        if self.label_epsilon is not None and self.class_weight is not None:
            raise ValueError(
                "class_weight cannot be used with label_epsilon: rows would weigh what "
                "their true classes weigh, which gradients show; leave it at None"
            )

    def _spend_on_labels(self):
        """Say what this fit, and those that it goes on from, spend on the labels."""
        before = self.__dict__.pop("label_epsilon_", None)
        # A refit without a budget must not keep that of the fit before it.
        if self.label_epsilon is None:
            return
        if self._earlier is None:
            before = 0.0
        elif before is None:
            # It was without a budget, and all that gradients say has been shown.
            before = math.inf
        else:
            # A fit that went on from there as well, and failed, was about them, too.
            before += self.__dict__.pop("label_epsilon_lost_", 0.0)
        self.label_epsilon_ = before + float(self.label_epsilon)
        # From now on others may learn from them, even if the fit fails.
        self._spending = float(self.label_epsilon)

    def _read_classes(self, X, y, sample_weight, class_weight):
        """Labels of classes, for the active party; sets ``classes_``."""
        codes = self._encode_classes(y)
        weights = self._row_weights(X, sample_weight, class_weight, codes)
        return Labels(codes, len(self.classes_), weights)

    def _read_targets(self, X, y, sample_weight):
        """A numerical target in its own units, for the active party."""
        target = self._encode_target(y)
        return Labels(target, weights=self._row_weights(X, sample_weight))

    def _row_weights(self, X, sample_weight, class_weight=None, codes=None):
        """Weights of rows, those of their classes included, or None."""
        if sample_weight is None and class_weight is None:
            return None
        n_rows = _num_samples(_check_table(X))
        weights = np.ones(n_rows)
        if sample_weight is not None:
            weights = read_weights(sample_weight, n_rows)
        if class_weight is None:
            return weights
        check_entries(len(codes), n_rows, "y")
        weights = weights * weights_of_classes(class_weight, self.classes_, codes)
        check_total(weights, "class_weight")
        return weights

    @property
    def _transport(self):
        if isinstance(self.parties, Federation):
            return self.parties
        # A word stands for a new transport each time, so nothing outlives a session.
        if isinstance(self.transport, str):
            return _TRANSPORTS[self.transport]()
        return self.transport

    def _connect(self, parties, log, centre="server"):
        """Open a session with parties that hold what they need."""
        return self._transport.connect(parties, log, centre)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        partition = as_partition(self.parties)
        tags.input_tags = get_tags(partition).input_tags
        tags.input_tags.allow_nan = partition._prepares_by_default
        return tags
