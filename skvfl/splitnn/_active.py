"""Split learning: the active party, with the labels and the top model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch

from skvfl._random import for_data
from skvfl._targets import drawn_classes
from skvfl.federation import Holding, operation, serving
from skvfl.federation._party import Earlier
from skvfl.nn._build import Build
from skvfl.nn._cut import blurred
from skvfl.nn._explicit import trainer
from skvfl.nn._labels import Codec, Lessons
from skvfl.nn._steps import infer, public_order, tensor
from skvfl.nn._streams import private_generator
from skvfl.splitnn._parties import (
    BottomParty,
    Epoch,
    PassiveSettings,
    Training,
)

# Each gives a tensor of its own, which may be written over.
AGGREGATIONS = {
    "concat": lambda cuts: torch.cat(cuts, dim=1),
    "sum": sum,
    "mean": lambda cuts: sum(cuts) / len(cuts),
    "max": lambda cuts: torch.stack(cuts).max(dim=0).values,
}


def _of_the_largest(gradient, cuts):
    largest = torch.stack(cuts).max(dim=0).indices
    return [gradient.masked_fill(largest != i, 0.0) for i in range(len(cuts))]


# The gradient of every party's activations, from that of what they became.
GRADIENTS = {
    "concat": lambda gradient, cuts: torch.split_with_sizes(
        gradient, [cut.shape[1] for cut in cuts], 1
    ),
    "sum": lambda gradient, cuts: [gradient] * len(cuts),
    "mean": lambda gradient, cuts: [gradient / len(cuts)] * len(cuts),
    "max": _of_the_largest,
}


@dataclass
class OwnActivations:
    """Of the active party, which keeps them."""

    after: ClassVar = "catch_up"
    cut: torch.Tensor
    tape: tuple


@dataclass
class Undone:
    """Of the active party's step on a batch: the way back to its own columns."""

    after: ClassVar = "learn"
    tape: tuple | None
    gradient: torch.Tensor | None


@dataclass
class GradientNoise:
    """Secret noise on the gradients that leave."""

    after: ClassVar = "open"
    ratio: float
    generator: torch.Generator

    @classmethod
    def of(cls, ratio, stream):
        """Of a party's own stream."""
        return cls(ratio, private_generator(stream))

    def on(self, gradients):
        """Gradients of every party, with noise."""
        return {
            name: blurred(gradient, self.ratio, self.generator)
            for name, gradient in gradients.items()
        }


@dataclass
class LabelBudget:
    """Within which labels are drawn at random before anybody learns from them."""

    after: ClassVar = "open"
    epsilon: float
    sequence: np.random.SeedSequence


def labels_to_learn(party):
    """The labels that a party holds, or those drawn in their place.

    Parameters
    ----------
    party : Party
        The active one.

    Returns
    -------
    labels : Labels
        With a :class:`LabelBudget`, all that others see of labels follows from these.
    """
    holding = party.held(Holding)
    labels = holding.labels
    if not party.holds(LabelBudget):
        return labels
    budget = party.held(LabelBudget)
    # From the start of one stream, so that asking again draws the same. A fit of other
    # rows with this seed must not: a known label in it would tell where the lies are.
    rng = np.random.default_rng(for_data(budget.sequence, holding.digest()))
    drawn = drawn_classes(labels.values, labels.n_classes, budget.epsilon, rng)
    return replace(labels, values=drawn)


@dataclass(frozen=True, kw_only=True)
class ActiveSettings(PassiveSettings, role="splitnn.active"):
    """What the active party is told; the estimator's parameters of these names."""

    top: Any
    aggregation: str = "concat"
    gradient_noise: float = 0.0
    label_epsilon: float | None = None

    def make(self, member):
        """The party that has the labels."""
        codec = Codec(member.labels, self.label_epsilon)
        # A top model without parameters will do: the bottom models learn through it.
        top = {"activate": True, "name": "top", "trains": False}
        party = TopParty(
            **self._parts(member),
            build_top=Build(self.top, codec.n_outputs, **top),
            aggregation=self.aggregation,
            codec=codec,
        )
        if self.gradient_noise:
            party.hold(GradientNoise.of(self.gradient_noise, member.stream("noise")))
        if self.label_epsilon is not None:
            party.hold(LabelBudget(self.label_epsilon, member.stream("labels")))
        return party


