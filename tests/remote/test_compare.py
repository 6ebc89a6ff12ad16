"""`compare` between organisations: what can be known without pooling tables."""

import pytest
from _partners import partners, split_table
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import ShuffleSplit

from skvfl import FedOnceClassifier, RandomProjectionVFL, compare, connect

N_OWN = 4
ONCE = ShuffleSplit(1, test_size=0.3, random_state=0)


@pytest.fixture(scope="module")
def apart(tmp_path_factory):
    X, y = load_breast_cancer(return_X_y=True)
    bank, table = split_table(X, N_OWN)
    with partners(tmp_path_factory.mktemp("compare"), {"shop": table}) as path:
        yield connect(path, ids="customer"), bank, X, y


@pytest.mark.parametrize("active", ["bank", 0])
def test_the_bank_alone_and_each_method_stand_beside_each_other(apart, active):
    link, bank, X, y = apart
    model = LogisticRegression(max_iter=1000)
    methods = {
        "RAP": RandomProjectionVFL(model),
        "FedOnce": FedOnceClassifier(max_epochs=2),
    }
    given = {"baseline": model, "cv": ONCE, "random_state": 0, "active": active}
    with pytest.warns(UserWarning, match="no row 'centralised'.*elsewhere"):
        frame = compare(methods, bank, y, parties=link, **given)
    # Nobody can pool the columns, or try what the shop would do with the labels.
    assert list(frame.index) == ["bank alone", "RAP", "FedOnce"]
    assert list(frame["shares"]) == ["nothing", "messages", "messages"]
    assert frame.loc["bank alone", "bytes"] == 0
    assert (frame.loc[["RAP", "FedOnce"], "bytes"] > 5_000).all()
    # Ids are no feature of the bank's own model either.
    alone = compare(
        {"RAP": RandomProjectionVFL(model)},
        X,
        y,
        parties={"bank": slice(0, N_OWN), "shop": slice(N_OWN, None)},
        **given | {"active": "bank"},
    )
    assert frame.loc["bank alone", "score"] == alone.loc["bank alone", "score"]


def test_no_simulation_is_taken_for_partners(apart):
    link, bank, _, y = apart
    method = FedOnceClassifier(parties=link, max_epochs=2)
    with pytest.warns(UserWarning, match="elsewhere"):
        frame = compare(method, bank, y, cv=ONCE)
    # It asked the partner, although compare was told of no parties.
    assert frame.loc["FedOnceClassifier", "bytes"] > 5_000
    with pytest.raises(ValueError, match="parties"):
        compare(method, bank, y, parties=2)
