import json
import math
import pickle
import struct
import tracemalloc
from datetime import date
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from skvfl.federation import _wire
from skvfl.federation._wire import deliver, measure, pack, unpack

relaxed = settings(
    deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow]
)

DTYPES = [
    *(np.dtype(code) for code in "?bBefg"),
    *(np.dtype(order + code) for order in "<>" for code in ("i2", "u4", "i8", "u8")),
    *(np.dtype(order + code) for order in "<>" for code in ("f2", "f4", "f8")),
]
LAYOUTS = {
    "as it is": lambda array: array,
    "transposed": lambda array: array.T,
    "reversed": lambda array: array[..., ::-1] if array.ndim else array,
    "every second row": lambda array: array[::2] if array.ndim else array,
    "repeated": lambda array: np.broadcast_to(array, (2, *array.shape)),
    "misaligned": lambda array: np.frombuffer(
        b"." + array.tobytes(), array.dtype, array.size, 1
    ).reshape(array.shape),
}


@st.composite
def arrays(draw):
    dtype = draw(st.sampled_from(DTYPES))
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
    source = np.dtype("f8") if dtype.char == "g" else dtype
    array = draw(hnp.arrays(source, shape)).astype(dtype)
    return LAYOUTS[draw(st.sampled_from(sorted(LAYOUTS)))](array)


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(min_value=-(10**300), max_value=10**300),
    st.floats(),
    st.text(),
    st.characters(categories=["Cs"]),
    st.booleans().map(np.bool_),
    st.integers(min_value=-(2**63), max_value=2**63 - 1).map(np.int64),
    st.floats(width=32).map(np.float32),
    st.floats().map(np.float64),
    st.text().map(np.str_),
)
PAYLOADS = st.recursive(
    SCALARS | arrays(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text() | st.sampled_from(["array", "dict"]), inner)
    ),
    max_leaves=8,
)


def delivered(payload):
    """What the receiver ought to get, worked out without the wire."""
    if isinstance(payload, np.ndarray):
        return payload.astype(payload.dtype.newbyteorder("="))
    if isinstance(payload, dict):
        return {str(key): delivered(item) for key, item in payload.items()}
    if isinstance(payload, list | tuple):
        return [delivered(item) for item in payload]
    return payload.item() if isinstance(payload, np.generic) else payload


def assert_same(got, expected):
    assert type(got) is type(expected)
    if isinstance(expected, np.ndarray):
        assert got.dtype == expected.dtype
        assert got.dtype.isnative
        assert got.shape == expected.shape
        assert got.flags.c_contiguous
        assert got.flags.aligned
        assert got.flags.owndata
        assert got.flags.writeable
        assert np.array_equal(got, expected, equal_nan=True)
        assert np.array_equal(np.signbit(got), np.signbit(expected)) or (
            got.dtype.kind != "f"
        )
    elif isinstance(expected, dict):
        assert list(got) == list(expected)
        assert {type(key) for key in got} <= {str}
        for key, item in expected.items():
            assert_same(got[key], item)
    elif isinstance(expected, list):
        assert len(got) == len(expected)
        for one, other in zip(got, expected, strict=True):
            assert_same(one, other)
    else:  # repr tells -0.0 from 0.0 and takes nan for equal
        assert repr(got) == repr(expected)


def test_message_is_a_header_and_raw_bytes():
    header = b'[{"dict":[["a",{"array":"<f8","shape":[2]}]]},true,"x"]'
    expected = b"skvfl1" + struct.pack("<I", len(header)) + header
    expected += struct.pack("<dd", 1.0, -2.0)
    assert pack([{"a": np.array([1.0, -2.0])}, True, "x"]) == expected


@relaxed
@given(PAYLOADS)
@example(np.zeros((0, 3), "f4"))
@example([math.nan, math.inf, -math.inf, -0.0, 5e-324, 10**4000])
def test_payload_survives_the_wire(payload):
    assert_same(unpack(pack(payload)), delivered(payload))


