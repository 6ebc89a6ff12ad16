"""TabNet: attention over columns in steps, and a decoder that rebuilds the columns.

The encoder has no batch norm of its own input: where the columns are spread over
parties, it stays with them.
"""

from __future__ import annotations

from functools import lru_cache
from math import ceil, sqrt

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from skvfl.nn._device import device_of
from skvfl.nn._mlp import linear
from skvfl.nn._sparsemax import entmax15, sparsemax
from skvfl.nn._steps import in_double, plainly

# Of the batch norm of the columns, which takes whole batches and not virtual ones.
INPUT_MOMENTUM = 0.01
MIN_VARIANCE = 0.01
MASKS = {"sparsemax": sparsemax, "entmax": entmax15}


@plainly
class GhostBatchNorm(nn.Module):
    """Batch norm over the virtual batches that a batch is dealt into.

    Of ``k`` virtual batches the first takes the rows 0, k, 2k, …: rows of a batch come
    in random order, and one call on the same memory does what a loop over virtual
    batches does, running statistics included. What is left where the sizes differ
    follows in a call of its own, as a virtual batch of at least two rows.

    Parameters
    ----------
    n_columns : int
        Number of columns.
    virtual_batch_size : int
        Number of rows of a virtual batch at most; one more where the last one would
        have a single row.
    momentum : float
        Weight of each virtual batch in the running statistics.
    """

    def __init__(self, n_columns, virtual_batch_size, momentum):
        super().__init__()
        self.virtual_batch_size = virtual_batch_size
        self.momentum = momentum
        self.norm = nn.BatchNorm1d(n_columns, momentum=momentum)

    def forward(self, inputs):
        """Normalised columns."""
        norm = self.norm
        if not self.training:
            return norm(inputs)
        # One node of the graph, like the gated layers below: networks are small, and
        # every node costs as much as its arithmetic.
        return _Normalise.apply(inputs, norm.weight, norm.bias, self)

    def normalise(self, inputs, weight, bias):
        """Normalise without recording gradients; what :meth:`backward` needs as well.

        Returns
        -------
        outputs : torch.Tensor
        parts : list of tuple
            Of each call: its rows, number of virtual batches, and statistics.
        """
        norm = self.norm
        outputs, parts = [], []
        start = 0
        # Virtual batches side by side are columns of one batch norm, so that one call
        # does for all. Its running statistics would be wrong, so it gets none.
        for stop, n_batches in deal(len(inputs), self.virtual_batch_size):
            dealt = _spread(inputs[start:stop], n_batches)
            normal, means, scales = torch.native_batch_norm(
                dealt,
                _repeated(weight, n_batches),
                _repeated(bias, n_batches),
                None,
                None,
                True,
                0.0,
                norm.eps,
            )
            self._follow(means, scales, n_batches, len(dealt))
            outputs.append(normal.view(-1, inputs.shape[1]))
            parts.append((slice(start, stop), n_batches, means, scales))
            start = stop
        return outputs[0] if len(parts) == 1 else torch.cat(outputs), parts

    def backward(self, gradient, inputs, weight, parts):
        """Gradients with respect to inputs, weight and bias."""
        gradients = []
        for rows, n_batches, means, scales in parts:
            to_inputs, *others = torch.ops.aten.native_batch_norm_backward(
                _spread(gradient[rows], n_batches),
                _spread(inputs[rows], n_batches),
                _repeated(weight, n_batches),
                None,
                None,
                means,
                scales,
                True,
                self.norm.eps,
                [True, True, True],
            )
            others = [each.view(n_batches, -1).sum(dim=0) for each in others]
            gradients.append((to_inputs.view(-1, inputs.shape[1]), *others))
        if len(gradients) == 1:
            return gradients[0]
        to_inputs, to_weight, to_bias = zip(*gradients, strict=True)
        return torch.cat(to_inputs), sum(to_weight), sum(to_bias)

    def _follow(self, means, scales, n_batches, n_rows):
        """Move the running statistics as the virtual batches in turn would."""
        norm = self.norm
        # What comes back is 1 / sqrt(variance + eps), of the biased variance.
        variances = (scales**-2 - norm.eps).clamp_min_(0) * (n_rows / (n_rows - 1))
        weights = decay(n_batches, self.momentum, means.dtype).to(means.device)
        kept = (1 - self.momentum) ** n_batches
        for running, each in (
            (norm.running_mean, means),
            (norm.running_var, variances),
        ):
            each = each.view(n_batches, -1).T
            torch.addmv(running, each, weights, beta=kept, out=running)


