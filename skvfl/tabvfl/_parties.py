"""TabVFL: guests with columns, and a host with the labels and most of the network.

What crosses is numbers, as in split learning. While pretraining, a batch goes from the
guests to the host's encoder and decoder and back to the guests, which rebuild what they
hid; the gradients go the same way back.
"""

from __future__ import annotations

import copy

import numpy as np
import torch
from torch import nn

from skvfl._random import one_way
from skvfl.federation import operation
from skvfl.nn._mlp import linear
from skvfl.nn._steps import batch_bounds, infer, tensor
from skvfl.nn._streams import private_generator
from skvfl.nn._tabnet import (
    INPUT_MOMENTUM,
    RandomObfuscator,
    negative_entropy,
    normal_linear,
    reconstruction_loss,
)
from skvfl.splitnn._legacy_parties import BottomParty, TopParty


class MixedColumns(nn.Module):
    """The paper's f_bottom_repr: batch norm and a square layer.

    Parameters
    ----------
    n_columns : int
        Number of columns.
    generator : torch.Generator
        The party's private stream.
    mix : bool, default=True
        Whether there is a square layer; columns that stay with the host need none.
    """

    def __init__(self, n_columns, generator, mix=True):
        super().__init__()
        self.norm = nn.BatchNorm1d(n_columns, momentum=INPUT_MOMENTUM)
        self.mix = (
            linear(n_columns, n_columns, generator, bias=False)
            if mix
            else nn.Identity()
        )

    def forward(self, inputs):
        """What the host is sent."""
        return self.mix(self.norm(inputs))

    def hide(self, inputs, hidden):
        """What the host is sent of columns some cells of which are hidden."""
        return self(inputs)

    def learn(self, inputs):
        """What the host is sent, and the party's own term of the loss, if any."""
        return self(inputs), None


class SparseEncoder(nn.Module):
    """An encoder, and the entropy of its attention as a term of the loss.

    Parameters
    ----------
    n_columns : int
        Number of columns.
    generator : torch.Generator
        The party's private stream.
    encoder : callable
        ``encoder(n_columns, generator=generator)`` builds the encoder.
    lambda_sparse : float
        Weight of the entropy.
    """

    def __init__(self, n_columns, generator, encoder, lambda_sparse):
        super().__init__()
        self.encoder = encoder(n_columns, generator=generator)
        self.lambda_sparse = lambda_sparse

    def forward(self, inputs):
        """Latent vector."""
        return sum(self.encoder(inputs)[0])

    def decide(self, inputs, hidden):
        """Decisions of every step for columns some cells of which are hidden."""
        return self.encoder(inputs, (~hidden).to(inputs.dtype))[0]

    def learn(self, inputs):
        """Latent vector, and the term of the loss, if any."""
        decisions, weights = self.encoder(inputs)
        if not self.lambda_sparse:
            return sum(decisions), None
        return sum(decisions), -self.lambda_sparse * negative_entropy(weights)

    def explain(self, inputs):
        """Weight of each column, summed over steps by how much they decide."""
        decisions, weights = self.encoder(inputs)
        return sum(
            decided.sum(dim=1, keepdim=True) * each
            for decided, each in zip(decisions, weights, strict=True)
        )


class LocalEncoder(SparseEncoder):
    """Batch norm and an encoder: what a guest keeps where each has its own.

    Parameters
    ----------
    n_columns, generator, encoder, lambda_sparse
        As for :class:`SparseEncoder`.
    """

    def __init__(self, n_columns, generator, encoder, lambda_sparse):
        super().__init__(n_columns, generator, encoder, lambda_sparse)
        self.norm = nn.BatchNorm1d(n_columns, momentum=INPUT_MOMENTUM)

    def forward(self, inputs):
        """Latent vector."""
        return super().forward(self.norm(inputs))

    def hide(self, inputs, hidden):
        """Decisions of all steps, side by side, for columns with hidden cells."""
        return torch.cat(self.decide(self.norm(inputs), hidden), dim=1)

    def learn(self, inputs):
        """Latent vector, and the term of the loss, if any."""
        return super().learn(self.norm(inputs))

    def explain(self, inputs):
        """Weight of each column; see :class:`SparseEncoder`."""
        return super().explain(self.norm(inputs))


class SummedTop(nn.Module):
    """Adds up what the parties' own encoders decide.

    Parameters
    ----------
    n_columns, generator
        Not needed: there is nothing to train.
    n_parts : int
        Number of equal parts that are added up; 1 leaves what came as it is.
    n_d : int
        Width of the decisions of one step.
    """

    def __init__(self, n_columns, generator, n_parts, n_d):
        super().__init__()
        self.n_parts = n_parts
        self.n_d = n_d

    def forward(self, received):
        """Latent vector."""
        return received.unflatten(1, (self.n_parts, -1)).sum(dim=1)

    def decide(self, received, hidden):
        """Decisions of every step."""
        return self(received).split(self.n_d, dim=1)

    def learn(self, received):
        """Latent vector, and no term of the loss."""
        return self(received), None


