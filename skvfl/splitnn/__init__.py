"""SplitNN: split learning, the baseline."""
