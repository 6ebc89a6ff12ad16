"""What training on batches of rows needs, whoever trains."""

from __future__ import annotations

import copy
from math import ceil

import numpy as np
import torch

from skvfl.exceptions import TrainingError

# The least that a sum of weights is divided by: it leaves a loss of zero at zero.
TINY = torch.finfo(torch.float32).tiny


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


def infer(network, inputs):
    """Outputs in evaluation mode and double precision.

    Rounding then does not depend on which rows are asked for together.
    """
    with torch.inference_mode():
        # A copy, because training goes on in single precision.
        return copy.deepcopy(network).double().eval()(inputs.double())


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
    array = np.asarray(array, dtype=np.float32)
    # torch warns of memory that it may not write to, where writing would be a fault,
    # and refuses rows or columns that are stored in reverse.
    usable = array.flags.writeable and min(array.strides, default=0) >= 0
    return torch.from_numpy(array if usable else array.copy())
