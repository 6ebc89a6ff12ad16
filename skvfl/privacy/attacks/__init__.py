"""Attacks on what roles see."""
