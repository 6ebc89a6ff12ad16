"""The bank's side on another day: load the model, and predict in a fresh process."""

import joblib
import numpy as np
import pandas as pd

model = joblib.load("model.joblib")
bank = pd.read_csv("expected.csv")
expected = bank.pop("expected")
likely = model.predict_proba(bank)[:, 1]
assert np.array_equal(likely, expected), "the model answers as it did when it was new"
print(f"{len(bank)} customers predicted, {(likely > 0.5).sum()} of them will leave")
