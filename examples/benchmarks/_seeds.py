"""What seeds can tell: means, errors and intervals over them."""

import numpy as np
from scipy import stats


def standard_error(values):
    """Standard error of the mean."""
    return float(np.std(values, ddof=1) / len(values) ** 0.5)


def half_interval(values):
    """Half the width of the mean's 95 % interval (Student's t)."""
    return standard_error(values) * float(stats.t.ppf(0.975, len(values) - 1))