class GuestParty(BottomParty):
    """A party with columns.

    Parameters
    ----------
    name, transformer, build_bottom, optimize
        As for :class:`~skvfl.splitnn._parties.BottomParty`.
    stream : SeedSequence
        The party's private one. Weights and masks have nothing in common: masks are
        sent, and enough of them give away the generator that draws them.
    build_decoder : callable
        ``build_decoder(n_d, generator=generator)`` gives a decoder.
    pretraining_ratio : float
        Fraction of the cells that are hidden while pretraining.
    """

    def __init__(
        self,
        name,
        transformer,
        build_bottom,
        optimize,
        stream,
        build_decoder,
        pretraining_ratio,
    ):
        to_weights, to_masks = map(one_way, stream.spawn(2))
        super().__init__(name, transformer, build_bottom, optimize, to_weights)
        self._build_decoder = build_decoder
        self._obfuscate = RandomObfuscator(
            pretraining_ratio, private_generator(to_masks)
        )

    @operation
    def begin_epoch(self, seed, n_train):
        """Shuffle the rows, and forget a batch that was left half done."""
        if self._transformer is not None:
            self._held["optimizer"].zero_grad()
        super().begin_epoch(seed, n_train)

    @operation
    def begin_pretraining(self, width, n_train, alone):
        """Build the layer that rebuilds the columns, the paper's f_bottom_rec.

        Parameters
        ----------
        width : int
            Number of decoder outputs that it has.
        n_train : int
            Number of rows that are trained on. Which cells of the others are hidden is
            drawn once.
        alone : bool
            Whether the decoder is the party's own.
        """
        inputs = self._held["inputs"]
        trained = [self._bottom]
        if alone:
            self._held["decoder"] = self._build_decoder(
                width, generator=self._generator
            )
            trained.append(self._held["decoder"])
        self._held["rebuild"] = normal_linear(width, inputs.shape[1], self._generator)
        self._held["obscured"] = self._obfuscate(inputs[n_train:])
        self._held["optimizer"] = self._optimizer([*trained, self._held["rebuild"]])

    @operation
    def begin_finetuning(self):
        """Take a fresh optimiser."""
        self._held["optimizer"] = self._optimizer([self._bottom])

    @operation
    def hide(self, start, stop):
        """Outputs for one batch some cells of which are hidden, and which ones.

        Returns
        -------
        reply : dict of str to ndarray
            ``outputs`` and, for a host that has the encoder, ``hidden``.
        """
        inputs = self._batch(start, stop)
        obscured, hidden = self._obfuscate(inputs)
        self._held["batch"] = inputs, hidden
        self._held["activations"] = self._bottom.hide(obscured, hidden)
        return self._reply(self._held["activations"].detach(), hidden)

    @operation
    def rebuild(self, partition):
        """Loss of rebuilding the batch, and the gradient of what was received."""
        partition = tensor(partition).requires_grad_()
        loss = self._reconstruction(partition, *self._held.pop("batch"))
        loss.backward()
        return {"loss": loss.item(), "gradient": partition.grad.numpy()}

    @operation
    def adapt(self, gradient):
        """Update the models from the gradient of the hidden batch's outputs."""
        super().backward(gradient)

    @operation
    def hide_held_out(self):
        """Outputs for the held-out rows, in evaluation mode; see :meth:`hide`."""
        obscured, hidden = self._held["obscured"]
        self._bottom.eval()
        with torch.inference_mode():
            return self._reply(self._bottom.hide(obscured, hidden), hidden)

    @operation
    def rebuild_held_out(self, start, stop, partition):
        """Loss of rebuilding rows in their first order."""
        inputs, (_, hidden) = self._rows(start, stop), self._held["obscured"]
        with torch.inference_mode():
            return self._reconstruction(tensor(partition), inputs, hidden).item()

    @operation
    def pretrain_alone(self, batch_size, n_train):
        """An epoch of an autoencoder of the party's own; its mean loss."""
        self._held["decoder"].train()
        total = 0.0
        for start, stop in batch_bounds(n_train, batch_size):
            inputs = self._batch(start, stop)
            loss = self._alone(inputs, *self._obfuscate(inputs))
            loss.backward()
            self._update()
            total += loss.item() * (stop - start)
        return total / n_train

    @operation
    def evaluate_alone(self, start, stop):
        """Loss of rows in their first order, in evaluation mode."""
        self._bottom.eval()
        self._held["decoder"].eval()
        with torch.inference_mode():
            inputs = self._rows(start, stop)
            return self._alone(inputs, *self._held["obscured"]).item()

    @operation
    def forward(self, start, stop):
        """Outputs for one batch."""
        inputs = self._batch(start, stop)
        self._held["activations"], self._held["penalty"] = self._bottom.learn(inputs)
        return self._held["activations"].detach().numpy()

    @operation
    def backward(self, gradient):
        """Update the models from the gradient of the batch's outputs."""
        roots, gradients = [self._held.pop("activations")], [tensor(gradient)]
        if self._held.get("penalty") is not None:
            roots.append(self._held.pop("penalty"))
            gradients.append(None)
        torch.autograd.backward(roots, gradients)
        self._update()

    @operation
    def explain(self, start, stop):
        """Weight of each prepared column in the party's own encoder."""
        return explain(self._bottom, self._rows(start, stop))

    def _batch(self, start, stop):
        rows = self._held["order"][start:stop]
        return self._held["inputs"].index_select(0, rows)

    def _reply(self, outputs, hidden):
        reply = {"outputs": outputs.numpy()}
        if isinstance(self._bottom, MixedColumns):
            reply["hidden"] = hidden.numpy()
        return reply

    def _reconstruction(self, partition, inputs, hidden):
        rebuilt = self._held["rebuild"](partition)
        return reconstruction_loss(rebuilt, inputs, hidden.to(inputs.dtype))

    def _alone(self, inputs, obscured, hidden):
        decisions = self._bottom.hide(obscured, hidden)
        width = self._held["rebuild"].in_features
        decoded = self._held["decoder"](decisions.split(width, dim=1))
        return self._reconstruction(decoded, inputs, hidden)

    def _optimizer(self, modules):
        return self._optimize([p for module in modules for p in module.parameters()])


