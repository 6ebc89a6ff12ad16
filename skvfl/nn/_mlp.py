"""Multilayer perceptrons whose weights come from a generator of their own."""

from __future__ import annotations

from itertools import pairwise
from math import sqrt
from numbers import Integral

from torch import nn

from skvfl.exceptions import TrainingError


def linear(n_inputs, n_outputs, generator, *, bias=True):
    """Linear layer with torch's default initialisation, drawn from ``generator``.

    Parameters
    ----------
    n_inputs, n_outputs : int
        Number of columns in and out.
    generator : torch.Generator
        The party's private stream.
    bias : bool, default=True
        Whether to add a bias.

    Returns
    -------
    layer : torch.nn.Linear

    Raises
    ------
    TrainingError
        If a number of columns is not a positive whole number.
    """
    for size in (n_inputs, n_outputs):
        if not isinstance(size, Integral) or size < 1:
            raise TrainingError(
                f"a layer has {size!r} units: give every layer a positive whole number"
            )
    layer = nn.utils.skip_init(nn.Linear, n_inputs, n_outputs, bias=bias)
    bound = 1 / sqrt(n_inputs)
    for parameter in layer.parameters():
        nn.init.uniform_(parameter, -bound, bound, generator=generator)
    return layer


def perceptron(sizes, generator):
    """Linear layers with a ReLU between each two.

    Parameters
    ----------
    sizes : sequence of int
        Number of columns in, of every hidden layer, and out.
    generator : torch.Generator
        The party's private stream.

    Returns
    -------
    network : torch.nn.Sequential
    """
    layers = []
    for n_inputs, n_outputs in pairwise(sizes):
        layers += [linear(n_inputs, n_outputs, generator), nn.ReLU()]
    return nn.Sequential(*layers[:-1])
