"""Data sets with the columns that each party holds."""

from skvfl.datasets._companies import make_two_companies
from skvfl.datasets._local import available, load

__all__ = ["available", "load", "make_two_companies"]
