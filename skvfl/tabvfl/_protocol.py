"""Algorithms 1 and 2 of the TabVFL paper: what is asked of whom, in which order."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from numbers import Integral, Real
from typing import Any

import numpy as np

from skvfl._random import int_seed
from skvfl._renamed import renamed
from skvfl.exceptions import PartyError
from skvfl.federation._replies import NOTHING, NUMBER, Fields, learnt, rows_of
from skvfl.federation._transport import check_rows
from skvfl.nn._steps import batch_bounds, epoch_loss, has_stalled, n_held_out
from skvfl.nn._training import check_finite

PRETRAINING, FINETUNING = "pretraining", "finetuning"


@dataclass(frozen=True)
class ClientFailures:
    """Simulated failures: which parties are offline in which epoch.

    Every passive party is offline for a whole epoch with the same probability, all
    independently, and never in the first epoch of pretraining or of finetuning.

    Parameters
    ----------
    probability : float
        From 0 to 1.
    random_state : int or None, default=None
        Root of the draws; the estimator's ``random_state`` by default.

    See Also
    --------
    TabVFLClassifier : Trains in spite of failures.

    Examples
    --------
    >>> from skvfl import ClientFailures
    >>> ClientFailures(0.3, random_state=0)
    ClientFailures(probability=0.3, random_state=0)
    """

    probability: float
    random_state: int | None = None

    def __post_init__(self):
        is_number = isinstance(self.probability, Real)
        if not (is_number and 0 <= self.probability <= 1):
            raise ValueError(
                f"probability must be from 0 to 1, got {self.probability!r}"
            )
        is_count = isinstance(self.random_state, Integral) and self.random_state >= 0
        if not (self.random_state is None or is_count):
            raise ValueError(
                "random_state must be an int of at least 0 or None, got "
                f"{self.random_state!r}"
            )

    def _draw(self, sequence, n_epochs, names):
        """Names of the parties that are offline, for every epoch."""
        if self.random_state is not None:
            sequence = np.random.SeedSequence(
                int(self.random_state), spawn_key=sequence.spawn_key
            )
        rng = np.random.default_rng(sequence)
        failed = rng.random((n_epochs, len(names))) < self.probability
        # A party that was never there has no cached rows, and no model.
        failed[0] = False
        return [[n for n, f in zip(names, row, strict=True) if f] for row in failed]


# A dataclass writes its own constructor.
_RENAMED = renamed(seed="random_state")(ClientFailures.__init__)
ClientFailures.__init__ = _RENAMED  # type: ignore[method-assign]


@dataclass
class Phase:
    """Pretraining or finetuning, and how far it has come."""

    name: str
    n_epochs: int
    # Of the orders of rows and of failures.
    sequence: np.random.SeedSequence
    # Losses of the epochs, on the rows that are trained on and on those held out.
    curve: list[float]
    held_out: list[float]
    epoch: int = 0
    # Of the epoch, for callbacks.
    task: Any = None
    # Parties that were offline when the models were best. What they come back with is
    # what they had then, but for the step that they were late with.
    unmoved: set[str] = field(default_factory=set)


class Training:
    """Both phases of a fit.

    Parameters
    ----------
    estimator : estimator
        Its settings, and where curves and failures are written down.
    session : Session
        Of the parties, which have said how many columns they hold.
    n_rows : int
        Number of rows, held-out ones included.
    sequence : SeedSequence
        Of the order of rows and of failures.
    course : Course
        Of the fit.

    Attributes
    ----------
    widths : dict of str to int
        Number of columns that each party sends, once training has begun.
    """

    def __init__(self, estimator, session, n_rows, sequence, course):
        self.estimator = estimator
        self.session = session
        self.active = estimator._active
        self.holders = estimator._holders
        self.everybody = {*self.holders, self.active}
        # Number of decoder outputs of every party with columns, as even as can be.
        # The latent vector is cut into parts, because the paper gives every guest a
        # decoder of its own share.
        sizes = map(len, np.array_split(np.arange(estimator.n_d), len(self.holders)))
        self.shares = dict(zip(self.holders, sizes, strict=True))
        self.n_train = n_rows - n_held_out(estimator, n_rows)
        self.held_out = {"start": self.n_train, "stop": n_rows}
        self.batches = batch_bounds(self.n_train, estimator.batch_size)
        self.sequences = sequence.spawn(3)
        self.course = course
        self.losses = {"train": {}, "held out": {}}

    def run(self):
        """Preparation, pretraining, finetuning."""
        self.prepare()
        # What labels have taught would be lost.
        if self.estimator.pretrain and self.estimator._earlier is None:
            phase = self._pretraining()
            if self.estimator.design == "local":
                self.pretrain_apart(phase)
            else:
                self.pretrain(phase)
        self.finetune(self._finetuning())
        # Whoever is gone has kept what it had, and nobody can ask it any more.
        self.session.tell("finish", to=self.everybody - self.session.lost())

    def prepare(self):
        """The parties prepare their columns, and build what works on them."""
        session, seed = self.session, int_seed(self.sequences[0])
        session.begin_round()
        # The host's encoder has as many inputs as all of them send, so it comes last.
        self.widths = session.call(
            "prepare",
            to=self.holders,
            each=_each("share", self.shares),
            reply=self.estimator._any_widths,
            seed=seed,
        )
        session.tell(
            "prepare_top",
            to=[self.active],
            seed=seed,
            n_columns=sum(self.widths.values()),
            n_train=self.n_train,
            shares=self.shares,
        )

    def pretrain(self, phase):
        """Algorithm 1: guests hide cells, host encodes and decodes, guests rebuild."""
        self.session.tell(
            "begin_decoding", to=[self.active], widths=self.pretraining_widths
        )
        for _ in self._epochs(phase):
            steps = [self.rebuild(start, stop) for start, stop in self.batches]
            if self._ends(phase, epoch_loss(steps), self.evaluate_rebuilt):
                break
        self._go_back(phase)

    def pretrain_apart(self, phase):
        """Instead of algorithm 1, every party pretrains an autoencoder of its own."""
        for _ in self._epochs(phase):
            if self._ends(phase, self.rebuild_alone(), self.evaluate_alone):
                break
        self._go_back(phase)

    def finetune(self, phase):
        """Algorithm 2: split learning of a linear map of the latent vector."""
        self.session.tell("begin_learning", to=[self.active], widths=self.widths)
        for _ in self._epochs(phase):
            steps = [self.learn(start, stop) for start, stop in self.batches]
            if self._ends(phase, epoch_loss(steps), self.evaluate_learnt):
                break
        self._go_back(phase)

    def rebuild(self, start, stop):
        """One batch of algorithm 1: three rounds; the sum of the guests' losses."""
        session, rows = self.session, {"start": start, "stop": stop}
        session.begin_round()
        # Guests choose the cells: the host must not know what is beneath them.
        hidden = self._hide("hide", rows, **rows)
        replies = {}
        if self.online:
            partitions = self._decode("decode", rows, hidden)
            session.begin_round()
            replies = self._ask_guests(
                "rebuild",
                each=_each("partition", partitions),
                reply={
                    name: Fields({"loss": NUMBER, "gradient": share})
                    for name, share in rows_of(self.shares, stop - start).items()
                },
            )
        if replies:
            gradients = {name: reply["gradient"] for name, reply in replies.items()}
            check_rows(gradients, stop - start, self.shares)
            # Only guests that answered get a gradient; the others were offline for this
            # batch.
            sent = {name: self.pretraining_widths[name] for name in gradients}
            gradients = session.ask(
                self.active,
                "correct",
                reply=Fields(rows_of(sent, stop - start)),
                gradients=gradients,
            )
            session.begin_round()
            self._ask_guests("adapt", each=_each("gradient", gradients))
        losses = {name: reply["loss"] for name, reply in replies.items()}
        return {"loss": self._total("train", losses), "weight": stop - start}

    def rebuild_alone(self):
        """An epoch of every party's own autoencoder; nothing crosses but the losses."""
        self.session.begin_round()
        losses = self._ask_guests(
            "pretrain_alone",
            reply=NUMBER,
            batch_size=self.estimator.batch_size,
            n_train=self.n_train,
        )
        return self._total("train", losses)

    def learn(self, start, stop):
        """One batch of algorithm 2: two rounds; the loss and what the rows weigh."""
        session, rows = self.session, {"start": start, "stop": stop}
        session.begin_round()
        expected = rows_of(self.widths, stop - start)
        received = self._ask_guests("forward", reply=expected, **rows)
        check_rows(received, stop - start, self.widths)
        # A guest that is offline has no part in the gradient: its cached rows are
        # constants.
        step = session.ask(
            self.active,
            "learn",
            reply=learnt({name: expected[name] for name in received}),
            **rows,
            received=received,
        )
        session.begin_round()
        self._ask_guests("backward", each=_each("gradient", step["gradients"]))
        # Without the gradients, which an epoch's list of steps would keep.
        return {name: step[name] for name in ("loss", "weight")}

    def evaluate_rebuilt(self):
        """Sum of the guests' losses of the held-out rows."""
        session, rows = self.session, self.held_out
        session.begin_round()
        hidden = self._hide("hide_held_out", rows)
        partitions = self._decode("decode_held_out", rows, hidden)
        session.begin_round()
        each = _each("partition", partitions)
        losses = self._ask_guests("rebuild_held_out", each=each, reply=NUMBER, **rows)
        return self._total("held out", losses)

    def evaluate_alone(self):
        """Sum of the parties' losses of the held-out rows."""
        self.session.begin_round()
        losses = self._ask_guests("evaluate_alone", reply=NUMBER, **self.held_out)
        return self._total("held out", losses)

    def evaluate_learnt(self):
        """Loss of the held-out rows."""
        session, rows = self.session, self.held_out
        session.begin_round()
        n_rows = rows["stop"] - rows["start"]
        expected = rows_of(self.widths, n_rows)
        received = self._ask_guests("represent", reply=expected, **rows)
        check_rows(received, n_rows, self.widths)
        return session.ask(
            self.active, "evaluate", reply=NUMBER, **rows, received=received
        )

    def _pretraining(self):
        """Let the parties build what pretraining needs."""
        estimator = self.estimator
        self.pretraining_widths = self.widths
        # Their own encoders send the decisions of every step, which the decoder needs
        # one by one; finetuning needs the sum alone.
        if estimator.design == "local_encoder":
            width = estimator.n_steps * estimator.n_d
            self.pretraining_widths = dict.fromkeys(self.holders, width)
        self.session.begin_round()
        self.session.tell("begin_pretraining", to=self.holders, n_train=self.n_train)
        return Phase(
            PRETRAINING,
            estimator._pretraining_epochs,
            self.sequences[1],
            estimator.pretraining_loss_curve_,
            estimator.pretraining_validation_loss_curve_,
        )

    def _finetuning(self):
        """Let the parties go over to labels."""
        estimator = self.estimator
        self.session.begin_round()
        self.session.tell("begin_finetuning", to=self.holders)
        return Phase(
            FINETUNING,
            estimator.max_epochs,
            self.sequences[2],
            estimator.loss_curve_,
            estimator.validation_loss_curve_,
        )

    def _epochs(self, phase):
        """Begin one epoch after the other, with the parties that are online."""
        to_epochs, to_failures = phase.sequence.spawn(2)
        guests = [name for name in self.holders if name != self.active]
        # Drawn at once, so that who is offline does not depend on how training goes.
        simulated = [[]] * phase.n_epochs
        if self.estimator.failure is not None:
            failure = self.estimator.failure
            simulated = failure._draw(to_failures, phase.n_epochs, guests)
        children = to_epochs.spawn(phase.n_epochs)
        for offline, to_epoch in zip(simulated, children, strict=True):
            phase.epoch += 1
            # Before finetuning there is no model that predicts.
            may_end = phase.name == FINETUNING
            phase.task = self.course.begin("epoch", may_end=may_end)
            self._find_out_who_is_online(phase, offline)
            # Before a step moves them, or their best models would be lost.
            back = phase.unmoved.intersection(self.online)
            self._tell("remember", to=back)
            phase.unmoved -= back
            shuffle = {"seed": int_seed(to_epoch), "n_train": self.n_train}
            self._tell("begin_epoch", to={*self.online, self.active}, **shuffle)
            yield phase.epoch

    def _ends(self, phase, loss, evaluate):
        """Write down the losses of an epoch; whether the phase ends with it."""
        estimator = self.estimator
        phase.curve.append(loss)
        check_finite([loss], phase.epoch, estimator.lr)
        # The task ends before held-out rows are asked of, so the two reasons to stop
        # are joined here.
        so_far = None
        if phase.name == FINETUNING:
            so_far = partial(estimator._so_far, self.session, _widths=self.widths)
        stop = self.course.end(phase.task, so_far)
        losses = {"train_loss": loss}
        if estimator.early_stopping:
            losses["valid_loss"], stalled = self._hold_out(phase, evaluate)
            stop |= stalled
        stop |= estimator._ask_callbacks(self.session, losses)
        # Somebody may have interrupted it since the epoch ended.
        return stop or self.course.interrupted

    def _hold_out(self, phase, evaluate):
        """Loss of the held-out rows, and whether it has stopped improving."""
        estimator, loss = self.estimator, evaluate()
        check_finite([loss], phase.epoch, estimator.lr)
        if not phase.held_out or loss < min(phase.held_out):
            self._tell("remember", to={*self.online, self.active})
            phase.unmoved = set(self.holders).difference(self.online)
        phase.held_out.append(loss)
        return loss, has_stalled(phase.held_out, estimator.n_iter_no_change)

    def _go_back(self, phase):
        """With early stopping, the parties go back to their best models."""
        if self.estimator.early_stopping:
            # These were never online again, so that they are as they were at the best
            # epoch.
            self.session.tell("remember", to=phase.unmoved)
            self.session.tell("recall", to=self.everybody)

    def _find_out_who_is_online(self, phase, simulated):
        self.moment = phase.name, phase.epoch
        # Nothing stands for a guest in the first epoch.
        self.forgiving = phase.epoch > 1 and self.estimator.missing_party != "raise"
        self.online = self.holders
        # A party that still owes a reply is busy with it.
        late = self.session.late()
        offline = [n for n in self.holders if n in simulated or n in late]
        self._go_on_without(offline)
        if offline and not self.forgiving:
            raise PartyError(
                offline[0],
                f"it is offline in epoch {phase.epoch} of {phase.name}; "
                "missing_party='cache' goes on with what it sent last, and 'zero' "
                "without it",
            )

    def _go_on_without(self, offline):
        if self.active in offline:
            raise PartyError(
                self.active, "it did not answer in time, and the others need it"
            )
        self.online = [name for name in self.online if name not in offline]
        self.estimator.failures_ += [(*self.moment, name) for name in offline]

    def _ask_guests(self, operation, **arguments):
        """Replies of the parties that are online; who is late is offline from here."""
        replies = self._tell(operation, to=self.online, **arguments)
        self._go_on_without([name for name in self.online if name not in replies])
        return replies

    def _tell(self, operation, to, reply=NOTHING, **arguments):
        return self.session.call(
            operation, to=to, skip_late=self.forgiving, reply=reply, **arguments
        )

    def _hide(self, operation, rows, **arguments):
        """What the guests send of rows some of whose cells are hidden, by kind."""
        n_rows = rows["stop"] - rows["start"]
        kinds = ["outputs"]
        if self.estimator.design == "joint":
            kinds.append("hidden")
        expected = {
            name: Fields(dict.fromkeys(kinds, each))
            for name, each in rows_of(self.pretraining_widths, n_rows).items()
        }
        replies = self._ask_guests(operation, reply=expected, **arguments)
        sent = {"outputs": {}, "hidden": {}}
        for kind in kinds:
            sent[kind] = {name: reply[kind] for name, reply in replies.items()}
            check_rows(sent[kind], n_rows, self.pretraining_widths)
        return sent

    def _decode(self, operation, rows, hidden):
        """The active party's answer to what was hidden: each party's share of it."""
        shares = rows_of(self.shares, rows["stop"] - rows["start"])
        expected = Fields({name: shares[name] for name in hidden["outputs"]})
        return self.session.ask(
            self.active, operation, reply=expected, **rows, **hidden
        )

    def _total(self, kind, losses):
        """Sum of the guests' losses; who is offline counts with its last one."""
        # Without it the sum would fall where a party is gone, and that epoch would be
        # the best.
        self.losses[kind].update(losses)
        return sum(self.losses[kind].values())


def _each(argument, values):
    return {name: {argument: value} for name, value in values.items()}
