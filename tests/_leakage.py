"""Controls of attacks: views without information, and scores that must be zero."""

from dataclasses import replace

import numpy as np

SEEDS = range(10)


def changed(view, change):
    """A view whose arrays are what a function makes of them.

    Parameters
    ----------
    change : callable
        ``change(seen, place, array)`` gives another array.
    """

    def walk(seen, content, place=()):
        if isinstance(content, np.ndarray) and content.ndim:
            return change(seen, place, content)
        if isinstance(content, dict):
            return {k: walk(seen, v, (*place, k)) for k, v in content.items()}
        if isinstance(content, list | tuple):
            return [walk(seen, v, (*place, i)) for i, v in enumerate(content)]
        return content

    messages = [replace(m, content=walk(m, m.content)) for m in view.messages]
    return replace(view, messages=messages)


def noise(view, seed):
    """A view of numbers that were drawn, of the kinds that were received."""
    rng = np.random.default_rng(seed)

    def change(seen, place, array):
        if array.dtype.kind == "f":
            return rng.standard_normal(array.shape).astype(array.dtype)
        if array.dtype.kind == "b":
            return rng.random(array.shape) < 0.5
        if array.dtype.kind == "u":
            return rng.integers(0, np.iinfo(array.dtype).max, array.shape, array.dtype)
        return rng.permutation(array)

    return changed(view, change)


def permuted(view, seed):
    """A view in which the rows of every message are in another order."""
    rng = np.random.default_rng(seed)
    return changed(view, lambda seen, place, array: rng.permutation(array))


def assert_nothing(scores, slack=0.01):
    """Zero lies in the interval of the mean of scores of ten seeds."""
    scores = np.array(scores)
    assert len(scores) == len(SEEDS)
    spread = 2.262 * scores.std(ddof=1) / np.sqrt(len(scores))
    assert abs(scores.mean()) <= spread + slack, scores
    # An interval that is wide enough for everything would show nothing.
    assert spread < 0.75, scores
