"""Differentially private training: sampled rows, clipped gradients, Gaussian noise.

What is released is the sequence of parameters. A step adds up the gradients of the rows
that it drew, each scaled down to a norm of at most ``max_grad_norm``, adds noise, and
divides by the number of rows *expected*: the number drawn would give away whether a row
is there.

**Why the bits of a float give nothing away.** A step releases whole numbers, multiples
of a unit that depends on the clipping norm alone: the sum of the clipped gradients,
rounded, plus noise, rounded. Rounding normal noise and adding it to whole numbers is
the same as adding normal noise to whole numbers and rounding the result. So a step is
the Gaussian mechanism that the accountant counts, on a query of whole numbers, and then
a function of its outcome alone, whatever the sampling, the composition, and the number
of parties. What happens to the parameters afterwards, in any precision, is such a
function, too.

**How far one row moves the rounded sum.** Take a table, and the same table with one
place left empty, and the same rows drawn (their number is public, and so no secret of
the table's). *Each row's gradient* is computed in single precision, but from that row
and the parameters alone: the layers treat rows one by one (:mod:`skvfl.nn._apart`), and
the shapes and places, on which the order of a sum inside a row's own product may
depend, are the same for both tables. It therefore is the same number, bit for bit,
whatever the other rows are; that it is no exact derivative plays no part. From there on
everything is in double precision, of unit roundoff u = 2^-53.

1. *Clipping.* Norms and factors of single-precision numbers, and the products with
   them, err by k u relatively, k being the number of summands (for a linear layer, its
   widths), whichever factor of a product is scaled. Clipping to ``max_grad_norm (1 -
   2^-30)`` leaves a norm of at most ``max_grad_norm`` =: C after all rounding, for k up
   to 2^23.
2. *Adding up.* A sum of m products in any order, with or without fused operations, errs
   in each coordinate by at most m u / (1 - m u) times the sum of the summands' absolute
   values, so as a vector by at most m u / (1 - m u) times the sum of the summands'
   norms, m C. With m ≤ n rows, twice for two tables, that is n (n + 4) 2^-52 C.
3. *Rounding* to the grid moves each coordinate by at most half a unit, twice, so d
   coordinates by at most ``sqrt(d)`` units. The unit is a power of two: dividing by it
   is exact.

:func:`sensitivity` is the total, and the noise is ``noise_multiplier`` times that. A
row whose gradient is not finite counts as a row without gradient: an error would give
it away.
"""

from __future__ import annotations

from dataclasses import replace
from math import frexp, isfinite, sqrt

import numpy as np
import torch
from torch import nn
from torch.func import functional_call, grad, vmap

from skvfl.exceptions import TrainingError
from skvfl.nn._apart import JointNetwork, is_apart, keep_apart, layers_of
from skvfl.nn._explicit import (
    Link,
    backward,
    forward,
    links_of,
    loss_gradient,
)
from skvfl.nn._noise import Noise
from skvfl.nn._steps import check_parameters, tensor
from skvfl.nn._training import _tuple

_CHUNK = 2**24
_GRID_BITS = 20
_CLIPPING_SLACK = 2.0**-30


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
        self._noise = Noise(noise)

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
        # Counted when drawn: a step that then fails may have shown something.
        self.taken += 1
        self._drawn = True
        # The same as a coin for every row, at the cost of the rows that are drawn.
        size = self._generator.binomial(self.n_rows, self.run.sampling_rate)
        rows = self._generator.choice(self.n_rows, size, replace=False, shuffle=False)
        return torch.from_numpy(rows)

    def noise(self, size, sensitivity=1.0):
        """Noise for the step's sum, which is of whole numbers.

        Parameters
        ----------
        size : int
            Number of values.
        sensitivity : float, default=1.0
            How far one row can move the sum.

        Returns
        -------
        noise : ndarray of shape (size,), dtype float64
            Whole numbers: normal noise, rounded.
        """
        if not self._drawn:
            raise RuntimeError("rows are drawn anew for every step")
        # Once for each draw, so that no step can go uncounted.
        self._drawn = False
        scale = self.run.noise_multiplier * sensitivity
        return self._noise.normal(size, scale)


