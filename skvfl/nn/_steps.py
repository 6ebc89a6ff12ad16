"""What training on batches of rows needs, whoever trains."""

from __future__ import annotations

import copy
from math import ceil

import numpy as np
import torch
from torch import nn

from skvfl.exceptions import TrainingError
from skvfl.nn._device import device_of

# The least that a sum of weights is divided by: it leaves a loss of zero at zero.
TINY = torch.finfo(torch.float32).tiny
# Rows that go through a network at once where nothing is learnt.
PIECE = 4096


def epoch_loss(batches):
    """Mean over rows of an epoch's losses.

    Parameters
    ----------
    batches : list of dict
        ``loss``, the mean of a batch, and ``weight``, what its rows weigh together.

    Returns
    -------
    loss : float
        Zero where no row has any weight.
    """
    # By what rows weigh, as the last batch may be smaller than the others.
    total = sum(batch["weight"] for batch in batches)
    return sum(batch["loss"] * batch["weight"] for batch in batches) / (total or 1)


def n_held_out(estimator, n_rows):
    """How many of so many rows an estimator's early stopping takes from training."""
    fraction = estimator.validation_fraction if estimator.early_stopping else 0
    return ceil(fraction * n_rows)


def has_stalled(losses, n_epochs):
    """Whether none of the last so many losses is less than the least before them."""
    return len(losses) - 1 - int(np.argmin(losses)) >= n_epochs


def check_held_out(weight):
    """Refuse held-out rows that do not tell when to stop.

    Parameters
    ----------
    weight : float
        Sum of their weights.

    Raises
    ------
    TrainingError
        If it is zero.
    """
    if not weight:
        raise TrainingError(
            "all held-out rows have weight 0, their own or that of their class, so "
            "early stopping has nothing to go by: raise validation_fraction, or train "
            "without early_stopping"
        )


class Joined:
    """Columns of several tables side by side, joined only of the rows that are taken.

    Parameters
    ----------
    parts : list of torch.Tensor or ndarray of shape (n_rows, n_columns)
        In single precision.
    """

    def __init__(self, parts):
        self.parts = list(map(tensor, parts))
        self.shape = torch.Size(
            [len(self.parts[0]), sum(p.shape[1] for p in self.parts)]
        )

    def __len__(self):
        return self.shape[0]

    def size(self, dim):
        """Number of rows or columns, as of a tensor."""
        return self.shape[dim]

    def to(self, device):
        """The same on a device."""
        return Joined([part.to(device) for part in self.parts])

    def index_select(self, dim, rows):
        """These rows, as one tensor."""
        return torch.cat([part.index_select(dim, rows) for part in self.parts], 1)

    def split(self, n_rows):
        """All rows in turn, so many at a time."""
        for pieces in zip(*(part.split(n_rows) for part in self.parts), strict=True):
            yield torch.cat(pieces, 1)


def infer(network, inputs, dtype=torch.float64):
    """Outputs in evaluation mode and double precision, rounded to a data type.

    Rounding then does not depend on which rows are asked for together. They are taken
    in pieces, because what layers put out in double precision is many times a table.

    Parameters
    ----------
    network : torch.nn.Module
        Any network.
    inputs : torch.Tensor
        Rows.
    dtype : torch.dtype, default=torch.float64
        Of the outputs.

    Returns
    -------
    outputs : torch.Tensor
    """
    with torch.inference_mode():
        # Where the network is, which is no CPU while a party trains on a GPU.
        device = device_of(network)
        network = in_double(network)
        first, *others = inputs.split(PIECE)
        outputs = network(first.to(device).double()).to("cpu", dtype)
        if not others:
            return outputs
        whole = outputs.new_empty(len(inputs), *outputs.shape[1:])
        whole[:PIECE] = outputs
        for i, piece in enumerate(others, 1):
            rows = slice(i * PIECE, i * PIECE + len(piece))
            whole[rows] = network(piece.to(device).double())
        return whole


