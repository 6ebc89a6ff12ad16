"""Networks in which no row has a part in what is computed of another.

Clipping bounds the influence of a row only where its gradient depends on that row and
the parameters. Trying a network on some rows cannot show this: it may mix rows above a
batch size, or for values, that nobody tried. So the code of a user's own network never
sees a row. Either the network is made of torch's own layers, each of which is known to
treat rows one by one, or it is traced once, without data, and the operations that the
trace found are run for every row by itself.
"""

from __future__ import annotations

import copy
import operator
import sys

import torch
from torch import fx, nn
from torch.func import vmap
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.modules.module import _has_any_global_hook

from skvfl.exceptions import TrainingError
from skvfl.nn._build import Seeded

# More than two, so that statistics of a batch do not agree with a row's by chance.
_PROBE_ROWS = 4


def _always(layer):
    return True


# Layers that treat rows one by one, under the condition given. Exact types only: a
# subclass may do anything.
_BY_ROW = {
    **dict.fromkeys(
        (
            nn.Linear,
            nn.Identity,
            nn.ReLU,
            nn.ReLU6,
            nn.LeakyReLU,
            nn.ELU,
            nn.SELU,
            nn.CELU,
            nn.GELU,
            nn.SiLU,
            nn.Mish,
            nn.Tanh,
            nn.Hardtanh,
            nn.Sigmoid,
            nn.Hardsigmoid,
            nn.Hardswish,
            nn.Softplus,
            nn.Softsign,
            nn.Dropout,
            nn.LayerNorm,
            nn.GroupNorm,
            nn.Conv1d,
            nn.Conv2d,
            nn.MaxPool1d,
            nn.MaxPool2d,
            nn.AvgPool1d,
            nn.AvgPool2d,
        ),
        _always,
    ),
    nn.Flatten: lambda layer: layer.start_dim >= 1,
    nn.Unflatten: lambda layer: isinstance(layer.dim, int) and layer.dim >= 1,
}

# What the operations of a trace may be: nothing of these is a user's own code.
_FUNCTIONS = {
    id(function)
    for library in (torch, torch._C._nn, functional, operator)
    for function in vars(library).values()
    if callable(function) and not isinstance(function, type)
} | {id(getattr)}


class JointNetwork(nn.Module):
    """The host's own columns through the local network, then everything to the head."""

    def __init__(self, local, head):
        super().__init__()
        self.local = local
        self.head = head

    def forward(self, *inputs):
        if self.local is not None:
            inputs = [self.local(inputs[0]), *inputs[1:]]
        return self.head(torch.cat(list(inputs), dim=1))


class RowByRow(nn.Module):
    """What a user's own network computes, for every row by itself.

    Parameters
    ----------
    traced : torch.fx.GraphModule
        The operations of the network; their tensors are the network's parameters.
    """

    def __init__(self, traced):
        super().__init__()
        self.traced = traced

    def forward(self, *inputs):
        """Outputs of the rows; `torch.func.vmap` shows each operation one row."""
        # vmap refuses to map over no row, but a Poisson sample may be empty; a made-up
        # row shows the shape of what is then cut off.
        if not len(inputs[0]):
            return self(*(x.new_zeros(1, *x.shape[1:]) for x in inputs))[:0]

        def one(*row):
            return self.traced(*(x.unsqueeze(0) for x in row)).squeeze(0)

        # The same randomness would hide the same cells of every row, which no dropout
        # does.
        return vmap(one, randomness="different")(*inputs)


def keep_apart(network, shapes):
    """The network, or what computes the same for every row by itself.

    Parameters
    ----------
    network : torch.nn.Module
        Any network.
    shapes : list of torch.Size
        Shape of one row of every input.

    Returns
    -------
    network : torch.nn.Module
        With the same parameters.

    Raises
    ------
    TrainingError
        If rows of a batch influence each other in the network, if it keeps statistics
        of them, or if it cannot be traced.
    """
    for name, layer in network.named_modules():
        if isinstance(layer, _BatchNorm):
            raise TrainingError(
                f"{type(layer).__name__} {name!r} normalises with the statistics of a "
                "batch, which no clipping bounds: use LayerNorm or GroupNorm for "
                "private training"
            )
    # The first test asks what the layers are, the second whether their shapes leave the
    # rows alone: LayerNorm of a whole batch passes the first only.
    if is_apart(network) and _takes_any_number_of_rows(network, shapes):
        return network
    return _trace(network, shapes)