class _Normalise(torch.autograd.Function):
    @staticmethod
    def forward(ctx, inputs, weight, bias, norm):
        outputs, ctx.parts = norm.normalise(inputs, weight, bias)
        ctx.norm = norm
        ctx.save_for_backward(inputs, weight)
        return outputs

    @staticmethod
    def backward(ctx, gradient):
        return (*ctx.norm.backward(gradient, *ctx.saved_tensors, ctx.parts), None)


def _spread(rows, n_batches):
    """View with one column for each virtual batch and column."""
    return rows.reshape(-1, n_batches * rows.shape[1])


def _repeated(values, times):
    """One vector after another; at a part of the time that ``repeat`` takes."""
    # Written out, also where a view of a single value would do: in the gradient of a
    # batch norm torch reads past the end of that.
    return values.expand(times, -1).contiguous().view(-1)


@lru_cache
def decay(n, momentum, dtype):
    """Weights of values in a moving average, the last of which counts most."""
    return momentum * (1 - momentum) ** torch.arange(n - 1, -1, -1, dtype=dtype)


@lru_cache
def deal(n_rows, virtual_batch_size):
    """Where each call on a batch ends, and its number of virtual batches of one size.

    Sizes are those of chunks of the batch, but for a last one of a single row, which
    joins its predecessor.

    Returns
    -------
    calls : list of (int, int)
    """
    # As torch.chunk divides: in even sizes, instead of a small remainder whose
    # statistics would be poor.
    size = ceil(n_rows / ceil(n_rows / virtual_batch_size))
    n_batches, n_left = divmod(n_rows, size)
    if n_left == 1:
        n_batches -= 1
    n_dealt = n_batches * size
    calls = [(n_dealt, n_batches)] if n_batches else []
    return calls if n_dealt == n_rows else [*calls, (n_rows, 1)]


@plainly
class GatedLayer(nn.Module):
    """A linear layer, ghost batch norm and a gated linear unit.

    Parameters
    ----------
    layer : torch.nn.Linear
        Without bias, with twice as many outputs; steps may share it.
    shortcut : bool
        Whether the inputs are added to the outputs, and the sum scaled to the variance
        of one of them.
    virtual_batch_size, momentum
        As for :class:`GhostBatchNorm`.
    """

    def __init__(self, layer, shortcut, virtual_batch_size, momentum):
        super().__init__()
        self.layer = layer
        self.shortcut = shortcut
        self.norm = GhostBatchNorm(layer.out_features, virtual_batch_size, momentum)

    def forward(self, inputs):
        """Outputs of the unit."""
        # In evaluation there is no graph to keep small, so torch's own layers will do.
        if self.training:
            norm = self.norm.norm
            return _Gated.apply(inputs, self.layer.weight, norm.weight, norm.bias, self)
        outputs = functional.glu(self.norm(self.layer(inputs)), dim=1)
        return (inputs + outputs) * sqrt(0.5) if self.shortcut else outputs