# Layers that hold nothing but parameters, buffers, layers, and what a copy may share.
_LAYERS = {
    nn.BatchNorm1d,
    nn.Dropout,
    nn.Identity,
    nn.Linear,
    nn.ModuleDict,
    nn.ModuleList,
    nn.ReLU,
    nn.SELU,
    nn.Sequential,
    nn.Sigmoid,
    nn.Tanh,
}


def plainly(kind):
    """Mark a module of this package as one that :func:`in_double` knows; a decorator.

    Parameters
    ----------
    kind : type
        Whose objects hold parameters, buffers and modules where torch looks for them.
    """
    _LAYERS.add(kind)
    return kind


def in_double(network):
    """A network's copy in double precision and evaluation mode.

    Parameters
    ----------
    network : torch.nn.Module
        Any network; it is left as it is, because training goes on in single precision.

    Returns
    -------
    copy : torch.nn.Module
    """
    for layer in network.modules():
        hooked = layer._forward_hooks or layer._forward_pre_hooks
        if type(layer) not in _LAYERS or hooked or "forward" in vars(layer):
            return copy.deepcopy(network).double().eval()
    return _twin(network, {})


def _twin(layer, twins):
    # A general copy looks at every attribute, which for one row costs more than all
    # else that is done for it.
    if id(layer) not in twins:
        twin = object.__new__(type(layer))
        twins[id(layer)] = twin
        vars(twin).update(
            vars(layer),
            training=False,
            _parameters={name: _doubled(p) for name, p in layer._parameters.items()},
            _buffers={name: _doubled(b) for name, b in layer._buffers.items()},
            _modules={name: _twin(x, twins) for name, x in layer._modules.items()},
        )
    return twins[id(layer)]


def _doubled(values):
    floats = values is not None and values.is_floating_point()
    return values.double() if floats else values


def batch_bounds(n_rows, batch_size):
    """Bounds of each batch; a last one of one row joins its predecessor."""
    starts = list(range(0, n_rows, batch_size))
    # Batch norm has no variance in a batch of one row.
    if len(starts) > 1 and n_rows - starts[-1] == 1:
        starts.pop()
    return list(zip(starts, [*starts[1:], n_rows], strict=True))


def check_parameters(module):
    """Refuse a network that the last step has spoilt, after its loss was looked at.

    Parameters
    ----------
    module : torch.nn.Module
        After training.

    Raises
    ------
    TrainingError
        If a parameter is not finite, or so large that a product of two is not.
    """
    if not all(bool(p.square().isfinite().all()) for p in module.parameters()):
        raise TrainingError(
            "parameters are not finite after training: standardise the columns and "
            "the targets, or lower the learning rate"
        )


def public_order(seed, n_rows):
    """Order of rows that everybody who knows the seed agrees on."""
    return np.random.default_rng(seed).permutation(n_rows)


def take(values, rows):
    """Rows of a tensor; through NumPy, which takes a batch in half the time of torch.

    Parameters
    ----------
    values : torch.Tensor
        On the CPU, and row by row in memory: of another one, all would be copied for
        every batch. See :func:`by_rows`.
    rows : ndarray of int
        Their numbers.

    Returns
    -------
    taken : torch.Tensor
    """
    return torch.from_numpy(values.numpy().take(rows, 0))


_SINGLE = np.dtype(np.float32)


def tensor(array):
    """Single-precision tensor; of the array's own memory where torch can use it."""
    # What arrives in every batch of every party needs no second look.
    if type(array) is np.ndarray and array.dtype is _SINGLE and array.flags.carray:
        return torch.from_numpy(array)
    if isinstance(array, Joined | torch.Tensor):
        return array
    return shared(np.asarray(array, dtype=np.float32))


def by_rows(array):
    """Single-precision tensor of a table, whose rows lie together."""
    # Transformers may write column by column, and batches are of rows.
    return tensor(array).contiguous()


def shared(array):
    """Tensor of an array's data type; see :func:`tensor`."""
    array = np.asarray(array)
    # torch warns of memory that it may not write to, where writing would be a fault,
    # and refuses rows or columns that are stored in reverse.
    usable = array.flags.writeable and min(array.strides, default=0) >= 0
    return torch.from_numpy(array if usable else array.copy())
