"""What is done to numbers before they cross from one model's part to another."""

from __future__ import annotations

from math import sqrt

import torch


def shorten(cut, norm):
    """Activations of rows, none longer than a norm.

    Parameters
    ----------
    cut : torch.Tensor of shape (n_rows, width)
        As they left the network.
    norm : float
        The longest that is allowed.

    Returns
    -------
    short : torch.Tensor
        The same directions.
    factors : torch.Tensor of shape (n_rows, 1)
        What each row was multiplied by, at most 1.
    """
    lengths = torch.linalg.vector_norm(cut, dim=1, keepdim=True)
    factors = (norm / lengths.clamp_min(norm)).to(cut.dtype)
    return cut * factors, factors


def through_shortening(gradient, short, factors):
    """The gradient of activations, from that of the shortened ones.

    Parameters
    ----------
    gradient : torch.Tensor
        Of what :func:`shorten` gave.
    short, factors : torch.Tensor
        What it gave.

    Returns
    -------
    gradient : torch.Tensor
    """
    # A row that was shortened cannot be made longer, so that what points along it is
    # lost.
    squared = short.square().sum(dim=1, keepdim=True)
    along = (gradient * short).sum(dim=1, keepdim=True) / squared.clamp_min(1e-30)
    return factors * (gradient - torch.where(factors < 1, along, 0.0) * short)


def blurred(gradient, ratio, generator):
    """Rows' gradients with noise, by the longest of them.

    The size of gradients depends on the loss, the batch and how far training has come,
    so that a fixed noise would be too much at one end and nothing at the other.

    Parameters
    ----------
    gradient : torch.Tensor of shape (n_rows, width)
        Of a batch.
    ratio : float
        Expected length of a row's noise, in lengths of the longest gradient.
    generator : torch.Generator
        A secret of who sends it.

    Returns
    -------
    gradient : torch.Tensor
    """
    longest = torch.linalg.vector_norm(gradient, dim=1).max()
    noise = torch.randn(gradient.shape, generator=generator)
    return gradient + ratio * longest / sqrt(gradient.shape[1]) * noise
