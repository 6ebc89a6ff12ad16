"""
Fraud: rare positives and a threshold
=====================================

One payment in thirty is fraud. Accuracy says nothing then, and the threshold of one
half is the wrong one. scikit-learn's tools for such tables work around a federated
estimator as around any other.
"""

# %%
# A bank knows which payments were fraud, and a shop knows what was bought.

import matplotlib.pyplot as plt
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import PrecisionRecallDisplay, make_scorer
from sklearn.model_selection import (
    StratifiedKFold,
    TunedThresholdClassifierCV,
    cross_val_score,
    train_test_split,
)

from skvfl import FedOnceClassifier, RandomFeaturesEncoder

X, y = make_classification(
    6_000,
    16,
    n_informative=10,
    weights=[0.97],
    flip_y=0.005,
    class_sep=1.2,
    shuffle=False,
    random_state=0,
)
parties = {"bank": range(5), "shop": range(5, 16)}
X_train, X_test, y_train, y_test = train_test_split(X, y, stratify=y, random_state=0)
print(f"{y.mean():.1%} of the payments are fraud")

vfl = FedOnceClassifier(
    parties=parties,
    local_encoder=RandomFeaturesEncoder(32),
    max_epochs=20,
    random_state=0,
)
alone = LogisticRegression(max_iter=1_000)

# %%
# Average precision asks how well fraud is ranked, whatever the threshold.

folds = StratifiedKFold(3, shuffle=True, random_state=0)
for label, model, table in (
    ("the bank alone", alone, X_train[:, :5]),
    ("with the shop", vfl, X_train),
):
    scores = cross_val_score(
        model, table, y_train, cv=folds, scoring="average_precision"
    )
    print(f"{label:15} average precision {scores.mean():.2f} ± {scores.std():.2f}")

# %%
# A threshold for a price
# -----------------------
# A missed fraud costs 100, a call to the customer 5.


def saved(y_true, y_pred):
    """What the calls save, per payment."""
    return (100 * (y_true * y_pred).sum() - 5 * y_pred.sum()) / len(y_true)


tuned = TunedThresholdClassifierCV(
    vfl, scoring=make_scorer(saved), cv=folds, random_state=0
).fit(X_train, y_train)
plain = tuned.estimator_
print(f"threshold {tuned.best_threshold_:.2f}")
print(f"saved per payment at one half {saved(y_test, plain.predict(X_test)):.2f}")
print(f"saved per payment, tuned      {saved(y_test, tuned.predict(X_test)):.2f}")

figure, ax = plt.subplots(layout="constrained")
PrecisionRecallDisplay.from_estimator(plain, X_test, y_test, name="together", ax=ax)
alone.fit(X_train[:, :5], y_train)
PrecisionRecallDisplay.from_estimator(
    alone, X_test[:, :5], y_test, name="the bank alone", ax=ax
)

# %%
# The threshold was found on held-out rows of the training table and is the bank's: it
# never crosses. ``class_weight="balanced"`` is the other way to the same end: it moves
# the probabilities instead of the threshold.
