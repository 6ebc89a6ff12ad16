"""What training on batches of rows needs, whoever trains."""

from __future__ import annotations

import copy

import numpy as np
import torch

from skvfl.exceptions import TrainingError

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
        # A copy, because training goes on in single precision.
        network = copy.deepcopy(network).double().eval()
        first, *others = inputs.split(PIECE)
        outputs = network(first.double()).to(dtype)
        if not others:
            return outputs
        whole = outputs.new_empty(len(inputs), *outputs.shape[1:])
        whole[:PIECE] = outputs
        for i, piece in enumerate(others, 1):
            rows = slice(i * PIECE, i * PIECE + len(piece))
            whole[rows] = network(piece.double())
        return whole


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
    return torch.from_numpy(np.random.default_rng(seed).permutation(n_rows))


def tensor(array):
    """Single-precision tensor; of the array's own memory where torch can use it."""
    return shared(np.asarray(array, dtype=np.float32))


def shared(array):
    """Tensor of an array's data type; see :func:`tensor`."""
    array = np.asarray(array)
    # torch warns of memory that it may not write to, where writing would be a fault,
    # and refuses rows or columns that are stored in reverse.
    usable = array.flags.writeable and min(array.strides, default=0) >= 0
    return torch.from_numpy(array if usable else array.copy())
