"""FedOnce's guests, which encode their columns once, and what all parties hold."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch

from skvfl._random import keyed_noise
from skvfl._rows import rows_without_values
from skvfl.exceptions import ShareableError, StateError, TrainingError
from skvfl.federation import Holding, Settings, operation, serving
from skvfl.federation._party import Earlier, run
from skvfl.fedonce._noise_as_targets import NoiseAsTargetsEncoder, fit_privately
from skvfl.nn._apart import keep_apart
from skvfl.nn._build import Optimize
from skvfl.nn._device import bring_home
from skvfl.nn._explicit import trainer
from skvfl.nn._private import PrivateSGD, PrivateSteps
from skvfl.nn._steps import check_parameters, public_order, tensor
from skvfl.privacy import SampledGaussian
from skvfl.splitnn._active import GradientNoise
from skvfl.splitnn._parties import Inputs, SplitParty
from skvfl.splitnn._parties import Training as Optimizing


class NothingHeldError(ShareableError):
    """A party holds no value of any row that it is asked about."""


# What a party holds for a session, and does not keep


@dataclass
class OneRound:
    """What a party was told of the one round, and its secret stream for it."""

    after: ClassVar = "open"
    told: Settings
    sequence: np.random.SeedSequence


@dataclass
class Afterwards:
    """A party's secret stream for the epochs of split learning."""

    after: ClassVar = "open"
    sequence: np.random.SeedSequence


@dataclass
class Ran:
    """Noisy steps that a guest took by itself, if it took any."""

    after: ClassVar = "learn"
    spent: SampledGaussian | None


@dataclass
class Joined:
    """A guest's network, which takes part in split learning."""

    after: ClassVar = "join"
    network: torch.nn.Module


@dataclass
class RowNoise:
    """Noise on a guest's activations, in the public order of the rows."""

    after: ClassVar = "join"
    values: torch.Tensor


@dataclass
class NoisySteps:
    """Steps of split learning with noise on a party's own gradients."""

    after: ClassVar = "join_privately"
    steps: PrivateSteps
    sgd: PrivateSGD


@dataclass
class Drawn:
    """Rows of the step that is under way."""

    after: ClassVar = "draw"
    rows: torch.Tensor


# What parties are told


@dataclass(frozen=True, kw_only=True)
class GuestSettings(Settings, role="fedonce.guest"):
    """What a guest is told; the estimator's parameters of these names.

    Parameters
    ----------
    local_encoder : transformer
        Its encoder.
    run : dict or None, default=None
        Under a budget, the fields of a SampledGaussian: the noisy steps to take.
    max_grad_norm : float or None, default=None
        None without a budget.
    """

    local_encoder: Any = field(metadata={"stream": "guests"})
    representation_noise: float
    lr: float
    optimizer: Any = None
    weight_decay: float = 0.0
    run: dict | None = None
    max_grad_norm: float | None = None

    def make(self, member):
        """A guest, with an encoder and a key of its own."""
        encoder = member.lend(self.local_encoder)
        if self.max_grad_norm is not None and isinstance(
            encoder, NoiseAsTargetsEncoder
        ):
            # A network that mixes rows would let one row move the gradients of others,
            # which no clipping bounds.
            encoder._check = keep_apart
        party = GuestParty(
            member.name,
            member.transformer(self.transformer),
            encoder,
            self.representation_noise,
            member.stream("keys").generate_state(8).tobytes(),
            optimize_of(self, member),
            member.stream("models"),
        )
        # Held for this run and not kept: whoever has the stream can take the noise off.
        party.hold(OneRound(self, member.stream("once")))
        return party


@dataclass(frozen=True, kw_only=True)
class SplitSettings(Settings, role="fedonce.split"):
    """Parties of the one round go on with what they have learnt.

    Parameters
    ----------
    gradient_noise : float, default=0.0
        The estimator's parameter of this name, at the host.
    """

    gradient_noise: float = 0.0

    def make(self, member):
        """The fitted party, with fresh randomness."""
        # Another stream than in the one round: the same noise twice would cancel in a
        # difference.
        party = member.go_on()
        party._optimize = party._optimize.on(member.device, member.callbacks)
        party.hold(Afterwards(member.stream("afterwards")))
        if self.gradient_noise:
            party.hold(GradientNoise.of(self.gradient_noise, member.stream("noise")))
        return party


