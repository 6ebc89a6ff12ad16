"""vFedSec: split learning behind a secure layer."""

from __future__ import annotations

import copy
from dataclasses import replace
from numbers import Integral, Real

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from skvfl._base import (
    VFLClassifierMixin,
    VFLEstimator,
    check_answers,
)
from skvfl._course import Course
from skvfl._random import branch, deal, one_way, seed_sequence
from skvfl._sklearn import Interval, Options, StrOptions, _fit_context, _num_samples
from skvfl.federation import CommunicationLog, Federation, Holding, Member
from skvfl.federation._log import current_log
from skvfl.federation._party import Earlier
from skvfl.partition._names import party_name
from skvfl.partition._tables import _check_table
from skvfl.privacy._masks import SERVER
from skvfl.vfedsec import _dealing
from skvfl.vfedsec._active import ActiveSettings
from skvfl.vfedsec._agreement import KEY_RING
from skvfl.vfedsec._parties import N_BATCHES, ClientSettings
from skvfl.vfedsec._protocol import Protocol, ServerSettings
from skvfl.vfedsec._turns import Turns


class _BaseVFedSec(ClassNamePrefixFeaturesOutMixin, TransformerMixin, VFLEstimator):
    """Training and serving; the subclasses say what the labels are."""

    # Never changed: another branch would be another result for the same seed.
    _streams = {"prepare": (1, 0), "models": (1, 1)}
    _by_party = ("bottom",)

    _parameter_constraints = {
        **VFLEstimator._parameter_constraints,
        "active": [*VFLEstimator._parameter_constraints["active"], list],
        "bottom": ["array-like", callable, dict],
        "top": ["array-like", callable],
        "cut_width": [Interval(Integral, 1, None, closed="left")],
        "max_epochs": [Interval(Integral, 1, None, closed="left")],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "lr": [Interval(Real, 0, None, closed="neither")],
        "optimizer": [callable, None],
        "weight_decay": [Interval(Real, 0, None, closed="left")],
        "early_stopping": ["boolean"],
        "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
        "n_iter_no_change": [Interval(Integral, 1, None, closed="left")],
        "warm_start": ["boolean"],
        "callbacks": [list, dict, None],
        "device": [str, dict],
        "clients": [dict, None],
        "bits": [Options(Integral, {32, 64})],
        "bound": [Interval(Real, 0, None, closed="neither")],
        "rotate_every": [Interval(Integral, 1, None, closed="left")],
        "masked": ["boolean"],
        "key_rings": [dict, None],
        "record_server_view": ["boolean"],
    }

    def __init__(
        self,
        *,
        parties=2,
        active=0,
        missing_rows="raise",
        clients=None,
        bottom=(64,),
        top=(64,),
        cut_width=32,
        bits=32,
        bound=1000.0,
        rotate_every=5,
        masked=True,
        key_rings=None,
        record_server_view=False,
        max_epochs=50,
        batch_size=128,
        lr=1e-3,
        optimizer=None,
        weight_decay=0.0,
        early_stopping=False,
        validation_fraction=0.1,
        n_iter_no_change=10,
        warm_start=False,
        callbacks=None,
        device="cpu",
        transport="local",
        random_state=None,
    ):
        self.parties = parties
        self.active = active
        self.missing_rows = missing_rows
        self.clients = clients
        self.bottom = bottom
        self.top = top
        self.cut_width = cut_width
        self.bits = bits
        self.bound = bound
        self.rotate_every = rotate_every
        self.masked = masked
        self.key_rings = key_rings
        self.record_server_view = record_server_view
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.lr = lr
        self.optimizer = optimizer
        self.weight_decay = weight_decay
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.warm_start = warm_start
        self.callbacks = callbacks
        self.device = device
        self.transport = transport
        self.random_state = random_state

    def _fit(self, X, y, labels, label_holders):
        # Not by ``_training``: the centre is a server of its own, and rows are dealt to
        # clients before members are made.
        root = seed_sequence(self.random_state)
        X = self._fit_partition(X, y, branch(root, 0))
        n_rows = len(labels.values)
        rows = self._deal(n_rows, np.random.default_rng(branch(root, 2, 0)))
        rng = np.random.default_rng(branch(root, 2, 2))
        owners = _dealing.deal_labels(label_holders, self._choosers, n_rows, rng)
        own = _dealing.labels_of(labels, owners, self._choosers)
        members = self._make_members(X, root, own, rows)
        server = self._make_server(root)
        self.communication_ = CommunicationLog()
        # A refit that does not record must not show the view of an earlier fit.
        self.__dict__.pop("server_view_", None)
        if self.record_server_view:
            self.server_view_ = []
        view = getattr(self, "server_view_", None)
        with Course(self, X, y, self.max_epochs) as course:
            with self._open(members, self.communication_) as session:
                course.session = session
                protocol = Protocol(session, server, self.rotate_every, view)
                # Before keys and networks cost anything: rows may be refused.
                protocol.open(n_rows, fitting=True, imputes=self._imputes)
                protocol.prepare()
                self.fingerprints_ = server.fingerprints if self.masked else {}
                protocol.train(self, _dealing.sizes_of(own), course)
            self._parties = session.parties
            server.release()
            self._server = server
            self.n_iter_ = len(self.loss_curve_)
        return self

    def _settings(self, name):
        agreed = {
            "clusters": self.clusters_,
            "active": self._active,
            "also_active": self._choosers[1:],
            "cut_width": self.cut_width,
            "bound": float(self.bound),
            "bits": int(self.bits),
            "masked": self.masked,
            "lr": self.lr,
            "optimizer": self.optimizer,
            "weight_decay": float(self.weight_decay),
        }
        if name == SERVER:
            # Not their names, which stay with the label owner.
            n_classes = len(self.classes_) if hasattr(self, "classes_") else None
            return ServerSettings(**agreed, top=self.top, n_classes=n_classes)
        # Clients of one cluster are told the same, and share what their party has.
        (party,) = (p for p, cluster in self.clusters_.items() if name in cluster)
        role = ActiveSettings if name in self._choosers else ClientSettings
        return role(
            **agreed,
            transformer=self._transformer(party),
            bottom=self._of("bottom", party, [*self.clusters_]),
            partly_held=party in self._partly,
        )

    def _make_server(self, root):
        """The server's half, which is made where the protocol runs."""
        # By name, like those of the clients, so that no stream leads to another.
        secret = branch(self._secret_root(root), *self._streams["models"])
        streams = deal({"models": secret}, [SERVER])
        nothing = Holding(np.empty((0, 0)))
        own = self._own_ring(SERVER)
        home = Member(SERVER, nothing, streams[SERVER], own, **self._machine(SERVER))
        server = self._settings(SERVER).make(home)
        if self._earlier is not None:
            server.hold(Earlier(self._server))
            server.take_over("_top")
        return server

    def _make_members(self, X, root, labels, dealt):
        """A member for each client, with the rows that the simulation deals it.

        Labels are those of each active client, by name.
        """
        roster = super()._make_members(X, root)
        # Not below the party's name, so that the order is the one it always was.
        secret = self._secret_root(root)
        orders = deal({"order": branch(secret, 2, 3)}, self._choosers)
        orders[self._active]["order"] = one_way(branch(secret, 2, 1))
        home, sizes = [], {}
        for party in roster.home:
            # Only simulations have several clients of one party, and deal its rows.
            holdings = _dealing.dealt_to(party, self.clusters_, dealt)
            for client, holding in holdings.items():
                sizes[client] = holding.size
                # Each its own copy: to spawn from a stream changes what comes next.
                streams = {what: branch(each) for what, each in party.streams.items()}
                if client in labels:
                    holding = replace(holding, labels=labels[client])
                    streams |= orders[client]
                own = self._own_ring(client)
                if party.callbacks:
                    # Epochs are nothing that a client is told of, so it counts batches.
                    turns = Turns.of(self, _dealing.sizes_of(labels))
                    own[N_BATCHES] = len(turns.batches)
                # Callbacks of one client must not hear of another's steps.
                machine = {
                    "device": party.device,
                    "callbacks": copy.deepcopy(party.callbacks)
                    if len(holdings) > 1
                    else party.callbacks,
                }
                home.append(Member(client, holding, streams, own, **machine))
        return roster._replace(home=home, sizes=sizes)

    def keep_halves(self, names):
        kept = super().keep_halves(names)
        # Private keys are of the half, and an open view has what others contributed.
        rings = self.key_rings or {}
        kept.key_rings = {n: r for n, r in rings.items() if n in {*names, SERVER}}
        kept.__dict__.pop("server_view_", None)
        return kept

    keep_halves.__doc__ = VFLEstimator.keep_halves.__doc__

    def _own_ring(self, name):
        given = self.key_rings or {}
        return {KEY_RING: given[name]} if name in given else {}

    @property
    def _first_active(self):
        if not isinstance(self.active, list):
            return self.active
        if len(self.active) < 2:
            raise ValueError(f"active={self.active}: give one name, or several of them")
        return self.active[0]

    def _name_active(self, names):
        """Names of the active parties, which select rows; the first one predicts."""
        super()._name_active(names)
        before, self._choosers = getattr(self, "_choosers", None), [self._active]
        if isinstance(self.active, list):
            self._choosers = [party_name(names, each) for each in self.active]
        if len({*self._choosers}) < len(self._choosers):
            raise ValueError(f"active={self.active} names a party twice")
        if self._earlier is not None and self._choosers != before:
            raise ValueError(
                "warm_start=True goes on with the models of the last fit, in which "
                f"active was {before}: set warm_start=False"
            )

    @property
    def _listener(self):
        return SERVER

    @property
    def _at_home(self):
        elsewhere = isinstance(self.parties, Federation)
        return [self._active, SERVER] if elsewhere else [*self.clusters_, SERVER]

    @property
    def _is_told(self):
        """How many rows a client holds is nothing for the server."""
        return self._active

    def _check_holdings(self, held, *, fitting):
        """By party, whose rows may be dealt to several clients."""
        # Of a cluster only the sum tells how many of all rows lack a value.
        n_rows = held[self._active]["n_rows"]
        for party, cluster in self.clusters_.items():
            n_empty = sum(held[client]["n_empty"] for client in cluster)
            self._check_held(party, n_empty, n_rows, fitting=fitting)

    def _serve(self, X, operation):
        """Testing phase: the same rounds as in training, up to the server's answer."""
        check_is_fitted(self)
        n_rows = _num_samples(_check_table(X))
        # For this call alone: two threads may predict at once, each with its own keys.
        server = self._server.again()
        with self._reopen(X, current_log()) as session:
            protocol = Protocol(session, server, self.rotate_every)
            protocol.open(n_rows, fitting=False, imputes=self._imputes)
            total = protocol.add_up(n_rows)
            if operation == "predict":
                total = protocol.answer(total)
            return check_answers(total)

    def _holdings(self, X):
        """Rows to be served are dealt in turn to the clients of a cluster."""
        return _dealing.dealt_in_turn(super()._holdings(X), self.clusters_)

    def transform(self, X):
        """Output of the secure layer: the sum of all clients' contributions.

        Parameters
        ----------
        X : DataFrame, ndarray or sparse matrix of shape (n_samples, n_features)
            With the columns of ``fit``, in any order where they have names.

        Returns
        -------
        representation : ndarray of shape (n_samples, cut_width), dtype float32
        """
        return self._serve(X, "combine")

    @property
    def _n_features_out(self):
        return self.cut_width

    def _deal(self, n_rows, rng):
        """Ids of the rows dealt to each client, None for all; sets ``clusters_``."""
        # A party without columns has nothing to contribute, but for the active one,
        # which has the bias. Members of a federation say later what they hold.
        holders = [n for n in self._names if n == self._active or n in self._holders]
        if bare := [name for name in self._choosers if name not in holders]:
            raise ValueError(
                f"active: {bare[0]!r} holds no columns, and of several active parties "
                "only the first one may: put it first, or give it columns"
            )
        if isinstance(self.parties, Federation):
            holders = self._names
            home = {self._active, SERVER}
            _dealing.refuse_dealing(self.clients, self.key_rings, home)
            if len(self._choosers) > 1:
                raise ValueError(
                    f"active={self.active} deals the labels of one table, and the "
                    "members of a federation have labels of their own: name one party"
                )
        clients = self.clients or {}
        dealt = _dealing.deal_rows(clients, holders, self._choosers, n_rows, rng)
        self.clusters_, rows, self._partly = dealt
        # From here on the members are clients, so that sessions are opened with them.
        self._names = [c for cluster in self.clusters_.values() for c in cluster]
        _dealing.refuse_loner(self._names, self.n_features_in_)
        _dealing.check_rings(self.key_rings or {}, [*self._names, SERVER])
        return rows

    @property
    def _imputes(self):
        return self.missing_rows == "impute"

    def _instead_of_rows(self, name):
        if self._imputes or name == self._active:
            return super()._instead_of_rows(name)
        return "it contributes nothing to them"

    def _may_lack_rows(self, name, fitting):
        # A single empty cell is rather a missing value, unless ``clients`` had a -1.
        several = self._n_columns[self.clusters_[name][0]] > 1
        return several or (name in self._partly and not fitting)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        tags.target_tags.required = True
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags


