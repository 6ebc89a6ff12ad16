"""Noise as targets: what a representation is drawn to where there are no labels."""

from __future__ import annotations

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import nn
from torch.nn import functional

from skvfl._random import int_seed
from skvfl.federation._replies import all_finite
from skvfl.nn._build import FusedAdam
from skvfl.nn._steps import batch_bounds, tensor
from skvfl.nn._streams import private_generator
from skvfl.nn._training import check_finite


class NoiseTargets:
    """Random points on the unit sphere, which the rows of a batch exchange.

    A loss for :func:`skvfl.nn._training.train`, whose targets are the rows' positions.

    Parameters
    ----------
    n_rows : int
        Number of rows, each of which has a target.
    n_components : int
        Dimension of the targets.
    update_every : int or None
        Every how many epochs the rows of a batch exchange targets; never for None.
    sequence : numpy.random.SeedSequence
        Stream of the targets.
    device : str, default="cpu"
        Where the network is trained.
    rows : ndarray of shape (n_rows, n_columns) or None, default=None
        Where given, targets are the directions of a random projection of the rows.
    secret : bool, default=False
        Whether nobody may find the targets by trying all seeds of 31 bits.

    Attributes
    ----------
    targets : torch.Tensor of shape (n_rows, n_components)
        Present target of every row.
    """

    def __init__(
        self,
        n_rows,
        n_components,
        update_every,
        sequence,
        device="cpu",
        rows=None,
        secret=False,
    ):
        if secret:
            # Targets go by position: who finds them knows which rows there are.
            generator = private_generator(sequence)
        else:
            generator = torch.Generator().manual_seed(int_seed(sequence))
        n_points = n_rows if rows is None else rows.shape[1]
        points = torch.randn(n_points, n_components, generator=generator)
        if rows is not None:
            points = tensor(rows) @ points
        self.targets = functional.normalize(points).to(device)
        self._update_every = update_every
        # Ready for a loss at once; training tells of the epochs after the first.
        self.begin_epoch(1)

    def begin_epoch(self, epoch):
        """Take the number of the epoch that begins; the first is 1."""
        every = self._update_every
        self.exchanges = every is not None and epoch % every == 0

    def __call__(self, outputs, rows):
        """Loss of each row of a batch."""
        # Without the graph, because no gradient goes through the choice of targets.
        if self.exchanges:
            self.exchange(outputs.detach(), rows)
        return self.half_squares(outputs, rows)

    def with_gradient(self, outputs, rows, *, factors):
        """Losses, and the gradient of their sum, each times its factor."""
        if self.exchanges:
            targets = self.exchange(outputs, rows)
        else:
            targets = self.targets.index_select(0, rows)
        away = outputs - targets
        return away.square().sum(dim=-1) / 2, away * factors[:, None]

    def exchange(self, outputs, rows):
        """Give the targets of a batch to its rows anew; these targets."""
        targets = self.targets.index_select(0, rows)
        (targets,) = exchange(outputs[None], targets[None])
        self.targets.index_copy_(0, rows, targets)
        return targets

    def half_squares(self, outputs, rows):
        """Loss of each row with the targets as they are."""
        return half_squares(outputs, self.targets[rows])


def exchange(outputs, targets):
    """Give the targets of a batch to the rows so that the total loss is the least.

    Squared distances to points of length 1 differ from negative inner products by what
    no exchange can change, and so do costs of which each row's least is subtracted.
    The subtraction, and that targets choose rows and not rows targets, spare scipy's
    search much where rows are alike, as those of a guest's few columns are.

    Parameters
    ----------
    outputs, targets : torch.Tensor of shape (n_guests, n_rows, n_components)
        Of a batch; every guest's exchange is its own.

    Returns
    -------
    targets : torch.Tensor of shape (n_guests, n_rows, n_components)
        The same points, in the order of the rows; as they were where an output is not
        finite, and the loss neither.
    """
    # The search for the least cost does not end well on NaN; the loss is about to say
    # it.
    if not all_finite(outputs.cpu().numpy()):
        return targets
    costs = targets @ -outputs.mT
    costs -= costs.amin(dim=1, keepdim=True)
    # scipy works on the CPU.
    costs = costs.cpu().numpy()
    inverse = np.empty(costs.shape[:2], np.int64)
    for each, of_guest in zip(costs, inverse, strict=True):
        place, chosen = linear_sum_assignment(each)
        of_guest[chosen] = place
    inverse = torch.from_numpy(inverse).to(targets.device)
    return targets.gather(1, inverse[..., None].expand_as(targets))


