"""What only this example can know, because it made all three tables.

Each company by itself, if it had the bank's labels, and the same methods as a
simulation: one process that has everybody's table.
"""

import json
import sys
from pathlib import Path

import pandas as pd
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline

from skvfl import VerticalPartitioner
from skvfl.alignment import align

folder = Path(sys.argv[1])
sys.path.insert(0, str(folder / "bank"))
from methods import METHODS, SEED

tables = {
    "bank": pd.read_csv(folder / "bank" / "bank.csv"),
    "telecom": pd.read_csv(folder / "telecom" / "telecom.csv"),
    "shop": pd.read_parquet(folder / "shop" / "shop.parquet"),
}
churn = tables["bank"].set_index("customer")["churn"]
tables["bank"] = tables["bank"].drop(columns="churn")
tables["telecom"] = tables["telecom"].drop(columns="home_address")
aligned = align(tables, on="customer", active="bank", keep="intersection")
labels = churn.loc[aligned.ids]
train, test, y_train, y_test = train_test_split(
    aligned.table, labels, test_size=0.3, random_state=SEED
)


def score(model):
    model.fit(train, y_train)
    return roc_auc_score(y_test == "yes", model.predict_proba(test)[:, 1])


def alone(name):
    own = VerticalPartitioner(parties={name: aligned.parties[name]}, remainder="drop")
    return make_pipeline(own, LogisticRegression(max_iter=1000))


apart = json.loads((folder / "bank" / "scores.json").read_text())
print("area under the ROC curve, customers held out")
for name in aligned.parties:
    whose = "" if name == "bank" else " (if it were given the bank's labels)"
    print(f"  {name + ' alone':30} {score(alone(name)):.3f}{whose}")
for name, method in METHODS.items():
    simulated = clone(method).set_params(parties=aligned.parties, active="bank")
    print(f"  {name + ', simulation':30} {score(simulated):.3f}")
    print(f"  {name + ', between organisations':30} {apart[name]:.3f}")
