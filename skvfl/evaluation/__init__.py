"""Federated methods beside what could be done without them."""

from skvfl.evaluation._compare import compare
from skvfl.evaluation._curves import LossCurveDisplay
from skvfl.evaluation._defaults import all_methods
from skvfl.evaluation._display import ComparisonDisplay

__all__ = ["ComparisonDisplay", "LossCurveDisplay", "all_methods", "compare"]