class PrivateSGD:
    """Noisy gradient steps on one module.

    The gradient of each row is clipped as a whole, over all parameters that are
    trained. Noise goes to all of them in every step, used or not.

    Parameters
    ----------
    module : torch.nn.Module
        Trained in place. Linear layers with ReLU, tanh or SELU between them cost
        little. Other layers, and networks of a user's own, need the gradients of every
        row by themselves (`torch.func`), several times as slow.
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
        If it cannot be shown that every row's gradient depends on that row alone.
    """

    def __init__(self, module, loss, steps, shapes, *, max_grad_norm, lr):
        self._steps = steps
        self._parameters = [p for p in module.parameters() if p.requires_grad]
        if not self._parameters:
            raise TrainingError("the module has no parameter to train")
        module = keep_apart(module, shapes)
        linear = _LinearSums(module, loss, self._parameters)
        # A linear layer has several products for a row that is no vector, whose norms
        # do not multiply.
        flat = all(len(shape) == 1 for shape in shapes)
        self._sums = (
            linear
            if linear.covers and flat
            else _RowSums(module, loss, self._parameters)
        )
        self._total, views = _flat(self._parameters, torch.float64)
        # NumPy's view of the same memory, and its part for every parameter.
        self._sum, self._views = self._total.numpy(), [view.numpy() for view in views]
        moved, moves = _flat(self._parameters, self._parameters[0].dtype)
        self._moved = moved.numpy()
        # Of the parameters' own memory, as a step of torch's costs more than its sums.
        self._moves = [
            (p.detach().numpy(), move.numpy())
            for p, move in zip(self._parameters, moves, strict=True)
        ]
        self._bound = max_grad_norm * (1 - _CLIPPING_SLACK)
        self._unit, self._sensitivity = sensitivity(
            max_grad_norm, steps.n_rows, len(self._total)
        )
        self._rate = self._unit * lr / steps.expected

    # What is not finite is no news: its row is left out, or the run ends in an error.
    @np.errstate(all="ignore")
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
        # Where no row was drawn there is noise all the same, or its absence would tell.
        if not len(inputs[0]):
            self._total.zero_()
        else:
            self._sums((inputs, targets, weights), self._bound, self._views)
        noise = self._steps.noise(len(self._total), self._sensitivity)
        total = self._sum
        total *= 1 / self._unit
        np.rint(total, out=total)
        total += noise
        # Rounded to the parameters' own precision: a function of what is released costs
        # nothing.
        np.multiply(total, self._rate, out=self._moved, casting="same_kind")
        for values, move in self._moves:
            np.subtract(values, move, out=values)


def sensitivity(max_grad_norm, n_rows, n_values):
    """Unit of the grid, and how far one row moves a sum that is rounded to it.

    The argument is at the top of this module.

    Parameters
    ----------
    max_grad_norm : float
        Largest norm of a row's contribution.
    n_rows : int
        Largest number of contributions.
    n_values : int
        Number of values that each contribution has.

    Returns
    -------
    unit : float
        A power of two.
    distance : float
        In units; slightly more than ``max_grad_norm / unit``.
    """
    unit = 2.0 ** (frexp(max_grad_norm)[1] - 1 - _GRID_BITS)
    adding = n_rows * (n_rows + 4) * 2.0**-52
    return unit, max_grad_norm / unit * (1 + adding) + sqrt(n_values)