@relaxed
@given(PAYLOADS)
def test_deliver_is_what_the_wire_delivers(payload):
    assert_same(deliver(payload)[0], unpack(pack(payload)))


@relaxed
@given(PAYLOADS)
def test_measure_is_the_length_of_the_message(payload):
    def holds_array(node):
        if isinstance(node, dict):
            return any(map(holds_array, node.values()))
        if isinstance(node, list | tuple):
            return any(map(holds_array, node))
        return isinstance(node, np.ndarray)

    assert measure(payload) == (len(pack(payload)), holds_array(payload))


@pytest.mark.parametrize("label", range(17))
def test_arrays_arrive_aligned_after_any_header(label):
    # Sums of misaligned arrays differ in the last bits, and Cython refuses them.
    sent = np.random.default_rng(label).normal(size=20_001).astype(np.float32)
    payload = ["x" * label, np.array([True] * label), sent]
    for arrived in (unpack(pack(payload))[2], deliver(payload)[0][2]):
        assert arrived.flags.aligned
        assert memoryview(arrived).format == "f"
        assert arrived.sum() == sent.sum()


def test_deliver_copies():
    sent = np.arange(6.0).reshape(2, 3)
    arrived = deliver({"a": [sent]})[0]["a"][0]
    sent[0, 0] = 99
    assert arrived[0, 0] == 0
    assert arrived.base is None


def test_subclass_of_ndarray_arrives_as_ndarray():
    class Labelled(np.ndarray):
        pass

    plain = np.array([[1.0, 2.0]])
    labelled = plain.view(Labelled)
    labelled.secret = "stays"
    assert_same(deliver(labelled)[0], plain)


REFUSED = {
    "object": object(),
    "bytes": b"raw",
    "set": {1},
    "complex": 1j,
    "date": date(2020, 1, 1),
    "datetime": np.datetime64("2020-01-01"),
    "duration": np.timedelta64(5, "s"),
    "generator": (i for i in range(3)),
    "array of objects": np.array([None]),
    "array of strings": np.array(["a"]),
    "array of bytes": np.array([b"a"]),
    "array of datetimes": np.array(["2020-01-01"], dtype="M8[D]"),
    "array of complex": np.array([1j]),
    "record": np.zeros(2, dtype=[("a", "f8")]),
    "void": np.zeros(2, dtype="V8"),
    "key that is an int": {1: 2},
    "key that is None": {None: 2},
    "key that is a tuple": {("a", "b"): 2},
}


@pytest.mark.parametrize("encode", [pack, measure, deliver])
@pytest.mark.parametrize("what", sorted(REFUSED))
def test_anything_else_is_refused(what, encode):
    for payload in (REFUSED[what], ["operation", {"a": [REFUSED[what]]}]):
        with pytest.raises(TypeError):
            encode(payload)


def test_any_real_number_crosses_as_a_float():
    assert_same(unpack(pack(Fraction(1, 4))), 0.25)


def message(header, body=b""):
    if not isinstance(header, bytes):
        header = json.dumps(header).encode()
    return _wire.MAGIC + struct.pack("<I", len(header)) + header + body


@relaxed
@given(PAYLOADS, st.data())
def test_damaged_message_is_a_value_error(payload, data):
    whole = pack(payload)
    position = st.integers(0, len(whole) - 1)
    damage = data.draw(st.sampled_from(["cut", "flip", "insert", "drop"]))
    at = data.draw(position)
    if damage == "cut":
        damaged = whole[:at]
    elif damage == "flip":
        flipped = whole[at] ^ data.draw(st.integers(1, 255))
        damaged = whole[:at] + bytes([flipped]) + whole[at + 1 :]
    elif damage == "insert":
        damaged = whole[:at] + data.draw(st.binary(min_size=1, max_size=9)) + whole[at:]
    else:
        damaged = whole[:at] + whole[at + 1 :]
    try:
        unpack(damaged)
    except ValueError:
        return
    assert damage in {"flip", "insert", "drop"}  # a message cut short is noticed


