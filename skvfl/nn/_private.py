"""Differentially private training: sampled rows, clipped gradients, Gaussian noise.

What is released is the sequence of parameters. A step adds up the gradients of the rows
that it drew, each scaled down to a norm of at most ``max_grad_norm``, adds noise, and
divides by the number of rows *expected*: the number drawn would give away whether a row
is there.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from math import pi

import numpy as np
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from torch import nn
from torch.func import functional_call, grad, vmap
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from skvfl.exceptions import TrainingError
from skvfl.nn._split import check_parameters, tensor
from skvfl.nn._training import _tuple

_CHUNK = 2**24
_PROBE_ROWS = 4


class PrivateSteps:
    """The random part of private training: which rows, what noise, how often.

    The noise of a step can only be had by drawing its rows, so that :attr:`spent`
    counts what was done and not what was planned.

    Parameters
    ----------
    run : SampledGaussian
        Sampling rate, number of steps and noise multiplier.
    n_rows : int
        Number of rows to draw from. It is public, like the number of steps.
    sequence : numpy.random.SeedSequence
        Stream of the rows and the noise. Take ``SeedSequence()``, which asks the
        operating system, wherever privacy is meant: whoever knows the seed can
        subtract the noise.
    shared : numpy.random.SeedSequence or None, default=None
        Stream of the rows alone, for parties that must draw the same ones. ``run``
        then names all of them.
    """

    def __init__(self, run, n_rows, sequence, shared=None):
        rows, noise = sequence.spawn(2)
        self.run = run
        self.n_rows = n_rows
        self.expected = run.sampling_rate * n_rows
        self.taken = 0
        self._drawn = False
        self._generator = np.random.default_rng(rows if shared is None else shared)
        self._noise = _Noise(noise)

    @property
    def spent(self):
        """The run with the number of steps taken so far."""
        return replace(self.run, steps=self.taken)

    def draw(self):
        """Rows of the next step.

        Returns
        -------
        rows : torch.Tensor of int64
            Every row is among them with probability ``sampling_rate``, independently
            of the others. There may be none, which is a step like any other.
        """
        if self.taken == self.run.steps:
            raise TrainingError(f"all {self.taken} steps of the budget are taken")
        self.taken += 1
        self._drawn = True
        size = self._generator.binomial(self.n_rows, self.run.sampling_rate)
        rows = self._generator.choice(self.n_rows, size, replace=False, shuffle=False)
        return torch.from_numpy(rows)

    def noise(self, size):
        """Noise for the step's sum of gradients, whose norms are at most 1.

        Parameters
        ----------
        size : int
            Number of values.

        Returns
        -------
        noise : torch.Tensor of shape (size,)
        """
        if not self._drawn:
            raise RuntimeError("rows are drawn anew for every step")
        self._drawn = False
        return torch.from_numpy(self._noise.normal(size, self.run.noise_multiplier))


class PrivateSGD:
    """Noisy gradient steps on one module.

    The gradient of each row is clipped as a whole, over all parameters that are
    trained. Noise goes to all of them in every step, used or not.

    Parameters
    ----------
    module : torch.nn.Module
        Trained in place. Its linear layers cost little, whatever happens between
        them. Parameters of other layers need the gradients of every row by
        themselves (`torch.func`), several times as slow.
    loss : callable
        ``loss(outputs, *targets)`` gives a loss for each row, from that row alone.
    steps : PrivateSteps
        Rows and noise.
    shapes : list of torch.Size
        Shape of one row of every input.
    max_grad_norm : float
        Norm down to which the gradient of a row is scaled.
    lr : float
        Learning rate.

    Raises
    ------
    TrainingError
        If rows of a batch influence each other in the module, or it keeps statistics
        of them, as batch normalisation does.
    """

    def __init__(self, module, loss, steps, shapes, *, max_grad_norm, lr):
        self._steps = steps
        self._max_grad_norm = max_grad_norm
        self._rate = lr / steps.expected
        self._parameters = [p for p in module.parameters() if p.requires_grad]
        if not self._parameters:
            raise TrainingError("the module has no parameter to train")
        self._sums = _find_sums(module, shapes)(module, loss)
        self._total, self._views = _flat_sum(self._parameters)

    def step(self, inputs, targets, weights=None):
        """Move the parameters.

        Parameters
        ----------
        inputs : list of torch.Tensor
            What the module is called with: the rows that were drawn, maybe none.
        targets : list of torch.Tensor
            What the loss is called with beside the outputs.
        weights : torch.Tensor or None, default=None
            Factors of the losses; they come before clipping, which bounds the
            influence of a row whatever its weight.
        """
        self._total.zero_()
        if len(inputs[0]):
            batch = inputs, targets, weights
            self._sums(batch, self._max_grad_norm, self._views)
        noise = self._steps.noise(len(self._total))
        self._total.add_(noise, alpha=self._max_grad_norm)
        with torch.no_grad():
            torch._foreach_add_(self._parameters, self._views, alpha=-self._rate)


def train_privately(
    module,
    inputs,
    targets=None,
    *,
    loss,
    steps,
    max_grad_norm,
    lr,
    weights=None,
    before_step=None,
    report=None,
):
    """Train a module on the rows of one party with differential privacy.

    Plain gradient steps at a constant rate. Losses are not computed beyond what a step
    needs, and none is returned: they would say something about the rows that the
    privacy of the parameters does not cover.

    Parameters
    ----------
    module : torch.nn.Module
        Trained in place, and left in evaluation mode.
    inputs : ndarray, or tuple of ndarray, of shape (n_samples, ...)
        What the module is called with, as float32.
    targets : ndarray, tuple of ndarray or None, default=None
        What the loss is called with beside the outputs, of their own data types.
    loss : callable
        ``loss(outputs, *targets)`` gives a loss for each row, from that row alone.
    steps : PrivateSteps
        Rows and noise; ``steps.spent`` then says what was spent.
    max_grad_norm : float
        Norm down to which the gradient of a row is scaled.
    lr : float
        Learning rate, of the sum of clipped gradients over the expected batch size.
    weights : ndarray of shape (n_samples,) or None, default=None
        Factors of the rows' losses, before clipping.
    before_step : callable or None, default=None
        ``before_step(rows)`` is called with the positions of the rows that a step is
        about to be taken on.
    report : callable or None, default=None
        ``report(step)`` is called after every step, with its number from 1. Training
        stops where it returns True.

    Returns
    -------
    spent : SampledGaussian
        The run with the number of steps taken.

    Raises
    ------
    TrainingError
        If there is no row or no step, if the module mixes rows, or if its parameters
        are not finite in the end.
    """
    inputs, targets = _tuple(inputs), _tuple(targets)
    inputs = [tensor(each) for each in inputs]
    targets = [torch.tensor(np.asarray(each)) for each in targets]
    if weights is not None:
        weights = tensor(weights)
    if len(inputs[0]) != steps.n_rows:
        raise ValueError(f"{len(inputs[0])} rows, but steps draw from {steps.n_rows}")
    if min(steps.n_rows, steps.run.steps) < 1:
        raise TrainingError(
            f"no private step is taken with {steps.n_rows} rows and "
            f"{steps.run.steps} steps: give more of what is missing"
        )
    module.train()
    shapes = [each.shape[1:] for each in inputs]
    sgd = PrivateSGD(module, loss, steps, shapes, max_grad_norm=max_grad_norm, lr=lr)
    while steps.taken < steps.run.steps:
        rows = steps.draw()
        if before_step is not None and len(rows):
            before_step(rows)
        sgd.step(
            [each[rows] for each in inputs],
            [each[rows] for each in targets],
            None if weights is None else weights[rows],
        )
        if report is not None and report(steps.taken):
            break
    module.eval()
    check_parameters(module)
    return steps.spent


class _Noise:
    """Normal numbers from the key stream of AES-256 in counter mode."""

    def __init__(self, sequence):
        key = sequence.generate_state(4, np.uint64).astype("<u8").tobytes()
        cipher = Cipher(algorithms.AES(key), modes.CTR(bytes(16)))
        self._encryptor = cipher.encryptor()

    def normal(self, size, scale):
        """Independent normal numbers in single precision (Box and Muller)."""
        pairs = -(-size // 2)
        bits = np.empty(2 * pairs, np.uint64)
        self._encryptor.update_into(bytes(bits.nbytes), memoryview(bits).cast("B"))
        uniform = ((bits[:pairs] >> np.uint64(11)) + np.uint64(1)) * 2.0**-53
        radius = (scale * np.sqrt(-2 * np.log(uniform))).astype(np.float32)
        angle = (bits[pairs:] >> np.uint64(40)).astype(np.float32)
        angle *= np.float32(2 * pi * 2.0**-24)
        numbers = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])
        return numbers[:size]


def _flat_sum(parameters):
    """A vector for the sum of all gradients, and its part for every parameter."""
    total = parameters[0].new_zeros(sum(p.numel() for p in parameters))
    parts = total.split([p.numel() for p in parameters])
    return total, [part.view_as(p) for part, p in zip(parts, parameters, strict=True)]


def _losses(module, loss, inputs, targets, weights):
    losses = loss(module(*inputs), *targets)
    return losses if weights is None else losses * weights


def _factors(squares, bound):
    """What scales gradients of these squared norms down to the bound."""
    return (bound / squares.sqrt()).clamp_(max=1.0)


class _LinearSums:
    """Clipped sums for linear layers, from what enters and the gradient of what leaves.

    The gradient of a row with respect to a layer's weight is the outer product of both,
    whose norm is the product of theirs: it need not be computed. Where a layer sees a
    row several times, the norm is that of a sum of outer products, which follows from
    the inner products among its inputs and among its gradients.
    """

    def __init__(self, module, loss):
        self._module = module
        self._loss = loss
        trained = [p for p in module.parameters() if p.requires_grad]
        places = {id(p): i for i, p in enumerate(trained)}
        self._layers = [
            (layer, places.get(id(layer.weight)), places.get(id(layer.bias)))
            for layer in module.modules()
            if type(layer) is nn.Linear
            and (places.keys() & {id(layer.weight), id(layer.bias)})
        ]
        owned = [i for layer in self._layers for i in layer[1:] if i is not None]
        self.covers = sorted(owned) == list(range(len(trained)))

    def __call__(self, batch, bound, views):
        """Write the sum of the clipped gradients of a batch's rows into ``views``."""
        calls, losses = self._watch(batch)
        gradients = iter(
            torch.autograd.grad(
                losses.sum(),
                [outputs for seen in calls for _, outputs in seen],
                allow_unused=True,
                materialize_grads=True,
            )
        )
        squares, parts, summed = 0, [], []
        for (_, weight, bias), seen in zip(self._layers, calls, strict=True):
            if not seen:
                continue
            ins = _rows_first([inputs for inputs, _ in seen])
            outs = _rows_first([next(gradients) for _ in seen])
            if ins.ndim == 2:
                squares = squares + _squared_norms(ins, outs, weight, bias)
                parts.append((ins, outs, weight, bias))
                continue
            for place, each in ((weight, outs.mT @ ins), (bias, outs.sum(dim=1))):
                if place is not None:
                    squares = squares + each.square().flatten(1).sum(dim=1)
                    summed.append((place, each.flatten(1)))
        factors = _factors(squares, bound)
        for ins, outs, weight, bias in parts:
            outs = outs * factors[:, None]
            if weight is not None:
                torch.mm(outs.T, ins, out=views[weight])
            if bias is not None:
                torch.sum(outs, dim=0, out=views[bias])
        for place, each in summed:
            views[place].copy_((factors @ each).view_as(views[place]))

    def _watch(self, batch):
        """Inputs and outputs of every call of a layer, and the losses.

        A forward of the layer's own is cheaper than a hook.
        """
        calls = [[] for _ in self._layers]

        def watched(layer, seen):
            def forward(inputs):
                outputs = nn.functional.linear(inputs, layer.weight, layer.bias)
                seen.append((inputs.detach(), outputs))
                return outputs

            return forward

        for (layer, *_), seen in zip(self._layers, calls, strict=True):
            layer.__dict__["forward"] = watched(layer, seen)
        try:
            return calls, _losses(self._module, self._loss, *batch)
        finally:
            for layer, *_ in self._layers:
                del layer.__dict__["forward"]


