"""Attacks on what roles of a run have seen, each with its side knowledge."""

from skvfl.privacy.attacks._aliases import AliasAttack
from skvfl.privacy.attacks._base import Attack
<<<<<<< HEAD
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
=======
from skvfl.privacy.attacks._masks import HyperplaneAttack
from skvfl.privacy.attacks._projection import (
    FrequencyAttack,
    IndependentComponentsAttack,
    KnownRowsAttack,
    MomentsAttack,
)
from skvfl.privacy.attacks._ranks import RankAttack
from skvfl.privacy.attacks._secure import (
    ClusterGradientAttack,
    CollusionAttack,
    RoundDifferenceAttack,
    UniformityAttack,
)

__all__ = [
    "AliasAttack",
    "Attack",
    "ClusterGradientAttack",
    "CollusionAttack",
    "FrequencyAttack",
    "HyperplaneAttack",
    "IndependentComponentsAttack",
    "KnownRowsAttack",
    "MomentsAttack",
    "RankAttack",
    "RoundDifferenceAttack",
    "UniformityAttack",
>>>>>>> lab
]
