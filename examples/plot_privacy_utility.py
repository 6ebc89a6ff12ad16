"""
What does a defence cost?
=========================

Noise on what crosses makes it harder to work out columns, and costs accuracy. How much
of each can be measured: utility and leakage are two columns of one search, and one
picture shows which settings no other one beats.
"""

# %%
# The hospital has labels and ten columns, the laboratory ten others. They train by
# split learning, so the hospital receives the laboratory's activations of every row.
# Suppose that it knows the laboratory's columns of 60 patients. What can it work out
# about the others?

import matplotlib.pyplot as plt
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedShuffleSplit

from skvfl import GaussianProjection, RandomProjectionVFL, SplitNNClassifier
from skvfl.privacy import PrivacyUtilityDisplay, make_leakage_scorer, privacy_report
from skvfl.privacy.attacks import InversionAttack, KnownRowsAttack, MomentsAttack

X, y = load_breast_cancer(return_X_y=True, as_frame=True)
X = X.iloc[:, :20]
parties = {"hospital": [*X.columns[:10]], "laboratory": [*X.columns[10:]]}
knows_60 = InversionAttack(known_rows=60)
leakage = make_leakage_scorer(
    knows_60, role="hospital", party="laboratory", n_repeats=2
)

# %%
# Three defences in one search: activations that are shortened to length 1, with more
# and more noise; noise without shortening; and narrower cut layers. A leakage of 1 is
# an exact reconstruction, and 0 no better than the mean of the 60 patients.

split = SplitNNClassifier(parties=parties, max_epochs=20, lr=0.01, random_state=0)
shortened = {
    "max_representation_norm": [1.0],
    "representation_noise": [0.0, 0.1, 0.3, 1.0],
}
noisy = {"representation_noise": [0.3, 1.0, 3.0]}
narrow = {"cut_width": [1, 2, 8, 32]}
search = GridSearchCV(
    split,
    [shortened, noisy, narrow],
    scoring={"score": "accuracy", "leakage": leakage},
    refit="score",
    cv=StratifiedShuffleSplit(2, test_size=0.5, random_state=0),
).fit(X, y)
display = PrivacyUtilityDisplay.from_cv_results(search.cv_results_)

# %%
# The grey line joins the settings that no other one beats. Everything below and to the
# right of it costs accuracy, or shows columns, for nothing:

print("\n".join(display.frontier_))

# %%
# Does the attacker matter?
# -------------------------
# It does. The kind of the secret matrix of random projection makes no difference to a
# server that knows enough rows, and all the difference to one that knows correlations,
# or that knows a few patients and not which rows are theirs: an orthogonal matrix keeps
# the lengths of rows, by which they are found.

kinds = {
    kind: RandomProjectionVFL(
        LogisticRegression(max_iter=1000),
        parties=parties,
        projection=GaussianProjection(kind=kind),
        random_state=0,
    )
    for kind in ("orthogonal", "conditioned", "gaussian")
}
attackers = {
    "knows 30 rows": KnownRowsAttack(known_rows=30),
    "knows correlations": MomentsAttack(moments=True),
    "knows 9 rows, not which": KnownRowsAttack(known_rows=9, matched=False),
}
figure, axes = plt.subplots(1, 3, figsize=(15, 4), layout="constrained")
for (name, attack), ax in zip(attackers.items(), axes, strict=True):
    scorer = make_leakage_scorer(attack, role="server", party="laboratory")
    PrivacyUtilityDisplay.from_estimators(kinds, X, y, leakage=scorer, cv=2, ax=ax)
    ax.set_title(name)

# %%
# All attacks at once
# -------------------
# A report lets every attack loose that suits a method, on everybody who takes part.

report = privacy_report(search.best_estimator_, X, y, n_repeats=2)
print(report)
