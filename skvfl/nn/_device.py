"""Where a party's networks are trained; a setting of its own machine."""

from __future__ import annotations

import torch
from skorch.callbacks import Callback

from skvfl.exceptions import TrainingError


def check_device(device: str, whose: str = "device") -> None:
    """Refuse a device that this machine does not have.

    Parameters
    ----------
    device : str
        As torch names it.
    whose : str, default="device"
        What the message calls the setting.

    Raises
    ------
    TrainingError
        If torch cannot compute there, in double precision as well.
    """
    try:
        torch.zeros(1, dtype=torch.float64, device=device)
    # torch raises what it likes: a RuntimeError, an AssertionError, a TypeError.
    except Exception:
        n_gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
        found = f"{n_gpus} GPU(s)" if n_gpus else "no GPU"
        raise TrainingError(
            f"{whose}={device!r} cannot be used on this machine, where torch "
            f'{torch.__version__} finds {found}: set device="cpu", or install torch '
            "with CUDA where there is a GPU"
        ) from None


def check_callbacks(callbacks):
    """Refuse what is no callback of skorch's.

    Raises
    ------
    TrainingError
        If one is of another kind.
    """
    for each in callbacks or []:
        # skorch takes a pair of a name and a callback as well.
        callback = each[-1] if isinstance(each, tuple) else each
        if isinstance(callback, Callback):
            continue
        raise TrainingError(
            f"callbacks holds a {type(callback).__name__}, which is no instance of "
            "skorch.callbacks.Callback; those of scikit-learn go to set_callbacks"
        )


def device_of(network):
    """Device of a network's first parameter or buffer; the CPU if it has none."""
    for values in (*network.parameters(), *network.buffers()):
        return values.device
    return torch.device("cpu")


def bring_home(*networks):
    """Move networks to the CPU, so that whoever loads them needs no other device.

    Parameters
    ----------
    *networks : torch.nn.Module or None
        Those that are on the CPU are left as they are.
    """
    for network in networks:
        if network is not None and device_of(network).type != "cpu":
            network.cpu()
