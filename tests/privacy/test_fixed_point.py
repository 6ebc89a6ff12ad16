import pickle
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from skvfl.privacy import FixedPoint, FixedPointRangeError

relaxed = settings(deadline=None, max_examples=200)

BITS = pytest.mark.parametrize("bits", [32, 64])


@st.composite
def numbers(draw):
    bits = draw(st.sampled_from([32, 64]))
    bound = draw(st.floats(1e-9, 1e6))
    return FixedPoint(draw(st.integers(1, 25)), bound=bound, bits=bits)


def total(fixed_point, columns):
    encoded = [fixed_point.encode(np.array(column)) for column in columns]
    return fixed_point.decode(np.sum(encoded, axis=0, dtype=fixed_point.dtype))


@relaxed
@given(data=st.data(), fixed_point=numbers())
def test_sum_stays_within_the_error_bound(data, fixed_point):
    value = st.floats(-fixed_point.bound, fixed_point.bound)
    column = st.lists(value, min_size=2, max_size=2)
    n = fixed_point.n_clients
    columns = data.draw(st.lists(column, min_size=n, max_size=n))
    for found, values in zip(total(fixed_point, columns), zip(*columns)):  # noqa: B905
        exact = sum(map(Fraction, values))
        allowed = Fraction(fixed_point.error_bound)
        if fixed_point.bits == 64:
            allowed += abs(exact) / 2**52
        assert abs(Fraction(float(found)) - exact) <= allowed


@relaxed
@given(fixed_point=numbers(), sign=st.sampled_from([-1, 1]))
def test_all_clients_at_the_bound_do_not_wrap(fixed_point, sign):
    n, bound = fixed_point.n_clients, sign * fixed_point.bound
    found = total(fixed_point, [[bound]] * n)[0]
    assert found == pytest.approx(n * bound, abs=fixed_point.error_bound, rel=1e-15)


@relaxed
@given(fixed_point=numbers())
def test_fraction_bits_are_the_most_that_cannot_wrap(fixed_point):
    def fits(fraction_bits):
        step = Fraction(2) ** fraction_bits
        largest = Fraction(fixed_point.bound) * step + Fraction(1, 2)
        return fixed_point.n_clients * largest < 2 ** (fixed_point.bits - 1)

    assert fits(fixed_point.fraction_bits)
    assert not fits(fixed_point.fraction_bits + 1)
    expected = fixed_point.n_clients / 2 ** (fixed_point.fraction_bits + 1)
    assert fixed_point.error_bound == expected


@pytest.mark.parametrize("excess", [0.25, 0.5])
def test_rounding_upwards_at_the_bound_does_not_wrap(excess):
    bound = (2**30 - excess) / 2**20
    fixed_point = FixedPoint(2, bound=bound)
    assert fixed_point.fraction_bits == 19
    assert_array_equal(total(fixed_point, [[bound], [bound]]), [2**11])


def test_known_encoding():
    fixed_point = FixedPoint(4, bound=127.5)
    assert fixed_point.fraction_bits == 22
    encoded = fixed_point.encode(np.array([0.0, 1.0, -1.0, 2.0**-22, 2.0**-24]))
    assert encoded.dtype == np.dtype("<u4")
    assert_array_equal(encoded, [0, 2**22, 2**32 - 2**22, 1, 0])
    assert_array_equal(fixed_point.decode(encoded), [0, 1, -1, 2.0**-22, 0])


def test_error_bound_is_reached():
    fixed_point = FixedPoint(3, bound=1)
    half = fixed_point.error_bound / 3
    found = total(fixed_point, [[half], [half], [half]])
    assert_array_equal(found, [0])
    assert 3 * half == fixed_point.error_bound


@BITS
@pytest.mark.parametrize("excess", [np.nextafter(7.5, 8), 8.0, 1e9, 1e300])
@pytest.mark.parametrize("sign", [-1, 1])
def test_larger_values_are_refused(bits, excess, sign):
    values = np.array([[0.5, sign * excess], [-7.5, 7.5]])
    with pytest.raises(FixedPointRangeError) as caught:
        FixedPoint(2, bound=7.5, bits=bits).encode(values, "activations of 'bank'")
    error = caught.value
    assert isinstance(error, ValueError)
    assert isinstance(error, OverflowError)
    assert error.maximum == excess
    message = str(error)
    assert "activations of 'bank': 1 of 4 are over the declared bound" in message
    assert excess < 8 or f"{excess:.6g}" not in message
    assert "declared bound of 7.5" in message
    assert "declare a larger bound at every client" in message
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.maximum) == (message, excess)


@BITS
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_values_that_are_not_finite_are_refused(bits, bad, dtype):
    values = np.array([0.5, bad, bad, 100], dtype)
    with pytest.raises(FixedPointRangeError, match="2 of 4 are NaN or infinite") as e:
        FixedPoint(2, bound=7.5, bits=bits).encode(values)
    assert np.isnan(e.value.maximum)


