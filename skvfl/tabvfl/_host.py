"""TabVFL: the host, with the labels and most of the network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn

from skvfl.federation import operation, serving
from skvfl.federation._party import Earlier
from skvfl.nn._labels import Codec, Lessons
from skvfl.nn._steps import infer, public_order, take, tensor
from skvfl.nn._tabnet import (
    explain,
    normal_linear,
)
from skvfl.splitnn._active import GradientNoise, LabelBudget, labels_to_learn
from skvfl.splitnn._parties import Epoch
from skvfl.tabvfl._parties import GuestParty, GuestSettings, Training, go_back, step


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
        rows = np.arange(start, stop)
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
        go_back(outputs, self._here(gradient), penalty)
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
        rows = np.arange(start, stop)
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
        step(phase.optimizer, phase.watch)

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
            joined = take(phase.last[what], rows)
        else:
            joined = torch.zeros(len(rows), width, dtype=kind)
        for name, sent in received.items():
            joined[:, phase.columns[name]] = torch.from_numpy(sent)
        if self._cache:
            # Copied, so that the graph on what is joined reaches none of the kept rows.
            phase.last[what][rows] = joined
        return joined.to(self._optimize.device)


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
