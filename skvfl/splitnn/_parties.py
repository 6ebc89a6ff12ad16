"""Split learning: bottom models at the parties.

No autograd graph crosses a party's boundary: activations go up as numbers, and the
gradients of the loss with respect to them come down as numbers.
"""

from __future__ import annotations

import copy
import hashlib
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch

from skvfl._random import branch, keyed_noise, one_way
from skvfl.exceptions import StateError
from skvfl.federation import Holding, Party, Settings, operation, serving
from skvfl.federation._party import Earlier, run
from skvfl.nn._build import Build, Optimize
from skvfl.nn._cut import shorten, through_shortening
from skvfl.nn._device import bring_home
from skvfl.nn._explicit import Explicit, Recorded, trainer
from skvfl.nn._steps import check_parameters, infer, public_order, take, tensor
from skvfl.nn._streams import private_generator


@dataclass
class Inputs:
    """Prepared columns; while training in the public order of the rows."""

    after: ClassVar = "prepare"
    values: torch.Tensor


@dataclass
class Training:
    """What goes through the party's models and takes its steps."""

    after: ClassVar = "prepare"
    trainer: Explicit | Recorded


@dataclass
class Epoch:
    """Order in which an epoch takes the rows."""

    after: ClassVar = "begin_epoch"
    order: np.ndarray


@dataclass
class Activations:
    """Of the batch under way: what its gradient goes back through."""

    after: ClassVar = "forward"
    tape: tuple


@dataclass
class Best:
    """Copies of the models that did best on held-out rows."""

    after: ClassVar = "remember"
    models: dict[str, torch.nn.Module]


@dataclass
class Shortened:
    """Of the batch under way: activations that were shortened, and by how much."""

    after: ClassVar = "forward"
    cut: torch.Tensor
    factors: torch.Tensor


@dataclass
class FreshNoise:
    """Secret noise on batches that leave, in no relation to the rows."""

    after: ClassVar = "open"
    generator: torch.Generator


@dataclass
class Leavings:
    """How often every row has left in this run, each time with other noise."""

    after: ClassVar = "prepare"
    times: torch.Tensor


@dataclass(frozen=True)
class Cut:
    """How a passive party's activations leave.

    Parameters
    ----------
    norm : float or None
        To which every row is shortened.
    noise : float
        Standard deviation of what is added.
    key : bytes of length 32
        Of the noise on rows that are asked for by their place.
    """

    norm: float | None
    noise: float
    key: bytes

    def on(self, rows, width, network):
        """Noise on rows, as a secret function of each and of the model.

        The same model always sends the same, so that asking again averages nothing
        away. Any other model sends other noise, or it would cancel between two: a
        number of steps is not enough, since two models may go on from one.
        """
        said = hashlib.sha256(self.key + f"{self.noise} {self.norm}".encode())
        for name, values in network.state_dict().items():
            said.update(name.encode() + values.cpu().double().numpy().tobytes())
        key = said.digest()
        return self.noise * torch.from_numpy(keyed_noise(key, rows.numpy(), width))


@dataclass(frozen=True, kw_only=True)
class PassiveSettings(Settings, role="splitnn.passive"):
    """What a passive party is told; the estimator's parameters of these names."""

    bottom: Any
    cut_width: int
    lr: float
    optimizer: Any = None
    weight_decay: float = 0.0
    representation_noise: float = 0.0
    max_representation_norm: float | None = None

    def make(self, member):
        """A party with a bottom model of its own."""
        party = BottomParty(**self._parts(member))
        if self.representation_noise or self.max_representation_norm is not None:
            # Two streams of one, neither of which leads to the other.
            stream = member.stream("noise")
            to_key, to_batches = (one_way(branch(stream, i)) for i in range(2))
            party.cut = Cut(
                self.max_representation_norm,
                self.representation_noise,
                to_key.generate_state(8).tobytes(),
            )
            # Held for this run and not kept: rows that are served have other noise.
            party.hold(FreshNoise(private_generator(to_batches)))
        return party

    def _parts(self, member):
        return {
            "name": member.name,
            "transformer": member.transformer(self.transformer),
            "build_bottom": Build(self.bottom, self.cut_width, name="bottom"),
            "optimize": Optimize(
                self.optimizer,
                self.lr,
                weight_decay=self.weight_decay,
                device=member.device,
                callbacks=member.callbacks,
            ),
            "stream": member.stream("models"),
        }


