"""One secure sum in one process."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

import numpy as np

from skvfl.privacy._fixed_point import FixedPoint
from skvfl.privacy._keys import KeyRing
from skvfl.privacy._masks import SERVER, Aggregator, Masker


class SecureAggregator:
    """Sum of arrays of several parties, none of which is seen alone.

    Keys, masks and checks are those of vFedSec. All parties live in this object, which
    is for simulations and for trying things out: real organisations each keep a
    :class:`KeyRing` and a :class:`Masker` of their own.

    Parameters
    ----------
    n_parties : int
        Number of parties; they are called 0, 1, ….
    bound : float, default=1e9
        Largest magnitude that any value may have. Larger ones are refused.
    bits : {32, 64}, default=64
        Size of one number on the wire.

    Raises
    ------
    ValueError
        If there are fewer than two parties, or the bound leaves no fraction bits.

    See Also
    --------
    FixedPoint : How exact the sum is.

    Notes
    -----
    The server learns the sum and nothing else. All parties but one together learn the
    last one's values from the sum, whatever the method.

    Examples
    --------
    >>> import numpy as np
    >>> from skvfl.privacy import SecureAggregator
    >>> aggregator = SecureAggregator(n_parties=3)
    >>> messages = {
    ...     party: aggregator.mask(party, np.full(2, party + 0.5), round_id=0)
    ...     for party in range(3)
    ... }
    >>> aggregator.aggregate(messages, round_id=0)
    array([4.5, 4.5])
    """

    def __init__(self, n_parties: int, *, bound: float = 1e9, bits: int = 64) -> None:
        fixed_point = FixedPoint(n_parties, bound=bound, bits=bits)
        clients = [str(party) for party in range(n_parties)]
        rings = {name: KeyRing(name) for name in [*clients, SERVER]}
        self._server = Aggregator(rings[SERVER], clients, fixed_point)
        self._maskers = [Masker(rings[name], clients, fixed_point) for name in clients]
        _agree(rings)

    def mask(self, party: int, array: Any, *, round_id: int) -> dict[str, Any]:
        """Masked message of one party.

        Parameters
        ----------
        party : int
            From 0 to ``n_parties - 1``.
        array : array-like of numbers
            Of the same shape for all parties.
        round_id : int
            Larger than in any earlier call for this party.

        Returns
        -------
        message : dict
            For :meth:`aggregate`.

        Raises
        ------
        FixedPointRangeError
            If a value is not finite or over the bound.
        SecureAggregationError
            If the round is not new.
        """
        if party not in range(len(self._maskers)):
            raise ValueError(
                f"there is no party {party!r}; they are 0 to {len(self._maskers) - 1}"
            )
        return self._maskers[party].mask(
            array, round_id=round_id, what=f"values of party {party}"
        )

    def aggregate(self, messages: Mapping[int, Any], *, round_id: int) -> np.ndarray:
        """Sum of all parties' arrays.

        Parameters
        ----------
        messages : dict of int to message
            One of each party, all of this round.
        round_id : int
            Which round is due.

        Returns
        -------
        total : ndarray of float64

        Raises
        ------
        SecureAggregationError
            If a message is missing, altered, or of another round; names the party.
        """
        named = {str(party): message for party, message in messages.items()}
        return self._server.total(named, round_id=round_id)


def _agree(rings: Mapping[str, KeyRing]) -> None:
    """Carry everybody's keys and proofs to everybody."""
    session = uuid.uuid4().hex

    def deliver(sent: Mapping[str, Mapping[str, Any]], name: str) -> dict[str, Any]:
        return {peer: sent[peer][name] for peer in rings if peer != name}

    keys = {
        name: ring.public_keys(set(rings) - {name}, session=session, epoch=0)
        for name, ring in rings.items()
    }
    proofs = {name: ring.agree(deliver(keys, name)) for name, ring in rings.items()}
    for name, ring in rings.items():
        ring.confirm(deliver(proofs, name))
