"""Real numbers as integers modulo 2^32 or 2^64, so that masks cancel exactly."""

from __future__ import annotations

import operator
from fractions import Fraction
from typing import Any

import numpy as np

from skvfl.privacy._errors import FixedPointRangeError

_INTEGERS: dict[int, np.dtype[Any]] = {32: np.dtype("<i4"), 64: np.dtype("<i8")}
_RESIDUES: dict[int, np.dtype[Any]] = {32: np.dtype("<u4"), 64: np.dtype("<u8")}
_SINGLE: np.dtype[Any] = np.dtype(np.float32)
_DOUBLE: np.dtype[Any] = np.dtype(np.float64)
# Fraction bits with which a number that is too small to be normal comes out as zero, so
# that it does not matter whether the processor takes it as zero from the start.
_MOST_IN_SINGLE = 64


class FixedPoint:
    """Fixed-point numbers in the ring of integers modulo ``2**bits``.

    A value ``x`` is sent as ``rint(x * 2**f)`` modulo ``2**bits``. The number ``f`` of
    fraction bits is the largest for which the sum over all clients cannot wrap::

        n_clients * (bound * 2**f + 1/2) < 2**(bits - 1)

    Every client must use the same three parameters.

    Parameters
    ----------
    n_clients : int
        Number of clients whose values are summed.
    bound : float
        Largest magnitude that any client's values may have. Larger values are
        refused, never clipped.
    bits : {32, 64}, default=32
        Size of one number on the wire; 32 bits are no more bytes than float32.

    Attributes
    ----------
    fraction_bits : int
        The ``f`` above.
    dtype : numpy dtype
        Of the encoded values: unsigned, little-endian.
    error_bound : float
        ``n_clients * 2**-(f + 1)``, the most by which a decoded sum differs from the
        sum of the values. Sums of ``2**(53 - f)`` and more, which need ``bits=64``,
        are in addition rounded to the nearest float64.

    Raises
    ------
    ValueError
        If a parameter is out of range, or the bound leaves no fraction bits.

    See Also
    --------
    Masker : Adds masks to the encoded values.

    Examples
    --------
    >>> import numpy as np
    >>> from skvfl.privacy import FixedPoint
    >>> numbers = FixedPoint(3, bound=100)
    >>> numbers.fraction_bits, numbers.error_bound
    (22, 3.5762786865234375e-07)
    >>> total = sum(numbers.encode(np.array([v])) for v in (1.5, -20.25, 0.125))
    >>> numbers.decode(total)
    array([-18.625])
    """

    def __init__(self, n_clients: int, *, bound: float, bits: int = 32) -> None:
        n_clients = operator.index(n_clients)
        if n_clients < 1:
            raise ValueError(f"n_clients must be at least 1, got {n_clients}")
        if bits not in _RESIDUES:
            raise ValueError(f"bits must be 32 or 64, got {bits!r}")
        if not 0 < bound < float("inf"):
            raise ValueError(f"bound must be positive and finite, got {bound!r}")
        self.n_clients = n_clients
        self.bound = float(bound)
        self.bits = bits
        self.dtype = _RESIDUES[bits]
        self.fraction_bits = self._largest_fraction_bits()
        self._scale = 2.0**self.fraction_bits
        # A sum of squares that no value over the bound is a part of. It is at least as
        # large as the largest square, but for what rounding takes from that: a small
        # part, or all of one that is too small to be normal.
        self._harmless = 0.99 * self.bound**2 - 1e-37
        self.error_bound = n_clients / (2 * self._scale)

    def _largest_fraction_bits(self) -> int:
        # Exact fractions: a bit too many would let the sum of all clients wrap around.
        room = Fraction(2 ** (self.bits - 1), self.n_clients) - Fraction(1, 2)
        ratio = room / Fraction(self.bound)
        bits = ratio.numerator.bit_length() - ratio.denominator.bit_length()
        while Fraction(2) ** bits >= ratio:
            bits -= 1
        if bits < 0:
            cure = "a smaller bound" if self.bits == 64 else "bits=64"
            raise ValueError(
                f"bound={self.bound:g} for each of {self.n_clients} clients leaves no "
                f"fraction bits in {self.bits} bits: use {cure}"
            )
        # A power of two that is a finite float, whatever the bound.
        return min(bits, 1000)

    def encode(self, array: Any, what: str = "values") -> np.ndarray:
        """Values as integers modulo ``2**bits``.

        Parameters
        ----------
        array : array-like of numbers
            Of any shape.
        what : str, default="values"
            What an error message calls them.

        Returns
        -------
        encoded : ndarray
            A new array in C order, of type ``dtype`` and the same shape.

        Raises
        ------
        FixedPointRangeError
            If a value is not finite or larger than the bound. It is a
            :class:`ValueError` and an :class:`OverflowError`.
        """
        array = np.asarray(array)
        if array.dtype.kind not in "fiu":
            raise TypeError(f"{what} must be real numbers, got {array.dtype}")
        dtype = array.dtype
        # One product for most arrays, in place of a maximum and a minimum.
        if not (
            (dtype is _SINGLE or dtype is _DOUBLE)
            and float(np.vdot(array, array)) <= self._harmless
        ):
            self._check_range(array, what)
        # A power of two times a number is exact in single precision as well. Cast
        # first: a product that casts as it goes takes several times as long.
        exact = dtype is _SINGLE and self.fraction_bits <= _MOST_IN_SINGLE
        scaled = array.astype(_SINGLE if exact else _DOUBLE, order="C")
        scaled *= self._scale
        # Rounded to even, so that the errors of many clients do not add up to a bias.
        np.rint(scaled, out=scaled)
        # By way of signed integers, because casting a negative float to an unsigned one
        # is not defined.
        return scaled.astype(_INTEGERS[self.bits]).view(self.dtype)

    def decode(self, total: np.ndarray) -> np.ndarray:
        """Sum of encoded values as float64.

        Parameters
        ----------
        total : ndarray of type ``dtype``
            Sum modulo ``2**bits`` of what at most ``n_clients`` clients encoded.

        Returns
        -------
        decoded : ndarray of float64
        """
        if total.dtype != self.dtype:
            raise TypeError(f"expected an array of {self.dtype}, got {total.dtype}")
        # Cast first, as above.
        decoded = np.asarray(total).view(_INTEGERS[self.bits]).astype(_DOUBLE)
        decoded *= 1 / self._scale
        return decoded

    def _check_range(self, array: np.ndarray, what: str) -> None:
        if not array.size:
            return
        maximum = max(float(array.max()), -float(array.min()))
        # Written so that NaN is refused, too: every comparison with it is false.
        if not maximum <= self.bound:
            raise self._range_error(array, maximum, what)

    def _range_error(
        self, array: np.ndarray, maximum: float, what: str
    ) -> FixedPointRangeError:
        unusable = array.size - np.count_nonzero(np.isfinite(array))
        if unusable:
            return FixedPointRangeError(
                f"{what}: {unusable} of {array.size} are NaN or infinite; training "
                "diverged or the input holds such values (scale the inputs, or lower "
                "the learning rate)",
                float("nan"),
            )
        return FixedPointRangeError(
            f"{what}: {np.count_nonzero(abs(array) > self.bound)} of {array.size} are "
            f"over the declared bound of {self.bound:.6g}; declare a larger bound at "
            "every client (each doubling costs one fraction bit, and bits=64 has 32 "
            "more), or keep the values smaller (scale the inputs, regularise)",
            maximum,
        )

    def __repr__(self) -> str:
        return (
            f"FixedPoint(n_clients={self.n_clients}, bound={self.bound:g}, "
            f"bits={self.bits})"
        )
