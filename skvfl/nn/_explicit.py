"""Passes and steps of small networks, written out where torch would record a graph.

A party of split learning goes forward and back through networks so small that autograd
costs more than the arithmetic. :class:`Explicit` calls the same products in the same
order as autograd would, so that parameters are the same to the last bit, and moves all
that a party trains in one call. :class:`Recorded` is the same for networks and
optimisers of a user's own.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import torch
from torch import nn

from skvfl.nn._build import FusedAdam

_OPS = torch.ops.aten
# Looked up once, as every look among these takes a part of the time of a call.
_NLL_LOSS = _OPS.nll_loss_forward.default
_NLL_LOSS_BACKWARD = _OPS.nll_loss_backward.default
_OF_RELU = _OPS.threshold_backward.grad_input
_OF_TANH = _OPS.tanh_backward.grad_input
_OF_SELU = _OPS.elu_backward.grad_input
# The activation, the same in place, and what writes the gradient of what enters it,
# from that of what leaves it and what left. SELU's numbers are torch's own. A graph
# computes its gradient from what entered, with one more exponential and another last
# bit.
_SELU = 1.6732632423543772, 1.0507009873554805, 1.0, True
ACTIVATIONS = {
    nn.ReLU: (
        torch.relu,
        torch.relu_,
        lambda gradient, left, to: _OF_RELU(gradient, left, 0, grad_input=to),
    ),
    nn.Tanh: (
        torch.tanh,
        torch.tanh_,
        lambda gradient, left, to: _OF_TANH(gradient, left, grad_input=to),
    ),
    nn.SELU: (
        torch.selu,
        torch.selu_,
        lambda gradient, left, to: _OF_SELU(gradient, *_SELU, left, grad_input=to),
    ),
}


def links_of(network):
    """The layers of a network, one after another, or None if it has any other.

    Parameters
    ----------
    network : torch.nn.Module
        Nested sequences of linear layers, ReLU, tanh and SELU.
    """
    if type(network) is nn.Sequential:
        parts = [links_of(child) for child in network]
        if None in parts:
            return None
        links = [link for part in parts for link in part]
        for before, link in pairwise(links):
            if type(before) is Link and type(link) is Activation:
                # Nobody else has what leaves a linear layer, and nothing needs it.
                link.forward = link.in_place
        return links
    if type(network) is nn.Linear:
        return [Link(network)]
    return [Activation(type(network))] if type(network) in ACTIVATIONS else None


class Activation:
    """What comes between linear layers.

    Parameters
    ----------
    kind : type
        Class from ``torch.nn``.
    """

    def __init__(self, kind):
        self.forward, self.in_place, self.backward = ACTIVATIONS[kind]


class Link:
    """A linear layer.

    Parameters
    ----------
    layer : torch.nn.Linear
        Whose parameters may change, but may not be replaced.
    """

    def __init__(self, layer):
        self.parameters = layer.weight, layer.bias
        self.weight = layer.weight.detach()
        self._transposed = self.weight.t()
        self._bias = None if layer.bias is None else layer.bias.detach()

    def forward(self, inputs):
        """What leaves the layer."""
        if self._bias is None:
            return inputs.mm(self._transposed)
        return torch.addmm(self._bias, inputs, self._transposed)


def forward(links, inputs, spare=False):
    """What enters every layer, and what leaves the last one.

    Parameters
    ----------
    links : list
        The layers.
    inputs : torch.Tensor
        What enters the first one.
    spare : bool, default=False
        Whether nobody else needs it, so that it may be written over.
    """
    values = [inputs]
    for link in links:
        if spare and type(link) is Activation:
            inputs = link.in_place(inputs)
        else:
            inputs = link.forward(inputs)
        spare = False
        values.append(inputs)
    return values


def backward(links, values, gradient, further=False):
    """Gradients of what leaves the linear layers.

    Parameters
    ----------
    links : list
        The layers.
    values : list of torch.Tensor
        What :func:`forward` gave for them.
    gradient : torch.Tensor
        Of what leaves the last layer.
    further : bool, default=False
        Whether the gradient of what enters the first layer is asked for.

    Returns
    -------
    parts : list of tuple
        For every linear layer, from the last one: the layer, what enters it, and the
        gradient of what leaves it.
    gradient : torch.Tensor or None
        Of what enters the first layer.
    """
    parts, given = [], gradient
    for i in range(len(links) - 1, -1, -1):
        link = links[i]
        if type(link) is Activation:
            # In the memory of the other gradient, unless that is somebody else's.
            to = torch.empty_like(gradient) if gradient is given else gradient
            gradient = link.backward(gradient, values[i + 1], to)
            continue
        parts.append((link, values[i], gradient))
        if not (i or further):
            return parts, None
        gradient = gradient.mm(link.weight)
    return parts, gradient


class Explicit:
    """The networks that a party trains, without a graph.

    Parameters
    ----------
    networks : dict of str to torch.nn.Module
        As :func:`links_of` takes them.
    lr : float
        Learning rate of Adam.
    weight_decay : float, default=0.0
        Added to the gradients, times the parameters.
    """

    # Nobody is told of steps without a graph.
    watch = None

    def __init__(self, networks, lr, weight_decay=0.0):
        self._links = {name: links_of(each) for name, each in networks.items()}
        linear = [x for links in self._links.values() for x in links if type(x) is Link]
        parameters = [p for x in linear for p in x.parameters if p is not None]
        self._gradients = [torch.zeros_like(p) for p in parameters]
        places = dict(zip(parameters, self._gradients, strict=True))
        self._places = {x: [places.get(p) for p in x.parameters] for x in linear}
        # A tensor for each: Adam rounds the last numbers of a tensor, which fill no
        # register, otherwise than the rest, so on one long one it gives other bits.
        self._adam = FusedAdam(parameters, lr, weight_decay)

    def forward(self, name, inputs, further=False, spare=False):
        """What leaves a network, and what the way back needs.

        Parameters
        ----------
        name : str
            Of the network.
        inputs : torch.Tensor
            What enters it.
        further : bool, default=False
            Whether the gradient of what enters it will be asked for.
        spare : bool, default=False
            Whether nobody else needs what enters it, so that it may be written over.
        """
        links = self._links[name]
        values = forward(links, inputs, spare)
        return values[-1], (links, values, further)

    def backward(self, tape, gradient):
        """Write a network's gradients; return that of what entered, if asked for.

        Parameters
        ----------
        tape : tuple
            As :meth:`forward` gave it.
        gradient : torch.Tensor
            Of what left the network.
        """
        parts, gradient = backward(*tape[:2], gradient, further=tape[2])
        for link, entered, of_left in parts:
            of_weight, of_bias = self._places[link]
            torch.mm(of_left.t(), entered, out=of_weight)
            if of_bias is not None:
                torch.sum(of_left, 0, out=of_bias)
        return gradient

    def rest(self):
        """Write gradients of zero."""
        torch._foreach_zero_(self._gradients)

    def take(self):
        """Gradients of all parameters, in their order, as one vector."""
        return torch.cat([gradient.ravel() for gradient in self._gradients])

    def put(self, vector):
        """Write gradients that come as :meth:`take` gives them."""
        parts = vector.split([gradient.numel() for gradient in self._gradients])
        for gradient, part in zip(self._gradients, parts, strict=True):
            gradient.copy_(part.view_as(gradient))

    def step(self):
        """Move the parameters of all networks, each of which has gone back."""
        self._adam.move(self._gradients)


class ExplicitModule:
    """A network that is trained by itself, without a graph.

    Parameters
    ----------
    module, lr, weight_decay
        As for :class:`Explicit`.
    """

    def __init__(self, module, lr, weight_decay):
        self._passes = Explicit({"module": module}, lr, weight_decay)
        self.backward, self.step = self._passes.backward, self._passes.step

    def forward(self, inputs):
        """Outputs, and what the way back needs."""
        return self._passes.forward("module", inputs)


class ExplicitJoint:
    """A local network and the head above it, trained together without a graph.

    Parameters
    ----------
    module : JointNetwork
        Maybe without a local network.
    lr, weight_decay
        As for :class:`Explicit`.
    """

    def __init__(self, module, lr, weight_decay):
        self._local = module.local is not None
        self._passes = Explicit(dict(module.named_children()), lr, weight_decay)
        self.step = self._passes.step

    def forward(self, *inputs):
        """Outputs, and what the way back needs."""
        tape, width = None, 0
        if self._local:
            own, tape = self._passes.forward("local", inputs[0])
            inputs, width = [own, *inputs[1:]], own.shape[1]
        joined = torch.cat(list(inputs), dim=1)
        outputs, above = self._passes.forward("head", joined, further=self._local)
        return outputs, (above, tape, width)

    def backward(self, tape, gradient):
        """Write the gradients of both networks."""
        above, below, width = tape
        gradient = self._passes.backward(above, gradient)
        if self._local:
            self._passes.backward(below, gradient[:, :width])


class Recorded:
    """The networks that a party trains, with a graph for each.

    Parameters
    ----------
    networks : dict of str to torch.nn.Module
        Any networks.
    optimize : Optimize
        Gives the optimiser of all of them, and says where they are trained and who is
        told of it.
    """

    def __init__(self, networks, optimize):
        self._networks = networks
        self._device = optimize.device
        self.watch = watch(networks, optimize)
        # Before an optimiser takes their parameters.
        for network in networks.values():
            network.to(self._device)
        self._parameters = [p for n in networks.values() for p in n.parameters()]
        if self.watch is None:
            self._optimizer = optimize(self._parameters)
        else:
            self._optimizer = self.watch.optimizer

    def forward(self, name, inputs, further=False, spare=False):
        """As :meth:`Explicit.forward`; nothing is written over."""
        inputs = inputs.detach().to(self._device).requires_grad_(further)
        outputs = self._networks[name](inputs)
        return outputs.detach().cpu(), (inputs, outputs)

    def backward(self, tape, gradient):
        """As :meth:`Explicit.backward`."""
        inputs, outputs = tape
        outputs.backward(gradient.to(self._device))
        return None if inputs.grad is None else inputs.grad.cpu()

    def rest(self):
        """As :meth:`Explicit.rest`."""
        for parameter in self._parameters:
            if parameter.requires_grad:
                parameter.grad = torch.zeros_like(parameter)

    def take(self):
        """As :meth:`Explicit.take`; zeros for parameters without a gradient."""
        gradients = [
            torch.zeros_like(p) if p.grad is None else p.grad for p in self._parameters
        ]
        # Those of the next batch are not added to them, should no step follow.
        self._optimizer.zero_grad()
        return torch.cat([gradient.detach().ravel() for gradient in gradients]).cpu()

    def put(self, vector):
        """As :meth:`Explicit.put`."""
        parts = vector.split([p.numel() for p in self._parameters])
        for parameter, part in zip(self._parameters, parts, strict=True):
            # ``to`` alone would copy nothing where it is on the same device.
            parameter.grad = part.view_as(parameter).clone().to(self._device)

    def step(self):
        """Move the parameters that have a gradient."""
        if self.watch is not None:
            self.watch.begin_step()
        self._optimizer.step()
        self._optimizer.zero_grad()
        if self.watch is not None:
            self.watch.end_step()


def watch(networks, optimize):
    """What tells a party's callbacks of its steps, or None where it has none.

    Parameters
    ----------
    networks, optimize
        As for :class:`Recorded`.
    """
    if not optimize.callbacks:
        return None
    # Only here: most parties have no callbacks.
    from skvfl.nn._watched import Watched

    return Watched(networks, optimize, optimize.callbacks, optimize.device)


def trainer(networks, optimize):
    """What trains a party's networks.

    Parameters
    ----------
    networks : dict of str to torch.nn.Module
        As :class:`skvfl.nn._build.Build` made them.
    optimize : Optimize
        How the party optimises.

    Returns
    -------
    trainer : Explicit or Recorded
        Without a graph where all networks were given as sizes, and the optimiser is
        the default one.
    """
    plain = all(links_of(network) is not None for network in networks.values())
    usual = optimize.optimizer is None and optimize.max_grad_norm is None
    if plain and usual and optimize.device == "cpu" and not optimize.callbacks:
        return Explicit(networks, optimize.lr, optimize.weight_decay)
    return Recorded(networks, optimize)


class CrossEntropy:
    """Loss of every row from its class, with its gradient."""

    def __call__(self, outputs, codes):
        """Loss of every row, for a graph."""
        return nn.functional.cross_entropy(outputs, codes, reduction="none")

    def with_gradient(self, outputs, codes, *, factors):
        """Losses, and the gradient of their sum, each times its factor."""
        logs = torch.log_softmax(outputs, 1)
        given = logs, codes, None, 0, -100
        losses, total = _NLL_LOSS(*given)
        gradient = _NLL_LOSS_BACKWARD(factors, *given, total)
        return losses, torch._log_softmax_backward_data(gradient, logs, 1, logs.dtype)

    def gradient(self, outputs, codes):
        """Gradient of the sum of the losses; its last bits are not a graph's."""
        gradient = torch.log_softmax(outputs, 1).exp_()
        # One index for each takes less time than two. Codes are those of a party's own
        # labels; one beyond the outputs would be taken for another row's.
        values = gradient.numpy().ravel()
        values[np.arange(0, values.size, gradient.shape[1]) + codes.numpy()] -= 1
        return gradient