class SplitParty(Party):
    """A party's part in the steps of split learning, on a bottom model of its own.

    Parameters
    ----------
    name : str
        Name of the party.
    transformer : transformer or None
        Unfitted; prepares the party's columns. None at a party without columns.
    build_bottom : callable
        ``build_bottom(n_inputs, generator)`` gives the bottom model.
    optimize : callable
        ``optimize(parameters)`` gives the party's own optimiser.
    stream : SeedSequence
        The party's private one.
    """

    def __init__(self, name, transformer, build_bottom, optimize, stream):
        super().__init__(name)
        self._transformer = transformer
        self._build_bottom = build_bottom
        self._optimize = optimize
        self._generator = private_generator(stream)

    @operation
    def begin_epoch(self, seed, n_train):
        """Shuffle the rows that are trained on.

        Parameters
        ----------
        seed : int
            The same at every party, so that all take the same rows for a batch.
        n_train : int
            Number of rows that are trained on; the others are held out.
        """
        self.hold(Epoch(public_order(seed, n_train)))
        if (watch := self._watch) is not None:
            watch.begin_epoch()
        for model in self._models().values():
            model.train()

    @operation
    def forward(self, start, stop):
        """Activations of one batch, and nothing of how they came about."""
        # Numbers alone cross: the tape would lead back to the columns.
        return self._send(start, stop).numpy()

    def _send(self, start, stop):
        """Activations of one batch, whose gradient will come."""
        cut, tape = self._activate(self.held(Epoch).order[start:stop])
        self.hold(Activations(tape))
        return cut

    @operation
    def backward(self, gradient):
        """Update the bottom model from the gradient of the batch's activations."""
        tape = self.held(Activations).tape
        # A gradient is for one batch: a second one would move the models again.
        self.drop(Activations)
        trainer = self.held(Training).trainer
        trainer.backward(tape, tensor(gradient))
        trainer.step()

    @operation
    def finish(self):
        """Refuse models that training has spoilt."""
        if (watch := self._watch) is not None:
            watch.finish()
        for model in self._models().values():
            check_parameters(model)

    def again(self):
        """The same party for another run, without this one's callbacks."""
        party = super().again()
        party._optimize = self._optimize.on(self._optimize.device)
        return party

    def release(self):
        """Drop what belongs to one run, and bring the models to the CPU."""
        if (watch := self._watch) is not None:
            # An error here would hide the one that has ended the run.
            with suppress(Exception):
                watch.finish()
        super().release()
        self._optimize = self._optimize.on()
        # Not by ``_models``, which knows of those alone that are made.
        bring_home(*(vars(self).get(name) for name in ("_bottom", "_top", "_mapping")))

    @property
    def _watch(self):
        """What tells the party's callbacks of its training, if it has any."""
        return self.held(Training).trainer.watch if self.holds(Training) else None

    def _models(self):
        return {} if self._transformer is None else {"_bottom": self._bottom}

    def _activate(self, rows):
        inputs = take(self.held(Inputs).values, rows)
        return self.held(Training).trainer.forward("_bottom", inputs)


