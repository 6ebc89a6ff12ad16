"""vFedSec: split learning behind a secure layer."""

from __future__ import annotations

import copy
import uuid
from functools import partial
from math import ceil
from numbers import Integral, Real
from typing import NamedTuple

import numpy as np
from scipy.special import softmax
from sklearn.base import ClassifierMixin, clone
from sklearn.utils.validation import check_is_fitted
from torch.nn import functional

from skvfl._base import VFLClassifierMixin, VFLRegressorMixin, check_answers
from skvfl._random import one_way, seed_sequence, spawn_named
from skvfl._rows import rows_without_values
from skvfl._sklearn import (
    Interval,
    Options,
    StrOptions,
    _fit_context,
    _num_samples,
    _safe_indexing,
)
from skvfl._targets import mean_and_scale, standardised
from skvfl.exceptions import PartyError
from skvfl.federation import CommunicationLog
from skvfl.federation._log import current_log
from skvfl.federation._replies import (
    ANYTHING,
    NOTHING,
    Fields,
    Maybe,
    Reply,
    Rows,
    Vector,
    check_replies,
)
from skvfl.nn._build import Build, Optimize
from skvfl.nn._steps import batch_bounds, check_held_out, epoch_loss
from skvfl.nn._training import check_finite
from skvfl.partition._partitioner import _check_table
from skvfl.privacy import KeyRing
from skvfl.privacy._masks import SERVER
from skvfl.splitnn._legacy_estimator import _BaseSplitNN, _squared_error
from skvfl.vfedsec._parties import (
    GRADIENT,
    UPDATE,
    ActiveClient,
    Agreement,
    SecureClient,
    SecureServer,
    relay,
)

_NOBODY = -1


class ServerRecord(NamedTuple):
    """One masked or sealed array that the server received.

    Parameters
    ----------
    round : int
        Number of the batch, from 0.
    client : str
        Who sent it, or for row ids and keys, who can open it.
    what : {"row ids", "secure layer", "gradient", "key of a mask"}
        What is inside.
    array : ndarray
        What the server saw.
    """

    round: int
    client: str
    what: str
    array: np.ndarray


