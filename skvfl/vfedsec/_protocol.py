"""vFedSec's rounds, and the server that runs them.

The server adds up what it cannot read, and holds the top model. It is at home where the
protocol runs.
"""

from __future__ import annotations

import copy
import uuid
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch

from skvfl.exceptions import PartyError
from skvfl.federation import Party
from skvfl.federation._replies import (
    ANYTHING,
    NOTHING,
    NUMBER,
    Fields,
    Maybe,
    Reply,
    Rows,
    Vector,
    check_replies,
)
from skvfl.nn._build import Build, Optimize
from skvfl.nn._device import bring_home
from skvfl.nn._explicit import CrossEntropy, SquaredError, trainer
from skvfl.nn._labels import teach
from skvfl.nn._steps import (
    batch_bounds,
    check_held_out,
    epoch_loss,
    has_stalled,
    infer,
)
from skvfl.nn._streams import private_generator
from skvfl.nn._training import check_finite
from skvfl.privacy import SecureAggregationError
from skvfl.privacy._draw import COMMITMENT, CONTRIBUTION, Draw
from skvfl.privacy._masks import SERVER
from skvfl.privacy._sealed_keys import SEALED_KEY
from skvfl.vfedsec._agreement import (
    GRADIENT,
    UPDATE,
    AgreedSettings,
    Keys,
    Relay,
    own_ring,
)
from skvfl.vfedsec._parties import FILLED, Best, Training
from skvfl.vfedsec._turns import Turns

# Rows of a batch to be served. Training's batches are as small as learning needs them;
# in predictions each would cost its rounds and its share of new keys for nothing.
_SERVED_AT_ONCE = 4096


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


@dataclass
class Sums:
    """What adds up the clients' messages, under keys of this run."""

    after: ClassVar = "again"
    layer: Any
    gradients: dict


@dataclass(frozen=True, kw_only=True)
class ServerSettings(AgreedSettings, role="vfedsec.server"):
    """What the server is told; the estimator's parameters of these names.

    Parameters
    ----------
    n_classes : int or None
        Number of classes; None for a numerical target.
    """

    top: Any
    n_classes: int | None

    def make(self, member):
        """A server with a global module and keys of its own."""
        n_outputs = 1 if self.n_classes is None else self.n_classes
        # It may have no weights, as the clients learn through it all the same.
        build = Build(self.top, n_outputs, activate=True, name="top", trains=False)
        return SecureServer(
            member.name,
            self.agreement,
            build(self.cut_width, private_generator(member.stream("models"))),
            Optimize(
                self.optimizer,
                self.lr,
                weight_decay=self.weight_decay,
                device=member.device,
                callbacks=member.callbacks,
            ),
            own_ring(member, self.agreement),
            self.n_classes,
        )


