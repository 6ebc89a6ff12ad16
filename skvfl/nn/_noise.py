"""Normal noise, rounded, whose numbers depend on no machine."""

from __future__ import annotations

from functools import cache, cached_property
from math import sqrt

import numpy as np
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from skvfl.privacy._accounting import _import

_HALF = np.uint64(2**63 - 1)
_SIGN = np.uint64(2**63)
# The bits of a half that fit into double precision: none is rounded up.
_EXACT = np.uint64(2**63 - 2**10)
# Where a quadratic stands for quantiles: halves from 2^55 to 2^63, in 2^8 pieces for
# every power of two.
_PIECES_BITS = 8
_FIRST = 2.0**55
_PIECES_MASK = (8 << _PIECES_BITS) - 1


class _KeyStream:
    """Random words from the key stream of AES-256 in counter mode."""

    def __init__(self, key):
        cipher = Cipher(algorithms.AES(key), modes.CTR(bytes(16)))
        self._encryptor = cipher.encryptor()

    def words(self, size):
        # Zeros that are encrypted are the key stream itself.
        words = np.empty(size, np.uint64)
        self._encryptor.update_into(bytes(words.nbytes), memoryview(words).cast("B"))
        return words


@cache
def _quadratics():
    """Coefficients of quantiles of the lower tail, as quadratics of 2^64 times it.

    Each goes through the quantiles at the Chebyshev nodes of its piece, and is off by
    less than 2^-31.

    Returns
    -------
    coefficients : ndarray of shape (3, 8 * 2**_PIECES_BITS)
        The highest first; the last bits of the exponent and the first ones of the
        fraction of a number say which.
    """
    # Exponents of doubles are written with 1023 added.
    bits = np.arange((1023 + 55) << _PIECES_BITS, ((1023 + 63) << _PIECES_BITS) + 1)
    edges = (bits << 52 - _PIECES_BITS).view(np.float64)
    middle, step = (edges[1:] + edges[:-1]) / 2, np.diff(edges) * (sqrt(3) / 4)
    nodes = torch.from_numpy(np.stack([middle - step, middle, middle + step]))
    low, mean, high = torch.special.ndtri(nodes * 2.0**-64).numpy()
    second = (low + high - 2 * mean) / (2 * step**2)
    slope = (high - low) / (2 * step) - 2 * second * middle
    constant = mean - (slope + second * middle) * middle
    coefficients = np.empty((3, len(middle)))
    coefficients[:, bits[:-1] & _PIECES_MASK] = second, slope, constant
    return coefficients


class Noise:
    """Rounded normal numbers from two key streams."""

    # Quantiles from quadratics are trusted to this accuracy; they take a third of the
    # time. For one number in some hundreds this is not enough. They are off by 2^-31.7
    # at most; the bits that are dropped and the scale add less than 2^-46.
    _ROUGHLY = 2.0**-31
    # Quantiles in double precision are trusted to this accuracy and no further out.
    # Their error is below 2^-48; the rest is for a library that is less careful. So
    # whose quantiles they are (torch's are the faster ones) shows in no number.
    _ACCURACY = 2.0**-42
    _FARTHEST = 5.0
    _MORE_BITS = 128
    # Small networks ask for few numbers: those of several steps are drawn at once, so
    # many as stay in a processor's own memory while they are worked on. A draw of few
    # costs as many calls as one of many.
    _AT_ONCE, _STEPS_AT_ONCE = 2**15, 8

    def __init__(self, sequence):
        keys = sequence.generate_state(8, np.uint64).astype("<u8").tobytes()
        self._words = _KeyStream(keys[:32])
        self._more_words = _KeyStream(keys[32:])
        self._asked = None

    def normal(self, size, scale):
        """Independent normal numbers of this standard deviation, rounded.

        Each follows from a sign and a uniform number below 1/2, of which 63 bits are
        drawn. A quadratic says which whole number is nearest, unless two are nearly
        equally near; then double precision does, or, where they are nearer still, more
        bits and long arithmetic. So the numbers do not depend on the machine, and have
        the probabilities of rounded normal ones up to a total variation below 2^-150
        each: the bits that are never drawn matter where one of less than 2^30
        boundaries lies between two uniform numbers of 192 bits. In any run that can be
        run this is far less than the last digit of δ.
        """
        if not scale:
            return np.zeros(size)
        if self._asked != (size, scale):
            self._asked, self._ahead = (size, scale), []
            self._quadratics = _quadratics() * -scale
        if not self._ahead:
            times = min(self._AT_ONCE // max(1, size), self._STEPS_AT_ONCE) or 1
            numbers = self._draw(times * size, scale).reshape(times, size)
            self._ahead = [*numbers[::-1]]
        return self._ahead.pop()

    def _draw(self, size, scale):
        words = self._words.words(size)
        # The sign has a bit of its own, so that only the lower tail is computed, where
        # double precision is as fine as the numbers are small.
        halves = (words & _EXACT).view(np.int64).astype(np.float64)
        pieces = halves.view(np.int64) >> 52 - _PIECES_BITS
        pieces &= _PIECES_MASK
        second, slope, constant = self._quadratics
        scaled = second.take(pieces)
        scaled *= halves
        scaled += slope.take(pieces)
        scaled *= halves
        scaled += constant.take(pieces)
        numbers = np.rint(scaled)
        scaled -= numbers
        np.abs(scaled, out=scaled)
        unsure = scaled > 0.5 - scale * self._ROUGHLY
        unsure |= halves < _FIRST
        places = np.flatnonzero(unsure)
        numbers[places] = self._rounded(words[places] & _HALF, scale)
        words &= _SIGN
        bits = numbers.view(np.uint64)
        bits |= words
        return numbers

    def _rounded(self, halves, scale):
        """The numbers whose uniform ones begin with these 63 bits."""
        uniform = halves.view(np.int64).astype(np.float64)
        uniform += 0.5
        uniform *= 2.0**-64
        quantiles = torch.special.ndtri(torch.from_numpy(uniform)).numpy()
        scaled = quantiles * -scale
        numbers = np.rint(scaled)
        unsure = np.abs(scaled - numbers) > 0.5 - scale * self._ACCURACY
        unsure |= quantiles < -self._FARTHEST
        for place in np.flatnonzero(unsure):
            numbers[place] = self._settle(int(halves[place]), scale)
        return numbers

    @cached_property
    def _long(self):
        """A context of its own, because guests draw in threads; slow to make."""
        context = _import("mpmath").mp.clone()
        context.prec = 2 * (64 + self._MORE_BITS)
        return context

    def _settle(self, half, scale):
        """The number whose uniform one begins with these 63 bits."""
        long = self._long
        more = int.from_bytes(self._more_words.words(self._MORE_BITS // 64), "little")
        uniform = long.mpf(2 * ((half << self._MORE_BITS) + more) + 1)
        uniform = long.ldexp(uniform, -65 - self._MORE_BITS)

        def beyond(number):
            return long.ncdf(-(long.mpf(number) + 0.5) / scale)

        start = torch.tensor(float(uniform), dtype=torch.float64)
        number = round(-torch.special.ndtri(start).item() * scale)
        while uniform < beyond(number):
            number += 1
        while number and uniform >= beyond(number - 1):
            number -= 1
        return number
