"""HSIC as CUDA devices compute it for long inputs and float64, on CPU tensors."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from simcore import cka_grid, hsic_grid, reference
from simcore._ops import hsic_composed, hsic_plan
from simcore._ops.gram_composed import gram_terms
from simcore._ops.hsic_batched import median_squared_distances
from simcore._ops.hsic_composed import composed_terms
from support import tolerance
from support.cases import DTYPES, ESTIMATORS, HALVES, Case, exact, layers
from support.stand_in import CUDA, stand_in_device

FORMS = ("feature", "gram")
CASES = (
    *(Case(n) for n in (4, 33, 129)),
    *(Case(45, o, b) for o in (10.0, 1000.0) for b in (False, True)),
    Case(65, 10.0, widths=(300, 2, 129)),
)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("dtype", DTYPES + HALVES[:1], ids=str)
@pytest.mark.parametrize("form", FORMS)
def test_terms_match_the_twins(form, dtype, estimator, monkeypatch):
    monkeypatch.setattr(hsic_plan, "CPU_GRAM_ROWS", 17)
    monkeypatch.setattr(hsic_plan, "DEPTH", 19)
    for case in CASES:
        x, y = layers(case, dtype), layers(Case(case.n, widths=(12,)), dtype, seed=1)
        for other in ([], y):
            xy, xx, yy = composed_terms(x, other, estimator, form, 0)
            want = reference.hsic_grid(exact(x), exact(other or x), estimator=estimator)
            own = reference.hsic_grid(exact(x), estimator=estimator).diagonal()
            if dtype == torch.float64:
                tolerance.assert_close(xy, want, dtype)
                tolerance.assert_close(xx, own, dtype)
            else:  # in units of the layers, whose norms differ
                naive = [layer.double().numpy() for layer in x]
                scale = reference.hsic_grid(naive).diagonal()
                theirs = reference.hsic_grid(exact(other or x)).diagonal()
                unit = (scale[:, None] * theirs) ** 0.5
                tolerance.assert_float32_cka(xy.numpy() / unit, want / unit)
            if not other:
                assert torch.equal(xx, yy)
                assert torch.equal(xy, xy.T)


class Products(TorchDispatchMode):
    """Counts the matrix products of torch."""

    count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.count += "mm" in function.__name__
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("count", [5, 25])
def test_a_tile_takes_two_products_for_any_number_of_layers_of_one_width(count, monkeypatch):
    monkeypatch.setattr(hsic_plan, "CPU_GRAM_ROWS", 40)
    x = list(torch.randn(count, 400, 6).unbind())
    with Products() as products:
        composed_terms(x, [], "biased", "gram", 0)
    assert products.count == 2 * 55  # tiles


def test_many_layers_have_tiles_of_hundreds_of_rows():
    x = list(torch.randn(325, 600, 2).unbind())
    with Products() as products:
        composed_terms(x, [], "biased", "gram", 0)
    assert products.count <= 2 * 6


@pytest.mark.parametrize("form", FORMS)
def test_memory_only_cuts_tiles(form):
    x, y = layers(Case(200, 1.0, widths=(6, 40, 9))), layers(Case(200, widths=(6, 20)), seed=1)
    for other in ([], y):
        want = composed_terms(x, other, "unbiased", form, 2**30)
        limit, refused = 2**22, ""
        while not refused:
            try:
                got = composed_terms(x, other, "unbiased", form, limit)
            except ValueError as error:
                refused = str(error)
            else:
                for one, two in zip(got, want, strict=True):
                    torch.testing.assert_close(one, two, rtol=1e-12, atol=0)
                limit //= 4
        assert refused.startswith("max_memory: wanted at least")
        assert limit < 2**21


@pytest.mark.parametrize("wide", [False, True])
def test_the_device_takes_the_form_of_fewer_flops(wide, monkeypatch):
    """Long inputs: products of features; short ones: kernels; float64: torch's Gram matrices."""
    asked = []
    monkeypatch.setattr(
        hsic_composed,
        "composed_terms",
        lambda *arguments: asked.append(arguments[3]) or composed_terms(*arguments),
    )
    dtype = torch.float64 if wide else torch.float32
    long, short = torch.randn(3, 300, 4, dtype=dtype), torch.randn(3, 20, 40, dtype=dtype)
    for many, wanted in ((0.0, ["feature", *(["gram"] if wide else [])]), (1e11, [])):
        monkeypatch.setattr(hsic_composed, "MANY_FLOPS", many)
        asked.clear()
        with stand_in_device() as device:
            got = [cka_grid(layer.to(CUDA)) for layer in (long, short)]
        assert asked == wanted
        assert device.operators["gram_terms"] == 2 - len(wanted)
        for one, layer in zip(got, (long, short), strict=True):
            tolerance.assert_same(one.values, cka_grid(layer), dtype)


def test_the_lower_precision_is_that_of_kernels(monkeypatch):
    monkeypatch.setattr(hsic_composed, "MANY_FLOPS", 0.0)
    long = torch.randn(3, 300, 4)
    for given, launched in ((long, 1), (long.double(), 0)):
        with stand_in_device() as device:
            cka_grid(given.to(CUDA), precision="medium")
        assert device.operators["gram_terms"] == launched


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_form_of_features_can_be_asked_for(dtype):
    x = layers(Case(20, 1.0, widths=(40, 9)), dtype)
    with stand_in_device() as device:
        got = hsic_grid([layer.to(CUDA) for layer in x], method="feature")
        assert "gram_terms" not in device.operators
        x[1][3, 2] = torch.nan
        with pytest.raises(ValueError, match=r"X\[1\]: wanted finite values, got 1 NaN"):
            hsic_grid([layer.to(CUDA) for layer in x], method="feature")
    x[1][3, 2] = layers(Case(20, 1.0, widths=(40, 9)), dtype)[1][3, 2]
    tolerance.assert_same(got.values, hsic_grid(x), dtype)


class Launches(TorchDispatchMode):
    """Counts the operations that are no views."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, operator, types, arguments=(), options=None):
        self.count += not operator.is_view
        return operator(*arguments, **(options or {}))


@pytest.mark.parametrize("kernel, most", [("linear", 1), ("distance", 20)])
def test_a_device_reads_and_multiplies_many_layers_at_once(kernel, most, monkeypatch):
    """More layers are a few launches each, however many tiles there are."""
    monkeypatch.setattr(hsic_plan, "GRAM_ROWS", 16)
    counts = []
    for number in (10, 40):
        with stand_in_device(), Launches() as launches:
            x = list(torch.randn(number, 200, 6).to(CUDA))
            gram_terms(x, [], kernel, "unbiased", 1.0, 0, "highest")
        counts.append(launches.count)
    assert (counts[1] - counts[0]) / 30 <= most


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_equal_rows_are_0_apart(dtype):
    """More than half of all pairs are of equal rows, so that the RBF kernel has no width."""
    rows = torch.randn(16, 100, 12, generator=torch.Generator().manual_seed(0)).to(dtype)
    rows[:, 2:] = rows[:, 2:3]
    some = list(rows)
    assert gram_terms(some, [], "rbf", "biased", 1.0, 0, "highest")[1].isnan().all()
    assert not median_squared_distances(some, []).any()