class _Gated(torch.autograd.Function):
    """A gated layer in training mode as one node of the graph.

    Networks are so small that the bookkeeping of many nodes would cost more than what
    they compute.
    """

    @staticmethod
    def forward(ctx, inputs, layer, weight, bias, gated):
        hidden = inputs @ layer.T
        normal, ctx.parts = gated.norm.normalise(hidden, weight, bias)
        values, gates = normal.chunk(2, dim=1)
        gates = gates.contiguous().sigmoid_()
        outputs = values * gates
        if gated.shortcut:
            outputs.add_(inputs).mul_(sqrt(0.5))
        ctx.gated = gated
        ctx.save_for_backward(inputs, layer, weight, hidden, values, gates)
        return outputs

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient):
        inputs, layer, weight, hidden, values, gates = ctx.saved_tensors
        if ctx.gated.shortcut:
            gradient = gradient * sqrt(0.5)
        # Both halves are written in place: a concatenation would copy them.
        to_normal = torch.empty_like(hidden)
        to_values, to_gates = to_normal.chunk(2, dim=1)
        torch.mul(gradient, gates, out=to_values)
        # A gate has the derivative gates * (1 - gates), and ``to_values`` has the first
        # factor already.
        torch.mul(to_values, values, out=to_gates)
        to_gates.mul_(1 - gates)
        to_hidden, *others = ctx.gated.norm.backward(
            to_normal, hidden, weight, ctx.parts
        )
        # Columns that no model made need no gradient.
        to_inputs = None
        if ctx.needs_input_grad[0]:
            if ctx.gated.shortcut:
                to_inputs = torch.addmm(gradient, to_hidden, layer)
            else:
                to_inputs = to_hidden @ layer
        return to_inputs, to_hidden.T @ inputs, *others, None


class RandomObfuscator(nn.Module):
    """Hides random cells of the columns.

    Parameters
    ----------
    ratio : float
        Probability that a cell is hidden.
    generator : torch.Generator
        The party's private stream.
    """

    def __init__(self, ratio, generator):
        super().__init__()
        self.ratio = ratio
        self.generator = generator

    def forward(self, inputs):
        """Inputs with zeros where a cell is hidden, and which ones are."""
        # The party's stream is that of a CPU, wherever it trains.
        hidden = torch.rand(inputs.shape, generator=self.generator) < self.ratio
        hidden = hidden.to(inputs.device)
        return inputs.masked_fill(hidden, 0), hidden


@plainly
class FeatureTransformer(nn.Module):
    """Gated layers, all but the first with a shortcut past them.

    Parameters
    ----------
    layers : list of torch.nn.Linear
        Shared ones and then the step's own.
    virtual_batch_size, momentum
        As for :class:`GhostBatchNorm`.
    """

    def __init__(self, layers, virtual_batch_size, momentum):
        super().__init__()
        self.layers = nn.Sequential(
            *(
                GatedLayer(layer, i > 0, virtual_batch_size, momentum)
                for i, layer in enumerate(layers)
            )
        )

    def forward(self, inputs):
        """Outputs of the last layer."""
        return self.layers(inputs)


@plainly
class AttentiveTransformer(nn.Module):
    """Weights of the columns in a step.

    Parameters
    ----------
    n_inputs, n_columns : int
        Number of attention features, and of columns to weigh.
    mask_type : {"sparsemax", "entmax"}
        How scores become weights.
    virtual_batch_size, momentum
        As for :class:`GhostBatchNorm`.
    generator : torch.Generator
        The party's private stream.
    """

    def __init__(
        self, n_inputs, n_columns, mask_type, virtual_batch_size, momentum, generator
    ):
        super().__init__()
        self.layer = normal_linear(n_inputs, n_columns, generator)
        self.norm = GhostBatchNorm(n_columns, virtual_batch_size, momentum)
        self.mask_type = mask_type

    def forward(self, inputs, prior):
        """Weights, for a prior that says which columns are still free; None for all."""
        scores = self.norm(self.layer(inputs))
        if prior is not None:
            scores = scores * prior
        return MASKS[self.mask_type](scores)