class _Protocol:
    """The rounds of one session, between the server and all clients.

    Parameters
    ----------
    session : Session
        Reaches the clients; the server is its centre.
    server : SecureServer
        Opened for this session.
    rotate_every : int
        Rounds for which keys are used.
    view : list, default=None
        Where to keep what the server receives.
    labels : callable, default=None
        ``labels(n_rows)`` says what is expected of the labels of a batch, in training.
    """

    def __init__(self, session, server, rotate_every, view=None, labels=None):
        self._session = session
        self._server = server
        self._agreement = server.agreement
        self._rotate_every = rotate_every
        self._view = view
        self._labels = labels
        self._name = uuid.uuid4().hex
        self._round = 0
        self._age = rotate_every
        self._epoch = 0

    def prepare(self):
        """Setup phase: keys, local modules, and a check that clusters prepare alike."""
        self._agree()
        session = self._session
        session.begin_round()
        session.tell("prepare")
        for first, *others in self._agreement.shared.values():
            session.begin_round()
            expected = Fields(dict.fromkeys(others, Vector(32)))
            signatures = session.ask(first, "sign_columns", reply=expected)
            each = {
                name: {"sender": first, "signature": signatures.get(name)}
                for name in others
            }
            session.tell("check_columns", to=others, each=each)

    def _agree(self):
        """Agree on the keys of the next key epoch; the server relays them."""
        if not self._agreement.masked:
            return
        session, server = self._session, self._server
        everybody = self._agreement.everybody
        session.begin_round()
        epoch = {"session": self._name, "epoch": self._epoch}
        offers = session.call("offer_keys", reply=Reply(64 * len(everybody)), **epoch)
        offers[SERVER] = server.keys.offer(**epoch)
        received = relay(offers, everybody, size=64)
        session.begin_round()
        size = Reply(32 * len(everybody))
        parcels = self._parcels(received)
        proofs = session.call("agree_keys", reply=size, each=parcels)
        proofs[SERVER] = server.keys.agree(received[SERVER])
        received = relay(proofs, everybody, size=32)
        session.begin_round()
        session.tell("confirm_keys", each=self._parcels(received))
        server.keys.confirm(received[SERVER])
        self._epoch += 1
        self._age = 0

    def _parcels(self, received):
        return {name: {"parcels": received[name]} for name in self._session.names}

    def forward(self, start, stop, training=False):
        """One round up to the secure layer: its output, labels and weights."""
        if self._age == self._rotate_every:
            self._agree()
        session, round_id = self._session, self._round
        self._round, self._age = self._round + 1, self._age + 1
        session.begin_round()
        chosen = session.ask(
            self._agreement.active,
            "select",
            reply=self._selection(stop - start),
            round_id=round_id,
            start=start,
            stop=stop,
        )
        session.begin_round()
        messages = session.call(
            "forward",
            reply=self._masked(Rows(stop - start, self._agreement.width)),
            each=self._broadcast(chosen.get("ids"), round_id),
            round_id=round_id,
            n_rows=stop - start,
            training=training,
        )
        total = self._server.add_up(messages, stop - start, round_id)
        self._record("secure layer", messages, round_id)
        labels, weights = (
            self._server.receive(chosen, what, stop - start, round_id)
            for what in ("labels", "weights")
        )
        if self._labels is not None:
            sent = {self._agreement.active: {"labels": labels, "weights": weights}}
            check_replies(sent, self._expected_labels(stop - start), "select")
        return total, labels, weights

    def _masked(self, numbers):
        """What is expected of a masked array, whose other parts are looked at later."""
        rest = ["epoch", "round", "tensor", "tag"]
        return Fields({"masked": numbers}, dict.fromkeys(rest, Reply(64)))

    def _selection(self, n_rows):
        """What is expected of a selected batch, whose parts are looked at later."""
        ids = len(self._agreement.passive) * (16 * n_rows + 64)
        kinds = {"labels": 16 * n_rows, "weights": 16 * n_rows}
        tags = {f"tag of {what}": 64 for what in kinds}
        sizes = {"ids": ids, **kinds, **tags}
        return Fields({}, {what: Reply(size) for what, size in sizes.items()})

    def _expected_labels(self, n_rows):
        fields = {"labels": self._labels(n_rows), "weights": Maybe(Vector(n_rows))}
        return {self._agreement.active: Fields(fields)}

    def _broadcast(self, ids, round_id):
        """All sealed ids to every passive client."""
        passive = self._agreement.passive
        if getattr(ids, "ndim", None) != 2 or len(ids) != len(passive):
            raise PartyError(
                self._agreement.active,
                f"it did not send row ids for each of the {len(passive)} clients",
            )
        for name, sealed in zip(passive, ids, strict=True):
            self._see(ServerRecord(round_id, name, "row ids", sealed))
        if self._agreement.masked:
            return {name: {"ids": ids} for name in passive}
        return {name: {"ids": mine} for name, mine in zip(passive, ids, strict=True)}

    def learn(self, start, stop):
        """One round of training; the mean loss and the weight of the batch."""
        total, labels, weights = self.forward(start, stop, training=True)
        learnt, gradient = self._server.learn(total, labels, weights)
        session, round_id = self._session, self._round - 1
        server, clients = self._server, self._agreement.clients
        session.begin_round()
        replies = session.call(
            "backward",
            reply={
                name: NOTHING if len(cluster) == 1 else ANYTHING
                for cluster in self._agreement.clusters.values()
                for name in cluster
            },
            each=server.tags(clients, GRADIENT, gradient, round_id),
            round_id=round_id,
            gradient=gradient,
        )
        for name, cluster in self._agreement.shared.items():
            messages = {c: replies[c] for c in cluster if c in replies}
            keys = server.take_keys(name, messages)
            shared = server.add_up_gradients(name, messages, round_id)
            self._record("gradient", messages, round_id)
            each = server.tags(cluster, UPDATE, shared, round_id)
            for client, sealed in keys.items():
                each[client]["key"] = sealed
                self._see(ServerRecord(round_id, client, "key of a mask", sealed))
            session.begin_round()
            session.tell(
                "update", to=cluster, each=each, round_id=round_id, gradient=shared
            )
        return learnt

    def _record(self, what, messages, round_id):
        for client, message in messages.items():
            self._see(ServerRecord(round_id, client, what, message["masked"]))

    def _see(self, record):
        if self._view is not None:
            self._view.append(record)