class TopParty(BottomParty):
    """The active party of split learning: the labels, the top model, and a bottom.

    Parameters
    ----------
    name, transformer, build_bottom, optimize, stream
        As for :class:`BottomParty`.
    build_top : callable
        ``build_top(n_inputs, generator)`` gives the top model.
    aggregation : {"concat", "sum", "mean", "max"}
        How the activations of the parties become the top model's input.
    codec : Codec
        How labels are written, and outputs read.
    """

    made_by: ClassVar = {"_bottom": "prepare_top", "_top": "prepare_top"}

    def __init__(
        self,
        name,
        transformer,
        build_bottom,
        optimize,
        stream,
        build_top,
        aggregation,
        codec,
    ):
        super().__init__(name, transformer, build_bottom, optimize, stream)
        self._build_top = build_top
        self._aggregation = aggregation
        self._codec = codec

    @operation
    def prepare_top(self, seed, names, widths, n_train):
        """Build the top model on the widths of everybody's activations.

        Parameters
        ----------
        seed : int
            Of the public order of the rows, the same at every party.
        names : list of str
            Parties with columns, in the order of aggregation.
        widths : dict of str to int
            Number of activations of every passive party.
        n_train : int
            Number of rows that are trained on; the others are held out.
        """
        self._names = names
        # The bottom model comes first: both draw from one stream, and its width is part
        # of the top model's input.
        if self._transformer is not None:
            widths[self.name] = self._prepare(seed)
        n_inputs = sum(widths.values())
        if self._aggregation != "concat":
            if len(set(widths.values())) > 1:
                raise ValueError("activations of different widths cannot be combined")
            n_inputs = widths[names[0]]
        if self.take_over("_top"):
            self._codec = self._codec.going_on(self.held(Earlier).party._codec)
        else:
            self._top = self._build_top(n_inputs, self._generator)
        # One optimiser takes both models: one way back reaches both.
        self.hold(Training(trainer(self._models(), self._optimize)))
        labels = labels_to_learn(self)
        order = public_order(seed, len(labels.values))
        # Labels and weights lie in the order in which the rows of all parties lie.
        lessons = Lessons.of(self._codec, labels, order)
        lessons.check_held_out(n_train)
        self.hold(lessons)

    @operation
    def catch_up(self, start=None, stop=None):
        """Do what was put off, and what can be done ahead of a batch's activations.

        Parameters
        ----------
        start, stop : int, default=None
            Bounds of the batch that is learnt from next.
        """
        if self.holds(Undone):
            undone = self.held(Undone)
            self.drop(Undone)
            self._move(undone.tape, undone.gradient)
        if start is not None and self._transformer is not None:
            rows = self.held(Epoch).order[start:stop]
            self.hold(OwnActivations(*self._activate(rows)))

    @operation
    def learn(self, start, stop, received, later=False):
        """One step on a batch: its loss and weight, and gradients of what was sent.

        Parameters
        ----------
        start, stop : int
            Bounds of the batch.
        received : dict of str to ndarray
            Activations by party.
        later : bool, default=False
            Whether its own models move when :meth:`catch_up` is asked for, so that
            nobody waits for that.
        """
        if not self.holds(OwnActivations):
            self.catch_up(start, stop)
        rows = self.held(Epoch).order[start:stop]
        trainer = self.held(Training).trainer
        cuts, tape = {name: tensor(sent) for name, sent in received.items()}, None
        if self._transformer is not None:
            own = self.held(OwnActivations)
            self.drop(OwnActivations)
            cuts[self.name], tape = own.cut, own.tape
        parts = [cuts[name] for name in self._names]
        combined = AGGREGATIONS[self._aggregation](parts)
        outputs, top_tape = trainer.forward("_top", combined, further=True, spare=True)
        report, gradient = self.held(Lessons).learn(outputs, rows)
        # Before the step: gradients are of the models as the batch met them.
        gradient = trainer.backward(top_tape, gradient)
        separate = GRADIENTS[self._aggregation]
        gradients = dict(zip(self._names, separate(gradient, parts), strict=True))
        gradient = gradients.pop(self.name, None)
        if later:
            self.hold(Undone(tape, gradient))
        else:
            self._move(tape, gradient)
        if self.holds(GradientNoise):
            gradients = self.held(GradientNoise).on(gradients)
        gradients = {name: each.numpy() for name, each in gradients.items()}
        return {**report, "gradients": gradients}

    def _move(self, tape, gradient):
        trainer = self.held(Training).trainer
        if tape is not None:
            trainer.backward(tape, gradient)
        trainer.step()

    @operation
    def evaluate(self, start, stop, received):
        """Loss of rows in their first order, in evaluation mode."""
        cut = self._cut_layer(start, stop, received)
        outputs = infer(self._top, cut, torch.float32)
        rows = slice(start, stop)
        return self.held(Lessons).mean_loss(outputs, rows).item()

    @operation
    def end_epoch(self, losses):
        """Tell the callbacks that an epoch ends; whether they end training, as 0 or 1.

        Parameters
        ----------
        losses : dict of str to float
            Of the epoch, as :class:`skvfl.nn._training.Training` calls them.
        """
        watch = self._watch
        return int(watch is not None and watch.end_epoch(losses))

    @serving
    def combine(self, start, stop, received):
        """Cut-layer representation of rows."""
        return self._cut_layer(start, stop, received).numpy()

    @serving
    def predict(self, start, stop, received):
        """Probabilities of classes, or targets in their own units."""
        outputs = infer(self._top, self._cut_layer(start, stop, received))
        return self._codec.decode(outputs.numpy())

    def _cut_layer(self, start, stop, received):
        cuts = {name: tensor(sent) for name, sent in received.items()}
        if self._transformer is not None:
            # What the others send is single precision, too.
            rows = self._rows(start, stop)
            cuts[self.name] = infer(self._bottom, rows, torch.float32)
        return self._combine(cuts)

    def _combine(self, cuts):
        # In the order of the names, not of arrival: concatenation and float sums both
        # depend on it.
        return AGGREGATIONS[self._aggregation]([cuts[name] for name in self._names])

    def _models(self):
        return {**super()._models(), "_top": self._top}