class BottomParty(SplitParty):
    """A party of split learning that builds, keeps and serves its bottom model.

    Parameters
    ----------
    name, transformer, build_bottom, optimize, stream
        As for :class:`SplitParty`.

    Attributes
    ----------
    cut : Cut or None
        How activations leave; by default as they are.
    """

    made_by: ClassVar = {"_bottom": "prepare"}
    cut: Cut | None = None

    def _send(self, start, stop):
        if self.cut is None:
            return super()._send(start, stop)
        if self.cut.noise and self.holds(Activations):
            raise StateError(
                "it has sent a batch whose gradient has not come: noise that is drawn "
                "again for the same model averages out"
            )
        cut = self._short(super()._send(start, stop))
        self._count(self.held(Epoch).order[start:stop])
        if self.cut.noise:
            generator = self.held(FreshNoise).generator
            cut = cut + self.cut.noise * torch.randn(cut.shape, generator=generator)
        return cut

    @operation
    def backward(self, gradient):
        """Update the bottom model from the gradient of the batch's activations."""
        if self.holds(Shortened):
            short = self.held(Shortened)
            self.drop(Shortened)
            gradient = through_shortening(tensor(gradient), short.cut, short.factors)
        super().backward(gradient)

    @operation
    def prepare(self, seed):
        """Prepare the columns and build the bottom model; its number of outputs.

        Parameters
        ----------
        seed : int
            Of the public order of the rows, the same at every party.

        Returns
        -------
        n_outputs : int
        """
        width = self._prepare(seed)
        self.hold(Training(trainer({"_bottom": self._bottom}, self._optimize)))
        return width

    def _prepare(self, seed):
        block, goes_on = self.held(Holding).block, self.take_over("_transformer")
        transformer = self._transformer
        prepare = transformer.transform if goes_on else transformer.fit_transform
        inputs = run(prepare, block)
        # Sorted once here, so that batches and held-out rows are slices from now on.
        values = tensor(inputs)[public_order(seed, len(inputs))]
        self.hold(Inputs(values))
        self.hold(Leavings(torch.zeros(len(values), dtype=torch.int64)))
        if not self.take_over("_bottom"):
            self._bottom = self._build_bottom(inputs.shape[1], self._generator)
        elif self.cut is not None and (cut := self.held(Earlier).party.cut) is not None:
            # A model that is gone on from has sent noise already, of this key.
            self.cut = replace(self.cut, key=cut.key)
        # A user's network may have another width than ``cut_width``. In evaluation mode
        # this row draws nothing and leaves running statistics as they are.
        with torch.inference_mode():
            return self._bottom.eval()(values[:1]).shape[1]

    @serving
    def represent(self, start, stop):
        """Activations of rows in their first order, in evaluation mode."""
        rows = self._rows(start, stop)
        self._count(slice(start, stop))
        # In double precision to the end, so that a row's numbers do not depend on which
        # rows are asked for together.
        cut = infer(self._bottom, rows)
        cut = self._short(cut, training=False)
        if self.cut is not None and self.cut.noise:
            cut = cut + self.cut.on(rows, cut.shape[1], self._bottom)
        return cut.float().numpy()

    def _count(self, rows):
        """Count rows that leave; of a prediction the noise is the same every time."""
        if self.holds(Leavings):
            self.held(Leavings).times[rows] += 1

    @property
    def n_times(self):
        """How often the row has left that did so most often, while training."""
        return int(self.held(Leavings).times.max()) if self.holds(Leavings) else 0

    def _short(self, cut, *, training=True):
        """Activations of the length that is allowed."""
        if self.cut is None or self.cut.norm is None:
            return cut
        cut, factors = shorten(cut, self.cut.norm)
        if training:
            self.hold(Shortened(cut, factors))
        return cut

    @operation
    def remember(self):
        """Keep a copy of the models as they are."""
        self.hold(Best(copy.deepcopy(self._models())))

    @operation
    def recall(self):
        """Go back to the copies that were kept last."""
        best = self.held(Best)
        for name, model in best.models.items():
            setattr(self, name, model)

    def _rows(self, start, stop):
        # While training these are the prepared rows of the fit; a served table is
        # prepared when it is first asked for.
        if not self.holds(Inputs):
            block = self.held(Holding).block
            self.hold(Inputs(tensor(run(self._transformer.transform, block))))
        return self.held(Inputs).values[start:stop]
