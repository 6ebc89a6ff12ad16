"""Secure sums between organisations, and the accounts of differential privacy."""

from skvfl.privacy._accounting import (
    PrivacySpent,
    SampledGaussian,
    account_privacy,
    calibrate_noise,
)
from skvfl.privacy._display import PrivacyUtilityDisplay
from skvfl.privacy._errors import FixedPointRangeError, SecureAggregationError
from skvfl.privacy._fixed_point import FixedPoint
from skvfl.privacy._keys import KeyRing
from skvfl.privacy._masks import MASK_FORWARD, MASK_GRADIENT, Aggregator, Masker
from skvfl.privacy._recording import record_views
from skvfl.privacy._report import PrivacyReport, privacy_report
from skvfl.privacy._scorer import make_leakage_scorer
from skvfl.privacy._sealed_ids import open_ids, seal_ids, sealed_length
from skvfl.privacy._secure_aggregator import SecureAggregator
from skvfl.privacy._views import Matrix, Seen, View, Views

__all__ = [
    "MASK_FORWARD",
    "MASK_GRADIENT",
    "Aggregator",
    "FixedPoint",
    "FixedPointRangeError",
    "KeyRing",
    "Masker",
    "Matrix",
    "PrivacyReport",
    "PrivacySpent",
    "PrivacyUtilityDisplay",
    "SampledGaussian",
    "SecureAggregationError",
    "SecureAggregator",
    "Seen",
    "View",
    "Views",
    "account_privacy",
    "calibrate_noise",
    "make_leakage_scorer",
    "open_ids",
    "privacy_report",
    "record_views",
    "seal_ids",
    "sealed_length",
]
