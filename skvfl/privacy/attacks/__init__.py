"""Attacks on what a role of a run has seen, each with its side knowledge."""

from skvfl.privacy.attacks._base import Attack

__all__ = ["Attack"]
