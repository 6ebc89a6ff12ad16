"""The bank's side: train with the telecom and the shop, and keep the model."""

import json

import joblib
import pandas as pd
from methods import METHODS, SEED
from sklearn.base import clone
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split

from skvfl import RandomProjectionVFL, connect
from skvfl.exceptions import RefusedError

bank = pd.read_csv("bank.csv")
link = connect("bank.toml")

# Which customers do the others have as well? The ids are compared without showing them.
held = link.held(bank)
shared = held["telecom"] & held["shop"]
print(f"{len(bank)} customers, {shared.sum()} of them at the telecom and the shop, too")
bank = bank[shared].reset_index(drop=True)
churn = bank.pop("churn")
bank_train, bank_test, churn_train, churn_test = train_test_split(
    bank, churn, test_size=0.3, random_state=SEED
)

scores = {}
for name, method in METHODS.items():
    model = clone(method).set_params(parties=link, active="bank")
    model.fit(bank_train, churn_train)
    likely = model.predict_proba(bank_test)[:, 1]
    scores[name] = roc_auc_score(churn_test == "yes", likely)
    log = model.communication_
    print(f"{name}: {log.n_rounds} rounds, {log.n_bytes / 1e6:.2f} MB")
    if name == "FedOnce":
        joblib.dump(model, "model.joblib")
        bank_test.assign(expected=likely).to_csv("expected.csv", index=False)

try:
    RandomProjectionVFL(parties=link, active="bank").fit(bank_train, churn_train)
except RefusedError as error:
    print(f"asked for more than is allowed: {error}")

with open("scores.json", "w") as file:
    json.dump(scores, file)