def _rows_first(tensors):
    """One tensor of shape (rows, columns) or (rows, times seen, columns)."""
    if len(tensors) == 1 and tensors[0].ndim == 2:
        return tensors[0]
    return torch.cat([t.reshape(len(t), -1, t.shape[-1]) for t in tensors], dim=1)


def _squared_norms(ins, outs, weight, bias):
    """Squared norm of every row's gradient of one layer."""
    by_in = 0 if weight is None else torch.linalg.vecdot(ins, ins)
    return torch.linalg.vecdot(outs, outs) * (by_in + (bias is not None))


class _RowSums:
    """Clipped sums for any module, from the gradients of every row by itself."""

    covers = True

    def __init__(self, module, loss):
        self._module = module
        self._loss = loss

    def __call__(self, batch, bound, views):
        """Write the sum of the clipped gradients of a batch's rows into ``views``."""
        inputs, targets, weights = batch
        detached = {
            name: p.detach()
            for name, p in self._module.named_parameters()
            if p.requires_grad
        }
        at = (None, 0, 0, None if weights is None else 0)
        row_gradients = vmap(grad(self._row_loss), in_dims=at, randomness="same")
        size = max(1, _CHUNK // sum(p.numel() for p in detached.values()))
        for start in range(0, len(inputs[0]), size):
            rows = slice(start, start + size)
            gradients = row_gradients(
                detached,
                [each[rows] for each in inputs],
                [each[rows] for each in targets],
                None if weights is None else weights[rows],
            )
            flat = [each.flatten(1) for each in gradients.values()]
            factors = _factors(sum(each.square().sum(dim=1) for each in flat), bound)
            for view, each in zip(views, flat, strict=True):
                view.add_((factors @ each).view_as(view))

    def _row_loss(self, parameters, inputs, targets, weight):
        def module(*inputs):
            return functional_call(self._module, parameters, inputs)

        row = [[each.unsqueeze(0) for each in part] for part in (inputs, targets)]
        return _losses(module, self._loss, *row, weight).sum()


def _find_sums(module, shapes):
    """The cheaper way that gives the right sums, shown on random rows.

    Nothing in the types of layers says what a module's forward does between them. So
    some random rows go through a copy in double precision, together and one by one.
    """
    for name, layer in module.named_modules():
        if isinstance(layer, _BatchNorm):
            raise TrainingError(
                f"{type(layer).__name__} {name!r} normalises with the statistics of a "
                "batch, which no clipping bounds: use LayerNorm or GroupNorm for "
                "private training"
            )
    module = copy.deepcopy(module).double().train()
    for layer in module.modules():
        if isinstance(layer, _DropoutNd):
            layer.eval()
    buffers = {name: buffer.clone() for name, buffer in module.named_buffers()}
    generator = np.random.default_rng(0)
    rows = [
        torch.from_numpy(generator.standard_normal((_PROBE_ROWS, *shape)))
        for shape in shapes
    ]
    together = module(*rows)
    alone = torch.cat(
        [module(*(x[i : i + 1] for x in rows)) for i in range(_PROBE_ROWS)]
    )
    if together.shape != alone.shape or not torch.allclose(together, alone):
        raise TrainingError(
            f"rows of a batch influence each other in {type(module).__name__}, which "
            "no clipping bounds: in private training, what a module says of a row may "
            "depend on that row alone"
        )
    for name, buffer in module.named_buffers():
        if not torch.equal(buffer, buffers[name]):
            raise TrainingError(
                f"the buffer {name!r} of {type(module).__name__} changes with the rows "
                "seen, without noise: keep no statistics in private training"
            )
    slopes = torch.linspace(1e3, 2e3, alone[0].numel()).to(alone)
    return _agreeing(module, lambda outputs: outputs.flatten(1).square() @ slopes, rows)


def _agreeing(module, loss, rows):
    """The first way whose sums are those of single rows' own gradients."""
    parameters = [p for p in module.parameters() if p.requires_grad]
    expected, views = _flat_sum(parameters)
    for i in range(_PROBE_ROWS):
        gradients = torch.autograd.grad(
            loss(module(*(x[i : i + 1] for x in rows))).sum(),
            parameters,
            allow_unused=True,
            materialize_grads=True,
        )
        factor = _factors(sum(each.square().sum() for each in gradients), 1.0)
        for view, each in zip(views, gradients, strict=True):
            view.add_(factor * each)
    failure = None
    for way in (_LinearSums, _RowSums):
        sums = way(module, loss)
        if not sums.covers:
            continue
        total, views = _flat_sum(parameters)
        try:
            sums((rows, [], None), 1.0, views)
        except RuntimeError as error:
            failure = error
        else:
            if torch.allclose(total, expected):
                return way
    raise TrainingError(
        f"the gradients of single rows of {type(module).__name__} cannot be computed: "
        "torch.func.vmap must be able to run it"
    ) from failure
