import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression, Ridge

from skvfl import RandomProjectionVFL
from skvfl.exceptions import PartyError
from skvfl.federation import (
    CommunicationLog,
    Holding,
    Labels,
    LocalTransport,
    Member,
)
from skvfl.rap._parties import ClassAliases, PseudoTarget

seeds = st.integers(0, 2**32)


@given(n_classes=st.integers(2, 12), seed=seeds, protect=st.booleans())
def test_aliases_are_decoded(n_classes, seed, protect):
    rng = np.random.default_rng(seed)
    aliases = ClassAliases(n_classes, rng, protect)
    codes = rng.integers(n_classes, size=200)
    sent = aliases.protect(codes, rng)
    assert sent.max() < n_classes * (2 if protect else 1)
    np.testing.assert_array_equal(aliases.recover_codes(sent), codes)
    for alias in np.unique(sent):
        assert len(np.unique(codes[sent == alias])) == 1


def test_aliases_of_a_class_are_drawn_with_equal_probability():
    rng = np.random.default_rng(0)
    sent = ClassAliases(3, rng, True).protect(np.full(4000, 1), rng)
    counts = np.unique(sent, return_counts=True)[1]
    assert len(counts) == 2
    assert stats.binomtest(int(counts[0]), 4000).pvalue > 1e-3


def test_which_aliases_belong_together_is_random():
    pairs = {
        tuple(sorted(ClassAliases(2, np.random.default_rng(s), True)._aliases[0]))
        for s in range(200)
    }
    assert len(pairs) == 6


def test_scores_of_unseen_aliases_count_nothing():
    aliases = ClassAliases(2, np.random.default_rng(0), True)
    first, second = aliases._aliases
    scores = np.array([[0.2, 0.5, 0.3], [0.6, 0.1, 0.3]])
    seen = np.array([first[0], second[0], second[1]])
    expected = [[0.2, 0.8], [0.6, 0.4]]
    np.testing.assert_allclose(aliases.recover_scores(scores, seen), expected)
    best = [[0.2, 0.5], [0.6, 0.3]]
    np.testing.assert_allclose(aliases.recover_best(scores, seen), best)


@given(seed=seeds, protect=st.booleans(), scale=st.floats(1e-3, 1e6))
def test_target_is_recovered(seed, protect, scale):
    rng = np.random.default_rng(seed)
    target = rng.normal(5, 1, 100) * scale
    pseudo = PseudoTarget(target, rng, protect)
    sent = pseudo.protect(target, rng)
    assert sent.shape == (100, 2 if protect else 1)
    np.testing.assert_allclose(pseudo.recover(sent), target, rtol=1e-9)


@given(seed=seeds)
def test_decoding_never_magnifies_the_servers_error(seed):
    rng = np.random.default_rng(seed)
    target = rng.normal(size=50)
    pseudo = PseudoTarget(target, rng, True)
    error = rng.normal(size=(50, 2))
    sent = pseudo.protect(target, rng)
    decoded = (pseudo.recover(sent + error) - pseudo.recover(sent)) / target.std()
    assert np.linalg.norm(decoded) <= np.linalg.norm(error) + 1e-9


def test_constant_target_is_survived():
    rng = np.random.default_rng(0)
    target = np.full(20, 3.0)
    pseudo = PseudoTarget(target, rng, True)
    np.testing.assert_allclose(pseudo.recover(pseudo.protect(target, rng)), target)


class Listening(LocalTransport):
    """Keeps what the server receives, and may ask for it a second time."""

    def __init__(self, ask_again=False):
        self.ask_again = ask_again
        self.received = {}

    def connect(self, parties, log, centre="server"):
        session = super().connect(parties, log, centre)
        call = session.call

        def listen(operation, **arguments):
            self.received[operation] = call(operation, **arguments)
            if operation == "protect_labels" and self.ask_again:
                call(operation, **arguments)
            return self.received[operation]

        session.call = listen
        return session