class HostParty(GuestParty):
    """The party with the labels, which may hold columns as well.

    What it does with its own columns it does as a guest of its own.

    Parameters
    ----------
    name, transformer, build_bottom, optimize, stream, build_decoder, pretraining_ratio
        As for :class:`GuestParty`.
    build_top : callable
        ``build_top(n_columns, generator)`` makes latent vectors of what guests send.
    build_mapping : callable
        ``build_mapping(generator=generator)`` makes outputs of latent vectors.
    shares : dict of str to int
        Number of decoder outputs of every party with columns.
    loss : callable
        ``loss(outputs, labels)`` gives the loss of each row.
    cache : bool
        Whether to keep what parties sent for every row, for when one is offline.
    """

    def __init__(
        self,
        name,
        transformer,
        build_bottom,
        optimize,
        stream,
        build_decoder,
        pretraining_ratio,
        build_top,
        build_mapping,
        shares,
        loss,
        cache,
    ):
        super().__init__(
            name,
            transformer,
            build_bottom,
            optimize,
            stream,
            build_decoder,
            pretraining_ratio,
        )
        self._build_top = build_top
        self._build_mapping = build_mapping
        self._shares = shares
        self._loss = loss
        self._cache = cache

    @operation
    def prepare_top(self, seed, n_columns, n_train):
        """Build the host's models, the paper's PartialEnc and final_mapping.

        Parameters
        ----------
        seed : int
            Of the public order of the rows, the same at every party.
        n_columns : int
            Number of columns that all parties send.
        n_train : int
            Number of rows that are trained on; the others are held out.
        """
        self._top = self._build_top(n_columns, self._generator)
        self._mapping = self._build_mapping(generator=self._generator)
        self._sort_labels(seed, n_train)

    @operation
    def begin_decoding(self, widths, masked):
        """Build the decoder, the paper's PartialDec.

        Parameters
        ----------
        widths : dict of str to int
            Number of columns that every party sends.
        masked : bool
            Whether it is sent which of them are hidden.
        """
        self._held["masked"] = masked
        width = sum(self._shares.values())
        decoder = self._build_decoder(width, generator=self._generator)
        self._held["decoder"] = decoder
        self._begin_phase(widths, [self._top, decoder])

    @operation
    def begin_learning(self, widths):
        """Take a fresh optimiser; see :meth:`begin_decoding`."""
        self._held.pop("decoder", None)
        self._begin_phase(widths, [self._top, self._mapping])

    @operation
    def begin_epoch(self, seed, n_train):
        """Take the public order of an epoch's rows."""
        super().begin_epoch(seed, n_train)
        for module in (self._top, self._mapping, self._held.get("decoder")):
            if module is not None:
                module.train()

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
        rows = self._held["order"][start:stop]
        received = self._join("outputs", rows, outputs).requires_grad_()
        hidden = self._join("hidden", rows, hidden) if self._held["masked"] else None
        decoded = self._held["decoder"](self._top.decide(received, hidden))
        self._held["step"] = received, decoded
        return self._partitions(decoded.detach(), outputs)

    @operation
    def correct(self, gradients):
        """Update encoder and decoder; the gradient of what each party sent.

        Parameters
        ----------
        gradients : dict of str to ndarray
            Those of the partitions that were sent.
        """
        received, decoded = self._held.pop("step")
        gradient = torch.zeros_like(decoded)
        columns = _slices(self._shares)
        for name, each in gradients.items():
            gradient[:, columns[name]] = tensor(each)
        decoded.backward(gradient)
        self._update_top()
        return self._split(received.grad, gradients)

    @operation
    def decode_held_out(self, start, stop, outputs, hidden):
        """Encode and decode rows in their first order; see :meth:`decode`."""
        rows = torch.arange(start, stop)
        received = self._join("outputs", rows, outputs)
        hidden = self._join("hidden", rows, hidden) if self._held["masked"] else None
        self._top.eval()
        self._held["decoder"].eval()
        with torch.inference_mode():
            decoded = self._held["decoder"](self._top.decide(received, hidden))
            return self._partitions(decoded, outputs)

    @operation
    def learn(self, start, stop, received):
        """One step on a batch: its loss and weight, and gradients of what was sent."""
        rows = self._held["order"][start:stop]
        joined = self._join("outputs", rows, received).requires_grad_()
        latent, penalty = self._top.learn(joined)
        loss = self._mean_loss(self._mapping(latent), rows)
        (loss if penalty is None else loss + penalty).backward()
        self._update_top()
        gradients = self._split(joined.grad, received)
        return {**self._report(loss, rows), "gradients": gradients}

    @operation
    def evaluate(self, start, stop, received):
        """Loss of rows in their first order, in evaluation mode."""
        rows = torch.arange(start, stop)
        latent = infer(self._top, self._join("outputs", rows, received))
        return self._mean_loss(infer(self._mapping, latent).float(), rows).item()

    @operation
    def embed(self, received):
        """Latent vectors of rows."""
        return infer(self._top, _side_by_side(received)).float().numpy()

    @operation
    def predict(self, received):
        """Outputs for rows."""
        latent = infer(self._top, _side_by_side(received))
        return infer(self._mapping, latent).numpy()

    @operation
    def explain_received(self, received):
        """Weight of each column that was sent, of every party."""
        weights = explain(self._top, _side_by_side(received))
        ends = np.cumsum([sent.shape[1] for sent in received.values()])
        parts = np.split(weights, ends[:-1], axis=1)
        return dict(zip(received, parts, strict=True))

    _mean_loss = TopParty._mean_loss
    _report = TopParty._report
    _sort_labels = TopParty._sort_labels

    def _models(self):
        return {**super()._models(), "_top": self._top, "_mapping": self._mapping}

    def _begin_phase(self, widths, modules):
        self._held["columns"] = _slices(widths)
        self._held["cache"] = {}
        self._held["top_optimizer"] = self._optimizer(modules)

    def _update_top(self):
        self._held["top_optimizer"].step()
        self._held["top_optimizer"].zero_grad()

    def _join(self, what, rows, received):
        """Everybody's columns of some rows; those of who is offline as they last were.

        Without a cache they are zero.
        """
        columns, cache = self._held["columns"], self._held["cache"]
        kind = torch.bool if what == "hidden" else torch.float32
        width = list(columns.values())[-1].stop
        if self._cache:
            if what not in cache:
                n_rows = len(self._held["labels"])
                cache[what] = torch.zeros(n_rows, width, dtype=kind)
            joined = cache[what].index_select(0, rows)
        else:
            joined = torch.zeros(len(rows), width, dtype=kind)
        for name, sent in received.items():
            joined[:, columns[name]] = torch.from_numpy(sent)
        if self._cache:
            cache[what][rows] = joined
        return joined

    def _split(self, gradient, names):
        columns = self._held["columns"]
        return {name: gradient[:, columns[name]].numpy() for name in names}

    def _partitions(self, decoded, names):
        columns = _slices(self._shares)
        return {name: decoded[:, columns[name]].numpy() for name in names}


def explain(encoder, inputs):
    """Weights that an encoder gives to the columns of rows, in evaluation mode."""
    with torch.inference_mode():
        return copy.deepcopy(encoder).double().eval().explain(inputs.double()).numpy()


def _side_by_side(received):
    return torch.cat([tensor(sent) for sent in received.values()], dim=1)


def _slices(widths):
    """Columns of every party where all stand side by side."""
    ends = np.cumsum(list(widths.values())).tolist()
    return {
        name: slice(end - width, end)
        for (name, width), end in zip(widths.items(), ends, strict=True)
    }
