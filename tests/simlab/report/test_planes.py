"""Numbers of grids as text: what comes out is what went in, within the stated step."""

import numpy as np
import pytest

from simlab.report.planes import PLANES, entries, is_symmetric, pack
from support.lab.pages import unpack, unpack_steps


def planes(value, **others):
    """Return the stored entries of all planes; those that are not given have no number."""
    none = np.full(len(value), np.nan)
    return {name: np.asarray(others.get(name, none), float) for name in PLANES} | {
        "value": np.asarray(value, float)
    }


def unpacked(packed):
    """Return the numbers of every plane, read as the page reads them."""
    base = unpack_steps(packed.text["value"], packed.planes["value"])
    return {
        name: unpack(text, packed.planes[name], base if name in ("low", "high") else None)
        for name, text in packed.text.items()
    }


def drawn(count=500, width=0.05):
    """Return values with intervals and p-values, of which some are undefined."""
    draw = np.random.default_rng(0)
    value = draw.uniform(-0.1, 1.0, count)
    low, high = value - draw.uniform(width, 2 * width, count), value + width
    low[::7] = high[::7] = np.nan
    value[::11] = np.nan
    return planes(value, low=low, high=high, pvalue=draw.uniform(0, 1, count))


def test_every_number_comes_back_within_half_a_step():
    given = drawn()
    packed = pack(given)
    found = unpacked(packed)
    assert set(found) == {"value", "low", "high", "pvalue"}
    for name, numbers in found.items():
        step = packed.planes[name]["step"]
        assert np.array_equal(np.isnan(numbers), np.isnan(given[name]))
        error = np.nanmax(np.abs(numbers - given[name]))
        assert error <= step / 2 * (1 + 1e-9)
        assert step < 3e-5


def test_the_step_is_below_every_interval():
    given = drawn(width=1e-3)
    packed = pack(given)
    assert packed.planes["value"]["step"] < np.nanmin(given["high"] - given["low"])


def test_a_bound_of_an_undefined_value_comes_back():
    packed = pack(planes([np.nan, 0.5, 1.0], low=[0.1, np.nan, 0.9], high=[0.2, 0.6, np.nan]))
    found = unpacked(packed)
    assert found["low"] == pytest.approx([0.1, np.nan, 0.9], abs=1e-5, nan_ok=True)
    assert found["high"] == pytest.approx([0.2, 0.6, np.nan], abs=1e-5, nan_ok=True)


@pytest.mark.parametrize("exact", [True, False])
def test_exact_numbers_are_float32(exact):
    given = drawn()
    if not exact:  # an interval that is narrower than a step
        given["low"][1], given["high"][1] = given["value"][1] - 2e-6, given["value"][1] + 2e-6
    packed = pack(given, exact)
    assert {plane["format"] for plane in packed.planes.values()} == {"f4"}
    for name, numbers in unpacked(packed).items():
        assert np.array_equal(numbers, given[name].astype(np.float32), equal_nan=True)


def test_rounding_is_no_interval():
    """The interval of a layer with itself is as wide as float64 rounding."""
    given = drawn()
    given["value"][1] = given["high"][1] = 1.0
    given["low"][1] = 1.0 - 1e-8
    assert pack(given).planes["value"]["format"] == "u2"


@pytest.mark.parametrize("value", [0.0, 1.0, -3.5])
def test_equal_values_come_back(value):
    assert unpacked(pack(planes([value] * 4)))["value"].tolist() == [value] * 4


def test_without_a_number_nothing_is_defined():
    found = unpacked(pack(planes([np.nan, np.nan])))
    assert set(found) == {"value"}
    assert np.isnan(found["value"]).all()
    assert unpacked(pack(planes([])))["value"].tolist() == []


def test_infinite_values_come_back():
    found = unpacked(pack(planes([np.inf, 0.25, -np.inf, 0.75])))
    np.testing.assert_array_equal(found["value"], [np.inf, 0.25, -np.inf, 0.75])


def test_a_triangle_is_stored_where_all_planes_are_symmetric():
    draw = np.random.default_rng(0)
    half = draw.uniform(size=(5, 5))
    whole = half + half.T
    whole[1, 2] = whole[2, 1] = np.nan
    assert is_symmetric([whole, np.full((5, 5), np.nan)])
    assert not is_symmetric([whole, half])
    assert not is_symmetric([half[:, :4]])
    assert entries(whole, symmetric=True).tolist()[:5] == whole[0].tolist()
    assert len(entries(whole, symmetric=True)) == 15
    assert len(entries(half, symmetric=False)) == 25


def test_large_values_keep_their_scale():
    given = np.array([0.0, 1e6, 3e6])
    found = unpacked(pack(planes(given)))["value"]
    assert np.abs(found - given).max() <= 3e6 / 65534 / 2