def pairs_by_means(columns, aliases):
    """The alias whose rows have the nearest mean, for every alias."""
    means = np.array([columns[aliases == a].mean(axis=0) for a in range(20)])
    distances = ((means[:, None] - means[None]) ** 2).sum(axis=-1)
    np.fill_diagonal(distances, np.inf)
    return distances.argmin(axis=1)


def test_a_server_pairs_the_aliases_of_a_class_as_documented():
    X, y = load_digits(return_X_y=True)
    model = LogisticRegression(max_iter=2)
    shuffled = np.random.default_rng(0).permutation(y)
    found = []
    for labels in (y, shuffled):
        transport = Listening()
        vfl = RandomProjectionVFL(model, transport=transport, random_state=0)
        vfl.fit(X, labels)
        columns = np.hstack(list(transport.received["fit_transform"].values()))
        aliases = transport.received["protect_labels"]["party0"]["labels"]
        classes = np.array([labels[aliases == a][0] for a in range(20)])
        found.append((classes[pairs_by_means(columns, aliases)] == classes).mean())
    assert found[0] == 1
    assert found[1] < 0.3


@pytest.mark.parametrize("protect", [True, False])
@pytest.mark.parametrize("model", [LogisticRegression(), Ridge()], ids=repr)
def test_a_server_that_asks_for_labels_twice_is_refused(model, protect):
    X, y = load_digits(return_X_y=True)
    vfl = RandomProjectionVFL(
        model,
        transport=Listening(ask_again=True),
        label_protection=protect,
        random_state=0,
    )
    with pytest.raises(PartyError, match="'party0': it has given its labels already"):
        vfl.fit(X, y)
    vfl.set_params(transport=Listening()).fit(X, y)


LABELS = {
    "classes": Labels(np.arange(10) % 2, 2),
    "target": Labels(np.arange(10.0)),
}
ROLE = {"role": "rap.owner", "settings": {"label_protection": True}}
each_kind = pytest.mark.parametrize("kind", LABELS)


def owner(kind, **params):
    holding = Holding(np.random.default_rng(0).normal(size=(10, 3)))
    holding.labels = LABELS[kind]
    return Member("bank", holding, **params)


@each_kind
def test_a_label_owner_answers_once_in_all_runs(kind):
    fitted = None
    for run in range(2):
        member = owner(kind, fitted=fitted)
        with LocalTransport().connect([member], CommunicationLog()) as session:
            session.open({"bank": {"role": None} if run else ROLE})
            if run:
                with pytest.raises(PartyError, match="fit again to train on other"):
                    session.ask("bank", "protect_labels")
            else:
                assert len(session.ask("bank", "protect_labels")["labels"]) == 10
        fitted = session.parties.get("bank")


@each_kind
def test_a_run_that_is_opened_again_is_no_second_draw(kind):
    """A member draws anew for every party that it makes."""
    draws = []
    for _ in range(2):
        member = owner(kind)
        member.perform("open", ROLE)
        draws.append(member.perform("protect_labels", {})["labels"])
    assert not np.array_equal(*draws)
    for opening in (ROLE, ROLE | {"settings": {"label_protection": False}}):
        with pytest.raises(PartyError, match=r"'bank': .*open already"):
            member.perform("open", opening)


@each_kind
def test_operations_out_of_order_say_what_comes_first(kind):
    member = owner(kind)
    member.perform("open", ROLE)
    decode = "recover_codes" if kind == "classes" else "recover_target"
    with pytest.raises(PartyError, match="'protect_labels' comes first"):
        member.perform(decode, {"answer": np.zeros((10, 2), int)})
    with pytest.raises(PartyError, match="its transformer has not been fitted yet"):
        member.perform("transform", {})
    member.perform("fit_transform", {})
    member.perform("transform", {})


def test_a_party_without_labels_does_not_play_their_owner():
    member = Member("shop", Holding(np.zeros((3, 2))))
    with pytest.raises(PartyError, match="'shop': it has no labels"):
        member.perform("open", ROLE)
