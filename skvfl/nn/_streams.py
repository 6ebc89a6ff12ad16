"""torch's generators, with as much entropy as a stream of numpy's has."""

from __future__ import annotations

import numpy as np
import torch

_WORDS = 624
_WHERE = slice(24, 24 + 8 * _WORDS)
_SEEDED = torch.Generator().manual_seed(0).get_state().numpy()


def private_state(stream):
    """State of a generator for what must not be guessed.

    ``manual_seed`` keeps 32 bits of a seed, which can be searched: who sees the outputs
    of a random layer could find the layer. Here the whole state is drawn.

    Parameters
    ----------
    stream : SeedSequence
        Of the party's own, see :func:`skvfl._random.one_way`.

    Returns
    -------
    state : torch.Tensor
        For ``set_state``.
    """
    state = _SEEDED.copy()
    state[_WHERE].view(np.uint64)[:] = stream.generate_state(_WORDS)
    return torch.from_numpy(state)


def private_generator(stream):
    """Generator in a :func:`private_state`.

    Parameters
    ----------
    stream : SeedSequence
        Of the party's own.

    Returns
    -------
    generator : torch.Generator
    """
    return torch.Generator().set_state(private_state(stream))
