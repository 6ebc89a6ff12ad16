"""How parties build their models and optimisers; small, so that they travel."""

from __future__ import annotations

import copy
from contextlib import contextmanager
from numbers import Integral
from threading import RLock

import numpy as np
import torch
from torch import nn

from skvfl.exceptions import TrainingError
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
    name : str, default="network"
        Of the estimator's parameter, for the messages.
    trains : bool, default=True
        Whether the network needs a parameter to train.
    check : callable or None, default=None
        ``check(network, shapes)`` gives what is used of a network of the user's own,
        from it and the shape of a row of each of its inputs.

    Raises
    ------
    TrainingError
        If the network is neither a list of sizes nor a function.
    """

    def __init__(
        self,
        network,
        n_outputs,
        activate=False,
        *,
        name="network",
        trains=True,
        check=None,
    ):
        # One module for all would be shared in a simulation: parties would train each
        # other's.
        if isinstance(network, nn.Module):
            raise TrainingError(
                f"{name} is a {type(network).__name__}, a network, where a function "
                f"{name}(n_inputs, n_outputs) is due that makes a new one for every "
                "party"
            )
        if not callable(network):
            network = hidden_layers(network, name)
        self.network = network
        self.n_outputs = n_outputs
        self.activate = activate
        self.name = name
        self.trains = trains
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

        Raises
        ------
        TrainingError
            If a function of the user's own does not make such a network.
        """
        if callable(self.network):
            # A user's function draws its weights from torch's global generator, so that
            # one is lent a state that only the party's own stream leads to. One word
            # could be searched for.
            words = [_draw(generator) for _ in range(3)]
            state = private_state(np.random.SeedSequence(words))
            with _global_stream(torch.default_generator.set_state, state):
                network = self._make(n_inputs)
                if self.check is not None:
                    network = self.check(network, [(n_inputs,)])
            network = Seeded(network, generator)
        else:
            sizes = [n_inputs, *self.network, self.n_outputs]
            network = perceptron(sizes, generator)
        return nn.Sequential(nn.ReLU(), network) if self.activate else network

    def _make(self, n_inputs):
        """A network of the user's own."""
        call = f"{self.name}(n_inputs={n_inputs}, n_outputs={self.n_outputs})"
        try:
            # A copy, because a function may return one network again and again:
            # parties would share it, and a refit would change the fitted one.
            network = copy.deepcopy(self.network(n_inputs, self.n_outputs))
        except Exception as exc:
            raise TrainingError(f"{call} failed with a {type(exc).__name__}") from exc
        self._try(network, n_inputs, call)
        return network

    def _try(self, network, n_inputs, call):
        """Try a network of the user's own on rows of zeros, which tell nothing."""
        if not isinstance(network, nn.Module):
            what = "the class " if isinstance(network, type) else "a "
            kind = network if isinstance(network, type) else type(network)
            raise TrainingError(
                f"{call} gave {what}{kind.__name__} where a torch.nn.Module is due"
            )
        # A forgotten parameter list would show as a loss that never falls.
        if self.trains and not any(p.requires_grad for p in network.parameters()):
            raise TrainingError(
                f"{call} gave a {type(network).__name__} without a parameter to train"
            )
        # Not on the party's rows: the error of a user's network may quote what it was
        # given.
        inputs = torch.zeros(_PROBED_ROWS, n_inputs)
        try:
            with torch.no_grad():
                outputs = copy.deepcopy(network).eval()(inputs)
        except Exception as exc:
            raise TrainingError(
                f"{call} gave a network that fails on {_PROBED_ROWS} rows of "
                f"{n_inputs} columns of zeros, with a {type(exc).__name__}; it must "
                "take n_inputs columns"
            ) from exc
        due = _PROBED_ROWS, self.n_outputs
        if not isinstance(outputs, torch.Tensor) or outputs.dtype != torch.float32:
            kind = outputs.dtype if isinstance(outputs, torch.Tensor) else type(outputs)
            raise TrainingError(
                f"{call} gave a network whose output is {kind} where a tensor of "
                f"floats (float32) of shape {due} is due"
            )
        if outputs.shape != due:
            raise TrainingError(
                f"{call} gave a network with outputs of shape {tuple(outputs.shape)} "
                f"for {_PROBED_ROWS} rows, where {due} is due"
            )