@plainly
class Encoder(nn.Module):
    """TabNet's encoder without the batch norm of the columns.

    Parameters
    ----------
    n_columns : int
        Number of columns.
    n_d, n_a, n_steps, gamma, n_independent, n_shared, mask_type, virtual_batch_size, \
            momentum
        As for :class:`~skvfl.TabVFLClassifier`.
    generator : torch.Generator
        The party's private stream.
    """

    def __init__(
        self,
        n_columns,
        *,
        n_d,
        n_a,
        n_steps,
        gamma,
        n_independent,
        n_shared,
        mask_type,
        virtual_batch_size,
        momentum,
        generator,
    ):
        super().__init__()
        ghost = {"virtual_batch_size": virtual_batch_size, "momentum": momentum}
        self.n_d = n_d
        self.gamma = gamma
        self.splitter, *transformers = feature_transformers(
            n_columns, n_d + n_a, n_steps + 1, n_independent, n_shared, ghost, generator
        )
        self.transformers = nn.ModuleList(transformers)
        self.attention = nn.ModuleList(
            AttentiveTransformer(
                n_a, n_columns, mask_type, **ghost, generator=generator
            )
            for _ in range(n_steps)
        )

    def forward(self, inputs, prior=None):
        """Decisions and weights of every step.

        Parameters
        ----------
        inputs : torch.Tensor of shape (n_rows, n_columns)
            Normalised columns.
        prior : torch.Tensor of shape (n_rows, n_columns) or None, default=None
            How free each column is at first; wholly by default.

        Returns
        -------
        decisions : list of torch.Tensor of shape (n_rows, n_d)
            Their sum is the latent vector.
        weights : list of torch.Tensor of shape (n_rows, n_columns)
        """
        # The splitter decides nothing: it is there for the first step's attention.
        decisions, weights = [], []
        attention = self.splitter(inputs)[:, self.n_d :]
        last = len(self.attention) - 1
        for i, (attend, transform) in enumerate(
            zip(self.attention, self.transformers, strict=True)
        ):
            mask = attend(attention, prior)
            outputs = transform(inputs * mask)
            decisions.append(functional.relu(outputs[:, : self.n_d]))
            weights.append(mask)
            # No step follows the last one that could use what it leaves.
            if i < last:
                attention = outputs[:, self.n_d :]
                left = self.gamma - mask
                prior = left if prior is None else left * prior
        return decisions, weights


@plainly
class SparseEncoder(nn.Module):
    """An encoder, and the entropy of its attention as a term of the loss.

    Parameters
    ----------
    encoder : Encoder
        Of normalised columns.
    lambda_sparse : float
        Weight of the entropy.
    """

    def __init__(self, encoder, lambda_sparse):
        super().__init__()
        self.encoder = encoder
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
        # Weighed by zero it would still be computed, and its gradient.
        if not self.lambda_sparse:
            return sum(decisions), None
        return sum(decisions), -self.lambda_sparse * negative_entropy(weights)

    def explain(self, inputs):
        """Weight of each column, summed over steps by how much they decide."""
        # By what a step contributes, because a step that decides nothing still looks
        # somewhere.
        decisions, weights = self.encoder(inputs)
        return sum(
            decided.sum(dim=1, keepdim=True) * each
            for decided, each in zip(decisions, weights, strict=True)
        )


@plainly
class NormalisedEncoder(SparseEncoder):
    """Batch norm of the columns in front of an encoder.

    Parameters
    ----------
    encoder, lambda_sparse
        As for :class:`SparseEncoder`.
    n_columns : int
        Number of columns.
    """

    def __init__(self, encoder, lambda_sparse, n_columns):
        super().__init__(encoder, lambda_sparse)
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


@plainly
class MixedColumns(nn.Module):
    """Batch norm of columns and a square layer that mixes them.

    Parameters
    ----------
    n_columns : int
        Number of columns.
    generator : torch.Generator
        The party's private stream.
    mix : bool, default=True
        Whether there is a square layer; columns that do not leave need none.
    """

    def __init__(self, n_columns, generator, mix=True):
        super().__init__()
        self.norm = nn.BatchNorm1d(n_columns, momentum=INPUT_MOMENTUM)
        self.mix = nn.Identity()
        if mix:
            self.mix = linear(n_columns, n_columns, generator, bias=False)

    def forward(self, inputs):
        """Mixed columns."""
        return self.mix(self.norm(inputs))

    # As encoders have it, though the party has put zeros where cells are hidden.
    def hide(self, inputs, hidden):
        """Mixed columns, some cells of which are hidden."""
        return self(inputs)

    def learn(self, inputs):
        """Mixed columns, and no term of the loss."""
        return self(inputs), None


