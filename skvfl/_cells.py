"""Checks of tables whose errors do not quote what is in a cell."""

from __future__ import annotations

from skvfl.partition._columns import refuse_masked


def unquoted(check, *args, name="X", **settings):
    """What a check of scikit-learn's returns, or its error without any cell.

    numpy quotes the text that is no number, and scikit-learn prints a whole array of
    complex numbers or of one dimension.

    Parameters
    ----------
    check : callable
        Such as ``check_array``.
    *args, **settings
        Of the check.
    name : str, default="X"
        What an error message calls the array.

    Raises
    ------
    ValueError, TypeError, OverflowError
        As the check raises them, with neither cause nor context; also for a masked
        array, whose mask the check would drop.
    """
    for array in args:
        refuse_masked(array, name)
    try:
        return check(*args, **settings)
    except (ValueError, TypeError, OverflowError) as exc:
        for mark, message in _REWORDED.items():
            if mark in str(exc):
                exc.args = (f"{name} {message}",)
        exc.__cause__ = exc.__context__ = None
        raise


_REWORDED = {
    "could not convert": (
        "holds text where numbers are due: convert it, or let PartyPreprocessor read it"
    ),
    "Expected 2D array": (
        "is no table: Expected 2D array. Reshape your data to (n_samples, n_features)"
    ),
    "Complex data not supported": (
        "holds complex numbers. Complex data not supported: give the real and the "
        "imaginary parts as columns of their own"
    ),
}
