"""Small attacks that do not depend on the package's own."""

import numpy as np

from skvfl.privacy.attacks import Attack


class LeastSquares(Attack):
    """Columns as a linear map of the last matrix that one sender sent."""

    target = "columns"

    def __init__(self, *, known_rows=None, sender=None):
        self.known_rows = known_rows
        self.sender = sender

    def fit(self, view):
        received = view.matrix(sender=self.sender)
        rows, values = self._known()
        inputs = np.column_stack([received.values, np.ones(len(received.values))])
        inputs = np.nan_to_num(inputs)
        weights, *_ = np.linalg.lstsq(inputs[rows], values, rcond=1e-6)
        self.guess_ = inputs @ weights
        return self

    def reconstruct(self):
        return self.guess_


class Labels(Attack):
    """Labels as the sign of the first number that somebody received."""

    target = "labels"

    def fit(self, view):
        numbers = np.nan_to_num(view.matrix(operation="backward").values)
        # Turned so that the rarer sign is the rarer class.
        self.guess_ = (numbers[:, 0] > 0).astype(int)
        return self

    def reconstruct(self):
        return self.guess_
