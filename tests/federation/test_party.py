import pickle
import traceback

import numpy as np
import pytest
from scipy import sparse
from sklearn import config_context
from sklearn.preprocessing import MaxAbsScaler, StandardScaler

from skvfl import CommunicationLog, LocalTransport
from skvfl.exceptions import (
    InvalidColumnError,
    PartyError,
    PartyTypeError,
    PartyValueError,
)
from skvfl.federation import Holding, Party, TransformerParty, operation
from skvfl.federation._party import giving

CANARY = "4711-canary"


class Bank(Party):
    @operation
    def count(self):
        return len(self.held(Holding).block)

    @operation
    def fail(self, kind):
        raise {
            "value": ValueError,
            "type": TypeError,
            "key": KeyError,
            "other": RuntimeError,
            "party": lambda text: PartyError("shop", text),
            "column": InvalidColumnError,
        }[kind](f"cannot use {self.held(Holding).block[0]!r} {CANARY}")

    def balance(self):
        return self.held(Holding).block

    @property
    def trap(self):
        raise AssertionError("a property was read")


class Branch(Bank):
    def count(self):
        return -1

    @operation
    def balance(self):
        return "open"


@pytest.fixture
def bank():
    return Bank("bank").holding(block=[3.5, 4.5])


def test_marked_operation_is_carried_out(bank):
    assert bank.perform("count", {}) == 2


@pytest.mark.parametrize(
    "name",
    [
        *(
            "_states",
            "name",
            "balance",
            "holding",
            "release",
            "perform",
            "trap",
            "mro",
            "",
        ),
        *("__init__", "__class__", "__dict__", "__reduce__", "__getattribute__"),
    ],
)
def test_nothing_else_can_be_asked_for(bank, name):
    with pytest.raises(
        PartyError, match="party 'bank': it offers no operation"
    ) as info:
        bank.perform(name, {})
    assert info.value.party == "bank"
    assert bank.perform("count", {}) == 2


def test_mark_belongs_to_the_method_that_carries_it():
    branch = Branch("branch").holding(block=[1])
    assert branch.perform("balance", {}) == "open"
    with pytest.raises(PartyError, match="offers no operation 'count'"):
        branch.perform("count", {})


def test_holding_leaves_the_party_itself_empty():
    bank = Bank("bank")
    busy = bank.holding(block=[1, 2, 3])
    assert busy.perform("count", {}) == 3
    with pytest.raises(PartyError, match="it has no Holding: 'open' comes first"):
        bank.perform("count", {})


def test_holdings_share_models():
    party = TransformerParty("bank", StandardScaler())
    fitted = party.holding(block=np.array([[0.0], [2.0]]))
    assert fitted.perform("fit_transform", {}).tolist() == [[-1], [1]]
    assert party.holding(block=np.array([[3.0]])).perform("transform", {}) == [[2]]


def test_release_drops_what_is_held(bank):
    bank.release()
    with pytest.raises(PartyError, match="it has no Holding: 'open' comes first"):
        bank.perform("count", {})
    assert CANARY not in repr(vars(bank))
    assert "3.5" not in repr(vars(bank))


@pytest.mark.parametrize(
    ("kind", "expected", "named"),
    [
        ("value", PartyValueError, "ValueError"),
        ("type", PartyTypeError, "TypeError"),
        ("key", PartyError, "KeyError"),
        ("other", PartyError, "RuntimeError"),
        ("party", PartyError, "PartyError"),
    ],
)
def test_only_the_kind_of_an_error_crosses(bank, kind, expected, named):
    with pytest.raises(PartyError) as info:
        bank.perform("fail", {"kind": kind})
    error = info.value
    assert type(error) is expected
    assert error.party == "bank"
    assert str(error) == (
        f"party 'bank': {named} in 'fail'; the message stays with the party, whose own "
        "traceback has it"
    )
    assert error.__cause__ is error.__context__ is None
    assert CANARY not in "".join(traceback.format_exception(error))
    crossed = pickle.dumps(error)
    assert CANARY.encode() not in crossed
    assert b"3.5" not in crossed


