"""The contract of distances and of measures of uncentred layers: inputs, warnings, errors."""

import warnings

import numpy as np
import pytest
import torch

import simcore
from simcore import bases, cosine_grid, descriptor_grid, gulp_grid, procrustes_grid
from support import tolerance
from support.bad_inputs import ENTRIES, LAYERS, X, Y, assert_refused, rows, spoiled
from support.cases import Case, exact, noted
from support.distance_table import DISTANCE_ROWS

EVERY = pytest.mark.parametrize("measure", DISTANCE_ROWS, ids=str)
# One row a function.
FUNCTIONS = tuple({measure.function: measure for measure in DISTANCE_ROWS}.values())
ONCE = pytest.mark.parametrize("measure", FUNCTIONS, ids=str)


@pytest.fixture(autouse=True)
def _warnings_are_errors():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def degenerate(measure, kind):
    """Layers of which the second is constant, zeros, or centred."""
    x = measure.layers(Case(40, 1.0, widths=(9, 6, 17)))
    if kind == "constant":
        x[1] = torch.full_like(x[1], 0.3) + torch.arange(x[1].shape[1])
    elif kind == "zeros":
        x[1] = torch.zeros_like(x[1])
    else:
        x[1] = x[1] - x[1].mean(0)
    return x


@EVERY
def test_layers_without_a_value_are_nan_and_leave_the_others_alone(measure):
    no_value = {
        "constant": measure.undefined == "variance",
        "zeros": measure.undefined in ("variance", "zeros"),
        "centred": measure.name == "concentricity",
    }
    for kind, undefined in no_value.items():
        x = degenerate(measure, kind)
        if not undefined:
            grid = measure(x)
            tolerance.assert_other(measure, grid, measure.twin(x), exact(x), None, torch.float64)
            assert bool(grid.isfinite().all())
            continue
        for left, right in ((x, None), (x, x[:2]), (x[1:], x)):
            with pytest.warns(UserWarning, match=rf"{measure.function}: nan for") as caught:
                grid = measure(left, right)
            assert len(caught) == 1
            assert caught[0].filename.endswith("measure_table.py")
            places = [[layer is x[1] for layer in side] for side in (left, right or left)]
            expected = np.logical_or.outer(*places)
            np.testing.assert_array_equal(grid.isnan(), expected)
        tolerance.assert_other(
            measure,
            measure([x[0], x[2]]),
            measure.twin([x[0], x[2]]),
            exact([x[0], x[2]]),
            None,
            torch.float64,
        )


@pytest.mark.parametrize("name", ["cosine", "angular", "concentricity", "aligned-cosine"])
def test_rows_of_zeros_are_left_out_and_counted(name):
    measure = next(m for m in DISTANCE_ROWS if m.name == name)
    x, y = measure.sides()
    x[0][3:5], y[1][4] = 0, 0
    with pytest.warns(UserWarning, match=r"rows of zeros are left out: 2 of X\[0\], 1 of Y\[1\]"):
        grid = measure(x, y)
    tolerance.assert_other(measure, grid, measure.twin(x, y), exact(x), exact(y), torch.float64)


@pytest.mark.parametrize(
    "function", [gulp_grid, simcore.eigenspace_overlap_grid], ids=lambda f: f.__name__
)
def test_layers_that_span_all_rows_are_warned_of(function):
    x = [torch.randn(30, 40, dtype=torch.float64), torch.randn(30, 5, dtype=torch.float64)]
    with pytest.warns(
        UserWarning, match=f"^{function.__name__}: n = 30 .* independent columns of X\\[0\\]: "
    ):
        function(x)


def narrow(value):
    """The arguments with all layers five wide, where the measure asks for equal widths."""
    if isinstance(value, list | tuple):
        return type(value)(narrow(item) for item in value)
    if isinstance(value, torch.Tensor) and value.ndim == 2 and value.shape[1] > 5:
        return value[:, :5]
    return value


@ONCE
def test_messages(measure):
    for name, (arguments, *expected) in {**LAYERS, **ENTRIES}.items():
        wide = not measure.equal_widths or name == "one matrix for a list"
        with noted(name):
            assert_refused(measure, arguments if wide else narrow(arguments), *expected)
    good = narrow(X) if measure.equal_widths else X
    bad = [good[0], spoiled(spoiled(good[1], torch.nan, 5), torch.inf, 2), good[2]]
    for arguments, side in (((bad,), "X"), ((good, bad), "Y"), ((bad, good), "X")):
        with pytest.raises(ValueError, match=rf"{side}\[1\].*\b5\b.*\b{good[1].numel()}\b"):
            measure(*arguments)
    with pytest.raises(TypeError, match="positional"):
        measure.grid(X, Y, 2**30)


OPTIONS = {
    "form of procrustes": (
        procrustes_grid,
        (X,),
        {"form": "angle"},
        ValueError,
        "form similarity distance angular size-and-shape angle",
    ),
    "form of cosines": (cosine_grid, (X,), {"form": "sine"}, ValueError, "form cosine angular"),
    "norm": (
        simcore.rsm_difference_grid,
        (X,),
        {"norm": "nuclear"},
        ValueError,
        "norm frobenius spectral nuclear",
    ),
    "ridge": (gulp_grid, (X,), {"ridge": -0.1}, ValueError, "ridge 0 0.1"),
    "no ridge": (gulp_grid, (X,), {"ridge": None}, ValueError, "ridge None"),
    "descriptor": (
        descriptor_grid,
        (X,),
        {"descriptor": "size"},
        ValueError,
        "descriptor magnitude concentricity uniformity size",
    ),
    "widths of X": (cosine_grid, (X,), {}, ValueError, "X 1 5 0 6"),
    "widths of Y": (cosine_grid, (X[:1], Y), {}, ValueError, "Y 0 5 X 8"),
    "classes": (simcore.disagreement_grid, (X[:1], Y), {}, ValueError, "Y 0 5 classes X 8"),
    "classes of logits": (
        simcore.output_divergence_grid,
        (X,),
        {},
        ValueError,
        "X 1 5 classes X 0 6",
    ),
    "descriptors of what": (simcore.descriptors, ([rows(0)],), {}, ValueError, "layers 0"),
    "bases": (cosine_grid, (bases(X),), {}, TypeError, "X 0 Basis"),
    "one row": (simcore.rsm_difference_grid, ([rows(1)],), {}, ValueError, "X 0 2 1"),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_option(name):
    function, *expected = OPTIONS[name]
    assert_refused(function, *expected)