def optimize_of(told, member):
    """A party's own optimiser for split learning."""
    decay = {"weight_decay": told.weight_decay}
    optimize = Optimize(told.optimizer, told.lr, **decay)
    return optimize.on(member.device, member.callbacks)


def run_of(fields):
    """A run of noisy steps from what was sent of it."""
    # A message turns tuples into lists.
    return SampledGaussian(**{**fields, "parties": tuple(fields["parties"])})


class SplitPart(SplitParty):
    """A party's part in split learning that goes on from trained networks."""

    @operation
    def draw(self):
        """Draw the rows of the next step; their number."""
        self.hold(Drawn(self.held(NoisySteps).steps.draw()))
        return len(self.held(Drawn).rows)

    @operation
    def finish(self):
        """Refuse models that training has spoilt; more epochs may follow."""
        # The host is told of its losses before, where it has callbacks.
        if (watch := self._watch) is not None:
            watch.end_epoch()
        for model in self._models().values():
            check_parameters(model)

    def _hold_optimizer(self):
        """An optimiser of its own; gradients of earlier training are forgotten."""
        # What earlier training left in the gradients is not of this step.
        for model in self._models().values():
            model.zero_grad()
        self.hold(Optimizing(trainer(self._models(), self._optimize)))

    def _hold_steps(self, module, loss, shapes, n_rows, shared, run, max_grad_norm, lr):
        if self.holds(NoisySteps):
            # Steps begun anew would be taken and never counted.
            raise StateError("its noisy steps have begun, and only they are counted")
        # Everybody draws the same rows, so their seed is public; the noise comes from
        # the party's own stream, because who knows it can subtract it.
        steps = PrivateSteps(
            run_of(run),
            n_rows,
            self.held(Afterwards).sequence,
            np.random.SeedSequence(shared),
        )
        sgd = PrivateSGD(
            module, loss, steps, shapes, max_grad_norm=max_grad_norm, lr=lr
        )
        self.hold(NoisySteps(steps, sgd))