def test_bound_itself_is_accepted_in_single_precision():
    values = np.array([0.1], np.float32)
    FixedPoint(2, bound=float(values[0])).encode(values)
    with pytest.raises(FixedPointRangeError):
        FixedPoint(2, bound=0.1).encode(values)


@BITS
@relaxed
@given(data=st.data())
def test_single_precision_encodes_as_double_precision_does(bits, data):
    # Of bounds so small that squares of values are no normal numbers, too.
    bound = 10.0 ** data.draw(st.integers(-45, 6))
    fixed_point = FixedPoint(2, bound=bound, bits=bits)
    values = st.floats(-2 * bound, 2 * bound, allow_subnormal=True)
    drawn = data.draw(st.lists(values, max_size=4))
    column = np.array(drawn, np.float64).astype(np.float32)
    if (abs(column.astype(np.float64)) <= bound).all():
        found = fixed_point.encode(column)
        assert_array_equal(found, fixed_point.encode(column.astype(np.float64)))
        exact = [
            round(Fraction(float(x)) * 2**fixed_point.fraction_bits) for x in column
        ]
        assert found.tolist() == [x % 2**bits for x in exact]
    else:
        with pytest.raises(FixedPointRangeError):
            fixed_point.encode(column)


@BITS
@pytest.mark.parametrize("dtype", ["i1", "u8", "i8", "f2", "f4", "f8", ">f8", "g"])
def test_every_type_of_number(bits, dtype):
    values = np.array([[0, 1, 2], [3, 100, 5]], dtype)
    fixed_point = FixedPoint(1, bound=100, bits=bits)
    assert_array_equal(fixed_point.decode(fixed_point.encode(values)), values)


@BITS
@pytest.mark.parametrize("values", [["1"], [True], [1j], [None]])
def test_other_types_are_refused(bits, values):
    with pytest.raises(TypeError, match="values must be real numbers"):
        FixedPoint(2, bound=1, bits=bits).encode(values)


@BITS
@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (2, 3, 4)])
def test_shapes_are_kept_and_the_input_is_not_changed(bits, shape):
    values = np.full(shape, 0.3)
    before = values.copy()
    fixed_point = FixedPoint(2, bound=1, bits=bits)
    encoded = fixed_point.encode(values)
    assert isinstance(encoded, np.ndarray)
    assert isinstance(fixed_point.decode(encoded), np.ndarray)
    assert encoded.shape == fixed_point.decode(encoded).shape == shape
    assert_array_equal(values, before)
    assert not np.shares_memory(values, encoded)


def test_layout_does_not_matter():
    values = np.linspace(-1, 1, 60).reshape(6, 10)
    fixed_point = FixedPoint(2, bound=1)
    expected = fixed_point.encode(values)
    for layout in (np.asfortranarray(values), np.repeat(values, 2, axis=0)[::2]):
        encoded = fixed_point.encode(layout)
        assert encoded.flags.c_contiguous
        assert_array_equal(encoded, expected)


def test_decode_refuses_other_types():
    with pytest.raises(TypeError, match="expected an array of uint32, got uint64"):
        FixedPoint(2, bound=1).decode(np.zeros(2, np.uint64))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_clients": 0, "bound": 1}, "n_clients must be at least 1"),
        ({"n_clients": 2, "bound": 0}, "positive and finite"),
        ({"n_clients": 2, "bound": np.nan}, "positive and finite"),
        ({"n_clients": 2, "bound": np.inf}, "positive and finite"),
        ({"n_clients": 2, "bound": 1, "bits": 16}, "32 or 64"),
        ({"n_clients": 5, "bound": 1e9}, "no fraction bits in 32 bits: use bits=64"),
        ({"n_clients": 5, "bound": 1e30, "bits": 64}, "use a smaller bound"),
    ],
)
def test_parameters_are_checked(arguments, message):
    with pytest.raises(ValueError, match=message):
        FixedPoint(**arguments)


def test_tiny_bounds_work():
    fixed_point = FixedPoint(2, bound=1e-307)
    found = total(fixed_point, [[1e-307], [1e-307]])
    assert found[0] == pytest.approx(2e-307, abs=fixed_point.error_bound)


def test_rounding_of_every_client_is_counted_in_the_last_bit():
    """Each of 2²⁹ values may be rounded up by a half; they fit by 0.1, and no more."""
    n_clients = 2**29
    assert FixedPoint(n_clients, bound=3.4).fraction_bits == 0
    with pytest.raises(ValueError, match="leaves no fraction bits"):
        FixedPoint(n_clients, bound=3.5)
    with pytest.raises(ValueError, match="leaves no fraction bits"):
        FixedPoint(n_clients, bound=3.6)
