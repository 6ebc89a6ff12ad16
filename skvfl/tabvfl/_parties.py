"""TabVFL: guests with columns, and a host with the labels and most of the network.

What crosses is numbers, as in split learning. While pretraining, a batch goes from the
guests to the host's encoder and decoder and back to the guests, which rebuild what they
hid; the gradients go the same way back.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn

from skvfl._random import branch, one_way
from skvfl.federation import Settings, operation, serving
from skvfl.federation._party import Earlier
from skvfl.nn._build import Optimize
from skvfl.nn._explicit import watch
from skvfl.nn._labels import Codec, Lessons
from skvfl.nn._steps import batch_bounds, infer, public_order, tensor
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
    GradientNoise,
    Inputs,
    LabelBudget,
    labels_to_learn,
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


@dataclass
class Shares:
    """Which of the decoder's outputs are whose."""

    after: ClassVar = "prepare_top"
    columns: dict[str, slice]
    width: int


@dataclass
class HostPhase:
    """What the host needs while pretraining, or while finetuning.

    ``columns`` says where each party's columns stand among all that are sent, and
    ``last`` has, by kind, what was sent last for each row.
    """

    after: ClassVar = "begin_learning"
    columns: dict[str, slice]
    last: dict[str, torch.Tensor]
    optimizer: Any
    watch: Any = None


@dataclass
class Decoding:
    """The paper's PartialDec."""

    after: ClassVar = "begin_decoding"
    decoder: nn.Module


@dataclass
class Decoded:
    """Of the batch under way: what came, and the decoder's outputs with the graph."""

    after: ClassVar = "decode"
    received: torch.Tensor
    outputs: torch.Tensor


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


@dataclass(frozen=True, kw_only=True)
class HostSettings(GuestSettings, role="tabvfl.host"):
    """What the active party is told; besides, what is for it alone.

    Parameters
    ----------
    cache : bool, default=False
        Whether to keep what was sent last.
    gradient_noise, label_epsilon : float
        The estimator's parameters of these names.
    """

    cache: bool = False
    gradient_noise: float = 0.0
    label_epsilon: float | None = None

    def make(self, member):
        """The party that has the labels."""
        codec = Codec(member.labels, self.label_epsilon)
        party = HostParty(**self._parts(member), codec=codec, cache=self.cache)
        if self.gradient_noise:
            party.hold(GradientNoise.of(self.gradient_noise, member.stream("noise")))
        if self.label_epsilon is not None:
            party.hold(LabelBudget(self.label_epsilon, member.stream("labels")))
        return party


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
        _go_back(sent.outputs, self._here(gradient), sent.penalty)
        self.drop(Sent)
        self._update()

    @serving
    def explain(self, start, stop):
        """Weight of each prepared column in the party's own encoder."""
        return explain(self._bottom, self._rows(start, stop))

    def _batch(self, start, stop):
        rows = self.held(Epoch).order[start:stop]
        return self._here(self.held(Inputs).values.index_select(0, rows))

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
        _step(training.optimizer, training.watch)

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


