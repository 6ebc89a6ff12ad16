"""torch's generators, with as much entropy as a stream of numpy's has."""

from __future__ import annotations

import numpy as np
import torch

_WORDS = 624
_WHERE = slice(24, 24 + 8 * _WORDS)


def private_generator(stream):
    """Generator for what must not be guessed.

    ``manual_seed`` keeps 32 bits of a seed, which can be searched: who sees the outputs
    of a random layer could find the layer. Here the whole state is drawn.

    Parameters
    ----------
    stream : SeedSequence
        Of the party's own, see :func:`skvfl._random.one_way`.

    Returns
    -------
    generator : torch.Generator
    """
    generator = torch.Generator().manual_seed(0)
    state = generator.get_state()
    state.numpy()[_WHERE].view(np.uint64)[:] = stream.generate_state(_WORDS)
    return generator.set_state(state)
