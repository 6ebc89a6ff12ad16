"""Errors of the Secure Layer: who is concerned, what was measured, and the cure."""

from __future__ import annotations

from skvfl.exceptions import PartyError, ShareableError


class FixedPointRangeError(ShareableError, ValueError, OverflowError):
    """Values do not fit the fixed-point numbers that were agreed on.

    Parameters
    ----------
    message : str
        How many values do not fit, and the cure; other organisations read it.
    maximum : float
        Largest magnitude found; NaN where some value is not finite. It stays with
        whoever called :meth:`FixedPoint.encode`.

    Attributes
    ----------
    maximum : float
        Largest magnitude found; NaN where some value is not finite.

    See Also
    --------
    FixedPoint : The numbers agreed on.

    Examples
    --------
    >>> from skvfl.privacy import FixedPoint, FixedPointRangeError
    >>> try:
    ...     FixedPoint(2, bound=10).encode([12.5])
    ... except FixedPointRangeError as error:
    ...     error.maximum
    12.5
    """

    def __init__(self, message: str, maximum: float) -> None:
        super().__init__(message)
        self.maximum = maximum

    def __reduce__(self) -> tuple[type[FixedPointRangeError], tuple[str, float]]:
        return type(self), (self.args[0], self.maximum)


class SecureAggregationError(ShareableError, PartyError):
    """A key or a message cannot be trusted, is missing, or came twice.

    The message names the organisations concerned and never quotes a value.

    Parameters
    ----------
    party : str
        Name of the organisation that is at fault, or whose message is.
    message : str
        What happened.

    Attributes
    ----------
    party : str
        Name of the organisation that is at fault, or whose message is.

    See Also
    --------
    KeyRing : Keys that are checked.
    Aggregator : Messages that are checked.

    Examples
    --------
    >>> from skvfl.privacy import SecureAggregationError, SecureAggregator
    >>> aggregator = SecureAggregator(2)
    >>> message = aggregator.mask(0, [1.0], round_id=0)
    >>> try:
    ...     aggregator.aggregate({0: message}, round_id=0)
    ... except SecureAggregationError as error:
    ...     error.party
    '1'
    """