class GuestParty(SplitPart):
    """A guest: it encodes its prepared columns, and knows no label.

    Parameters
    ----------
    name : str
        Name of the party.
    transformer : transformer
        Unfitted; prepares the party's columns.
    encoder : transformer
        Unfitted; gives the representation of prepared columns.
    noise : float
        Standard deviation of the noise on the representations that are sent.
    key : bytes of length 32
        Of that noise.
    optimize : callable
        ``optimize(parameters)`` gives the party's own optimiser, for split learning.
    stream : SeedSequence
        The party's private one.
    """

    def __init__(self, name, transformer, encoder, noise, key, optimize, stream):
        super().__init__(name, transformer, None, optimize, stream)
        self._encoder = encoder
        self._noise = noise
        self._key = key
        self._has_learnt = False

    @operation
    def learn(self):
        """Fit the encoder, and represent the same rows; once, as noise averages out."""
        if self.holds(Ran):
            raise StateError("it has learnt in this run already")
        # A table without any value is how a guest is absent; zeros stand for it.
        self._require_values()
        told = self.held(OneRound).told
        if self._goes_on():
            self.hold(Ran(None))
            return self.encode()
        inputs = run(self._transformer.fit_transform, self.held(Holding).block)
        if told.run is None:
            representation = run(self._encoder.fit_transform, inputs)
            self.hold(Ran(None))
        else:
            to_steps, to_targets = self.held(OneRound).sequence.spawn(2)
            steps = PrivateSteps(run_of(told.run), len(inputs), to_steps)
            fit_privately(self._encoder, inputs, steps, told.max_grad_norm, to_targets)
            # From the trained network as it is served later, so that both get the same
            # numbers.
            representation = run(self._encoder.transform, inputs)
            self.hold(Ran(steps.spent))
        # Unlike what is held, this outlives the session, as the encoder does.
        self._has_learnt = True
        return self._add_noise(representation, inputs)

    def _goes_on(self):
        """Whether the encoder of an earlier fit stays; the host has learnt it."""
        if not self.holds(Earlier):
            return False
        # With another key or deviation, the same rows would be sent with other noise,
        # and two messages would tell what it hides.
        if self.held(Earlier).party._noise != self._noise:
            raise TrainingError(
                "warm_start=True sends the same noise again, so representation_noise "
                "must be that of the last fit"
            )
        self._has_learnt = True
        return self.take_over("_transformer", "_encoder", "_key")

    @operation
    def spent(self):
        """What noisy steps were taken in this session.

        Returns
        -------
        spent : dict or None
            ``sampling_rate``, ``steps`` and ``noise_multiplier``; None for no step.
        """
        if self.holds(NoisySteps):
            spent = self.held(NoisySteps).steps.spent
        else:
            spent = self.held(Ran).spent
        if spent is None:
            return None
        # Without names: the host puts in whom it asked, so that nobody accounts for
        # another.
        names = ("sampling_rate", "steps", "noise_multiplier")
        return {name: getattr(spent, name) for name in names}

    @serving
    def encode(self):
        """Represent rows."""
        self._require_values()
        inputs = self._prepared()
        return self._add_noise(run(self._encoder.transform, inputs), inputs)

    @operation
    def join(self, seed):
        """Take the encoder's network to split learning, as it is.

        Parameters
        ----------
        seed : int
            Of the public order of the rows, the same at every party.
        """
        inputs = self._prepared()
        order = public_order(seed, len(inputs))
        self.hold(Joined(self._encoder.module_))
        self.hold(Inputs(tensor(inputs)[order]))
        self._hold_optimizer()
        if self._noise:
            # Once for all epochs. Drawn anew in each, it would average out.
            noise = self._noise * keyed_noise(self._key, inputs, self._width(inputs))
            self.hold(RowNoise(tensor(noise)[order]))

    @operation
    def join_privately(self, seed, **plan):
        """Take the encoder's network to split learning with noise on its gradients.

        Parameters
        ----------
        seed : int
            Of the public order of the rows, the same at every party.
        **plan : dict
            ``shared``, the seed of the rows that are drawn; ``run``, the fields of a
            SampledGaussian; ``max_grad_norm`` and ``lr``.
        """
        self.join(seed)
        n_rows, *shape = self.held(Inputs).values.shape
        # By the chain rule a row's outputs times the gradient that arrives for them
        # have the gradient of the host's loss, which is clipped for each row by itself.
        self._hold_steps(self._bottom, _inner_products, [shape], n_rows, **plan)

    @operation
    def forward_rows(self):
        """Draw the rows of the next step; their activations."""
        self.draw()
        rows = self.held(Drawn).rows
        # Without a graph: the step goes through the network again, row by row.
        with torch.no_grad():
            activations = self._bottom(self.held(Inputs).values[rows])
        return self._noised(activations, rows).numpy()

    @operation
    def backward_rows(self, gradient):
        """Update the network from every row's gradient of its own activations."""
        rows = self.held(Drawn).rows
        inputs = self.held(Inputs).values[rows]
        self.held(NoisySteps).sgd.step([inputs], [tensor(gradient)])
        # Rows serve one step, because steps are counted as their rows are drawn.
        self.drop(Drawn)

    def release(self):
        """Drop what belongs to one run, and bring the encoder's network to the CPU."""
        super().release()
        bring_home(getattr(self._encoder, "module_", None))

    @property
    def _bottom(self):
        # The encoder's own: what split learning makes of it is what encodes later.
        return self.held(Joined).network

    def _activate(self, rows):
        activations, tape = super()._activate(rows)
        return self._noised(activations, rows), tape

    def _noised(self, activations, rows):
        if not self._noise:
            return activations
        return activations + self.held(RowNoise).values[rows]

    def _width(self, inputs):
        # Asked of the encoder, because one of the user's may not say it in a parameter.
        return self._encoder.transform(inputs[:1]).shape[1]

    def _require_values(self):
        if rows_without_values(self.held(Holding).block).all():
            raise NothingHeldError("it holds no value of any row")

    def _prepared(self):
        if not self._has_learnt:
            raise StateError("it has no encoder yet: 'learn' comes first")
        return run(self._transformer.transform, self.held(Holding).block)

    def _add_noise(self, representation, inputs):
        if not self._noise:
            return representation
        # By what is encoded and not by position, so that a row has the same noise in
        # fit, in split epochs and in every table that is served.
        noise = keyed_noise(self._key, inputs, representation.shape[1])
        return (representation + self._noise * noise).astype(representation.dtype)


def _inner_products(outputs, gradients):
    """What has the given gradients, row by row."""
    return (outputs * gradients).sum(dim=1)
