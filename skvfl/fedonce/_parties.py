"""FedOnce's parties: guests that encode their columns once, and the host."""

from __future__ import annotations

import hashlib

import numpy as np
import torch
from scipy.special import ndtri

from skvfl._rows import rows_without_values
from skvfl.exceptions import ShareableError
from skvfl.federation import operation
from skvfl.federation._party import run
from skvfl.nn._apart import JointNetwork
from skvfl.nn._private import PrivateSGD, PrivateSteps, train_privately
from skvfl.nn._steps import TINY, public_order, tensor
from skvfl.privacy import SampledGaussian
from skvfl.splitnn._legacy_parties import SplitParty, TopParty


class NothingHeldError(ShareableError):
    """A party holds no value of any row that it is asked about."""


class _SplitPart(SplitParty):
    """A party's part in split learning that goes on from trained networks."""

    @operation
    def draw(self):
        """Draw the rows of the next step; their number."""
        self._held["rows"] = self._held["steps"].draw()
        return len(self._held["rows"])

    def _hold_optimizer(self, module):
        """An optimiser of its own; gradients of earlier training are forgotten."""
        module.zero_grad()
        self._held["optimizer"] = self._optimize(list(module.parameters()))

    def _hold_steps(self, module, loss, shapes, shared, run, max_grad_norm, lr):
        steps = PrivateSteps(
            SampledGaussian(**{**run, "parties": tuple(run["parties"])}),
            len(self._held["order"]),
            self._held["sequence"],
            np.random.SeedSequence(shared),
        )
        self._held["steps"] = steps
        self._held["sgd"] = PrivateSGD(
            module, loss, steps, shapes, max_grad_norm=max_grad_norm, lr=lr
        )


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
    run : SampledGaussian or None
        Steps of private training, for an encoder that has a network. Their noise is
        drawn from the ``sequence`` that the party holds while it trains, and which
        does not stay with it.
    max_grad_norm : float
        Norm to which the gradient of every row is then clipped.
    """

    def __init__(
        self,
        name,
        transformer,
        encoder,
        noise,
        key,
        optimize,
        stream,
        run,
        max_grad_norm,
    ):
        super().__init__(name, transformer, None, optimize, stream)
        self._encoder = encoder
        self._noise = noise
        self._key = key
        self._run = run
        self._max_grad_norm = max_grad_norm

    @operation
    def learn(self):
        """Fit the encoder, and represent the same rows."""
        self._require_values()
        inputs = run(self._transformer.fit_transform, self._held["block"])
        if self._run is None:
            representation = run(self._encoder.fit_transform, inputs)
        else:
            to_steps, to_targets = self._held["sequence"].spawn(2)
            steps = PrivateSteps(self._run, len(inputs), to_steps)
            fit_privately(self._encoder, inputs, steps, self._max_grad_norm, to_targets)
            representation = run(self._encoder.transform, inputs)
        return self._add_noise(representation, inputs)

    @operation
    def encode(self):
        """Represent rows."""
        self._require_values()
        inputs = run(self._transformer.transform, self._held["block"])
        return self._add_noise(run(self._encoder.transform, inputs), inputs)

    @operation
    def join(self, seed):
        """Take the encoder's network to split learning, as it is.

        Parameters
        ----------
        seed : int
            Of the public order of the rows, the same at every party.
        """
        inputs = run(self._transformer.transform, self._held["block"])
        order = public_order(seed, len(inputs))
        self._bottom = self._encoder.module_
        self._held["inputs"] = tensor(inputs)[order]
        self._held["order"] = order
        self._hold_optimizer(self._bottom)
        if self._noise:
            noise = self._noise * keyed_noise(self._key, inputs, self._width(inputs))
            self._held["noise"] = tensor(noise)[order]

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
        shapes = [self._held["inputs"].shape[1:]]
        self._hold_steps(self._bottom, _inner_products, shapes, **plan)

    @operation
    def forward_rows(self):
        """Draw the rows of the next step; their activations."""
        self.draw()
        with torch.no_grad():
            activations = self._bottom(self._held["inputs"][self._held["rows"]])
        return self._noised(activations, self._held["rows"]).numpy()

    @operation
    def backward_rows(self, gradient):
        """Update the network from every row's gradient of its own activations."""
        inputs = self._held["inputs"][self._held["rows"]]
        self._held["sgd"].step([inputs], [tensor(gradient)])

    def _activate(self, start, stop):
        rows = self._held["order"][start:stop]
        return self._noised(super()._activate(start, stop), rows)

    def _noised(self, activations, rows):
        if not self._noise:
            return activations
        return activations + self._held["noise"][rows]

    def _width(self, inputs):
        return self._encoder.transform(inputs[:1]).shape[1]

    def _require_values(self):
        if rows_without_values(self._held["block"]).all():
            raise NothingHeldError("it holds no value of any row")

    def _add_noise(self, representation, inputs):
        if not self._noise:
            return representation
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
    loss : callable
        ``loss(outputs, labels)`` gives the loss of each row.
    """

    def __init__(
        self,
        name,
        transformer,
        build_local,
        optimize,
        stream,
        build_head,
        loss,
    ):
        super().__init__(
            name,
            transformer,
            build_local,
            optimize,
            stream,
            build_head,
            "concat",
            [],
            loss,
        )

    @operation
    def learn_once(self, received, train, report, standardise=False):
        """Train on the host's own columns and representations that do not change.

        Parameters
        ----------
        received : dict of str to ndarray
            Every guest's representation.
        train : callable
            ``train(module, inputs, labels, weights=, loss=, report=)`` trains a
            network.
        report : callable
            Told of every epoch.
        standardise : bool, default=False
            Whether to standardise what was received by its own mean and deviation.
        """
        scale = _mean_and_deviation if standardise else _as_it_is
        self._scales = {name: scale(sent) for name, sent in received.items()}
        cuts = {name: tensor(sent) for name, sent in received.items()}
        inputs = [cut.numpy() for cut in self._standardised(cuts).values()]
        self._names = list(received)
        width = sum(sent.shape[1] for sent in inputs)
        if self._transformer is not None:
            own = run(self._transformer.fit_transform, self._held["block"])
            self._bottom = self._build_bottom(own.shape[1], self._generator)
            # Zeros: a network of the user's own could keep what it is asked.
            with torch.inference_mode():
                width += self._bottom.eval()(torch.zeros(1, own.shape[1])).shape[1]
            inputs = [own, *inputs]
            self._names = [self.name, *self._names]
            self._held["inputs"] = tensor(own)
        self._top = self._build_top(width, self._generator)
        train(
            self._joint_network(),
            tuple(inputs),
            self._held["labels"],
            weights=self._held["weights"],
            loss=self._loss,
            report=report,
        )

    @operation
    def join(self, seed):
        """Take the host's networks to split learning, as they are.

        Parameters
        ----------
        seed : int
            Of the public order of the rows, the same at every party.
        """
        held = self._held
        order = public_order(seed, len(held["labels"]))
        held["order"] = order
        held["labels"] = torch.from_numpy(held["labels"])[order]
        if held["weights"] is not None:
            held["weights"] = tensor(held["weights"])[order]
        if self._transformer is not None:
            held["inputs"] = held["inputs"][order]
        self._hold_optimizer(self._joint_network())

    @operation
    def join_privately(self, seed, widths, **plan):
        """Take the host's networks to split learning with noise on their gradients.

        Parameters
        ----------
        seed : int
            Of the public order of the rows, the same at every party.
        widths : list of int
            Number of activations of every guest.
        **plan : dict
            As for :class:`GuestParty`.
        """
        self.join(seed)
        shapes = [(width,) for width in widths]
        if self._transformer is not None:
            shapes = [self._held["inputs"].shape[1:], *shapes]
        self._hold_steps(self._joint_network(), self._loss, shapes, **plan)

    @operation
    def learn_rows(self, received):
        """A noisy step on the rows that were drawn; every row's own gradients."""
        rows = self._held["rows"]
        labels = self._held["labels"][rows]
        weights = self._held["weights"]
        weights = None if weights is None else weights[rows]
        cuts = [tensor(sent).requires_grad_() for sent in received.values()]
        own = [] if self._transformer is None else [self._held["inputs"][rows]]
        losses = self._loss(self._joint_network()(*own, *cuts), labels)
        total = (losses if weights is None else losses * weights).sum()
        gradients = torch.autograd.grad(total, cuts) if cuts else ()
        inputs = [*own, *(cut.detach() for cut in cuts)]
        self._held["sgd"].step(inputs, [labels], weights)
        return {
            name: gradient.numpy()
            for name, gradient in zip(received, gradients, strict=True)
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


def fit_privately(encoder, inputs, steps, max_grad_norm, to_targets):
    """Fit a NoiseAsTargetsEncoder by noisy gradient steps.

    Parameters
    ----------
    encoder : NoiseAsTargetsEncoder
        Unfitted.
    inputs : ndarray of shape (n_rows, n_columns)
        The guest's prepared columns.
    steps : PrivateSteps
        Rows and noise.
    max_grad_norm : float
        Norm to which the gradient of every row is clipped.
    to_targets : numpy.random.SeedSequence
        Stream of the targets, which nobody may know: targets go by position, and
        known ones would tell which rows there are.
    """
    inputs, noise, _ = encoder._start(inputs, to_targets)
    module, columns = encoder.module_, tensor(inputs)
    per_epoch = steps.run.steps // encoder.max_epochs

    def exchange(rows):
        if noise.exchanges:
            with torch.no_grad():
                noise.exchange(module(columns[rows]), rows)

    def report(step):
        if step % per_epoch == 0:
            noise.begin_epoch(step // per_epoch + 1)

    train_privately(
        module,
        inputs,
        np.arange(len(inputs)),
        loss=noise.half_squares,
        steps=steps,
        max_grad_norm=max_grad_norm,
        lr=encoder.lr,
        before_step=exchange,
        report=report,
    )
    encoder.n_iter_ = encoder.max_epochs


def train_host_privately(
    module,
    inputs,
    labels,
    *,
    run,
    per_epoch,
    sequence,
    max_grad_norm,
    lr,
    loss,
    weights,
    report,
):
    """Train the host's networks by noisy gradient steps.

    Parameters
    ----------
    module, inputs, labels, max_grad_norm, lr, loss, weights
        As for :func:`skvfl.nn._private.train_privately`.
    run : SampledGaussian
        The steps to take.
    per_epoch : int
        Number of steps that make an epoch.
    sequence : numpy.random.SeedSequence
        Stream of the rows and the noise.
    report : callable
        Told of every epoch.
    """

    def after_step(step):
        return step % per_epoch == 0 and report(step // per_epoch, {})

    train_privately(
        module,
        inputs,
        labels,
        loss=loss,
        steps=PrivateSteps(run, len(labels), sequence),
        max_grad_norm=max_grad_norm,
        lr=lr,
        weights=weights,
        report=after_step,
    )


def keyed_noise(key, rows, n_columns):
    """Standard normal numbers that are a secret function of each row.

    The same row always gives the same numbers, so that asking again does not average
    them away; without the key they cannot be told from independent draws.

    Parameters
    ----------
    key : bytes of length 32
        The secret.
    rows : ndarray of shape (n_rows, n_inputs)
        What the numbers depend on.
    n_columns : int
        How many numbers for each row.

    Returns
    -------
    noise : ndarray of shape (n_rows, n_columns), dtype float64
    """
    rows = np.ascontiguousarray(rows, dtype=np.float64) + 0.0
    digests = [
        hashlib.shake_256(key + row.tobytes()).digest(8 * n_columns) for row in rows
    ]
    words = np.frombuffer(b"".join(digests), dtype="<u8").reshape(-1, n_columns)
    return ndtri((words >> np.uint64(11)) * 2.0**-53 + 2.0**-54)