def half_squares(outputs, targets):
    """Half the squared distance of each row from its target (equation 1)."""
    return (outputs - targets).square().sum(dim=-1) / 2


def train_together(
    perceptrons, inputs, noises, sequences, *, max_epochs, batch_size, lr, weight_decay
):
    """Train guests of one process with one matrix product for each layer of them all.

    Every guest has the columns, targets, order of rows and steps that it has alone.

    Parameters
    ----------
    perceptrons : list of torch.nn.Sequential
        Linear layers of the same widths, but for that of the columns, and activations
        between and after them. Trained in place, and left in evaluation mode.
    inputs : list of ndarray of shape (n_rows, n_columns)
        Every guest's prepared columns.
    noises : list of NoiseTargets
        Every guest's targets.
    sequences : list of numpy.random.SeedSequence
        Stream of every guest's order of rows.
    max_epochs, batch_size, lr, weight_decay
        As in :func:`skvfl.nn._training.train`.

    Returns
    -------
    loss_curves : list of list of float
        Mean loss of every epoch, for each guest.
    """
    layers = list(zip(*map(_layers, perceptrons), strict=True))
    parameters = [p for perceptron in perceptrons for p in perceptron.parameters()]
    optimizer = FusedAdam(parameters, lr, weight_decay)
    generators = [torch.Generator().manual_seed(int_seed(s)) for s in sequences]
    blocks = _stacked([tensor(block) for block in inputs])
    targets = torch.stack([noise.targets for noise in noises])
    guests = torch.arange(len(inputs))[:, None]
    n_rows = blocks.shape[1]
    curve = []
    for epoch in range(1, max_epochs + 1):
        order = torch.stack([torch.randperm(n_rows, generator=g) for g in generators])
        total = torch.zeros(len(inputs), dtype=torch.float64)
        noises[0].begin_epoch(epoch)
        for start, stop in batch_bounds(n_rows, batch_size):
            rows = guests, order[:, start:stop]
            losses = _step(
                layers, optimizer, blocks, targets, rows, noises[0].exchanges
            )
            total += losses.double() * (stop - start)
        curve.append((total / n_rows).tolist())
        check_finite(curve[-1], epoch, lr)
    for perceptron in perceptrons:
        perceptron.eval()
    return [[losses[i] for losses in curve] for i in range(len(inputs))]


def _step(layers, optimizer, blocks, targets, rows, exchanges):
    """A step of every guest on rows of its own; each one's mean loss."""
    # Adam treats every number by itself, so one for all takes each guest's own steps.
    outputs = blocks[rows]
    for layer in layers:
        outputs = _apply(layer, outputs)
    batch = targets[rows]
    if exchanges:
        batch = exchange(outputs.detach(), batch)
        targets[rows] = batch
    losses = half_squares(outputs, batch).mean(dim=1)
    optimizer.zero_grad()
    # A sum, of which each guest's network gets the gradient of its own loss.
    losses.sum().backward()
    optimizer.step()
    return losses.detach()


def _stacked(matrices):
    """One array of matrices; narrower ones get columns of zeros."""
    # Zeros add nothing to a product, and weights of zeros learn nothing.
    width = max(matrix.shape[1] for matrix in matrices)
    return torch.stack(
        [
            functional.pad(each, (0, width - each.shape[1]))
            if each.shape[1] < width
            else each
            for each in matrices
        ]
    )


def _layers(network):
    """Layers of nested sequences."""
    if isinstance(network, nn.Sequential):
        return [layer for child in network for layer in _layers(child)]
    return [network]


def _apply(layers, inputs):
    """Outputs of every guest's own layer, by one product where that is linear."""
    if not isinstance(layers[0], nn.Linear):
        return layers[0](inputs)
    biases = torch.stack([layer.bias for layer in layers])
    weights = _stacked([layer.weight for layer in layers])
    return torch.baddbmm(biases[:, None], inputs, weights.mT)
