"""Secure sums between organisations: keys, masks and sealed row ids."""

from skvfl.privacy._errors import FixedPointRangeError, SecureAggregationError
from skvfl.privacy._fixed_point import FixedPoint
from skvfl.privacy._keys import KeyRing
from skvfl.privacy._masks import MASK_FORWARD, MASK_GRADIENT, Aggregator, Masker
from skvfl.privacy._sealed_ids import open_ids, seal_ids, sealed_length
from skvfl.privacy._secure_aggregator import SecureAggregator

__all__ = [
    "MASK_FORWARD",
    "MASK_GRADIENT",
    "Aggregator",
    "FixedPoint",
    "FixedPointRangeError",
    "KeyRing",
    "Masker",
    "SecureAggregationError",
    "SecureAggregator",
    "open_ids",
    "seal_ids",
    "sealed_length",
]