def is_apart(network):
    """Whether a network is made of nothing but layers that treat rows one by one."""
    if not is_plain(network):
        return False
    # By exact type all the way down: a subclass of Sequential may shuffle its rows.
    kind = type(network)
    if kind is Seeded:
        return is_apart(network.network)
    if kind is JointNetwork:
        return all(is_apart(child) for child in network.children())
    if kind is nn.Sequential:
        return all(is_apart(child) for child in network)
    return kind is RowByRow or (kind in _BY_ROW and _BY_ROW[kind](network))


def layers_of(network):
    """Layers of nested sequences, one after another."""
    if type(network) is Seeded:
        return layers_of(network.network)
    if type(network) is nn.Sequential:
        return [layer for child in network for layer in layers_of(child)]
    return [network]


def is_plain(layer):
    """Whether a layer does what its type says: nothing is overridden or hooked in."""
    state = vars(layer)
    return (
        not _has_any_global_hook()
        and not any(value for name, value in state.items() if name.endswith("_hooks"))
        # A method set on the instance replaces that of its class, and runs unseen.
        and not any(callable(getattr(type(layer), name, None)) for name in state)
        and "_compiled_call_impl" not in state
        and all(
            type(p) is nn.Parameter and not p._backward_hooks
            for p in layer._parameters.values()
            if p is not None
        )
    )


def _takes_any_number_of_rows(network, shapes):
    """Whether one and two rows of zeros give one and two outputs.

    A layer that takes the rows for a dimension of something else, such as a layer
    normalisation over the whole batch, fits one number of rows only.
    """
    # On a copy, because a forward may write to the network; without dropout, so that
    # the party's stream is left where it was.
    network = copy.deepcopy(network).eval()
    for n_rows in (1, 2):
        try:
            with torch.inference_mode():
                outputs = network(*(torch.zeros(n_rows, *shape) for shape in shapes))
        except (RuntimeError, ValueError, IndexError):
            return False
        if outputs.ndim < 2 or len(outputs) != n_rows:
            return False
    return True


class _Tracer(fx.Tracer):
    """Goes into everything but torch's own layers."""

    def is_leaf_module(self, module, name):
        # By identity: a user's class may be called Linear, and its code must be traced.
        own = getattr(nn, type(module).__name__, None) is type(module)
        return own and not isinstance(module, nn.Sequential)

    def create_proxy(self, *args, **kwargs):
        """Refuse what is computed inside a function with a backward of its own.

        The trace would have its forward alone.
        """
        frame = sys._getframe()
        while frame is not None:
            # torch.fx has no hook for such functions, so the callers tell.
            if frame.f_code is torch.autograd.Function.apply.__func__.__code__:
                raise TypeError("a torch.autograd.Function has a backward of its own")
            frame = frame.f_back
        return super().create_proxy(*args, **kwargs)


class _Root(nn.Module):
    """Holds a network, so that what was changed in the network itself is traced too."""

    def __init__(self, network, n_inputs):
        super().__init__()
        self.network = network
        self._n_inputs = n_inputs

    def forward(self, *inputs):
        return self.network(*(inputs[i] for i in range(self._n_inputs)))


def _trace(network, shapes):
    """Operations of a user's own network, found without data."""
    kind = type(network).__name__
    # First, because its message says more than that of a trace which fails.
    _check_on_random_rows(network, shapes)
    # The user's code may write to its network while it is traced: to a copy of it, with
    # the same parameters.
    shared = {id(p): p for p in network.parameters()}
    root = _Root(copy.deepcopy(network, shared), len(shapes))
    try:
        graph = _Tracer().trace(root)
    except Exception as error:
        raise TrainingError(
            f"{kind} cannot be used in private training, because what it computes of a "
            "row cannot be read off its code (torch.fx): make it of torch's own layers "
            "in nn.Sequential, without branches that depend on values or on the number "
            "of rows, and without a torch.autograd.Function of your own"
        ) from error
    traced = fx.GraphModule(root, graph)
    for node in graph.nodes:
        _check_operation(node, traced, kind)
    traced = RowByRow(traced)
    traced.train(network.training)
    _check_same(network, traced, shapes)
    return traced