def train_privately(
    module, inputs, targets=None, *, steps, before_step=None, report=None, **settings
):
    """Train a module on the rows of one party with differential privacy, in one go.

    Parameters
    ----------
    module, inputs, targets, steps, **settings
        As for :class:`PrivateTraining`.
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
    training = PrivateTraining(module, inputs, targets, steps=steps, **settings)
    while steps.taken < steps.run.steps:
        training.step(before_step)
        if report is not None and report(steps.taken):
            break
    return training.finish()


class PrivateTraining:
    """Private training of a module on the rows of one party, step by step.

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

    Raises
    ------
    TrainingError
        If there is no row or no step, or if the module mixes rows.
    """

    def __init__(
        self,
        module,
        inputs,
        targets=None,
        *,
        loss,
        steps,
        max_grad_norm,
        lr,
        weights=None,
    ):
        self._inputs = [tensor(each) for each in _tuple(inputs)]
        self._targets = [torch.tensor(np.asarray(each)) for each in _tuple(targets)]
        self._weights = None if weights is None else tensor(weights)
        n_rows = len(self._inputs[0])
        if n_rows != steps.n_rows:
            raise ValueError(f"{n_rows} rows, but steps draw from {steps.n_rows}")
        if min(steps.n_rows, steps.run.steps) < 1:
            raise TrainingError(
                f"no private step is taken with {steps.n_rows} rows and "
                f"{steps.run.steps} steps: give more of what is missing"
            )
        module.train()
        self._module, self._steps = module, steps
        shapes = [each.shape[1:] for each in self._inputs]
        self._sgd = PrivateSGD(
            module, loss, steps, shapes, max_grad_norm=max_grad_norm, lr=lr
        )

    def step(self, before=None):
        """Take a step on rows that are drawn for it.

        Parameters
        ----------
        before : callable or None, default=None
            Called with the positions of the rows, if any were drawn.
        """
        rows = self._steps.draw()
        if before is not None and len(rows):
            before(rows)
        self._sgd.step(
            [each.index_select(0, rows) for each in self._inputs],
            [each.index_select(0, rows) for each in self._targets],
            None if self._weights is None else self._weights[rows],
        )

    def finish(self):
        """Refuse a module that training has spoilt; say what was spent.

        Returns
        -------
        spent : SampledGaussian
            The run with the number of steps taken.
        """
        self._module.eval()
        check_parameters(self._module)
        return self._steps.spent


def _flat(parameters, dtype):
    """A vector for values of all parameters, and its part for every parameter."""
    total = torch.zeros(sum(p.numel() for p in parameters), dtype=dtype)
    parts = total.split([p.numel() for p in parameters])
    return total, [part.view_as(p) for part, p in zip(parts, parameters, strict=True)]


def _factors(squares, bound):
    """What scales gradients of these squared norms down to the bound.

    Only those of finite gradients are finite.
    """
    return bound / np.maximum(np.sqrt(squares), bound)


def _lost(squares):
    """Which rows have a gradient that is not finite; None for no row."""
    return None if isfinite(np.add.reduce(squares)) else ~np.isfinite(squares)


class _LinearSums:
    """Clipped sums for linear layers, with a forward and backward pass of our own.

    The gradient of a row with respect to a layer's weight is the outer product of what
    enters and the gradient of what leaves, whose norm is the product of theirs: it need
    not be computed.
    """

    def __init__(self, module, loss, parameters):
        self._loss = loss
        joint = type(module) is JointNetwork
        head = layers_of(module.head if joint else module)
        local = layers_of(module.local) if joint and module.local else []
        self._head, self._local = (links_of(nn.Sequential(*x)) for x in (head, local))
        self.covers = is_apart(module) and None not in (self._head, self._local)
        if self.covers:
            places = {p: i for i, p in enumerate(parameters)}
            self._places = {
                link: [places.get(p) for p in link.parameters]
                for link in [*self._local, *self._head]
                if type(link) is Link
            }
            owned = [i for both in self._places.values() for i in both if i is not None]
            # All that is trained, or the norm of a row's gradient would lack a part.
            self.covers = sorted(owned) == list(range(len(parameters)))

    def __call__(self, batch, bound, views):
        """Write the sum of the clipped gradients of a batch's rows into ``views``."""
        # Nothing here records a graph: the layers hold detached parameters.
        parts = self._doubled(self._parts(*batch))
        squares = 0.0
        for entered, left, _, weight, bias in parts:
            square = np.vecdot(left, left)
            if weight is not None:
                by_in = np.vecdot(entered, entered)
                by_in += 0.0 if bias is None else 1.0
                square *= by_in
            squares += square
        factors = _factors(squares, bound)
        lost = _lost(squares)
        if lost is not None:
            # Zeros, because what is not finite stays so whatever the factor.
            factors[lost] = 0
            for entered, left, *_ in parts:
                entered[lost], left[lost] = 0, 0
        column = factors[:, None]
        # As methods, which do without the dispatch of NumPy's functions.
        for entered, left, narrow, weight, bias in parts:
            if bias is not None:
                factors.dot(left, views[bias])
            if weight is not None:
                narrow *= column
                left.T.dot(entered, views[weight])

    def _doubled(self, parts):
        """Copies in double precision, which may be written to, of what is trained.

        For NumPy, whose products of them take half the time of torch's, and whose calls
        cost less.
        """
        doubled = []
        for link, *part in parts:
            places = self._places[link]
            if places == [None, None]:
                continue
            entered, left = (each.numpy().astype(np.float64) for each in part)
            narrow = left if left.shape[1] < entered.shape[1] else entered
            doubled.append((entered, left, narrow, *places))
        return doubled

    def _parts(self, inputs, targets, weights):
        """Every linear layer, what enters it, and the gradient of what leaves it.

        From a forward and backward pass in single precision.
        """
        if self._local:
            local = forward(self._local, inputs[0])
            inputs = [local[-1], *inputs[1:]]
        joined = inputs[0] if len(inputs) == 1 else torch.cat(inputs, dim=1)
        head = forward(self._head, joined)
        gradient = loss_gradient(self._loss, head[-1], targets, weights)
        parts, gradient = backward(self._head, head, gradient, bool(self._local))
        if self._local:
            gradient = gradient[:, : inputs[0].shape[1]]
            parts += backward(self._local, local, gradient)[0]
        return parts


