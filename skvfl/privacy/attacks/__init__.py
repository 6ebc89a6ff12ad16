"""Attacks on what roles of a run have seen, each with its side knowledge."""

from skvfl.privacy.attacks._base import Attack
from skvfl.privacy.attacks._gradients import (
    GradientDirectionAttack,
    GradientNormAttack,
    ModelCompletionAttack,
)
from skvfl.privacy.attacks._membership import LossThresholdAttack, ShadowModelAttack
from skvfl.privacy.attacks._representations import (
    AttributeInferenceAttack,
    EqualRowsAttack,
    InversionAttack,
)

__all__ = [
    "Attack",
    "AttributeInferenceAttack",
    "EqualRowsAttack",
    "GradientDirectionAttack",
    "GradientNormAttack",
    "InversionAttack",
    "LossThresholdAttack",
    "ModelCompletionAttack",
    "ShadowModelAttack",
]