@pytest.mark.parametrize("payload", [[1.0], np.arange(3.0), {"a": [True, None]}])
def test_bytes_after_the_end_are_refused(payload):
    assert_same(unpack(pack(payload)), delivered(payload))
    with pytest.raises(ValueError, match="were announced"):
        unpack(pack(payload) + b"x")


@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize("layout", ["F", "C"])
def test_local_delivery_is_in_the_order_of_the_wire(layout, copy):
    """Sums over an array in another order differ in the last bits."""
    array = np.array(np.arange(6.0).reshape(2, 3), order=layout)
    arrived = deliver(array, copy=copy)[0]
    assert arrived.flags.c_contiguous
    assert np.shares_memory(arrived, array) is (not copy and layout == "C")


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.floats()
    | st.integers()
    | st.sampled_from([-1, 0, 2**31, 2**62, 2**63, 10**30])
    | st.sampled_from(["|O", "<f8", "|V8", "<M8[s]", "(2,)f4", "f4,i8", "dict"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.fixed_dictionaries(
            {},
            optional={"array": inner, "shape": inner, "dict": inner, "other": inner},
        )
    ),
)


@relaxed
@given(JSON, st.binary(max_size=64))
def test_forged_header_is_a_value_error(header, body):
    try:
        unpack(message(header, body))
    except ValueError:
        return


@relaxed
@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_a_value_error(noise):
    with pytest.raises(ValueError, match="not a skvfl message"):
        unpack(b"x" + noise)
    try:
        unpack(_wire.MAGIC + noise)
    except ValueError:
        return


@pytest.mark.parametrize(
    "shape",
    [
        [2**40],
        [2**20, 2**20],
        [2**62],
        [2**63],
        [10**30],
        [-1],
        [-1, -8],
        [1e3],
        [None],
        ["8"],
        [1] * 65,
        8,
        None,
        "8",
    ],
)
def test_absurd_shape_is_a_value_error_and_takes_no_memory(shape):
    forged = message({"array": "<f8", "shape": shape}, bytes(64))
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="skvfl message"):
            unpack(forged)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "header",
    [b"[" * 100_000, b'{"dict":[["a",' * 50_000, b"1" * 5000, b"\xff\xfe", b""],
)
def test_hostile_header_is_a_value_error(header):
    with pytest.raises(ValueError, match="skvfl message"):
        unpack(message(header))


@pytest.mark.parametrize(
    "dtype",
    [
        *("|O", "O", "|S8", "<U2", "|V8", "<M8[s]", "<c16", ">f8", "f8", "float64"),
        *("f8,O", "(2,)f4", "", None, ["<f8"], [["a", "<f8"]]),
        {"names": ["a"], "formats": ["O"]},
    ],
)
def test_header_may_name_plain_numbers_only(dtype):
    with pytest.raises(ValueError, match="damaged skvfl message"):
        unpack(message({"array": dtype, "shape": [1]}, bytes(64)))


@pytest.mark.parametrize(("before", "after"), [("[", "]"), ('{"dict":[["a",', "]]}")])
def test_what_can_be_read_can_be_measured_however_deep_it_is(before, after):
    depths = range(1, 1000)
    read = []
    for depth in depths:
        header = before * depth + "1.5" + after * depth
        try:
            payload = unpack(message(header.encode()))
        except ValueError:
            continue
        measure(payload)
        read.append(depth)
    assert read == [*depths][: len(read)]
    assert 20 < len(read) < 100


def test_pickle_is_not_a_message():
    class Trap:
        def __reduce__(self):
            return pytest.fail, ("a pickle was loaded",)

    trap = pickle.dumps(Trap())
    for forged in (trap, message(trap), message({"array": "|O", "shape": [1]}, trap)):
        with pytest.raises(ValueError, match="skvfl message"):
            unpack(forged)
