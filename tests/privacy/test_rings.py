"""Masks along random rings, and the seed of the rings, which nobody chooses."""

import itertools
import math

import numpy as np
import pytest
from _secure import LEVEL, key_stream, uniformity
from numpy.testing import assert_array_equal

from skvfl.privacy import Aggregator, FixedPoint, KeyRing, Masker
from skvfl.privacy import _rings as rings_module
from skvfl.privacy._draw import CONTRIBUTION, Draw
from skvfl.privacy._errors import SecureAggregationError
from skvfl.privacy._rings import (
    COLLUDERS,
    FEWEST,
    RISK,
    count_rings,
    exposure_bound,
    neighbours,
)

MANY = [f"c{i:02}" for i in range(24)]
PURPOSE = "mask forward"


def graph(clients, seed):
    return {name: set(neighbours(name, clients, seed, PURPOSE)) for name in clients}


def components(near, honest):
    """What honest clients colluders can tell apart: parts of the graph without them."""
    left, parts = set(honest), []
    while left:
        part, new = set(), {min(left)}
        while new:
            part |= new
            new = set().union(*(near[name] for name in new)) & left - part
        parts.append(part)
        left -= part
    return parts


# The graph


@pytest.mark.parametrize(("n", "c"), [(6, 2), (7, 3), (7, 4)])
def test_bound_is_the_sum_over_all_sets_of_honest_clients(n, c):
    """Against all rings there are, of which three are drawn."""
    honest = range(n - c)
    rings = [(0, *rest) for rest in itertools.permutations(range(1, n))]
    joined = [
        {frozenset((ring[i - 1], ring[i])) for i in range(n)}
        & set(map(frozenset, itertools.combinations(honest, 2)))
        for ring in rings
    ]
    expected = 0
    for size in range(1, len(honest) // 2 + 1):
        for chosen in itertools.combinations(honest, size):
            apart = [all(len(e & {*chosen}) != 1 for e in edges) for edges in joined]
            expected += np.mean(apart) ** 3
    assert exposure_bound(n, c, 3) == pytest.approx(min(1, expected), rel=1e-9)


@pytest.mark.parametrize("n_rings", [3, 4, 5])
def test_drawn_graphs_fail_as_often_as_they_may(monkeypatch, n_rings):
    """With few rings, so that it happens."""
    monkeypatch.setattr(rings_module, "count_rings", lambda n: n_rings)
    rings_module._draw.cache_clear()
    n, honest, draws = 24, MANY[:12], 1500
    failed = alone = 0
    for draw in range(draws):
        near = graph(MANY, b"%d %d" % (n_rings, draw))
        parts = components(near, honest)
        failed += len(parts) > 1
        alone += any(len(part) == 1 for part in parts)
    bound = exposure_bound(n, 12, n_rings)
    slack = 4 * math.sqrt(bound / draws)
    assert alone <= failed
    assert failed / draws <= bound + slack
    # The bound is not far off: most of it is clients without an honest neighbour.
    one = 12 * (12 * 11 / (23 * 22)) ** n_rings
    assert failed / draws > one / 2 - slack
    assert failed
    rings_module._draw.cache_clear()


@pytest.mark.parametrize("n", [20, 25, 50, 100, 200, 1000])
def test_there_are_as_many_rings_as_the_stated_risk_asks_for(n):
    n_rings, n_colluders = count_rings(n), int(COLLUDERS * n)
    assert exposure_bound(n, n_colluders, n_rings) <= RISK
    assert exposure_bound(n, n_colluders, n_rings - 1) > RISK
    # Fewer colluders are no worse, so that the share is a limit.
    risks = [exposure_bound(n, c, n_rings) for c in range(0, n_colluders + 1, 5)]
    assert risks == sorted(risks)


def test_what_the_guide_says_of_200_clients():
    assert [count_rings(n) for n in (20, 50, 200, 1000)] == [18, 18, 19, 20]
    found = [exposure_bound(200, c, 19) for c in (66, 100, 133)]
    assert [f"{each:.0e}" for each in found] == ["7e-17", "4e-10", "1e-05"]


def test_every_two_share_masks_where_there_are_few():
    few = MANY[: FEWEST - 1]
    assert count_rings(len(few)) == 0
    assert graph(few, None) == {name: {*few} - {name} for name in few}
    with pytest.raises(ValueError, match="have drawn no seed"):
        graph(MANY, None)


def test_graphs_are_symmetric_regular_and_of_their_own():
    clients = [f"c{i}" for i in range(200)]
    near = graph(clients, b"seed")
    degrees = [len(each) for each in near.values()]
    # Where two rings have the same two clients side by side, one has one less.
    assert max(degrees) <= 2 * count_rings(200) == 38
    assert min(degrees) > 25
    assert np.mean(degrees) > 34
    assert all(name in near[other] for name in clients for other in near[name])
    assert not any(name in near[name] for name in clients)
    for other in (graph(clients, b"other"), graph(clients[::-1], b"seed")):
        assert sum(other[name] == near[name] for name in clients) < 3
    assert neighbours("c7", clients, b"seed", "mask gradient") != sorted(near["c7"])
    neighbours("c7", clients, b"seed", PURPOSE).clear()
    assert graph(clients, b"seed") == near


def test_organisations_with_other_software_draw_the_same():
    """Written down, as no generator of a library that changes may decide."""
    near = neighbours("c00", MANY, bytes(32), PURPOSE)
    assert near == KNOWN.split()


KNOWN = "c01 c02 c03 c04 c05 c06 c07 c08 c10 c11 c12 c13 c16 c17 c20 c21 c22 c23"


def test_half_of_the_clients_cannot_split_the_others():
    rng = np.random.default_rng(0)
    for draw in range(200):
        near = graph(MANY, b"half %d" % draw)
        honest = rng.permutation(MANY)[:12].tolist()
        assert len(components(near, honest)) == 1
    # The search finds one who is surrounded.
    alone = [name for name in MANY if name not in near["c05"]]
    assert {"c05"} in components(near, alone)


# Masks along it


class Sum:
    """A sum over clients that share keys and masks with their neighbours alone."""

    def __init__(self, seed=b"a sum"):
        self.near = graph(MANY, seed)
        self.rings = {name: KeyRing(name) for name in (*MANY, "server")}
        self.agree()
        self.numbers = FixedPoint(len(MANY), bound=100)
        self.maskers = {
            name: Masker(
                self.rings[name], MANY, self.numbers, neighbours=sorted(self.near[name])
            )
            for name in MANY
        }
        self.server = Aggregator(self.rings["server"], MANY, self.numbers)
        rng = np.random.default_rng(0)
        self.values = {name: rng.normal(size=(64, 64)) for name in MANY}
        self.messages = {
            name: masker.mask(self.values[name], round_id=0)
            for name, masker in self.maskers.items()
        }

    def agree(self):
        peers = {name: [*sorted(near), "server"] for name, near in self.near.items()}
        peers["server"] = MANY
        sent = {
            name: self.rings[name].public_keys(each, session="run", epoch=0)
            for name, each in peers.items()
        }
        for step in ("agree", "confirm"):
            sent = {
                name: getattr(self.rings[name], step)(
                    {peer: sent[peer][name] for peer in each}
                )
                for name, each in peers.items()
            }

    def encoded(self, names):
        return sum(self.numbers.encode(self.values[name]) for name in names)

    def stripped(self, name, colluders):
        """A message less all masks that the colluders know."""
        left = self.messages[name]["masked"].copy()
        for peer in self.near[name] & set(colluders):
            known = key_stream(
                self.rings[peer], name, left.shape, self.numbers.dtype, round_id=0
            )
            left += known if peer < name else -known
        return left

    def found(self, colluders):
        """What colluders and server read: the sum over each part of the others."""
        honest = set(MANY) - set(colluders)
        return {
            frozenset(part): sum(self.stripped(name, colluders) for name in part)
            for part in components(self.near, honest)
        }


@pytest.fixture(scope="module")
def masked_sum():
    return Sum()


def test_masks_along_rings_cancel(masked_sum):
    total = masked_sum.server.total(masked_sum.messages, round_id=0)
    assert_array_equal(total, masked_sum.numbers.decode(masked_sum.encoded(MANY)))


@pytest.mark.parametrize("draw", range(3))
def test_half_of_the_clients_and_the_server_learn_the_sum_of_the_others(
    masked_sum, draw
):
    rng = np.random.default_rng(draw)
    colluders = rng.permutation(MANY)[:12].tolist()
    honest = [name for name in MANY if name not in colluders]
    ((part, total),) = masked_sum.found(colluders).items()
    assert part == set(honest)
    assert_array_equal(total, masked_sum.encoded(honest))
    left = {name: masked_sum.stripped(name, colluders) for name in honest}
    for _ in range(10):
        some = rng.permutation(honest)[: rng.integers(1, 12)]
        assert uniformity(sum(left[name] for name in some)) > LEVEL
        assert uniformity(masked_sum.encoded(some)) < LEVEL


def test_all_neighbours_of_a_client_together_read_it(masked_sum):
    """What the number of rings makes unlikely; all but one of them read nothing."""
    near = masked_sum.near["c03"]
    found = masked_sum.found(near)
    assert_array_equal(found[frozenset({"c03"})], masked_sum.encoded(["c03"]))
    for one in near:
        assert uniformity(masked_sum.stripped("c03", near - {one})) > LEVEL


def test_a_dropped_client_leaves_the_masks_of_its_neighbours(masked_sum):
    messages = {n: m for n, m in masked_sum.messages.items() if n != "c03"}
    with pytest.raises(SecureAggregationError, match="'c03': its masked message"):
        masked_sum.server.total(messages, round_id=1)
    others = [name for name in MANY if name != "c03"]
    left = sum(masked_sum.messages[name]["masked"] for name in others)
    assert uniformity(left) > LEVEL
    # Unless it gives its keys away, and then the others' sum lies open, as always.
    (total,) = masked_sum.found(["c03"]).values()
    assert_array_equal(total, masked_sum.encoded(others))


@pytest.mark.parametrize("near", [[], ["c03"], ["nobody"]])
def test_neighbours_are_other_clients(masked_sum, near):
    ring = masked_sum.rings["c03"]
    with pytest.raises(ValueError, match="'c03' needs neighbours"):
        Masker(ring, MANY, masked_sum.numbers, neighbours=near)


# The seed


class Drawn:
    """Everybody's part in one draw, and the relay's."""

    def __init__(self, session="run"):
        self.parts = {
            name: Draw(KeyRing(name), MANY, session, "server") for name in MANY
        }
        self.relay = Draw(KeyRing("server"), MANY, session, "server")
        self.bound = self.relay.bind({n: p.commit() for n, p in self.parts.items()})

    def told(self):
        return {name: part.reveal(self.bound) for name, part in self.parts.items()}


def test_all_draw_one_seed_and_meet():
    drawn = Drawn()
    told = drawn.relay.gather(drawn.told())
    seeds = {part.finish(told) for part in (*drawn.parts.values(), drawn.relay)}
    assert len(seeds) == 1
    pinned = drawn.parts["c00"]._ring.pinned
    fingerprints = {n: p._ring.fingerprint for n, p in drawn.parts.items()}
    assert pinned == {n: f for n, f in fingerprints.items() if n != "c00"}
    again = Drawn()
    assert again.relay.finish(again.relay.gather(again.told())) not in seeds


def test_what_was_bound_cannot_be_changed():
    drawn = Drawn()
    told = drawn.told()
    for name in ("c00", "c11"):
        other = {**told, name: told[name] ^ np.uint8(1)}
        with pytest.raises(
            SecureAggregationError, match="not the one it has bound"
        ) as e:
            drawn.relay.gather(other)
        assert e.value.party == name
        with pytest.raises(SecureAggregationError, match="not those it has bound") as e:
            drawn.parts["c11"].finish(np.concatenate([*other.values()]))
        assert e.value.party == "server"
    with pytest.raises(SecureAggregationError, match="'c11': its contribution"):
        drawn.relay.gather({**told, "c11": told["c11"][:5]})
    commitments = dict.fromkeys(MANY, drawn.bound) | {"c11": None}
    with pytest.raises(SecureAggregationError, match="'c11': its commitment"):
        drawn.relay.bind(commitments)


def test_a_contribution_is_told_once_and_bound_before():
    part = Drawn().parts["c00"]
    with pytest.raises(SecureAggregationError, match="not those it has bound"):
        part.finish(np.zeros(len(MANY) * CONTRIBUTION, np.uint8))
    part.reveal(np.zeros(32, np.uint8))
    with pytest.raises(SecureAggregationError, match="asks twice"):
        part.reveal(np.ones(32, np.uint8))


def relay_that_leaves_somebody_out(name):
    """A relay that binds a list of its own, with another one in the client's place."""
    drawn = Drawn()
    own = Draw(KeyRing(name), MANY, "run", "server")
    commitments = {n: p.commit() for n, p in drawn.parts.items()}
    bound = drawn.relay.bind(commitments | {name: own.commit()})
    told = {n: p.reveal(bound) for n, p in drawn.parts.items()}
    told[name] = own.reveal(bound)
    return drawn.parts, np.concatenate([*told.values()])


def test_a_client_that_was_left_out_finds_it():
    parts, told = relay_that_leaves_somebody_out("c04")
    with pytest.raises(SecureAggregationError, match="'c04' finds that its contrib"):
        parts["c04"].finish(told)


@pytest.mark.parametrize("bound_first", [True, False])
def test_whoever_moves_last_could_choose_the_graph(monkeypatch, bound_first):
    """A relay with all clients but two, who look for a graph that singles one out.

    With a few rings, so that the search is short. Who is bound has one graph to take.
    """
    monkeypatch.setattr(rings_module, "count_rings", lambda n: 2)
    rings_module._draw.cache_clear()
    honest, exposed = {*MANY[:12]}, 0
    for attempt in range(20):
        drawn = Drawn(f"run {attempt}")
        told = {n: each.tobytes() for n, each in drawn.told().items()}
        for change in range(1 if bound_first else 400):
            seen = told | {"c23": told["c23"][:60] + change.to_bytes(4, "big")}
            told_last = told if bound_first else seen
            seed = drawn.relay._seed(b"".join(told_last.values()))
            near = neighbours("c00", MANY, seed, PURPOSE)
            if not honest & {*near}:
                exposed += 1
                break
    rings_module._draw.cache_clear()
    if bound_first:
        assert exposed < 8
    else:
        assert exposed == 20
