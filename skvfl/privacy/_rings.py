"""Which clients share masks where there are many: neighbours on random rings.

Each of a few rings is a random order of all clients, and two clients share masks if
they are next to one another on some ring: a random regular graph. What a client
contributes is hidden as long as the graph of the honest clients holds together without
those who collude. If no edge joined two parts of the honest clients, the colluders
would know all other masks of each part, and the sum over each part would lie open. The
number of rings follows from the chance of that, :func:`exposure_bound`.

Nobody may choose the rings. They come from a seed to which every client contributes,
see :class:`~skvfl.privacy._draw.Draw`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from scipy.special import gammaln

from skvfl.privacy._keys import PROTOCOL, context

# Below so many clients every two share masks: rings would leave few pairs out.
FEWEST = 20
# At this share of colluders the chance of a bad graph is at most this.
COLLUDERS = 0.5
RISK = 1e-9


def exposure_bound(n_clients: int, n_colluders: int, n_rings: int) -> float:
    r"""Bound on the chance that colluders split the honest clients, or single one out.

    Parameters
    ----------
    n_clients : int
        Number of clients on the rings.
    n_colluders : int
        How many of them collude, chosen before the rings were drawn.
    n_rings : int
        Number of independent rings.

    Returns
    -------
    bound : float
        On the probability that the honest clients are not connected by edges among
        themselves; a client without an honest neighbour is one case of it.

    Notes
    -----
    The sum over all sets of at most half of the honest clients of the probability that
    no edge leads from the set to another honest client. On one ring with ``c``
    colluders, ``s`` clients in the set and ``t`` other honest ones, every gap between
    two successive colluders then holds clients of one kind, and counting gives

    .. math::
        \frac{s!\, t!\, (c-1)!}{(n-1)!}
        \sum_i \binom{c}{i} \binom{s-1}{i-1} \binom{c-i+t-1}{t}.
    """
    n_honest = n_clients - n_colluders
    # Without colluders rings are whole, and one honest client hides behind nobody.
    if n_honest < 2 or not n_colluders:
        return 0.0
    sets, apart = _log_apart(n_clients, n_colluders)
    return float(min(1.0, np.exp(sets + n_rings * apart).sum()))


@lru_cache
def _log_apart(n_clients: int, n_colluders: int) -> tuple[np.ndarray, np.ndarray]:
    """By size: logarithms of the number of sets, and of being apart on one ring."""
    n_honest = n_clients - n_colluders
    sizes = range(1, n_honest // 2 + 1)
    apart = np.empty(len(sizes))
    for i, size in enumerate(sizes):
        others = n_honest - size
        gaps = np.arange(1, min(n_colluders, size) + 1)
        ways = (
            _log_choices(n_colluders, gaps)
            + _log_choices(size - 1, gaps - 1)
            + _log_choices(n_colluders - gaps + others - 1, others)
        )
        orders = gammaln([size + 1, others + 1, n_colluders]).sum()
        apart[i] = np.logaddexp.reduce(ways) + orders - gammaln(n_clients)
    return _log_choices(n_honest, np.array(sizes)), apart


def _log_choices(n: int | np.ndarray, k: int | np.ndarray) -> np.ndarray:
    n, k = np.broadcast_arrays(np.asarray(n, float), np.asarray(k, float))
    possible = (k >= 0) & (k <= n)
    n, k = np.where(possible, n, 0), np.where(possible, k, 0)
    logs = gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)
    return np.where(possible, logs, -np.inf)


@lru_cache
def count_rings(n_clients: int) -> int:
    """Fewest rings with which half of the clients may collude; 0 where all are joined.

    Parameters
    ----------
    n_clients : int
        Number of clients of a sum.
    """
    if n_clients < FEWEST:
        return 0
    n_rings, n_colluders = 1, int(COLLUDERS * n_clients)
    while exposure_bound(n_clients, n_colluders, n_rings) > RISK:
        n_rings += 1
    return n_rings


def neighbours(
    name: str, clients: Sequence[str], seed: bytes | None, purpose: str
) -> list[str]:
    """Clients with which a client shares masks, in the order of the clients.

    Parameters
    ----------
    name : str
        One of the clients.
    clients : sequence of str
        Names of all clients of a sum, in the order that all have agreed on.
    seed : bytes or None
        That all have drawn together; of no use, and None, where every two share masks.
    purpose : str
        What the sum is for, as sums have rings of their own.
    """
    if not count_rings(len(clients)):
        return [client for client in clients if client != name]
    if seed is None:
        raise ValueError(f"{len(clients)} clients have drawn no seed of their rings")
    return list(_draw(tuple(clients), seed, purpose)[name])


# Kept, because in a simulation all clients draw the same.
@lru_cache(maxsize=8)
def _draw(
    clients: tuple[str, ...], seed: bytes, purpose: str
) -> dict[str, tuple[str, ...]]:
    """Whom each client has next to it on some ring, in the order of the clients."""
    rings, n_clients = _rings(clients, seed, purpose), len(clients)
    after = np.roll(rings, -1, axis=1)
    # Every pair both ways, as one number that sorts by the first and then the second.
    pairs = np.unique([rings * n_clients + after, after * n_clients + rings])
    one, other = np.divmod(pairs, n_clients)
    stops = np.searchsorted(one, range(1, n_clients))
    return {
        name: tuple([clients[i] for i in near])
        for name, near in zip(clients, np.split(other, stops), strict=True)
    }


def _rings(clients: tuple[str, ...], seed: bytes, purpose: str) -> np.ndarray:
    """Random orders of all clients, one in each row."""
    shape = count_rings(len(clients)), len(clients)
    # Words of a hash, and not of a generator of numpy's, so that organisations with
    # other versions of it draw the same. To sort by random numbers is a random order.
    drawn = hashlib.shake_256(context(PROTOCOL, "rings", purpose, seed, *clients))
    words = np.frombuffer(drawn.digest(8 * shape[0] * shape[1]), "<u8")
    return np.argsort(words.reshape(shape), axis=1, kind="stable")
