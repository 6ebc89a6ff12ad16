"""Over a federation the active party's secrets follow from no seed."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import skvfl
from skvfl.federation import Federation, Member, Transport

X = np.random.default_rng(0).normal(size=(40, 4))
Y = (X[:, 0] > 0).astype(int)
CASES = {
    "RAP": skvfl.RandomProjectionVFL(LogisticRegression()),
    "SplitNN": skvfl.SplitNNClassifier(label_epsilon=1.0, gradient_noise=0.1),
    "FedOnce": skvfl.FedOnceClassifier(),
    "APC-VFL": skvfl.APCVFLClassifier(),
    "vFedSec": skvfl.VFedSecClassifier(),
    "TabVFL": skvfl.TabVFLClassifier(label_epsilon=1.0),
    "boosting": skvfl.VFLBoostingClassifier(label_epsilon=1.0),
}


class Reached(Exception):
    """A session was about to be opened, and members were made."""


class Nowhere(Transport):
    def connect(self, parties, log, centre="server", *, names=None):
        raise Reached


class NowhereApart(Nowhere, Federation):
    names = ("bank", "shop")


def words_of(estimator, monkeypatch, **params):
    """Words of all streams that members at home are dealt in a fit."""
    words = set()

    def note(member):
        streams = (member.streams or {}).values()
        words.update(tuple(each.generate_state(4)) for each in streams)

    monkeypatch.setattr(Member, "__post_init__", note)
    with pytest.raises(Reached):
        estimator.set_params(active="bank", **params).fit(X, Y)
    return words


@pytest.mark.parametrize("deals", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_who_guesses_the_seed_has_no_stream_of_the_active_party(
    name, deals, monkeypatch
):
    together = {"bank": slice(0, 2), "shop": slice(2, 4)}
    guess = CASES[name].set_params(random_state=0)
    guessed = words_of(guess, monkeypatch, parties=together, transport=Nowhere())
    elsewhere = NowhereApart()
    elsewhere.deals_secrets = deals
    given = {"parties": elsewhere, "transport": "local"}
    drawn = words_of(CASES[name], monkeypatch, **given)
    assert len(drawn) >= 2
    # As in a simulation they would be those of the seed, all of them.
    assert (drawn <= guessed) if deals else not (drawn & guessed)
    if not deals:
        assert not drawn & words_of(CASES[name], monkeypatch, **given)