class HostParty(GuestParty):
    """The party with the labels, which may hold columns as well.

    What it does with its own columns it does as a guest of its own.

    Parameters
    ----------
    codec : Codec
        How labels are written, and outputs read.
    cache : bool
        Whether to keep what parties sent for every row, for when one is offline.
    **guest
        As for :class:`GuestParty`.
    """

    made_by: ClassVar = {
        **GuestParty.made_by,
        **dict.fromkeys(["_top", "_mapping"], "prepare_top"),
    }
    _mixes = False  # columns that stay where they are

    def __init__(self, codec, cache, **guest):
        super().__init__(**guest)
        self._codec = codec
        self._cache = cache

    @operation
    def prepare_top(self, seed, n_columns, n_train, shares):
        """Build the host's models, the paper's PartialEnc and final_mapping.

        Parameters
        ----------
        seed : int
            Of the public order of the rows, the same at every party.
        n_columns : int
            Number of columns that all parties send.
        n_train : int
            Number of rows that are trained on; the others are held out.
        shares : dict of str to int
            Number of decoder outputs of every party with columns.
        """
        networks, generator = self._networks, self._generator
        # All are named: a party keeps its share of the outputs while it is offline.
        self.hold(Shares(_slices(shares), sum(shares.values())))
        if self.take_over("_top", "_mapping"):
            self._codec = self._codec.going_on(self.held(Earlier).party._codec)
        else:
            n_outputs = self._codec.n_outputs
            self._top = networks.top(n_columns, generator, len(shares))
            self._mapping = normal_linear(networks.n_d, n_outputs, generator)
        labels = labels_to_learn(self)
        order = public_order(seed, len(labels.values))
        lessons = Lessons.of(self._codec, labels, order)
        lessons.check_held_out(n_train)
        self.hold(lessons)

    @operation
    def begin_decoding(self, widths):
        """Build the decoder, the paper's PartialDec, for columns of these widths."""
        decoder = self._networks.decoder(self.held(Shares).width, self._generator)
        self.hold(Decoding(decoder))
        self._begin_phase(widths, _top=self._top, decoder=decoder)

    @operation
    def begin_learning(self, widths):
        """Take a fresh optimiser, for columns of these widths."""
        self.drop(Decoding)
        self._begin_phase(widths, _top=self._top, _mapping=self._mapping)

    @operation
    def begin_epoch(self, seed, n_train):
        """Take the public order of an epoch's rows."""
        super().begin_epoch(seed, n_train)
        self.drop(Decoded)
        if self.holds(Decoding):
            self.held(Decoding).decoder.train()

    @operation
    def decode(self, start, stop, outputs, hidden):
        """Encode and decode one batch.

        Parameters
        ----------
        start, stop : int
            Bounds of the batch in the order of the epoch.
        outputs, hidden : dict of str to ndarray
            What the parties that are online sent, and which cells they hid.

        Returns
        -------
        partitions : dict of str to ndarray
            Each party's share of the decoder's outputs.
        """
        rows = self.held(Epoch).order[start:stop]
        received = self._join("outputs", rows, outputs).requires_grad_()
        decoded = self._decode(received, self._join_hidden(rows, hidden))
        self.hold(Decoded(received, decoded))
        return _of_each(decoded.detach(), self.held(Shares).columns, outputs)

    @operation
    def correct(self, gradients):
        """Update encoder and decoder; the gradient of what each party sent.

        Parameters
        ----------
        gradients : dict of str to ndarray
            Those of the partitions that were sent.
        """
        batch, columns = self.held(Decoded), self.held(Shares).columns
        # A party that dropped out since has no say in this step.
        gradient = torch.zeros_like(batch.outputs)
        for name, each in gradients.items():
            gradient[:, columns[name]] = tensor(each)
        batch.outputs.backward(gradient)
        self.drop(Decoded)
        self._update_top()
        return _of_each(batch.received.grad, self.held(HostPhase).columns, gradients)

    @operation
    def decode_held_out(self, start, stop, outputs, hidden):
        """Encode and decode rows in their first order; see :meth:`decode`."""
        rows = torch.arange(start, stop)
        received = self._join("outputs", rows, outputs)
        hidden = self._join_hidden(rows, hidden)
        self._top.eval()
        self.held(Decoding).decoder.eval()
        with torch.inference_mode():
            decoded = self._decode(received, hidden)
            return _of_each(decoded, self.held(Shares).columns, outputs)

    @operation
    def learn(self, start, stop, received):
        """One step on a batch: its loss and weight, and gradients of what was sent."""
        rows, lessons = self.held(Epoch).order[start:stop], self.held(Lessons)
        joined = self._join("outputs", rows, received).requires_grad_()
        latent, penalty = self._top.learn(joined)
        outputs = self._mapping(latent)
        report, gradient = lessons.learn(outputs.detach().cpu(), rows)
        # The penalty steers the step and is not reported: with it, losses of different
        # ``lambda_sparse`` could not be compared.
        _go_back(outputs, self._here(gradient), penalty)
        self._update_top()
        gradient, columns = joined.grad, self.held(HostPhase).columns
        if self.holds(GradientNoise):
            parts = {name: gradient[:, columns[name]] for name in received}
            noisy = self.held(GradientNoise).on(parts)
            gradients = {name: each.numpy() for name, each in noisy.items()}
        else:
            gradients = _of_each(gradient, columns, received)
        return {**report, "gradients": gradients}

    @operation
    def evaluate(self, start, stop, received):
        """Loss of rows in their first order, in evaluation mode."""
        rows = torch.arange(start, stop)
        latent = infer(self._top, self._join("outputs", rows, received))
        # Labels and weights are in single precision, as in training.
        outputs = infer(self._mapping, latent).float()
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
    def embed(self, received):
        """Latent vectors of rows."""
        return infer(self._top, _side_by_side(received), torch.float32).numpy()

    @serving
    def predict(self, received):
        """Probabilities of classes, or targets in their own units."""
        latent = infer(self._top, _side_by_side(received))
        return self._codec.decode(infer(self._mapping, latent).numpy())

    @serving
    def explain_received(self, received):
        """Weight of each column that was sent, of every party."""
        weights = explain(self._top, _side_by_side(received))
        columns = _slices({name: sent.shape[1] for name, sent in received.items()})
        return {name: weights[:, own] for name, own in columns.items()}

    def _models(self):
        # The decoder is not among them: nothing asks for it once pretraining is over.
        return {**super()._models(), "_top": self._top, "_mapping": self._mapping}

    def _begin_phase(self, widths, **networks):
        if (watch := self._watch) is not None:
            watch.finish()
        self.hold(HostPhase(_slices(widths), {}, *super()._optimizer(networks)))

    @property
    def _watch(self):
        return self.held(HostPhase).watch if self.holds(HostPhase) else None

    def _optimizer(self, networks):
        """Of the host's own columns, whose callbacks are those of what is above."""
        for network in networks.values():
            network.to(self._optimize.device)
        parameters = [p for each in networks.values() for p in each.parameters()]
        if not self._optimize.callbacks:
            return self._optimize(parameters), None
        plain = self._optimize.plain(parameters)
        return self._optimize.clipped(plain, parameters), None

    def _begin_steps(self, **networks):
        self.hold(Training(*self._optimizer(networks)))

    def _update(self):
        # At the rate that the callbacks have set.
        if (watched := self._watch) is not None:
            rate = watched.optimizer.param_groups[0]["lr"]
            for group in self.held(Training).optimizer.param_groups:
                group["lr"] = rate
        super()._update()

    def _update_top(self):
        phase = self.held(HostPhase)
        _step(phase.optimizer, phase.watch)

    def _decode(self, received, hidden):
        return self.held(Decoding).decoder(self._top.decide(received, hidden))

    def _join_hidden(self, rows, hidden):
        # Only an encoder of the host's must be told; the parties' own ones know.
        joint = self._networks.design == "joint"
        return self._join("hidden", rows, hidden) if joint else None

    def _join(self, what, rows, received):
        """Everybody's columns of some rows; those of who is offline as they last were.

        Without a cache they are zero.
        """
        phase = self.held(HostPhase)
        kind = torch.bool if what == "hidden" else torch.float32
        width = list(phase.columns.values())[-1].stop
        if self._cache:
            # When first sent: which cells are hidden is told only while pretraining.
            if what not in phase.last:
                n_rows = len(self.held(Lessons).labels)
                phase.last[what] = torch.zeros(n_rows, width, dtype=kind)
            joined = phase.last[what].index_select(0, rows)
        else:
            joined = torch.zeros(len(rows), width, dtype=kind)
        for name, sent in received.items():
            joined[:, phase.columns[name]] = torch.from_numpy(sent)
        if self._cache:
            # Copied, so that the graph on what is joined reaches none of the kept rows.
            phase.last[what][rows] = joined
        return joined.to(self._optimize.device)


def _step(optimizer, watched):
    """Move networks, and tell the callbacks of it, if there are any."""
    if watched is not None:
        watched.begin_step()
    optimizer.step()
    optimizer.zero_grad()
    if watched is not None:
        watched.end_step()


def _go_back(outputs, gradient, penalty):
    """Gradients from that of the outputs, and from a term of the loss, if any."""
    if penalty is None:
        outputs.backward(gradient)
    else:
        torch.autograd.backward([outputs, penalty], [gradient, None])


def _of_each(matrix, columns, names):
    matrix = matrix.cpu()
    return {name: matrix[:, columns[name]].numpy() for name in names}


def _side_by_side(received):
    return torch.cat([tensor(sent) for sent in received.values()], dim=1)


def _slices(widths):
    """Columns of every party where all stand side by side."""
    ends = np.cumsum(list(widths.values())).tolist()
    return {
        name: slice(end - width, end)
        for (name, width), end in zip(widths.items(), ends, strict=True)
    }