class _BaseVFedSec(_BaseSplitNN):
    """Training and serving; the subclasses say what the labels are."""

    _parameter_constraints = {
        **{
            k: v
            for k, v in _BaseSplitNN._parameter_constraints.items()
            if k != "aggregation"
        },
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
        max_epochs=50,
        batch_size=128,
        lr=1e-3,
        optimizer=None,
        early_stopping=False,
        validation_fraction=0.1,
        n_iter_no_change=10,
        key_rings=None,
        record_server_view=False,
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
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.lr = lr
        self.optimizer = optimizer
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.key_rings = key_rings
        self.record_server_view = record_server_view
        self.transport = transport
        self.random_state = random_state

    def _fit(self, X, y, labels, weights, n_outputs, loss):
        sequences = seed_sequence(self.random_state).spawn(3)
        to_split, to_parties, to_rows = sequences
        X = self._fit_partition(X, y, to_split)
        n_rows = len(labels)
        to_deal, to_order = to_rows.spawn(2)
        held = self._deal(n_rows, np.random.default_rng(to_deal))
        blocks = self._split(X, fitting=True)
        self._check_contributors(self._rows_there(blocks, held), n_rows)
        agreement = Agreement(
            clusters=self.clusters_,
            active=self._active,
            width=self.cut_width,
            bound=float(self.bound),
            bits=int(self.bits),
            masked=self.masked,
        )
        clients, server = self._make_parties(agreement, to_parties, to_order, n_outputs)
        self.fingerprints_ = _fingerprints(clients, server) if self.masked else {}
        server = server.opened()
        server.begin_training(Optimize(self.optimizer, self.lr), loss)
        context = self._init_callback_context(max_subtasks=self.max_epochs)
        context.call_on_fit_task_begin(estimator=self, X=X, y=y)
        self.communication_ = CommunicationLog()
        self.__dict__.pop("server_view_", None)
        if self.record_server_view:
            self.server_view_ = []
        parties = self._hand_over(
            clients, blocks, n_rows, held, labels=labels, weights=weights
        )
        with self._connect(parties, self.communication_) as session:
            protocol = _Protocol(
                session,
                server,
                self.rotate_every,
                self.server_view_ if self.record_server_view else None,
                self._expected_labels,
            )
            protocol.prepare()
            self._train(session, protocol, server, n_rows, context)
        self._server = server.closed()
        self._parties = session.parties
        self.n_iter_ = len(self.loss_curve_)
        context.call_on_fit_task_end(estimator=self, X=X, y=y)
        return self

    def _expected_labels(self, n_rows):
        """What is expected of the labels of a batch."""
        # Asked in every round, where is_classifier would put all tags together anew.
        if isinstance(self, ClassifierMixin):
            return Vector(n_rows, len(self.classes_))
        return Rows(n_rows, 1)

    def _train(self, session, protocol, server, n_rows, context):
        """Training phase: for every batch a masked sum up and its gradient down."""
        n_held_out = (
            ceil(self.validation_fraction * n_rows) if self.early_stopping else 0
        )
        n_train = n_rows - n_held_out
        if not n_train:
            raise ValueError(
                f"early stopping holds out all {n_rows} rows: lower "
                "validation_fraction, or give more rows"
            )
        batches = batch_bounds(n_train, self.batch_size)
        self.loss_curve_, self.validation_loss_curve_ = [], []
        session.tell("begin_training", to=[self._active])
        for _ in range(self.max_epochs):
            task = context.subcontext(task_name="epoch")
            task.call_on_fit_task_begin(estimator=self)
            session.tell("begin_epoch", to=[self._active], n_train=n_train)
            learnt = [protocol.learn(start, stop) for start, stop in batches]
            self.loss_curve_.append(epoch_loss(learnt))
            check_finite(self.loss_curve_[-1:], len(self.loss_curve_), self.lr)
            stop = task.call_on_fit_task_end(estimator=self)
            if self.early_stopping:
                stop |= self._stops_early(session, protocol, server, n_train, n_rows)
            if stop:
                break
        if self.early_stopping:
            session.tell("recall")
            server.recall()

    def _stops_early(self, session, protocol, server, n_train, n_rows):
        """Whether the loss of the held-out rows has stopped improving."""
        total, size = np.sum(
            [
                server.evaluate(*protocol.forward(n_train + start, n_train + stop))
                for start, stop in batch_bounds(n_rows - n_train, self.batch_size)
            ],
            axis=0,
        )
        check_held_out(size)
        curve = self.validation_loss_curve_
        if not curve or total / size < min(curve):
            session.tell("remember")
            server.remember()
        curve.append(total / size)
        return len(curve) - 1 - int(np.argmin(curve)) >= self.n_iter_no_change

    def _serve(self, X, operation):
        """Testing phase: the same rounds as in training, up to the server's answer."""
        check_is_fitted(self)
        n_rows = _num_samples(_check_table(X))
        blocks = self._split(X)
        there = self._rows_there(blocks)
        self._check_contributors(there, n_rows)
        held = self._deal_in_turn(there, n_rows)
        parties = self._hand_over(self._parties, blocks, n_rows, held)
        server = self._server.opened()
        with self._connect(parties, current_log()) as session:
            protocol = _Protocol(session, server, self.rotate_every)
            answers = [
                protocol.forward(start, stop)[0]
                for start, stop in batch_bounds(n_rows, self.batch_size)
            ]
        answers = np.concatenate(answers)
        return check_answers(
            answers if operation == "combine" else server.predict(answers)
        )

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
        """Ids of the rows that each client holds, None for all; sets ``clusters_``."""
        clients = self.clients or {}
        holders = [
            name
            for name in self.partition_.parties_
            if name in self._holders or name == self._active
        ]
        for name in clients:
            if name not in holders or name == self._active:
                raise ValueError(
                    f"clients: {name!r} is not one of the passive parties "
                    f"{[each for each in holders if each != self._active]}"
                )
        self.clusters_, held, self._partly = {}, {}, set()
        for name in holders:
            owner = _owners(name, clients.get(name, 1), n_rows, rng)
            if owner is None:
                self.clusters_[name] = [name]
                held[name] = None
                continue
            if (owner == _NOBODY).any():
                self._partly.add(name)
            n_clients = owner.max() + 1
            cluster = [f"{name}.{i}" for i in range(n_clients)]
            self.clusters_[name] = cluster if n_clients > 1 else [name]
            held |= {
                client: np.flatnonzero(owner == i)
                for i, client in enumerate(self.clusters_[name])
            }
        names = [client for each in self.clusters_.values() for client in each]
        if len(set(names)) < len(names):
            raise ValueError(f"two clients have one name: {names}; rename the party")
        if len(names) < 2:
            raise ValueError(
                f"a secure layer needs at least two clients, and {names[0]!r} is "
                f"alone (n_features={self.n_features_in_}): its sum would be its own "
                "contribution"
            )
        return held

    def _deal_in_turn(self, there, n_rows):
        """Ids of the rows to be served that each client holds, None for all."""
        held = {}
        for name, cluster in self.clusters_.items():
            rows = there.get(name, np.ones(n_rows, bool))
            if self._imputes(name) or rows.all():
                rows = None
            for i, client in enumerate(cluster):
                ids = np.arange(i, n_rows, len(cluster))
                if rows is not None:
                    ids = ids[rows[ids]]
                elif len(cluster) == 1:
                    ids = None
                held[client] = ids
        return held

    def _imputes(self, name):
        """Whether a row to be served is prepared though a party lacks all its cells.

        The active party has chosen the row, so it holds it.
        """
        return name == self._active or self.missing_rows == "impute"

    def _instead_of_rows(self, name):
        if self._imputes(name):
            return super()._instead_of_rows(name)
        return "it contributes nothing to them"

    def _may_lack_rows(self, name, fitting):
        said = name in self._partly and not fitting
        return said or super()._may_lack_rows(name, fitting)

    def _unexplained(self, name, empty, fitting):
        """What ``clients`` says that nobody holds needs no further explanation."""
        said = self._said_to_hold(name, len(empty)) if fitting else None
        return empty if said is None else empty & said

    def _said_to_hold(self, name, n_rows):
        """Rows of ``fit`` that somebody is said to hold; None where nothing is said."""
        given = (self.clients or {}).get(name, 1)
        if isinstance(given, Integral):
            return None
        return _positions(name, given, n_rows) != _NOBODY

    def _rows_there(self, blocks, held=None):
        """Rows of which each party with columns holds something.

        In ``fit``, ``held`` says so. A row is not there either where all cells of
        several columns are missing. Where a party has a single column, its missing
        cells count as gaps, which are imputed, unless ``clients`` has said in ``fit``
        that nobody holds some of its rows.
        """
        there = {}
        for name in self._holders:
            block = blocks[name]
            rows = np.ones(_num_samples(block), bool)
            if held is not None and name in self._partly:
                ids = np.concatenate([held[c] for c in self.clusters_[name]])
                rows[:] = False
                rows[ids] = True
            if self._may_lack_rows(name, fitting=held is not None):
                rows &= ~rows_without_values(block)
            there[name] = rows
        return there

    def _check_contributors(self, there, n_rows):
        """Refuse rows whose sum over all clients is that of one organisation.

        An active party without columns is no second one: its bias is the same in all
        rows, starts at zero and follows the gradients that the server computes itself.
        Nothing is refused without masks, which would not be more in the clear.
        """
        count = np.sum([*there.values()], axis=0)
        n_bare = int((count < 2).sum())
        if not self.masked or not n_bare:
            return
        alone = {name: int((rows & (count == 1)).sum()) for name, rows in there.items()}
        said = [f"{n} of {name!r} alone" for name, n in alone.items() if n]
        if not count.all():
            said.append(f"{int((count == 0).sum())} of nobody")
        raise ValueError(
            f"{n_bare} of {n_rows} rows have columns of fewer than two organisations "
            f"({', '.join(said)}), and the sum over all clients would show the server "
            "what one of them contributes: leave out these rows, give columns of them "
            "to one more party, or set masked=False, which hides nothing"
        )

    def _hand_over(self, clients, blocks, n_rows, held, **to_active):
        """Every client with its rows, and the active one with who holds which."""
        party_of = {c: name for name, each in self.clusters_.items() for c in each}
        parties = []
        for name, client in clients.items():
            block, ids = blocks[party_of[name]], held[name]
            if ids is None:
                ids = np.arange(n_rows)
            else:
                block = _safe_indexing(block, ids)
            more = {}
            if name == self._active:
                holders = {
                    c: None if held[c] is None else np.isin(np.arange(n_rows), held[c])
                    for c in party_of
                    if c != name
                }
                more = {"holders": holders, **to_active}
            parties.append(client.holding(block=block, ids=ids, **more))
        return parties

    def _make_parties(self, agreement, sequence, to_order, n_outputs):
        rings = self._make_rings(agreement)
        to_prepare, to_models = sequence.spawn(2)
        prepare = self.partition_._make_transformers(to_prepare)
        bottom = Build(self.bottom, self.cut_width, name="bottom")
        optimize = Optimize(self.optimizer, self.lr)
        children = spawn_named(to_models, [*self.clusters_, SERVER])
        clients = {}
        for party, cluster in self.clusters_.items():
            for name in cluster:
                transformer = prepare.get(party)
                settings = (
                    name,
                    transformer if transformer is None else clone(transformer),
                    bottom,
                    optimize,
                    one_way(children[party]),
                    agreement,
                    rings[name],
                )
                clients[name] = (
                    ActiveClient(*settings, one_way(to_order))
                    if name == self._active
                    else SecureClient(*settings)
                )
        top = Build(self.top, n_outputs, activate=True, name="top", trains=False)
        server = SecureServer(agreement, top, one_way(children[SERVER]), rings[SERVER])
        return clients, server

    def _make_rings(self, agreement):
        """Everybody's identity: the one given, or a new one."""
        given = self.key_rings or {}
        names = [*agreement.clients, SERVER]
        for name, ring in given.items():
            if name not in names:
                raise ValueError(f"key_rings: {name!r} is not one of {names}")
            if not isinstance(ring, KeyRing) or ring.name != name:
                raise ValueError(f"key_rings: {name!r} needs a KeyRing({name!r})")
        return {
            name: copy.copy(given[name]) if name in given else KeyRing(name)
            for name in names
        }


def _owners(name, clients, n_rows, rng):
    """Position of each row's client in its cluster; None where one holds all rows."""
    if isinstance(clients, Integral) and not isinstance(clients, bool):
        if not 1 <= clients <= n_rows:
            raise ValueError(
                f"clients: {name!r} cannot have {clients} clients with n_samples="
                f"{n_rows}; each holds at least one row"
            )
        return None if clients == 1 else rng.permutation(np.arange(n_rows) % clients)
    owners = _positions(name, clients, n_rows)
    found = np.unique(owners[owners != _NOBODY])
    if not len(found) or not np.array_equal(found, np.arange(len(found))):
        raise ValueError(
            f"clients: the clients of {name!r} must be 0, 1, … and hold a row each, "
            f"with {_NOBODY} for rows that nobody holds; got "
            f"{np.unique(owners)[:5].tolist()} …"
        )
    return None if (owners == 0).all() else owners


def _positions(name, clients, n_rows):
    """Position of each row's client, as it was given."""
    owners = np.asarray(clients)
    if owners.shape != (n_rows,) or owners.dtype.kind not in "iu":
        raise ValueError(
            f"clients: {name!r} needs a number of clients, or the position of each "
            f"row's client as {n_rows} integers; got {owners.dtype} of shape "
            f"{owners.shape}"
        )
    return owners


def _fingerprints(clients, server):
    return {name: client.fingerprint for name, client in clients.items()} | {
        SERVER: server.fingerprint
    }


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
    active : str or int, default=0
        Name or position of the active party, which holds the labels and selects the
        rows. It may hold no columns.
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
        Rows to be served are dealt in turn, but for those without any cell of the party
        (see the notes of :class:`VFedSecClassifier`).
    bottom : array-like of int or callable, default=(64,)
        Every client's local module: sizes of the hidden layers of a perceptron, whose
        last layer is the client's part of the secure layer (with a bias at the active
        party only), or ``bottom(n_inputs, n_outputs)`` that returns a
        ``torch.nn.Module``, which is taken as it is.
    top : array-like of int or callable, default=(64,)
        The server's global module, given in the same way. A ReLU comes before it.
    cut_width : int, default=32
        Number of units of the secure layer.
    bits : {32, 64}, default=32
        Size of one masked number; 32 bits are no more bytes than float32.
    bound : float, default=1000.0
        Largest magnitude of any client's contribution to the secure layer, declared
        because the sum must not wrap. A larger one is an error, never clipped. The
        rounding error is at most ``n_clients ** 2 * bound / 2 ** (bits - 1)``, see
        :class:`~skvfl.privacy.FixedPoint`.
    rotate_every : int, default=5
        Batches after which all keys are agreed on anew, in training and in prediction.
    masked : bool, default=True
        Whether there are keys, masks and sealed row ids. Without them the numbers are
        the same to the last bit and everything is in the clear: for measurements only.
    max_epochs : int, default=50
        Number of passes over the rows.
    batch_size : int, default=128
        Rows per round. A last batch of one row joins its predecessor.
    lr : float, default=1e-3
        Learning rate of every client's own optimiser, and of the server's.
    optimizer : class or None, default=None
        From ``torch.optim``; Adam by default.
    early_stopping : bool, default=False
        Whether to hold out rows, stop when their loss no longer improves, and go back
        to the models that were best on them.
    validation_fraction : float, default=0.1
        Fraction of the rows held out.
    n_iter_no_change : int, default=10
        Epochs without improvement before stopping.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes in the loss, as in scikit-learn.
    key_rings : dict of str to KeyRing, default=None
        Lasting identities of clients and of ``"server"``, with the peers' fingerprints
        that each of them has pinned; whoever is not named gets a new identity in
        ``fit``. See :class:`~skvfl.privacy.KeyRing`.
    record_server_view : bool, default=False
        Whether to keep every masked or sealed array that the server received in
        ``fit``, as ``server_view_``.
    transport : {"local", "process"} or Transport, default="local"
        How the clients are reached, see :class:`LocalTransport` and
        :class:`ProcessTransport`.
    random_state : int, RandomState instance or None, default=None
        Root of the random streams of models and of the order of rows. ``None`` takes
        fresh entropy from the operating system, from which keys and masks always come;
        no result depends on them. A known seed is a known secret: who has it knows the
        order of rows and the first weights.

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
    *Who learns what.* The server sees the labels and weights of every batch and the
    secure layer's output of every row, which is the sum over all clients; nobody sees
    any single client's contribution, unless all other clients tell theirs. Every
    client sees the gradient of the secure layer's output, from which labels can be
    inferred, and the updates of its own local module. The clients of a cluster, and
    nobody else, see the sum of their gradients, which crosses the server under a mask
    whose key they alone have. From that sum they can compute each other's rows: with
    linear local modules exactly, where a batch is not larger than ``cut_width``; of two
    clients each knows the other's gradient. Passive clients learn which of their own
    rows are in a batch and the size of the batch; the server learns neither ids nor how
    many rows each client holds.

    *Who contributes.* A sum hides its parts only if it has two. With masks, rows of
    which fewer than two parties hold columns are refused in ``fit`` and in predictions.
    An active party without columns does not count, as the server can compute its bias.
    ``masked=False`` shows every contribution, so that nothing is refused.

    *Rows that a passive party does not hold* get a contribution of zero from it (the
    paper's indicator). In ``fit`` they are those of which ``clients`` says so. In
    predictions they are those without any cell of the party, with a warning, unless
    ``missing_rows="impute"``; where a
    party has a single column, only if ``clients`` has -1 for it, since a gap in one
    column is imputed. The active party holds every row.

    *Deviations from the paper* [1]_. Numbers whose sum could wrap are refused. Each
    message is authenticated. The gradient of a cluster is that of the mean loss over
    the batch, summed over the cluster's clients, so that the model does not depend on
    how many clients share the rows. Clients draw their first weights themselves, from
    a stream that a cluster shares, instead of receiving them from the server. A client
    makes one key pair in a key epoch, not one for each peer: every two still have a
    secret of their own, with fewer keys to make.

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
        max_epochs=50,
        batch_size=128,
        lr=1e-3,
        optimizer=None,
        early_stopping=False,
        validation_fraction=0.1,
        n_iter_no_change=10,
        class_weight=None,
        key_rings=None,
        record_server_view=False,
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
            max_epochs=max_epochs,
            batch_size=batch_size,
            lr=lr,
            optimizer=optimizer,
            early_stopping=early_stopping,
            validation_fraction=validation_fraction,
            n_iter_no_change=n_iter_no_change,
            key_rings=key_rings,
            record_server_view=record_server_view,
            transport=transport,
            random_state=random_state,
        )
        self.class_weight = class_weight

    @_fit_context(prefer_skip_nested_validation=False)
    def fit(self, X, y, sample_weight=None):
        """Train all clients' local modules and the server's global module.

        Parameters
        ----------
        X : DataFrame, ndarray or sparse matrix of shape (n_samples, n_features)
            The table of which every party holds some columns.
        y : array-like of shape (n_samples,)
            The active party's labels, which it shares with the server.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows in the loss, shared with the server like the labels.

        Returns
        -------
        self : VFedSecClassifier

        Raises
        ------
        ValueError
            If the labels are not classes, if parties, clients and columns do not match,
            or if fewer than two parties hold columns of a row; the message names them.
        PartyError
            If a client fails, or a contribution is over the bound; the message names
            the client.
        SecureAggregationError
            If a message was altered, replayed or is missing; the message names the
            client.
        """
        codes = self._encode_classes(y)
        weights = self._row_weights(X, sample_weight, self.class_weight, codes)
        if weights is not None:
            weights = weights.astype(np.float32)
        labels = codes.astype(np.min_scalar_type(len(self.classes_) - 1))
        loss = partial(functional.cross_entropy, reduction="none")
        return self._fit(X, y, labels, weights, len(self.classes_), loss)

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
        return softmax(self._serve(X, "predict").astype(np.float64), axis=1)

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
        codes = self._serve(X, "predict").argmax(axis=1)
        return self.classes_[codes]


