"""How parties build their models and optimisers; small, so that they travel."""

from __future__ import annotations

from contextlib import contextmanager
from threading import RLock

import numpy as np
import torch
from torch import nn

from skvfl.nn._mlp import perceptron
from skvfl.nn._streams import private_state


class Build:
    """Build a network for columns whose number only the party knows.

    Parameters
    ----------
    network : tuple of int or callable
        Hidden layer sizes of a perceptron, or ``network(n_inputs, n_outputs)``.
    n_outputs : int
        Number of output columns.
    activate : bool, default=False
        Whether a ReLU comes first.
    check : callable or None, default=None
        ``check(network, shapes)`` gives what is used of a network of the user's own,
        from it and the shape of a row of each of its inputs.
    """

    def __init__(self, network, n_outputs, activate=False, check=None):
        self.network = network
        self.n_outputs = n_outputs
        self.activate = activate
        self.check = check

    def __call__(self, n_inputs, generator):
        """Build the network.

        Parameters
        ----------
        n_inputs : int
            Number of input columns.
        generator : torch.Generator
            The party's private stream.

        Returns
        -------
        network : torch.nn.Module
        """
        if callable(self.network):
            words = [_draw(generator) for _ in range(3)]
            state = private_state(np.random.SeedSequence(words))
            with _global_stream(torch.default_generator.set_state, state):
                network = self.network(n_inputs, self.n_outputs)
                if self.check is not None:
                    network = self.check(network, [(n_inputs,)])
            network = Seeded(network, generator)
        else:
            sizes = [n_inputs, *self.network, self.n_outputs]
            network = perceptron(sizes, generator)
        return nn.Sequential(nn.ReLU(), network) if self.activate else network


class Seeded(nn.Module):
    """A user's network, whose dropout draws from the party's own stream.

    Parameters
    ----------
    network : torch.nn.Module
        Any network.
    generator : torch.Generator
        The party's private stream.
    """

    def __init__(self, network, generator):
        super().__init__()
        self.network = network
        self._generator = generator

    def forward(self, inputs):
        """Outputs of the network; torch's global generator is left as it was."""
        if not self.training:
            return self.network(inputs)
        seed = _draw(self._generator)
        with _global_stream(torch.default_generator.manual_seed, seed):
            return self.network(inputs)


class Optimize:
    """Build a party's own optimiser.

    Parameters
    ----------
    optimizer : type or None
        Class from ``torch.optim``; Adam in its fused form by default.
    lr : float
        Learning rate.
    max_grad_norm : float or None, default=None
        Norm that longer gradients are scaled down to.
    """

    def __init__(self, optimizer, lr, max_grad_norm=None):
        self.optimizer = optimizer
        self.lr = lr
        self.max_grad_norm = max_grad_norm

    def __call__(self, parameters):
        """Optimiser of these parameters."""
        optimizer = FusedAdam if self.optimizer is None else self.optimizer
        optimizer = optimizer(parameters, lr=self.lr)
        if self.max_grad_norm is None:
            return optimizer
        return ClippedSteps(optimizer, parameters, self.max_grad_norm)


class ClippedSteps:
    """Steps of an optimiser on gradients of a norm of at most so much.

    Parameters
    ----------
    optimizer : optimiser
        Of these parameters.
    parameters : list of torch.nn.Parameter
        Whose gradients together have the norm.
    max_grad_norm : float
        The norm.
    """

    def __init__(self, optimizer, parameters, max_grad_norm):
        self._optimizer = optimizer
        self._parameters = parameters
        self._max_grad_norm = max_grad_norm
        self.zero_grad = optimizer.zero_grad

    def step(self):
        """Scale the gradients down where they are too long, and take a step."""
        nn.utils.clip_grad_norm_(self._parameters, self._max_grad_norm)
        self._optimizer.step()


class FusedAdam:
    """The step of ``torch.optim.Adam(fused=True)`` without its bookkeeping.

    Every party of split learning takes a step of its own for every batch, on networks
    so small that the bookkeeping costs more than the step.

    Parameters
    ----------
    parameters : list of torch.nn.Parameter
        What to optimise.
    lr : float
        Learning rate.
    weight_decay : float, default=0.0
        Added to the gradients, times the parameters.
    """

    def __init__(self, parameters, lr, weight_decay=0.0):
        self._parameters = parameters
        self._values = [p.detach() for p in parameters]
        self._averages = [torch.zeros_like(p) for p in parameters]
        self._squares = [torch.zeros_like(p) for p in parameters]
        self._counts = torch.zeros(len(parameters))
        self._steps = list(self._counts.unbind())
        self._settings = {
            "amsgrad": False,
            "beta1": 0.9,
            "beta2": 0.999,
            "lr": lr,
            "weight_decay": weight_decay,
            "eps": 1e-8,
            "maximize": False,
        }

    def zero_grad(self):
        """Forget the gradients."""
        for parameter in self._parameters:
            parameter.grad = None

    def step(self):
        """Move the parameters that have a gradient."""
        gradients = [parameter.grad for parameter in self._parameters]
        moved = [i for i, gradient in enumerate(gradients) if gradient is not None]
        if not moved:
            return
        state = [self._values, gradients, self._averages, self._squares]
        steps = self._steps
        if len(moved) == len(steps):
            self._counts += 1
        else:
            self._counts[moved] += 1
            *state, steps = ([each[i] for i in moved] for each in (*state, steps))
        torch._fused_adam_(*state, [], steps, **self._settings)


_GLOBAL_STREAM = RLock()


def _draw(generator):
    return int(torch.randint(2**62, (), generator=generator))


@contextmanager
def _global_stream(start, value):
    """Start torch's global generator anew, and put it back afterwards."""
    with _GLOBAL_STREAM, torch.random.fork_rng(devices=[]):
        start(value)
        yield
