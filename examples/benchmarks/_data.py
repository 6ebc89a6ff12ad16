"""Data sets and columns as the scripts take them."""

import os
from pathlib import Path

import numpy as np
from sklearn.model_selection import train_test_split


def folder():
    """Return the folder of the data sets."""
    return Path(os.environ["SKVFL_DATA"])


def halves(X, y, seed, test_size=0.3):
    """Split by class: columns to train and to test on, then the labels."""
    return train_test_split(X, y, test_size=test_size, stratify=y, random_state=seed)


def draw(rows, y, test_size, seed, classes):
    """Split the numbers of rows, by class if there are any."""
    by = y[rows] if classes else None
    return train_test_split(rows, test_size=test_size, stratify=by, random_state=seed)


def prepared(partition, X):
    """Return every party's columns as its fitted transformer makes them, by name."""
    return {
        name: np.asarray(partition.transformers_[name].transform(block), np.float32)
        for name, block in partition.split(X).items()
    }