class SecureServer(Party):
    """The server of vFedSec: it adds up what it cannot read, and holds the top model.

    It offers no operation: it asks, and nobody asks it.

    Parameters
    ----------
    name : str
        Name of the server.
    agreement : Agreement
        What all have agreed on.
    top : torch.nn.Module
        The global module.
    optimize : callable
        ``optimize(parameters)`` gives the server's own optimiser.
    ring : KeyRing
        The server's keys.
    n_classes : int or None
        Number of classes; None for a standardised target.
    """

    def __init__(self, name, agreement, top, optimize, ring, n_classes):
        super().__init__(name)
        self.agreement = agreement
        self._top = top
        self._optimize = optimize
        self._ring = ring
        self._n_classes = n_classes
        self._row_loss = SquaredError() if n_classes is None else CrossEntropy()
        self._begin()

    def _begin(self):
        agreement, ring = self.agreement, self._ring
        gradients = {
            name: agreement.aggregator(ring, cluster)
            for name, cluster in agreement.shared.items()
        }
        self.hold(Sums(agreement.aggregator(ring), gradients))

    def again(self):
        """The same server for another run, with keys of its own."""
        server = super().again()
        # Two predictions may run at once, and each agrees on keys of its own.
        server._ring = copy.copy(self._ring)
        server._optimize = self._optimize.on(self._optimize.device)
        server._begin()
        return server

    def release(self):
        """Drop the keys, and what only training needs; identity and model stay."""
        super().release()
        # Keys of a run that is over could only help whoever recorded it.
        self._ring.forget()
        self._optimize = self._optimize.on()
        bring_home(self._top.eval())

    @property
    def fingerprints(self):
        """Fingerprint of every client's identity, as met in this run, and its own."""
        met = {name: self._ring.pinned[name] for name in self.agreement.clients}
        return {**met, self.name: self._ring.fingerprint}

    @property
    def keys(self):
        """The server's part in agreeing on keys."""
        return self.held(Keys)

    def draw(self, session):
        """The server's part in drawing a seed: it relays, and contributes nothing."""
        return Draw(self._ring, self.agreement.clients, session, SERVER)

    def join(self, seed):
        """Learn who agrees on keys with whom, from the clients' seed."""
        agreement = self.agreement
        self.hold(Keys(self._ring, agreement, seed))
        peers = {name: agreement.peers(name, seed) for name in agreement.everybody}
        self.hold(Relay(peers))

    @property
    def relay(self):
        """What hands keys and proofs to everybody."""
        return self.held(Relay)

    def add_up(self, messages, n_rows, round_id):
        """Output of the secure layer for a batch.

        Parameters
        ----------
        messages : dict of str to message
            Every client's masked contribution.
        n_rows : int
            Number of rows of the batch.
        round_id : int
            Number of the round.

        Returns
        -------
        total : ndarray of shape (n_rows, width), dtype float32
        """
        total = self.held(Sums).layer.total(messages, round_id=round_id)
        if total.shape != (n_rows, self.agreement.width):
            raise SecureAggregationError(
                self.agreement.clients[0],
                f"it and all others sent arrays of shape {total.shape} where "
                f"{(n_rows, self.agreement.width)} was due",
            )
        # The sum has the error of fixed-point numbers, which is far above that of
        # float32.
        return total.astype(np.float32)

    def add_up_gradients(self, cluster, messages, round_id):
        """Gradient of a cluster's local module over all of its rows in the batch.

        It is masked still, as only the cluster's clients can read it.
        """
        sums = self.held(Sums).gradients[cluster]
        return sums.add_up(messages, round_id=round_id)

    def take_keys(self, cluster, messages):
        """Keys that the first client of a cluster has sealed for each of the others.

        They are taken out of its message.
        """
        # One client's key is enough, and the server, which relays it, cannot open it.
        first, *others = self.agreement.shared[cluster]
        if not self.agreement.masked:
            return {}
        message = messages.get(first)
        sealed = message.get("keys") if isinstance(message, dict) else None
        if (
            not isinstance(sealed, np.ndarray)
            or sealed.dtype != np.uint8
            or sealed.shape != (len(others), SEALED_KEY)
        ):
            raise SecureAggregationError(
                first,
                f"it did not send {SEALED_KEY} bytes to each of {others} for the key "
                "of their mask",
            )
        messages[first] = {k: v for k, v in message.items() if k != "keys"}
        return dict(zip(others, sealed, strict=True))

    def receive(self, active, chosen, what, n_rows, round_id):
        """Labels or weights of a batch from an active party; None if it sent none."""
        if what not in chosen:
            return None
        array = chosen[what]
        if not isinstance(array, np.ndarray) or array.shape[:1] != (n_rows,):
            raise SecureAggregationError(
                active,
                f"its {what} are not an array for the {n_rows} rows of the batch",
            )
        # Labels are not masked, so a tag is all that shows who has sent them.
        tag = chosen.get(f"tag of {what}")
        self.agreement.verify(self._ring, active, what, array, tag, round_id)
        return array

    def tags(self, clients, what, array, round_id):
        """Tag of an array for each of the clients it is sent to."""
        sign = self.agreement.sign
        return {
            name: {"tag": sign(self._ring, name, what, array, round_id)}
            for name in clients
        }

    @property
    def classifies(self):
        """Whether labels are classes."""
        return self._n_classes is not None

    @property
    def trains(self):
        """Whether this run is one of training."""
        return self.holds(Training)

    def expected_labels(self, n_rows):
        """What is expected of the labels of a batch."""
        if self._n_classes is None:
            return Rows(n_rows, 1)
        return Vector(n_rows, self._n_classes)

    def begin_training(self):
        """Take an optimiser."""
        # Here and not in every batch, as it goes through all modules.
        self._top.train()
        self.hold(Training(trainer({"_top": self._top}, self._optimize)))

    def learn(self, total, labels, weights):
        """One step: mean loss and weight of a batch, gradient of the secure layer."""
        trainer = self.held(Training).trainer
        cut = torch.from_numpy(total)
        outputs, tape = trainer.forward("_top", cut, further=True)
        report, gradient = teach(self._row_loss, outputs, *_tensors(labels, weights))
        gradient = trainer.backward(tape, gradient)
        trainer.step()
        return report, gradient.numpy()

    @property
    def watch(self):
        """What tells the server's callbacks of its training, if it has any."""
        return self.held(Training).trainer.watch

    def evaluate(self, total, labels, weights):
        """Sum of the losses of rows, and of their weights."""
        with torch.inference_mode():
            outputs = infer(self._top, torch.from_numpy(total)).float()
            labels, weights = _tensors(labels, weights)
            losses = self._row_loss(outputs, labels)
            if weights is None:
                return losses.sum().item(), float(len(losses))
            return (losses * weights).sum().item(), weights.sum().item()

    def predict(self, total):
        """Outputs of the global module."""
        return infer(self._top, torch.from_numpy(total)).numpy()

    def remember(self):
        """Keep a copy of the global module as it is."""
        self.hold(Best(copy.deepcopy(self._top)))

    def recall(self):
        """Go back to the copy that was kept last."""
        self._top = self.held(Best).model
        self.drop(Best)


