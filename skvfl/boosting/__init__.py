"""Gradient-boosted trees of which every party makes the splits of its own columns."""
