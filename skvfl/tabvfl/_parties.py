"""TabVFL: guests with columns; what the host does besides is in ``_host``.

What crosses is numbers, as in split learning. While pretraining, a batch goes from the
guests to the host's encoder and decoder and back to the guests, which rebuild what they
hid; the gradients go the same way back.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import partial
from typing import Any, ClassVar

import torch
from torch import nn

from skvfl._random import branch, one_way
from skvfl.federation import Settings, operation, serving
from skvfl.nn._build import Optimize
from skvfl.nn._explicit import watch
from skvfl.nn._steps import batch_bounds, take, tensor
from skvfl.nn._streams import private_generator
from skvfl.nn._tabnet import (
    Decoder,
    Encoder,
    MixedColumns,
    NormalisedEncoder,
    RandomObfuscator,
    SparseEncoder,
    SummedTop,
    explain,
    normal_linear,
    reconstruction_loss,
)
from skvfl.splitnn._parties import (
    BottomParty,
    Epoch,
    Inputs,
)


@dataclass
class Share:
    """How many of the decoder's outputs are the party's."""

    after: ClassVar = "prepare"
    width: int


@dataclass
class Training:
    """What takes the party's steps, and tells its callbacks of them, if it has any."""

    after: ClassVar = "prepare"
    optimizer: Any
    watch: Any = None


@dataclass
class Rebuilding:
    """What a party pretrains besides its bottom model.

    ``layer`` is the paper's f_bottom_rec; ``held_out`` are the held-out rows with
    hidden cells, and which these are.
    """

    after: ClassVar = "begin_pretraining"
    layer: nn.Module
    held_out: tuple[torch.Tensor, torch.Tensor]


@dataclass
class OwnDecoder:
    """Of a party that pretrains alone."""

    after: ClassVar = "begin_pretraining"
    decoder: nn.Module


@dataclass
class HiddenBatch:
    """The batch under way, and which of its cells the host does not see."""

    after: ClassVar = "hide"
    inputs: torch.Tensor
    hidden: torch.Tensor


@dataclass
class SentHidden:
    """What the host was sent of a hidden batch, with the graph behind it."""

    after: ClassVar = "hide"
    outputs: torch.Tensor


@dataclass
class Sent:
    """What the host was sent of a batch, with the graph, and the party's own loss."""

    after: ClassVar = "forward"
    outputs: torch.Tensor
    penalty: torch.Tensor | None


@dataclass(frozen=True, kw_only=True)
class Networks:
    """How a party builds its networks; the estimator's parameters of these names."""

    design: str
    n_d: int
    n_a: int
    n_steps: int
    gamma: float
    n_independent: int
    n_shared: int
    mask_type: str
    lambda_sparse: float
    virtual_batch_size: int
    momentum: float

    def bottom(self, n_columns, generator, *, share, mix):
        """What works on a party's own columns, before anything crosses."""
        # The paper's f_bottom_repr is a mixture, or a whole encoder.
        if self.design == "joint":
            return MixedColumns(n_columns, generator, mix)
        # Latent vectors that stand side by side share its width; those that are added
        # up have all of it.
        n_d = share if self.design == "local" else self.n_d
        encoder = self._encoder(n_columns, n_d, generator)
        return NormalisedEncoder(encoder, self.lambda_sparse, n_columns)

    def top(self, n_columns, generator, n_parties):
        """What makes latent vectors of what all parties send."""
        if self.design == "joint":
            encoder = self._encoder(n_columns, self.n_d, generator)
            return SparseEncoder(encoder, self.lambda_sparse)
        return SummedTop(1 if self.design == "local" else n_parties, self.n_d)

    def decoder(self, n_d, generator):
        """What the decisions of all steps become before columns are rebuilt."""
        return Decoder(n_d, generator=generator, **self._said())

    def _encoder(self, n_columns, n_d, generator):
        said = self._said("n_a", "n_independent", "n_shared", "gamma", "mask_type")
        return Encoder(n_columns, n_d=n_d, generator=generator, **said)

    def _said(self, *names):
        names = (*names, "n_steps", "virtual_batch_size", "momentum")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, kw_only=True)
class GuestSettings(Networks, Settings, role="tabvfl.guest"):
    """What a guest is told; the estimator's parameters of these names."""

    pretraining_ratio: float
    lr: float
    optimizer: Any = None
    weight_decay: float = 0.0
    max_grad_norm: float | None = None

    def make(self, member):
        """A party with columns."""
        return GuestParty(**self._parts(member))

    def _parts(self, member):
        # Only what builds networks: the party has no use for the words of the rest.
        networks = {each.name: getattr(self, each.name) for each in fields(Networks)}
        return {
            "name": member.name,
            "transformer": member.transformer(self.transformer),
            "networks": Networks(**networks),
            "optimize": Optimize(
                self.optimizer,
                self.lr,
                self.max_grad_norm,
                self.weight_decay,
                member.device,
                member.callbacks,
            ),
            "stream": member.stream("models"),
            "pretraining_ratio": self.pretraining_ratio,
        }