class VFedSecClassifier(VFLClassifierMixin, _BaseVFedSec):
    """Split learning in which the server sees only the sum of what clients send.

    Every client computes its part of a linear layer, the *secure layer*, and adds masks
    that cancel in the sum over all clients (vFedSec [1]_). A server adds up what it
    cannot read, trains the rest of the network, and returns gradients.

    Read more in the :ref:`User Guide <vfedsec>`.

    Parameters
    ----------
    parties : int, splitter, dict, list of tuple or VerticalPartitioner, default=2
        Who holds which columns, see :class:`VerticalPartitioner`.
    active : str, int or list of these, default=0
        Name or position of the active party, which holds the labels and selects the
        rows. It may hold no columns. Of several, each holds the labels of some rows
        and selects these in turn with the others; the first one predicts.
    missing_rows : {"raise", "impute"}, default="raise"
        What happens in ``fit`` to rows of which a party of two columns or more holds no
        value at all, where ``clients`` does not say that nobody holds them: an error
        that names the party and counts them, or they are imputed like other missing
        values. Later a :class:`~skvfl.exceptions.MissingRowsWarning` counts them; a
        passive party then contributes nothing to them, or the imputed row.
    clients : dict of str to int or array-like of int, default=None
        Passive parties that are a cluster of several clients with the same columns and
        different rows: their number, among whom the rows of ``fit`` are dealt at
        random, or the position of each row's client, and -1 for rows that nobody holds.
        Where there are several, the clients are called ``"telco.0"``, ``"telco.1"``, ….
        Rows to be served are dealt in turn, but for those without any cell of the
        party.
    bottom : array-like of int, callable or dict of str to these, default=(64,)
        Every client's local module: sizes of the hidden layers of a perceptron, whose
        last layer is the client's part of the secure layer (with a bias at the active
        party only), or ``bottom(n_inputs, n_outputs)`` that returns a
        ``torch.nn.Module``, which is taken as it is. A dict says it for each party by
        name.
    top : array-like of int or callable, default=(64,)
        The server's global module, given in the same way. A ReLU comes before it.
    cut_width : int, default=32
        Number of units of the secure layer.
    bits : {32, 64}, default=32
        Size of one masked number; 32 bits are no more bytes than float32.
    bound : float, default=1000.0
        Largest magnitude of any client's contribution to the secure layer, declared
        because the sum must not wrap. A larger one is an error, never clipped. For the
        rounding error see :class:`~skvfl.privacy.FixedPoint`.
    rotate_every : int, default=5
        Batches after which all keys are agreed on anew, in training and in prediction.
    masked : bool, default=True
        Whether there are keys, masks and sealed row ids. Without them the numbers are
        the same to the last bit and everything is in the clear: for measurements only.
    key_rings : dict of str to KeyRing, default=None
        Lasting identities of clients and of ``"server"``, with the peers' fingerprints
        that each of them has pinned; whoever is not named gets a new identity in
        ``fit``. See :class:`~skvfl.privacy.KeyRing`.
    record_server_view : bool, default=False
        Whether to keep every masked or sealed array that the server received in
        ``fit``, as ``server_view_``.
    max_epochs : int, default=50
        Number of passes over the rows.
    batch_size : int, default=128
        Rows per round of training. A last batch of one row joins its predecessor.
    lr : float, default=1e-3
        Learning rate of every client's own optimiser, and of the server's.
    optimizer : class or None, default=None
        From ``torch.optim``; Adam by default.
    weight_decay : float, default=0.0
        Of the optimiser: for Adam, half the weight of the squared parameters.
    early_stopping : bool, default=False
        Whether to hold out rows, stop when their loss no longer improves, and go back
        to the models that were best on them.
    validation_fraction : float, default=0.1
        Fraction of the rows held out.
    n_iter_no_change : int, default=10
        Epochs without improvement before stopping.
    warm_start : bool, default=False
        Whether ``fit`` goes on with the models of the last fit, for ``max_epochs`` more
        epochs and with new optimisers; what prepares the columns stays as it was.
    callbacks : list of skorch callbacks, dict of str to list or None, default=None
        Schedulers, checkpoints and loggers of the server's module; a dict gives each
        party, or ``"server"``, its own by name. They hear of epochs and steps, and see
        no rows; only the server's see losses.
    device : str or dict of str to str, default="cpu"
        Where networks are trained, as torch names it, such as ``"cuda"``; a dict says
        it for each party by name. An organisation elsewhere says it in its own file.
        Fitted networks are on the CPU.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes in the loss, as in scikit-learn.
    transport : {"local", "process"} or Transport, default="local"
        How the clients are reached, see :class:`LocalTransport` and
        :class:`ProcessTransport`.
    random_state : int, RandomState instance or None, default=None
        Root of the random streams of models and of the order of rows. ``None`` takes
        fresh entropy from the operating system, from which keys and masks always come;
        they change no result. A known seed tells the order of rows and first weights.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels.
    loss_curve_ : list of float
        Mean training loss of every epoch.
    validation_loss_curve_ : list of float
        Loss of the held-out rows after every epoch; empty without early stopping.
    n_iter_ : int
        Number of epochs.
    partition_ : VerticalPartitioner
        Who holds which columns.
    clusters_ : dict of str to list of str
        Names of the clients that hold each party's columns.
    fingerprints_ : dict of str to str
        Fingerprint of every client's and the server's identity; empty without masks.
    communication_ : CommunicationLog
        What crossed in ``fit``, keys included.
    server_view_ : list of ServerRecord
        If asked for: ``round``, ``client``, ``what`` and ``array`` of every masked or
        sealed array that the server received in ``fit``; rounds count batches.
    n_features_in_ : int
        Number of columns seen in ``fit``.
    feature_names_in_ : ndarray of str
        Their names, where all columns have one.

    See Also
    --------
    VFedSecRegressor : The same for numerical targets.
    SplitNNClassifier : The same network in the clear, with ``aggregation="sum"``.

    Notes
    -----
    *Who sees what, in short.* The server sees labels and the sum of all contributions;
    every client sees the gradient of that sum, from which labels can be inferred.

    *Who learns what.* The server sees the labels and weights of every batch and the
    secure layer's output of every row, which is the sum over all clients; nobody sees
    any single client's contribution, unless all others tell theirs, or from 20 clients
    on more than half of them (see the User Guide). The sum itself says much: with 200
    known rows of a party, a server worked out 44 to 99 % of the variance of the columns
    of 7 out of 9 parties. Every client sees the gradient of
    the secure layer's output, from which labels can be inferred, and the updates of its
    own local module. The clients of a cluster, and nobody else, see the sum of their
    gradients, which crosses the server under a mask whose key they alone have. From
    that sum they can compute each other's rows: with linear local modules exactly,
    where a batch is not larger than ``cut_width``; of two clients each knows the
    other's gradient. Passive clients learn which of their own rows are in a batch and
    the size of the batch; the server learns neither ids nor how many rows each client
    holds.

    *Who contributes.* A sum hides its parts only if it has two. With masks, rows of
    which fewer than two parties hold columns are refused in ``fit`` and in predictions.
    An active party without columns does not count, as the server can compute its bias.
    ``masked=False`` shows every contribution, so that nothing is refused.

    *Rows that a passive party does not hold* get a contribution of zero from it (the
    paper's indicator): in ``fit`` those of which ``clients`` says so, in predictions
    those without any cell of the party, with a warning, unless
    ``missing_rows="impute"``. Where a party has a single column, a gap is imputed
    unless ``clients`` has -1 for it. The active party holds every row, and learns which
    rows the others hold and of which they have no cell; the server does not.

    *Several active parties* each select batches of the rows whose labels they hold, in
    turn; clients learn whose a batch is, and active parties which rows others hold.

    *Deviations from the paper* [1]_. Numbers whose sum could wrap are refused. Each
    message is authenticated. The gradient of a cluster is that of the mean loss over
    the batch, summed over the cluster's clients, so that the model does not depend on
    how many clients share the rows. Clients draw their first weights themselves, from
    a stream that a cluster shares, not the server. A client makes one key pair in a key
    epoch for all peers, and is sent its own sealed ids alone. From 20 clients on masks
    are along a random graph.

    References
    ----------
    .. [1] "vFedSec: Efficient Secure Aggregation for Vertical Federated Learning via
       Secure Layer".

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from skvfl import VFedSecClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> vfl = VFedSecClassifier(parties=3, max_epochs=20, random_state=0).fit(X, y)
    >>> vfl.score(X, y) > 0.97
    True
    """

    _parameter_constraints = {
        **_BaseVFedSec._parameter_constraints,
        "class_weight": [dict, StrOptions({"balanced"}), None],
    }

    def __init__(
        self,
        *,
        parties=2,
        active=0,
        missing_rows="raise",
        clients=None,
        bottom=(64,),
        top=(64,),
        cut_width=32,
        bits=32,
        bound=1000.0,
        rotate_every=5,
        masked=True,
        key_rings=None,
        record_server_view=False,
        max_epochs=50,
        batch_size=128,
        lr=1e-3,
        optimizer=None,
        weight_decay=0.0,
        early_stopping=False,
        validation_fraction=0.1,
        n_iter_no_change=10,
        warm_start=False,
        callbacks=None,
        device="cpu",
        class_weight=None,
        transport="local",
        random_state=None,
    ):
        super().__init__(
            parties=parties,
            active=active,
            missing_rows=missing_rows,
            clients=clients,
            bottom=bottom,
            top=top,
            cut_width=cut_width,
            bits=bits,
            bound=bound,
            rotate_every=rotate_every,
            masked=masked,
            key_rings=key_rings,
            record_server_view=record_server_view,
            max_epochs=max_epochs,
            batch_size=batch_size,
            lr=lr,
            optimizer=optimizer,
            weight_decay=weight_decay,
            early_stopping=early_stopping,
            validation_fraction=validation_fraction,
            n_iter_no_change=n_iter_no_change,
            warm_start=warm_start,
            callbacks=callbacks,
            device=device,
            transport=transport,
            random_state=random_state,
        )
        self.class_weight = class_weight

    @_fit_context(prefer_skip_nested_validation=False)
    def fit(self, X, y, sample_weight=None, *, label_holders=None):
        """Train all clients' local modules and the server's global module.

        Parameters
        ----------
        X : DataFrame, ndarray or sparse matrix of shape (n_samples, n_features)
            The table of which every party holds some columns.
        y : array-like of shape (n_samples,)
            The active party's labels, which it shares with the server.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows in the loss, shared with the server like the labels.
        label_holders : array-like of str of shape (n_samples,), default=None
            Which of several active parties holds each row's label; dealt at random in
            equal numbers by default.

        Returns
        -------
        self : VFedSecClassifier

        Raises
        ------
        ValueError
            If the labels are not classes, if parties, clients and columns do not match,
            or if fewer than two parties hold columns of a row; the message names them.
        PartyError
            If a client fails, a contribution is over the bound, or a message was
            altered, replayed or is missing; the message names the client.
        """
        labels = self._read_classes(X, y, sample_weight, self.class_weight)
        return self._fit(X, y, labels, label_holders)

    def predict_proba(self, X):
        """Probability of each class.

        Parameters
        ----------
        X : DataFrame, ndarray or sparse matrix of shape (n_samples, n_features)
            With the columns of ``fit``, in any order where they have names.

        Returns
        -------
        probabilities : ndarray of shape (n_samples, n_classes), dtype float64
            Columns in the order of ``classes_``.
        """
        return self._serve(X, "predict")
