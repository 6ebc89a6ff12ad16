"""FedOnce's host, with the labels and the head."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch

from skvfl.exceptions import TrainingError
from skvfl.federation import Holding, Settings, operation
from skvfl.federation._party import run
from skvfl.fedonce._parties import (
    Drawn,
    NoisySteps,
    OneRound,
    SplitPart,
    optimize_of,
    run_of,
)
from skvfl.nn._apart import JointNetwork, keep_apart
from skvfl.nn._build import Build
from skvfl.nn._labels import Codec, Lessons
from skvfl.nn._private import PrivateSteps, PrivateTraining
from skvfl.nn._steps import TINY, public_order, tensor
from skvfl.nn._training import Training
from skvfl.splitnn._active import TopParty
from skvfl.splitnn._parties import Inputs


@dataclass
class Alone:
    """What the host trains by itself."""

    after: ClassVar = "receive"
    training: Training | PrivateTraining


@dataclass(frozen=True, kw_only=True)
class HostSettings(Settings, role="fedonce.host"):
    """What the host is told; the estimator's parameters of these names.

    Parameters
    ----------
    run : dict or None, default=None
        Under a budget, the fields of a SampledGaussian: the noisy steps to take.
    """

    bottom: Any
    cut_width: int
    top: Any
    max_epochs: int
    batch_size: int
    lr: float
    optimizer: Any = None
    weight_decay: float = 0.0
    early_stopping: bool = False
    validation_fraction: float = 0.1
    n_iter_no_change: int = 10
    run: dict | None = None
    max_grad_norm: float | None = None

    def make(self, member):
        """The party that has the labels."""
        codec = Codec(member.labels)
        check = None if self.run is None else keep_apart
        # A local network without parameters will do, because the head learns above it.
        party = HostParty(
            member.name,
            member.transformer(self.transformer),
            Build(
                self.bottom, self.cut_width, name="bottom", trains=False, check=check
            ),
            optimize_of(self, member),
            member.stream("models"),
            Build(self.top, codec.n_outputs, name="top", check=check),
            codec,
        )
        party.hold(OneRound(self, member.stream("once")))
        return party


class HostParty(SplitPart, TopParty):
    """The host: the labels, a local network on its own columns, and the head.

    The head is given what the local network puts out, and every guest's representation,
    of which the host standardises each number: networks of guests put out numbers of
    all sizes, and the local network, which learns with the head, needs no help.

    Parameters
    ----------
    name, transformer, build_local, optimize, stream
        As for :class:`~skvfl.splitnn._parties.SplitParty`.
    build_head : callable
        ``build_head(n_inputs, generator)`` gives the head.
    codec : Codec
        How labels are written, and outputs read.
    """

    made_by: ClassVar = dict.fromkeys(
        ("_bottom", "_top", "_names", "_scales"), "receive"
    )

    def __init__(
        self, name, transformer, build_local, optimize, stream, build_head, codec
    ):
        parts = name, transformer, build_local, optimize, stream, build_head
        super().__init__(*parts, "concat", codec)

    @operation
    def receive(self, received):
        """Build networks for representations that do not change, and begin to train.

        Parameters
        ----------
        received : dict of str to ndarray
            Every guest's representation.
        """
        goes_on = self._goes_on(received)
        if not goes_on:
            # Means and deviations of rows are a release that nobody accounts for.
            private = self.held(OneRound).told.run is not None
            scale = _as_it_is if private else _mean_and_deviation
            self._scales = {name: scale(sent) for name, sent in received.items()}
        cuts = {name: tensor(sent) for name, sent in received.items()}
        # Standardised once, as representations do not change while the host trains.
        inputs = [cut.numpy() for cut in self._standardised(cuts).values()]
        if self._transformer is not None:
            prepare = self._transformer
            prepare = prepare.transform if goes_on else prepare.fit_transform
            inputs = [run(prepare, self.held(Holding).block), *inputs]
        if not goes_on:
            self._build(list(received), inputs)
        self.hold(Alone(self._begin_training(tuple(inputs))))

    def _goes_on(self, received):
        """Take the networks of an earlier fit, if this one goes on from it."""
        parts = ["_top", "_names", "_scales", "_codec"]
        if self._transformer is not None:
            parts += ["_transformer", "_bottom"]
        if not self.take_over(*parts):
            return False
        if self._scales.keys() != received.keys():
            raise TrainingError(
                f"warm_start=True goes on with the guests {[*self._scales]}, and "
                f"{[*received]} have answered: set warm_start=False"
            )
        return True

    def _build(self, guests, inputs):
        """Networks for the own columns, if there are any, and what guests sent."""
        # The local network before the head: its width is part of the head's input, and
        # both draw from one stream.
        if self._transformer is not None:
            own, *inputs = inputs
            self._bottom = self._build_bottom(own.shape[1], self._generator)
            # Zeros: a network of the user's own could keep what it is asked.
            with torch.inference_mode():
                width = self._bottom.eval()(torch.zeros(1, own.shape[1])).shape[1]
            self._names = [self.name, *guests]
        else:
            self._names, width = guests, 0
        width += sum(sent.shape[1] for sent in inputs)
        self._top = self._build_top(width, self._generator)

    def _begin_training(self, inputs):
        """Training of the local network and the head, by noisy steps if so told."""
        told, sequence = self.held(OneRound).told, self.held(OneRound).sequence
        labels = self.held(Holding).labels
        network, targets = self._joint_network(), self._codec.encode(labels.values)
        settings = {
            "lr": told.lr,
            "loss": self._codec.row_loss,
            "weights": labels.weights,
        }
        if told.run is not None:
            settings["steps"] = PrivateSteps(run_of(told.run), len(targets), sequence)
            settings["max_grad_norm"] = told.max_grad_norm
            return PrivateTraining(network, inputs, targets, **settings)
        for name in (
            "max_epochs",
            "batch_size",
            "optimizer",
            "weight_decay",
            "early_stopping",
            "validation_fraction",
            "n_iter_no_change",
        ):
            settings[name] = getattr(told, name)
        # Its own machine's: no setting speaks of them.
        settings["device"] = self._optimize.device
        settings["callbacks"] = list(self._optimize.callbacks) or None
        return Training(network, inputs, targets, sequence=sequence, **settings)

    @operation
    def train_epoch(self):
        """Train for an epoch.

        Returns
        -------
        epoch : dict
            ``stops``, whether held-out rows say that it is the last one, as 0 or 1, and
            its ``train_loss`` and ``valid_loss``, but not with a budget.
        """
        training = self.held(Alone).training
        if isinstance(training, Training):
            losses = training.run_epoch()
            return {**losses, "stops": int(training.stops)}
        told = self.held(OneRound).told
        # Nothing is left over: the plan's steps are so many for each epoch.
        for _ in range(told.run["steps"] // told.max_epochs):
            training.step()
        return {"stops": 0}

    @operation
    def end_training(self):
        """Go back to the best networks, and refuse those that training has spoilt."""
        self.held(Alone).training.finish()
        # Networks that have ended well are not to be trained further unasked.
        self.drop(Alone)

    @operation
    def join(self, seed):
        """Take the host's networks to split learning, as they are.

        Parameters
        ----------
        seed : int
            Of the public order of the rows, the same at every party.
        """
        held = self.held(Holding)
        order = public_order(seed, len(held.labels.values))
        self.hold(Lessons.of(self._codec, held.labels, order))
        if self._transformer is not None:
            inputs = run(self._transformer.transform, held.block)
            self.hold(Inputs(tensor(inputs)[order]))
        self._hold_optimizer()

    @operation
    def join_privately(self, seed, **plan):
        """Take the host's networks to split learning with noise on their gradients.

        Parameters
        ----------
        seed : int
            Of the public order of the rows, the same at every party.
        **plan : dict
            As for :class:`GuestParty`.
        """
        self.join(seed)
        shapes = [mean.shape for mean, _ in self._scales.values()]
        if self._transformer is not None:
            shapes = [self.held(Inputs).values.shape[1:], *shapes]
        n_rows = len(self.held(Lessons).labels)
        network = self._joint_network()
        self._hold_steps(network, self._codec.row_loss, shapes, n_rows, **plan)

    @operation
    def learn(self, start, stop, received, later=False):
        """As in split learning, on what was sent as the host standardises it."""
        cuts = {name: tensor(sent) for name, sent in received.items()}
        cuts = {name: cut.numpy() for name, cut in self._standardised(cuts).items()}
        reply = super().learn(start, stop, cuts, later)
        gradients = {
            name: gradient / self._scales[name][1].numpy()
            for name, gradient in reply["gradients"].items()
        }
        return {**reply, "gradients": gradients}

    @operation
    def learn_rows(self, received):
        """A noisy step on the rows that were drawn; every row's own gradients."""
        rows, lessons = self.held(Drawn).rows, self.held(Lessons)
        labels = lessons.labels[rows]
        weights = None if lessons.weights is None else lessons.weights[rows]
        # In the order of the head's inputs, whatever that of the answers is.
        cuts = [tensor(received[name]).requires_grad_() for name in self._scales]
        own = [] if self._transformer is None else [self.held(Inputs).values[rows]]
        losses = self._codec.row_loss(self._joint_network()(*own, *cuts), labels)
        # A sum and no mean: a row's gradient must not depend on how many were drawn.
        total = (losses if weights is None else losses * weights).sum()
        # Before the host's own step, so that they are of the head that was given these.
        gradients = torch.autograd.grad(total, cuts) if cuts else ()
        inputs = [*own, *(cut.detach() for cut in cuts)]
        self.held(NoisySteps).sgd.step(inputs, [labels], weights)
        self.drop(Drawn)
        return {
            name: gradient.numpy()
            for name, gradient in zip(self._scales, gradients, strict=True)
        }

    def _cut_layer(self, start, stop, received):
        # The mean of what a guest sent in training stands for what it does not send
        # now. Standardised it is zero, in the middle of what the head knows; a zero
        # that is standardised afterwards may lie far outside.
        means = {
            name: mean.expand(stop - start, -1)
            for name, (mean, _) in self._scales.items()
        }
        return super()._cut_layer(start, stop, means | received)

    def _combine(self, cuts):
        return super()._combine(self._standardised(cuts))

    def _standardised(self, cuts):
        """Cut layer's tensors by party; constants, through which gradients pass."""
        scaled = {
            name: (cuts[name] - mean) / deviation
            for name, (mean, deviation) in self._scales.items()
        }
        return cuts | scaled

    def _joint_network(self):
        return JointNetwork(self._models().get("_bottom"), self._top)


def _mean_and_deviation(sent):
    """Of every column of a representation, in single precision.

    Rows count alike, whatever their weights: parties scale their own columns in the
    same way, and do not know the weights.
    """
    # numpy adds up in the order of the memory, and a message may have changed that.
    sent = np.ascontiguousarray(sent, dtype=np.float32)
    mean, deviation = (f(sent, axis=0, dtype=np.float64) for f in (np.mean, np.std))
    # What differs only by rounding is constant; its deviation would blow up rounding.
    rounding = 8 * np.finfo(np.float32).eps * np.abs(sent).max(axis=0)
    deviation[deviation <= np.maximum(rounding, TINY)] = 1
    return tensor(mean), tensor(deviation)


def _as_it_is(sent):
    """A mean of zero and a deviation of one, which depend on no row."""
    return torch.zeros(sent.shape[1]), torch.ones(sent.shape[1])
