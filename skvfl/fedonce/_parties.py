"""FedOnce's parties: guests that encode their columns once, and the host."""

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
from skvfl.nn._apart import JointNetwork, keep_apart
from skvfl.nn._build import Build, Optimize
from skvfl.nn._device import bring_home
from skvfl.nn._explicit import trainer
from skvfl.nn._labels import Codec, Lessons
from skvfl.nn._private import PrivateSGD, PrivateSteps, PrivateTraining
from skvfl.nn._steps import TINY, check_parameters, public_order, tensor
from skvfl.nn._training import Training
from skvfl.privacy import SampledGaussian
from skvfl.splitnn._parties import GradientNoise, Inputs, SplitParty, TopParty
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
class Alone:
    """What the host trains by itself."""

    after: ClassVar = "receive"
    training: Training | PrivateTraining


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
            _optimize(self, member),
            member.stream("models"),
        )
        # Held for this run and not kept: whoever has the stream can take the noise off.
        party.hold(OneRound(self, member.stream("once")))
        return party


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
            _optimize(self, member),
            member.stream("models"),
            Build(self.top, codec.n_outputs, name="top", check=check),
            codec,
        )
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


def _optimize(told, member):
    """A party's own optimiser for split learning."""
    decay = {"weight_decay": told.weight_decay}
    optimize = Optimize(told.optimizer, told.lr, **decay)
    return optimize.on(member.device, member.callbacks)


def _run_of(fields):
    """A run of noisy steps from what was sent of it."""
    # A message turns tuples into lists.
    return SampledGaussian(**{**fields, "parties": tuple(fields["parties"])})


class _SplitPart(SplitParty):
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
            _run_of(run),
            n_rows,
            self.held(Afterwards).sequence,
            np.random.SeedSequence(shared),
        )
        sgd = PrivateSGD(
            module, loss, steps, shapes, max_grad_norm=max_grad_norm, lr=lr
        )
        self.hold(NoisySteps(steps, sgd))


class GuestParty(_SplitPart):
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
            steps = PrivateSteps(_run_of(told.run), len(inputs), to_steps)
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


class HostParty(_SplitPart, TopParty):
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
            settings["steps"] = PrivateSteps(_run_of(told.run), len(targets), sequence)
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


def _inner_products(outputs, gradients):
    """What has the given gradients, row by row."""
    return (outputs * gradients).sum(dim=1)