class _RowSums:
    """Clipped sums for any module, from the gradients of every row by itself."""

    def __init__(self, module, loss, parameters):
        self._module = module
        self._loss = loss
        names = {id(p): name for name, p in module.named_parameters()}
        self._trained = [
            (place, names[id(p)], p)
            for place, p in enumerate(parameters)
            if id(p) in names
        ]

    @torch.no_grad()
    def __call__(self, batch, bound, views):
        """Write the sum of the clipped gradients of a batch's rows into ``views``."""
        inputs, targets, weights = batch
        for view in views:
            view[...] = 0
        detached = {name: p.detach() for _, name, p in self._trained}
        at = (None, 0, 0, None if weights is None else 0)
        row_gradients = vmap(grad(self._row_loss), in_dims=at, randomness="same")
        # So many rows at a time that their gradients fit into memory.
        size = max(1, _CHUNK // sum(p.numel() for p in detached.values()))
        for start in range(0, len(inputs[0]), size):
            rows = slice(start, start + size)
            gradients = row_gradients(
                detached,
                [each[rows] for each in inputs],
                [each[rows] for each in targets],
                None if weights is None else weights[rows],
            )
            flat = [gradients[name].flatten(1).double() for _, name, _ in self._trained]
            squares = sum(torch.linalg.vecdot(each, each) for each in flat).numpy()
            factors = torch.from_numpy(_factors(squares, bound))
            lost = _lost(squares)
            if lost is not None:
                factors[lost] = 0.0
                for each in flat:
                    each[lost] = 0.0
            for (place, *_), each in zip(self._trained, flat, strict=True):
                views[place] += (factors @ each).numpy().reshape(views[place].shape)

    def _row_loss(self, parameters, inputs, targets, weight):
        def module(*inputs):
            return functional_call(self._module, parameters, inputs)

        row = [[each.unsqueeze(0) for each in part] for part in (inputs, targets)]
        losses = self._loss(module(*row[0]), *row[1])
        return (losses if weight is None else losses * weight).sum()