class VFedSecRegressor(VFLRegressorMixin, _BaseVFedSec):
    """Secure split learning of a numerical target; see :class:`VFedSecClassifier`.

    The active party standardises its target, which the server receives in this form,
    and the squared error is minimised.

    Read more in the :ref:`User Guide <vfedsec>`.

    Parameters
    ----------
    parties : int, splitter, dict, list of tuple or VerticalPartitioner, default=2
        Who holds which columns, see :class:`VerticalPartitioner`.
    active : str or int, default=0
        Name or position of the active party, which holds the labels and selects the
        rows. It may hold no columns.
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
        Rows to be served are dealt in turn, but for those without any cell of the party
        (see the notes of :class:`VFedSecClassifier`).
    bottom : array-like of int or callable, default=(64,)
        Every client's local module: sizes of the hidden layers of a perceptron, whose
        last layer is the client's part of the secure layer (with a bias at the active
        party only), or ``bottom(n_inputs, n_outputs)`` that returns a
        ``torch.nn.Module``, which is taken as it is.
    top : array-like of int or callable, default=(64,)
        The server's global module, given in the same way. A ReLU comes before it.
    cut_width : int, default=32
        Number of units of the secure layer.
    bits : {32, 64}, default=32
        Size of one masked number; 32 bits are no more bytes than float32.
    bound : float, default=1000.0
        Largest magnitude of any client's contribution to the secure layer, declared
        because the sum must not wrap. A larger one is an error, never clipped. The
        rounding error is at most ``n_clients ** 2 * bound / 2 ** (bits - 1)``, see
        :class:`~skvfl.privacy.FixedPoint`.
    rotate_every : int, default=5
        Batches after which all keys are agreed on anew, in training and in prediction.
    masked : bool, default=True
        Whether there are keys, masks and sealed row ids. Without them the numbers are
        the same to the last bit and everything is in the clear: for measurements only.
    max_epochs : int, default=50
        Number of passes over the rows.
    batch_size : int, default=128
        Rows per round. A last batch of one row joins its predecessor.
    lr : float, default=1e-3
        Learning rate of every client's own optimiser, and of the server's.
    optimizer : class or None, default=None
        From ``torch.optim``; Adam by default.
    early_stopping : bool, default=False
        Whether to hold out rows, stop when their loss no longer improves, and go back
        to the models that were best on them.
    validation_fraction : float, default=0.1
        Fraction of the rows held out.
    n_iter_no_change : int, default=10
        Epochs without improvement before stopping.
    key_rings : dict of str to KeyRing, default=None
        Lasting identities of clients and of ``"server"``, with the peers' fingerprints
        that each of them has pinned; whoever is not named gets a new identity in
        ``fit``. See :class:`~skvfl.privacy.KeyRing`.
    record_server_view : bool, default=False
        Whether to keep every masked or sealed array that the server received in
        ``fit``, as ``server_view_``.
    transport : {"local", "process"} or Transport, default="local"
        How the clients are reached, see :class:`LocalTransport` and
        :class:`ProcessTransport`.
    random_state : int, RandomState instance or None, default=None
        Root of the random streams of models and of the order of rows. ``None`` takes
        fresh entropy from the operating system, from which keys and masks always come;
        no result depends on them. A known seed is a known secret: who has it knows the
        order of rows and the first weights.

    Attributes
    ----------
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
    VFedSecClassifier : The same for classes.
    SplitNNRegressor : The same network in the clear, with ``aggregation="sum"``.

    Notes
    -----
    *Who learns what*, who has to contribute to a row, and which rows a party holds are
    as in :class:`VFedSecClassifier`, with the target in place of labels.

    *Deviations from the paper* [1]_. Numbers whose sum could wrap are refused. Each
    message is authenticated. The gradient of a cluster is that of the mean loss over
    the batch, summed over the cluster's clients, so that the model does not depend on
    how many clients share the rows. Clients draw their first weights themselves, from
    a stream that a cluster shares, instead of receiving them from the server. A client
    makes one key pair in a key epoch, not one for each peer: every two still have a
    secret of their own, with fewer keys to make.

    References
    ----------
    .. [1] "vFedSec: Efficient Secure Aggregation for Vertical Federated Learning via
       Secure Layer".

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from skvfl import VFedSecRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> vfl = VFedSecRegressor(parties=3, max_epochs=30, random_state=0).fit(X, y)
    >>> vfl.score(X, y) > 0.5
    True
    """

    @_fit_context(prefer_skip_nested_validation=False)
    def fit(self, X, y, sample_weight=None):
        """Train all clients' local modules and the server's global module.

        Parameters
        ----------
        X : DataFrame, ndarray or sparse matrix of shape (n_samples, n_features)
            The table of which every party holds some columns.
        y : array-like of shape (n_samples,)
            The active party's target, which it shares with the server.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows in the loss, shared with the server like the target.

        Returns
        -------
        self : VFedSecRegressor

        Raises
        ------
        ValueError
            If parties, clients and columns do not match, or if fewer than two parties
            hold columns of a row; the message names them.
        PartyError
            If a client fails, or a contribution is over the bound; the message names
            the client.
        SecureAggregationError
            If a message was altered, replayed or is missing; the message names the
            client.
        """
        target = self._encode_target(y)
        self._mean, self._scale = mean_and_scale(target)
        standard = standardised(target, self._mean, self._scale).astype(np.float32)
        weights = self._row_weights(X, sample_weight)
        if weights is not None:
            weights = weights.astype(np.float32)
        return self._fit(X, y, standard, weights, 1, _squared_error)

    def predict(self, X):
        """Predict targets in their own units.

        Parameters
        ----------
        X : DataFrame, ndarray or sparse matrix of shape (n_samples, n_features)
            With the columns of ``fit``, in any order where they have names.

        Returns
        -------
        y : ndarray of shape (n_samples,), dtype float64
        """
        outputs = self._serve(X, "predict").astype(np.float64)
        return outputs[:, 0] * self._scale + self._mean