class SquaredError:
    """Loss of every row from its number, with its gradient."""

    def __call__(self, outputs, targets):
        """Loss of every row, for a graph."""
        return nn.functional.mse_loss(outputs, targets, reduction="none")[:, 0]

    def with_gradient(self, outputs, targets, *, factors):
        """Losses, and the gradient of their sum, each times its factor."""
        factors = factors[:, None]
        gradient = _OPS.mse_loss_backward.default(factors, outputs, targets, 0)
        return self(outputs, targets), gradient

    def gradient(self, outputs, targets):
        """Gradient of the sum of the losses."""
        return (outputs - targets).mul_(2)


def loss_and_gradient(loss, outputs, targets, factors):
    """Losses of rows, and the gradient of their sum, each times its factor.

    Parameters
    ----------
    loss : callable
        ``loss(outputs, *targets)`` gives them. One that has ``with_gradient(outputs,
        *targets, factors=)`` needs no graph.
    outputs : torch.Tensor, or tuple of torch.Tensor
        Of a network.
    targets : list of torch.Tensor
        What the loss is called with beside them.
    factors : torch.Tensor of shape (n_rows,)
        What the losses count.

    Returns
    -------
    losses : torch.Tensor
    gradient : torch.Tensor, or tuple of torch.Tensor
        As the outputs; None where the loss does not depend on one of several.
    """
    if hasattr(loss, "with_gradient"):
        return loss.with_gradient(outputs, *targets, factors=factors)
    with torch.enable_grad():
        if isinstance(outputs, tuple):
            outputs = tuple(each.detach().requires_grad_() for each in outputs)
            losses = loss(outputs, *targets)
            return losses.detach(), torch.autograd.grad(
                losses, outputs, factors, allow_unused=True
            )
        outputs = outputs.detach().requires_grad_()
        losses = loss(outputs, *targets)
        (gradient,) = torch.autograd.grad(losses, outputs, factors)
    return losses.detach(), gradient


def loss_gradient(loss, outputs, targets, factors=None):
    """The gradient alone, as of :func:`loss_and_gradient`.

    Parameters
    ----------
    loss, outputs, targets
        As there. A loss may have ``gradient(outputs, *targets)``, too.
    factors : torch.Tensor of shape (n_rows,) or None, default=None
        As there; ones by default.

    Returns
    -------
    gradient : torch.Tensor
    """
    if hasattr(loss, "gradient"):
        gradient = loss.gradient(outputs, *targets)
        return gradient if factors is None else gradient.mul_(factors[:, None])
    if factors is None:
        factors = torch.ones(len(outputs))
    return loss_and_gradient(loss, outputs, targets, factors)[1]