@plainly
class SummedTop(nn.Module):
    """Adds up what several encoders decide; there is nothing to train.

    Parameters
    ----------
    n_parts : int
        Number of equal parts that are added up; 1 leaves what came as it is.
    n_d : int
        Width of the decisions of one step.
    """

    def __init__(self, n_parts, n_d):
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


@plainly
class Decoder(nn.Module):
    """TabNet's decoder without its last layer, which rebuilds the columns.

    One gated layer is shared by the steps and one is each step's own.

    Parameters
    ----------
    n_d, n_steps, virtual_batch_size, momentum, generator
        As for :class:`Encoder`.
    """

    def __init__(self, n_d, n_steps, virtual_batch_size, momentum, generator):
        super().__init__()
        ghost = {"virtual_batch_size": virtual_batch_size, "momentum": momentum}
        self.transformers = nn.ModuleList(
            feature_transformers(n_d, n_d, n_steps, 1, 1, ghost, generator)
        )

    def forward(self, decisions):
        """Sum over the steps, of shape (n_rows, n_d)."""
        return sum(
            transform(each)
            for transform, each in zip(self.transformers, decisions, strict=True)
        )


def explain(encoder, inputs):
    """Weights that an encoder gives to the columns of rows, in evaluation mode."""
    # In double precision, so that rounding does not depend on which rows are asked for
    # together. A copy, because the model itself stays in single precision.
    with torch.inference_mode():
        inputs = inputs.to(device_of(encoder)).double()
        return in_double(encoder).explain(inputs).cpu().numpy()


def feature_transformers(
    n_inputs, n_outputs, number, n_independent, n_shared, ghost, generator
):
    """Feature transformers whose first layers are the same ones."""

    def layer(position):
        width = n_outputs if position else n_inputs
        return normal_linear(width, 2 * n_outputs, generator, gain=sqrt(2))

    # In this order, as all layers are drawn from one stream.
    shared = [layer(i) for i in range(n_shared)]
    return [
        FeatureTransformer(
            [*shared, *(layer(n_shared + i) for i in range(n_independent))], **ghost
        )
        for _ in range(number)
    ]


def normal_linear(n_inputs, n_outputs, generator, gain=1.0):
    """Linear layer without bias; weights of standard deviation gain / n_inputs ** ¼."""
    layer = nn.utils.skip_init(nn.Linear, n_inputs, n_outputs, bias=False)
    # Xavier's initialisation with the gains that are usual for TabNet comes to this:
    # the number of outputs cancels.
    nn.init.normal_(layer.weight, std=gain / n_inputs**0.25, generator=generator)
    return layer


def negative_entropy(weights):
    """Mean over steps and rows; it is largest where each step looks at one column."""
    # Sparse weights have zeros, of which there is no logarithm.
    return sum((each * (each + 1e-15).log()).sum() for each in weights) / (
        len(weights) * len(weights[0])
    )


def reconstruction_loss(rebuilt, inputs, hidden):
    """Squared error of the hidden cells, in units of their column's variance.

    Parameters
    ----------
    rebuilt, inputs : torch.Tensor of shape (n_rows, n_columns)
        What was rebuilt, and what is true.
    hidden : torch.Tensor of shape (n_rows, n_columns)
        One where a cell was hidden from the encoder, zero elsewhere.

    Returns
    -------
    loss : torch.Tensor
        Mean over the hidden cells of a row, then over rows. A variance in the batch
        counts as at least 0.01, so that a column that is nearly constant there, such
        as that of a rare category, does not outweigh the others.
    """
    # The variance of one row is zero.
    variances = inputs.var(dim=0, correction=min(1, len(inputs) - 1))
    weights = variances.clamp_min(MIN_VARIANCE).reciprocal()
    # Cells that the encoder saw teach nothing: it could copy them.
    errors = ((rebuilt - inputs) * hidden).square() @ weights
    return (errors / hidden.sum(dim=1).clamp_min(1)).mean()