class GuestParty(BottomParty):
    """A party with columns; finetuning is split learning of its bottom model.

    Parameters
    ----------
    name, transformer, optimize
        As for :class:`~skvfl.splitnn._parties.BottomParty`.
    networks : Networks
        How networks are built.
    stream : SeedSequence
        The party's private one.
    pretraining_ratio : float
        Fraction of the cells that are hidden while pretraining.
    """

    _mixes = True  # columns that leave their organisation

    def __init__(
        self, name, transformer, networks, optimize, stream, pretraining_ratio
    ):
        # Weights and masks have nothing in common: masks are sent, and enough of them
        # give away the generator that draws them. One-way, so that neither's seed
        # leads back to the stream from which the other's came.
        to_weights, to_masks = (one_way(branch(stream, i)) for i in range(2))
        super().__init__(name, transformer, networks.bottom, optimize, to_weights)
        self._networks = networks
        self._obfuscate = RandomObfuscator(
            pretraining_ratio, private_generator(to_masks)
        )

    @operation
    def prepare(self, seed, share):
        """Prepare the columns and build the bottom model; its number of outputs.

        Parameters
        ----------
        seed : int
            Of the public order of the rows, the same at every party.
        share : int
            Number of decoder outputs that are the party's, and of the decisions of a
            TabNet of its own.

        Returns
        -------
        n_outputs : int
        """
        self.hold(Share(share))
        # Known only now: it depends on how many parties say that they hold columns.
        self._build_bottom = partial(
            self._networks.bottom, share=share, mix=self._mixes
        )
        width = self._prepare(seed)
        self._begin_steps(_bottom=self._bottom)
        return width

    @operation
    def begin_epoch(self, seed, n_train):
        """Shuffle the rows, and forget a batch that was left half done."""
        # A party that was late in the middle of a step has gradients of half of it, and
        # a graph that no gradient comes back to.
        if self._transformer is not None:
            self.held(Training).optimizer.zero_grad()
        for kind in (HiddenBatch, SentHidden, Sent):
            self.drop(kind)
        super().begin_epoch(seed, n_train)

    @operation
    def begin_pretraining(self, n_train):
        """Build the layer that rebuilds the columns, the paper's f_bottom_rec.

        Parameters
        ----------
        n_train : int
            Number of rows that are trained on. Which cells of the others are hidden is
            drawn once.
        """
        inputs, width = self.held(Inputs).values, self.held(Share).width
        trained = {"_bottom": self._bottom}
        if self._networks.design == "local":
            decoder = self._networks.decoder(width, self._generator)
            self.hold(OwnDecoder(decoder))
            trained["decoder"] = decoder
        layer = normal_linear(width, inputs.shape[1], self._generator)
        # Drawn once, so that losses of held-out rows differ by the models alone.
        held_out = self._obfuscate(self._here(inputs[n_train:]))
        self.hold(Rebuilding(layer, held_out))
        self._begin_steps(**trained, layer=layer)

    @operation
    def begin_finetuning(self):
        """Take a fresh optimiser."""
        # Finetuning has no use for the decoder, and a pickle should not carry it.
        self.drop(Rebuilding)
        self.drop(OwnDecoder)
        # Moments of the other phase's gradients say nothing about those of labels.
        self._begin_steps(_bottom=self._bottom)

    @operation
    def hide(self, start, stop):
        """Outputs for one batch some cells of which are hidden, and which ones.

        Returns
        -------
        reply : dict of str to ndarray
            ``outputs`` and, for a host that has the encoder, ``hidden``.
        """
        inputs = self._batch(start, stop)
        # Drawn anew for every batch, as the paper does; the host has to know which
        # cells they are.
        obscured, hidden = self._obfuscate(inputs)
        outputs = self._bottom.hide(obscured, hidden)
        # Apart, because the first is done with when it is rebuilt, and the second when
        # its gradient comes.
        self.hold(HiddenBatch(inputs, hidden))
        self.hold(SentHidden(outputs))
        return self._reply(outputs.detach(), hidden)

    @operation
    def rebuild(self, partition):
        """Loss of rebuilding the batch, and the gradient of what was received."""
        # A leaf, whose gradient goes back: the graph of what it was made from is the
        # host's.
        partition = self._here(partition).requires_grad_()
        batch = self.held(HiddenBatch)
        loss = self._reconstruction(partition, batch.inputs, batch.hidden)
        # The gradient of the own layer stays until ``adapt`` brings that of the bottom
        # model, so that one step moves both.
        loss.backward()
        self.drop(HiddenBatch)
        return {"loss": loss.item(), "gradient": partition.grad.cpu().numpy()}

    @operation
    def adapt(self, gradient):
        """Update the models from the gradient of the hidden batch's outputs."""
        self.held(SentHidden).outputs.backward(self._here(gradient))
        self.drop(SentHidden)
        self._update()

    @operation
    def hide_held_out(self):
        """Outputs for the held-out rows, in evaluation mode; see :meth:`hide`."""
        obscured, hidden = self.held(Rebuilding).held_out
        self._bottom.eval()
        with torch.inference_mode():
            return self._reply(self._bottom.hide(obscured, hidden), hidden)

    @operation
    def rebuild_held_out(self, start, stop, partition):
        """Loss of rebuilding rows in their first order."""
        inputs, (_, hidden) = self._rows(start, stop), self.held(Rebuilding).held_out
        inputs, partition = self._here(inputs), self._here(partition)
        with torch.inference_mode():
            return self._reconstruction(partition, inputs, hidden).item()

    @operation
    def pretrain_alone(self, batch_size, n_train):
        """An epoch of an autoencoder of the party's own; its mean loss."""
        self.held(OwnDecoder).decoder.train()
        total = 0.0
        for start, stop in batch_bounds(n_train, batch_size):
            inputs = self._batch(start, stop)
            loss = self._alone(inputs, *self._obfuscate(inputs))
            loss.backward()
            self._update()
            # Weighted by rows, because the last batch may be larger or smaller.
            total += loss.item() * (stop - start)
        return total / n_train

    @operation
    def evaluate_alone(self, start, stop):
        """Loss of rows in their first order, in evaluation mode."""
        self._bottom.eval()
        self.held(OwnDecoder).decoder.eval()
        with torch.inference_mode():
            inputs = self._here(self._rows(start, stop))
            return self._alone(inputs, *self.held(Rebuilding).held_out).item()

    @operation
    def forward(self, start, stop):
        """Outputs for one batch."""
        outputs, penalty = self._bottom.learn(self._batch(start, stop))
        self.hold(Sent(outputs, penalty))
        return outputs.detach().cpu().numpy()

    @operation
    def backward(self, gradient):
        """Update the models from the gradient of the batch's outputs."""
        # The own attention's entropy is a root of its own, since the host's loss has
        # no term for it.
        sent = self.held(Sent)
        go_back(sent.outputs, self._here(gradient), sent.penalty)
        self.drop(Sent)
        self._update()

    @serving
    def explain(self, start, stop):
        """Weight of each prepared column in the party's own encoder."""
        return explain(self._bottom, self._rows(start, stop))

    def _batch(self, start, stop):
        rows = self.held(Epoch).order[start:stop]
        return self._here(take(self.held(Inputs).values, rows))

    def _reply(self, outputs, hidden):
        reply = {"outputs": outputs.cpu().numpy()}
        # Which cells are hidden is told only where somebody else's encoder needs it.
        if self._networks.design == "joint":
            reply["hidden"] = hidden.cpu().numpy()
        return reply

    def _reconstruction(self, partition, inputs, hidden):
        rebuilt = self.held(Rebuilding).layer(partition)
        return reconstruction_loss(rebuilt, inputs, hidden.to(inputs.dtype))

    def _alone(self, inputs, obscured, hidden):
        decisions = self._bottom.hide(obscured, hidden)
        width = self.held(Share).width
        decoded = self.held(OwnDecoder).decoder(decisions.split(width, dim=1))
        return self._reconstruction(decoded, inputs, hidden)

    def _update(self):
        training = self.held(Training)
        step(training.optimizer, training.watch)

    def _here(self, values):
        """Numbers where the party trains."""
        if not isinstance(values, torch.Tensor):
            values = tensor(values)
        return values.to(self._optimize.device)

    def _begin_steps(self, **networks):
        """Take a fresh optimiser; callbacks hear of the epochs before it no more."""
        if (watch := self._watch) is not None:
            watch.finish()
        self.hold(Training(*self._optimizer(networks)))

    @property
    def _watch(self):
        return self.held(Training).watch if self.holds(Training) else None

    def _optimizer(self, networks):
        """What moves networks, and what tells the callbacks of it."""
        for network in networks.values():
            network.to(self._optimize.device)
        parameters = [p for each in networks.values() for p in each.parameters()]
        watched = watch(networks, self._optimize)
        if watched is None:
            return self._optimize(parameters), None
        return self._optimize.clipped(watched.optimizer, parameters), watched


def step(optimizer, watched):
    """Move networks, and tell the callbacks of it, if there are any."""
    if watched is not None:
        watched.begin_step()
    optimizer.step()
    optimizer.zero_grad()
    if watched is not None:
        watched.end_step()


def go_back(outputs, gradient, penalty):
    """Gradients from that of the outputs, and from a term of the loss, if any."""
    if penalty is None:
        outputs.backward(gradient)
    else:
        torch.autograd.backward([outputs, penalty], [gradient, None])