def hidden_layers(sizes, name):
    """Sizes of hidden layers, checked.

    Parameters
    ----------
    sizes : list, tuple or ndarray of int
        Number of units of every layer.
    name : str
        Of the estimator's parameter, for the message.

    Returns
    -------
    sizes : list of int

    Raises
    ------
    TrainingError
        If they are no positive whole numbers.
    """
    if isinstance(sizes, list | tuple) or getattr(sizes, "ndim", None) == 1:
        kinds = [not isinstance(s, bool) and isinstance(s, Integral) for s in sizes]
        if all(kinds) and all(size > 0 for size in sizes):
            return [int(size) for size in sizes]
    raise TrainingError(
        f"{name}={sizes!r} is no list of hidden layers: give every layer a positive "
        "whole number of units"
    )


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
        # Dropout is off when a network serves: nothing is drawn, and no lock is waited
        # for.
        if not self.training:
            return self.network(inputs)
        # Drawn outside the lock: the order in which threads get it must not change a
        # stream.
        seed = _draw(self._generator)
        # A GPU has a global generator of its own.
        gpus = [inputs.device] if inputs.device.type == "cuda" else []
        with _global_stream(torch.default_generator.manual_seed, seed, gpus):
            for gpu in gpus:
                with torch.cuda.device(gpu):
                    torch.cuda.manual_seed(seed)
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
    weight_decay : float, default=0.0
        Of the optimiser.
    device : str, default="cpu"
        Where the party trains.
    callbacks : list of skorch.callbacks.Callback, default=()
        That hear of the party's steps.
    """

    def __init__(
        self,
        optimizer,
        lr,
        max_grad_norm=None,
        weight_decay=0.0,
        device="cpu",
        callbacks=(),
    ):
        self.optimizer = optimizer
        self.lr = lr
        self.max_grad_norm = max_grad_norm
        self.weight_decay = weight_decay
        self.device = device
        self.callbacks = callbacks

    def __call__(self, parameters):
        """Optimiser of these parameters."""
        return self.clipped(self._make(parameters, FusedAdam), parameters)

    def plain(self, parameters):
        """An optimiser of torch's own, whose learning rate a callback may change."""
        return self._make(parameters, torch.optim.Adam)

    def clipped(self, optimizer, parameters):
        """An optimiser with the bound on the gradients of these parameters, if any."""
        if self.max_grad_norm is None:
            return optimizer
        return ClippedSteps(optimizer, parameters, self.max_grad_norm)

    def on(self, device="cpu", callbacks=()):
        """The same on another device and with others' callbacks; none by default."""
        other = copy.copy(self)
        other.device, other.callbacks = device, callbacks
        return other

    def _make(self, parameters, usual):
        # torch's optimisers refuse to have nothing to do; a network without
        # parameters above a trained cut layer is none the worse for it.
        own = self.optimizer is not None and parameters
        # Its step is for the CPU.
        if any(parameter.device.type != "cpu" for parameter in parameters):
            usual = torch.optim.Adam
        optimizer = self.optimizer if own else usual
        settings = {"lr": self.lr}
        # Told only where it is set, because not every optimiser knows a weight decay.
        if self.weight_decay:
            settings["weight_decay"] = self.weight_decay
        return optimizer(parameters, **settings)


class ClippedSteps:
    """Steps of an optimiser on gradients of a norm of at most so much.

    Each party clips by the norm of its own gradients: a norm over all would have to
    cross, and would tell of the others.

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

    @property
    def param_groups(self):
        """Those of torch's optimisers."""
        return self._optimizer.param_groups

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
        # Adding a number makes torch look at its kind, which takes longer than the sum.
        self._one = torch.ones(())
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
        # Parameters that a batch leaves out have no gradient, which is not one of zero.
        gradients = [parameter.grad for parameter in self._parameters]
        moved = [i for i, gradient in enumerate(gradients) if gradient is not None]
        if len(moved) == len(gradients):
            self.move(gradients)
        # A party may skip a batch. Moved by a gradient of zero, its parameters would
        # still follow their old momentum.
        elif moved:
            self._counts[moved] += 1
            state = self._values, gradients, self._averages, self._squares, self._steps
            *state, steps = ([each[i] for i in moved] for each in state)
            torch._fused_adam_(*state, [], steps, **self._settings)

    def move(self, gradients):
        """Move all parameters.

        Parameters
        ----------
        gradients : list of torch.Tensor
            Of the parameters, in their order.
        """
        # A network may have nothing to train, which torch's kernel refuses.
        if not gradients:
            return
        self._counts.add_(self._one)
        state = self._values, gradients, self._averages, self._squares
        torch._fused_adam_(*state, [], self._steps, **self._settings)


# Several, so that a network that takes its rows for something else shows it by the
# shape of its output.
_PROBED_ROWS = 3
_GLOBAL_STREAM = RLock()


def _draw(generator):
    return int(torch.randint(2**62, (), generator=generator))


@contextmanager
def _global_stream(start, value, gpus=()):
    """Start torch's global generator anew, and put it back afterwards."""
    # torch has one global generator for all threads, and networks of users draw from
    # it.
    with _GLOBAL_STREAM, torch.random.fork_rng(devices=gpus):
        start(value)
        yield