def _tensors(labels, weights):
    """Labels and weights of a batch, as a loss takes them."""
    # Codes come in the smallest type that holds them; torch counts in int64.
    if labels.dtype.kind == "u":
        labels = labels.astype(np.int64)
    weights = None if weights is None else torch.from_numpy(weights)
    return torch.from_numpy(labels), weights


class Protocol:
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
    """

    def __init__(self, session, server, rotate_every, view=None):
        self._session = session
        self._server = server
        self._agreement = server.agreement
        self._rotate_every = rotate_every
        self._view = view
        # Part of what keys are agreed on for, so that no message of another run passes.
        self._name = uuid.uuid4().hex
        self._round = 0
        # As old as keys get, so that the first round of a served table agrees on some.
        self._age = rotate_every
        self._epoch = 0
        self._expected = {}
        # A client that is alone in its cluster keeps its gradient.
        self._gradients = {
            name: ANYTHING if len(cluster) > 1 else NOTHING
            for name, cluster in server.agreement.cluster_of.items()
        }

    def open(self, n_rows, *, fitting, imputes):
        """Tell active clients which rows the others hold, before the first round.

        Their answers are for an active client, which seals the ids of these rows; the
        server learns neither the rows nor their number.

        Parameters
        ----------
        n_rows : int
            Number of rows of the run.
        fitting : bool
            Whether they are rows to learn from; otherwise they are to be served.
        imputes : bool
            Whether rows to be served are imputed of which a client has no cell.
        """
        agreement = self._agreement
        # The first one alone asks for predictions.
        choosers = agreement.choosers if fitting else [agreement.active]
        run = {"n_rows": n_rows, "fitting": fitting, "imputes": imputes}
        # Before the first round, with which the log's counts begin.
        run["opening"] = True
        codes = Maybe(Vector(n_rows, FILLED + 1))
        for chooser in choosers:
            others = agreement.beside(chooser)
            rows = self._session.call(
                "say_rows", to=others, reply_to=chooser, reply=codes, **run
            )
            self._session.tell("take_rows", to=[chooser], rows=rows, **run)

    def prepare(self):
        """Setup phase: keys, local modules, and a check that clusters prepare alike."""
        # Keys first: the signatures of columns are made with them.
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

    def _draw_graph(self):
        """The clients draw with whom each shares masks; the server relays."""
        if not self._agreement.draws_graph:
            self._server.join(None)
            return
        session, draw = self._session, self._server.draw(self._name)
        session.begin_round()
        size = Reply(COMMITMENT)
        commitments = session.call("commit", reply=size, session=self._name)
        session.begin_round()
        bound = draw.bind(commitments)
        size = Reply(CONTRIBUTION)
        told = draw.gather(session.call("reveal", reply=size, bound=bound))
        session.begin_round()
        session.tell("draw_graph", contributions=told)
        self._server.join(draw.finish(told))

    def _agree(self):
        """Agree on the keys of the next key epoch; the server relays them."""
        if not self._agreement.masked:
            return
        session, server = self._session, self._server
        if not self._epoch:
            self._draw_graph()
        largest = len(self._agreement.everybody)
        session.begin_round()
        epoch = {"session": self._name, "epoch": self._epoch}
        offers = session.call("offer_keys", reply=Reply(64 * largest), **epoch)
        # The server has keys with every client as well, for ids, labels and gradients.
        offers[SERVER] = server.keys.offer(**epoch)
        received = server.relay.deliver(offers, size=64)
        session.begin_round()
        parcels = self._parcels(received)
        proofs = session.call("agree_keys", reply=Reply(32 * largest), each=parcels)
        proofs[SERVER] = server.keys.agree(received[SERVER])
        received = server.relay.deliver(proofs, size=32)
        session.begin_round()
        session.tell("confirm_keys", each=self._parcels(received))
        server.keys.confirm(received[SERVER])
        self._epoch += 1
        self._age = 0

    def _parcels(self, received):
        return {name: {"parcels": received[name]} for name in self._session.names}

    def forward(self, start, stop, chooser=None, training=False):
        """One round up to the secure layer: its output, labels and weights.

        Parameters
        ----------
        start, stop : int
            Bounds of the batch in the order of rows of the one who selects it.
        chooser : str, default=None
            The active client that does; the first one by default.
        training : bool, default=False
            Whether a gradient will follow.
        """
        active = self._agreement.active if chooser is None else chooser
        # Before a batch, never within one: its messages are all under the same keys.
        if self._age == self._rotate_every:
            self._agree()
        session, round_id = self._session, self._round
        self._round, self._age = self._round + 1, self._age + 1
        session.begin_round()
        chosen = session.ask(
            active,
            "select",
            reply=self._expect(stop - start)["select"],
            round_id=round_id,
            start=start,
            stop=stop,
        )
        # All clients are asked, as the server does not know who holds the rows.
        session.begin_round()
        messages = session.call(
            "forward",
            reply=self._expect(stop - start)["forward"],
            each=self._own_ids(active, chosen.get("ids"), round_id),
            round_id=round_id,
            n_rows=stop - start,
            training=training,
        )
        total = self._server.add_up(messages, stop - start, round_id)
        self._record("secure layer", messages, round_id)
        labels, weights = (
            self._server.receive(active, chosen, what, stop - start, round_id)
            for what in ("labels", "weights")
        )
        if self._server.trains:
            sent = {active: {"labels": labels, "weights": weights}}
            expected = {active: self._expect(stop - start)["labels"]}
            check_replies(sent, expected, "select")
        return total, labels, weights

    def add_up(self, n_rows):
        """Testing phase: the secure layer's output for rows to be served."""
        bounds = batch_bounds(n_rows, _SERVED_AT_ONCE)
        return np.concatenate([self.forward(start, stop)[0] for start, stop in bounds])

    def answer(self, total):
        """What the active client reads in the server's outputs; it keeps the answer."""
        outputs, active = self._server.predict(total), self._agreement.active
        expected = Rows(*outputs.shape)
        # Only the active client knows the units, and it is the one that has asked.
        sent = {"reply": expected, "reply_to": active, "outputs": outputs}
        return self._session.ask(active, "answer", **sent)

    def _expect(self, n_rows):
        """What is expected of replies about a batch, by what is asked."""
        # Kept, as most batches have as many rows.
        if n_rows not in self._expected:
            self._expected[n_rows] = {
                "select": self._selection(n_rows),
                "forward": self._masked(Rows(n_rows, self._agreement.width)),
                "labels": self._labels(n_rows) if self._server.trains else None,
            }
        return self._expected[n_rows]

    def _masked(self, numbers):
        """What is expected of a masked array, whose other parts are looked at later."""
        rest = ["epoch", "round", "tensor", "tag"]
        return Fields({"masked": numbers}, dict.fromkeys(rest, Reply(64)))

    def _selection(self, n_rows):
        """What is expected of a selected batch, whose parts are looked at later."""
        ids = len(self._agreement.clients) * (16 * n_rows + 64)
        kinds = {"labels": 16 * n_rows, "weights": 16 * n_rows}
        tags = {f"tag of {what}": 64 for what in kinds}
        sizes = {"ids": ids, **kinds, **tags}
        return Fields({}, {what: Reply(size) for what, size in sizes.items()})

    def _labels(self, n_rows):
        labels = self._server.expected_labels(n_rows)
        fields = {"labels": labels, "weights": Maybe(Vector(n_rows))}
        return Fields(fields)

    def _own_ids(self, active, ids, round_id):
        """What each client is sent of the batch: its own ids alone."""
        passive = self._agreement.beside(active)
        if getattr(ids, "ndim", None) != 2 or len(ids) != len(passive):
            raise PartyError(
                active,
                f"it did not send row ids for each of the {len(passive)} clients",
            )
        own = dict(zip(passive, ids, strict=True))
        self._record("row ids", own, round_id)
        # Not broadcast as in the paper: every client would receive what grows with the
        # number of clients, and open one part of it.
        each = {name: {"ids": mine} for name, mine in own.items()}
        if len(self._agreement.choosers) > 1:
            # Who has sealed them, for those who open them; the chooser as well.
            for name in self._agreement.clients:
                each.setdefault(name, {})["chooser"] = active
        return each

    def train(self, estimator, n_labels, course):
        """Training phase: for every batch a masked sum up and its gradient down.

        Parameters
        ----------
        estimator : estimator
            Says how long, and gets ``loss_curve_`` and ``validation_loss_curve_``.
        n_labels : dict of str to int
            Number of rows whose labels each active client holds.
        course : Course
            Of the estimator's callbacks.
        """
        session, server, active = self._session, self._server, [*n_labels]
        turns = Turns.of(estimator, n_labels)
        estimator._begin_curves()
        server.begin_training()
        self._share_units()
        session.tell("begin_training", to=active)
        for _ in range(estimator.max_epochs):
            task = course.begin("epoch", may_end=True)
            session.tell("begin_epoch", to=active, each=turns.sizes)
            if server.watch is not None:
                server.watch.begin_epoch()
            learnt = [self.learn(*batch) for batch in turns.batches]
            estimator.loss_curve_.append(epoch_loss(learnt))
            check_finite(
                estimator.loss_curve_[-1:], len(estimator.loss_curve_), estimator.lr
            )
            # The task ends before held-out rows are asked of, so the two reasons to
            # stop are joined here and not in ``Course.tasks``.
            stop = course.end(task, partial(self._so_far, estimator))
            if estimator.early_stopping:
                stop |= self._stops_early(estimator, turns.held_out)
            if server.watch is not None:
                stop |= server.watch.end_epoch(estimator._last_losses())
            # Somebody may have interrupted it since the epoch ended.
            if stop or course.interrupted:
                break
        if estimator.early_stopping:
            session.tell("recall")
            server.recall()
        if server.watch is not None:
            server.watch.finish()

    def _so_far(self, estimator):
        server = copy.deepcopy(self._server.again())
        return estimator._so_far(self._session, _server=server)

    def _share_units(self):
        """Let the first active client tell the others in what units targets are."""
        first, *others = self._agreement.choosers
        if self._server.classifies:
            return
        for other in others:
            expected = {"reply": Fields({"mean": NUMBER, "scale": NUMBER})}
            units = self._session.ask(first, "say_units", reply_to=other, **expected)
            self._session.tell("take_units", to=[other], **units)

    def _stops_early(self, estimator, held_out):
        """Whether the loss of the held-out rows has stopped improving."""
        total, size = np.sum(
            [self._server.evaluate(*self.forward(*batch)) for batch in held_out],
            axis=0,
        )
        check_held_out(size)
        curve = estimator.validation_loss_curve_
        if not curve or total / size < min(curve):
            self._session.tell("remember")
            self._server.remember()
        curve.append(total / size)
        return has_stalled(curve, estimator.n_iter_no_change)

    def learn(self, start, stop, chooser):
        """One round of training; the mean loss and the weight of the batch."""
        total, labels, weights = self.forward(start, stop, chooser, training=True)
        learnt, gradient = self._server.learn(total, labels, weights)
        session, round_id = self._session, self._round - 1
        server, clients = self._server, self._agreement.clients
        session.begin_round()
        replies = session.call(
            "backward",
            reply=self._gradients,
            each=server.tags(clients, GRADIENT, gradient, round_id),
            round_id=round_id,
            gradient=gradient,
        )
        # One round for each cluster: its clients share a module, and take one step by
        # the gradient of all of their rows.
        for name, cluster in self._agreement.shared.items():
            messages = {c: replies[c] for c in cluster if c in replies}
            keys = server.take_keys(name, messages)
            shared = server.add_up_gradients(name, messages, round_id)
            self._record("gradient", messages, round_id)
            each = server.tags(cluster, UPDATE, shared, round_id)
            for client, sealed in keys.items():
                each[client]["key"] = sealed
            self._record("key of a mask", keys, round_id)
            session.begin_round()
            session.tell(
                "update", to=cluster, each=each, round_id=round_id, gradient=shared
            )
        return learnt

    def _record(self, what, arrays, round_id):
        """Keep what the server received of each client, where it is asked for."""
        if self._view is None:
            return
        for client, array in arrays.items():
            if isinstance(array, dict):
                array = array["masked"]
            self._view.append(ServerRecord(round_id, client, what, array))