def _check_operation(node, traced, kind):
    if node.op == "call_module":
        layer = traced.get_submodule(node.target)
        # A layer of torch's own stays a call in the trace, so what was done to it would
        # run on rows as before; buffers may be statistics, which have no gradient to
        # clip.
        if not is_plain(layer) or next(layer.buffers(), None) is not None:
            raise TrainingError(
                f"the {type(layer).__name__} {node.target.partition('.')[2]!r} of "
                f"{kind} is hooked, changed or keeps statistics, which no clipping "
                "bounds: use the layer as torch has it"
            )
    # By identity and not by name, which a function of the user's may share.
    elif node.op == "call_function" and id(node.target) not in _FUNCTIONS:
        raise TrainingError(
            f"{kind} calls {getattr(node.target, '__name__', node.target)!r}, which is "
            "none of torch's own functions: in private training nothing else may see "
            "the rows"
        )


def _without_dropout(network, training=True):
    # Double precision tells what is computed differently from what is rounded
    # differently; dropout would make every comparison fail.
    network = copy.deepcopy(network).double().train(training)
    for layer in network.modules():
        if isinstance(layer, _DropoutNd):
            layer.eval()
    return network


def _random_rows(shapes):
    generator = torch.Generator().manual_seed(0)
    return [
        torch.randn(_PROBE_ROWS, *shape, generator=generator, dtype=torch.float64)
        for shape in shapes
    ]


def _one_by_one(network, rows):
    return torch.cat(
        [network(*(x[i : i + 1] for x in rows)) for i in range(_PROBE_ROWS)]
    )


def _check_on_random_rows(network, shapes):
    """Refuse networks that plainly mix rows, with a message that says so.

    No protection rests on this check, and a network that it cannot run is left to those
    that follow. It spares a user a network that is trained on single rows and was made
    to see them together.
    """
    network = _without_dropout(network)
    buffers = {name: buffer.clone() for name, buffer in network.named_buffers()}
    rows = _random_rows(shapes)
    try:
        together, alone = network(*rows), _one_by_one(network, rows)
    except Exception:
        return
    if together.shape != alone.shape or not torch.allclose(together, alone):
        raise TrainingError(
            f"rows of a batch influence each other in {type(network).__name__}, which "
            "no clipping bounds: in private training, what a module says of a row may "
            "depend on that row alone"
        )
    for name, buffer in network.named_buffers():
        if not torch.equal(buffer, buffers[name]):
            raise TrainingError(
                f"the buffer {name!r} of {type(network).__name__} changes with the "
                "rows seen, without noise: keep no statistics in private training"
            )


def _check_same(network, traced, shapes):
    """Refuse networks that compute something else than their trace.

    A trace has no backward of a user's own, and what depends on whether the network is
    trained or asked is fixed in it.
    """
    rows = _random_rows(shapes)
    kind = type(network).__name__
    for training in (True, False):
        # One copy of both, so that they share the parameters that gradients are of.
        both = _without_dropout(nn.ModuleList([network, traced]), training)
        parameters = [p for p in both.parameters() if p.requires_grad]
        try:
            found = [_outputs_and_gradients(each, rows, parameters) for each in both]
        except Exception as error:
            raise TrainingError(
                f"the rows of {kind} cannot be computed one by one: torch.func.vmap "
                "must be able to run it"
            ) from error
        if not _alike(*found):
            raise TrainingError(
                f"{kind} computes something else than its operations say, or has a "
                "backward of its own: private training cannot bound what a row does "
                "in it"
            )


def _alike(left, right):
    return [each.shape for each in left] == [each.shape for each in right] and all(
        torch.allclose(a, b) for a, b in zip(left, right, strict=True)
    )


def _outputs_and_gradients(network, rows, parameters):
    outputs = _one_by_one(network, rows)
    # Weights that differ keep errors of opposite sign from cancelling in the sum.
    slopes = torch.linspace(1, 2, outputs.numel(), dtype=torch.float64)
    if not (parameters and outputs.requires_grad):
        return [outputs]
    gradients = torch.autograd.grad(
        outputs.flatten().square() @ slopes,
        parameters,
        allow_unused=True,
        materialize_grads=True,
    )
    return [outputs, *gradients]