def test_column_error_crosses_in_full(bank):
    with pytest.raises(PartyValueError) as info:
        bank.perform("fail", {"kind": "column"})
    expected = f"party 'bank': among its own columns, cannot use 3.5 {CANARY}"
    assert str(info.value) == expected


def test_wrong_arguments_are_the_partys_error(bank):
    with pytest.raises(PartyTypeError, match="party 'bank': TypeError in 'count'"):
        bank.perform("count", {"rows": 3})


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_interruptions_are_not_translated(kind):
    class Stubborn(Party):
        @operation
        def stop(self):
            raise kind

    with pytest.raises(kind):
        Stubborn("bank").perform("stop", {})


@pytest.mark.parametrize("kind", [PartyError, PartyValueError, PartyTypeError])
def test_errors_pickle(kind):
    error = pickle.loads(pickle.dumps(kind("bank", "it is closed")))
    assert type(error) is kind
    assert (error.party, error.message) == ("bank", "it is closed")
    assert str(error) == "party 'bank': it is closed"


def test_transformer_party_sends_dense_arrays():
    block = np.array([[0.0, 2.0], [-4.0, 0.0]])
    expected = [[0, 1], [-1, 0]]
    for held in (block, sparse.csr_array(block), sparse.csc_matrix(block)):
        party = TransformerParty("bank", MaxAbsScaler()).holding(block=held)
        for output in (
            party.perform("fit_transform", {}),
            party.perform("transform", {}),
        ):
            assert type(output) is np.ndarray
            assert output.tolist() == expected


@pytest.mark.parametrize("container", ["pandas", "polars"])
def test_output_configuration_of_the_user_stays_outside(container):
    pytest.importorskip(container)
    party = TransformerParty("bank", StandardScaler()).holding(block=np.eye(2))
    with config_context(transform_output=container):
        assert type(party.perform("fit_transform", {})) is np.ndarray


class Careless(Party):
    """Sends memory that it goes on using."""

    def __init__(self, name):
        super().__init__(name)
        self.buffer = np.zeros(3)

    @operation
    def activations(self):
        self.buffer += 1
        return self.buffer

    @operation
    def slice_of_block(self):
        return self.held(Holding).block[:, 1:]

    @operation
    def keep(self, rows):
        self.kept = rows

    @operation
    def kept_rows(self):
        return self.kept

    @operation
    def scribble(self, rows):
        rows["a"].append(1)
        rows["b"] += 1


@pytest.fixture
def block():
    return np.arange(6.0).reshape(2, 3)


@pytest.fixture
def careless(block):
    party = Careless("bank").holding(block=block)
    with LocalTransport().connect([party], CommunicationLog()) as session:
        yield session


def test_reply_does_not_change_after_delivery(careless):
    first = careless.ask("bank", "activations")
    second = careless.ask("bank", "activations")
    assert first.tolist() == [1, 1, 1]
    assert second.tolist() == [2, 2, 2]


def test_reply_gives_no_hold_of_the_partys_memory(careless, block):
    reply = careless.ask("bank", "slice_of_block")
    assert not np.shares_memory(reply, block)
    assert reply.base is None
    reply[:] = -1
    assert careless.ask("bank", "slice_of_block").tolist() == [[1, 2], [4, 5]]


class Generous(Party):
    @giving
    def ones(self):
        self.given = np.ones(3)
        return self.given


def test_what_a_party_gives_is_not_copied():
    party = Generous("bank")
    with LocalTransport().connect([party], CommunicationLog()) as session:
        assert session.ask("bank", "ones") is party.given


def test_request_gives_no_hold_of_the_callers_memory(careless):
    rows = np.arange(3)
    careless.ask("bank", "keep", rows=rows)
    rows[:] = 9
    assert careless.ask("bank", "kept_rows").tolist() == [0, 1, 2]


def test_party_cannot_change_the_callers_arguments(careless):
    rows = {"a": [], "b": np.zeros(2)}
    careless.ask("bank", "scribble", rows=rows)
    assert rows["a"] == []
    assert rows["b"].tolist() == [0, 0]
