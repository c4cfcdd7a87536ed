"""`MinibatchCKA` against its twin and in torchmetrics' manner."""

import copy
import io

import numpy as np
import pytest
import torch

from simcore import MinibatchCKA, cka_grid, reference
from support import tolerance
from support.cases import DTYPES, HALVES, Case, exact, layers

WIDTHS, OTHER = (7, 1, 20), (12, 3)
SIZES = (16, 16, 9, 5, 4)  # the last batches of an epoch are smaller


def batches(widths=WIDTHS, dtype=torch.float64, seed=0, offset=0.0, sizes=SIZES):
    whole = layers(Case(sum(sizes), offset=offset, widths=widths), dtype, seed=seed)
    return list(zip(*(layer.split(sizes) for layer in whole), strict=True))


def updated(metric, *sides):
    for batch in zip(*sides, strict=True):
        metric.update(*batch)
    return metric


def twin(*sides):
    return reference.minibatch_cka(*([exact(batch) for batch in side] for side in sides))


@pytest.mark.parametrize("offset", [0.0, 10.0, 1000.0])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("cross", [False, True])
def test_agrees_with_the_twin(cross, dtype, offset):
    x = batches(dtype=dtype, offset=offset)
    sides = (x, batches(OTHER, dtype, seed=1)) if cross else (x,)
    metric = MinibatchCKA(3, 2) if cross else MinibatchCKA(3)
    got, want = updated(metric, *sides).compute(), twin(*sides)
    assert got.dtype == torch.float64
    assert got.shape == ((3, 2) if cross else (3, 3))
    if dtype == torch.float64:
        tolerance.assert_close(got, want, dtype)
    else:
        tolerance.assert_float32_cka(got, want)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_halves(dtype):
    x = batches(dtype=dtype)
    tolerance.assert_float32_cka(updated(MinibatchCKA(3), x).compute(), twin(x))


def test_one_batch_is_the_unbiased_grid():
    x, y = layers(Case(33)), layers(Case(33, widths=OTHER), seed=1)
    got = updated(MinibatchCKA(4, 2), [x], [y]).compute()
    tolerance.assert_same(got, cka_grid(x, y, estimator="unbiased"), torch.float64)
    got = updated(MinibatchCKA(4), [x]).compute()
    tolerance.assert_same(got, cka_grid(x, estimator="unbiased"), torch.float64)


def test_numpy_and_stacked_batches():
    x = batches(widths=(6, 6, 6))
    want = updated(MinibatchCKA(3), x).compute()
    as_numpy = updated(MinibatchCKA(3), [exact(batch) for batch in x]).compute()
    stacked = updated(MinibatchCKA(3), [torch.stack(batch) for batch in x]).compute()
    for got in (as_numpy, stacked):
        np.testing.assert_array_equal(got, want)


def test_compute_may_be_called_between_updates():
    x = batches()
    metric = updated(MinibatchCKA(3), x[:2])
    tolerance.assert_close(metric.compute(), twin(x[:2]), torch.float64)
    np.testing.assert_array_equal(metric.compute(), metric.compute())
    tolerance.assert_close(updated(metric, x[2:]).compute(), twin(x), torch.float64)


def test_order_of_the_batches_does_not_matter():
    x = batches()
    want = updated(MinibatchCKA(3), x).compute()
    tolerance.assert_same(updated(MinibatchCKA(3), x[::-1]).compute(), want, torch.float64)


def test_reset_forgets_everything():
    x = batches()
    metric = updated(MinibatchCKA(3), x)
    metric.reset()
    np.testing.assert_array_equal(
        updated(metric, x[:2]).compute(), updated(MinibatchCKA(3), x[:2]).compute()
    )


@pytest.mark.parametrize("prepare", [lambda metric: None, MinibatchCKA.reset])
def test_compute_before_update_gives_no_number(prepare):
    metric = MinibatchCKA(3)
    prepare(metric)
    with pytest.raises(RuntimeError, match="update"):
        metric.compute()


def test_merge_is_the_union_of_the_batches():
    x, y = batches(), batches(OTHER, seed=1)
    left = updated(MinibatchCKA(3, 2), x[:3], y[:3])
    right = updated(MinibatchCKA(3, 2), x[3:], y[3:])
    before = right.compute()
    left.merge(right)
    tolerance.assert_close(left.compute(), twin(x, y), torch.float64)
    np.testing.assert_array_equal(right.compute(), before)  # the other one is only read
    left.update(x[0], y[0])
    tolerance.assert_close(left.compute(), twin([*x, x[0]], [*y, y[0]]), torch.float64)


def test_merge_counts_batches_rather_than_halves():
    """One worker saw four batches, the other one: an average of two averages would differ."""
    x = batches()
    left, right = updated(MinibatchCKA(3), x[:4]), updated(MinibatchCKA(3), x[4:])
    left.merge(right)
    tolerance.assert_close(left.compute(), twin(x), torch.float64)


def test_merge_with_an_empty_one_changes_nothing():
    metric = updated(MinibatchCKA(3), batches())
    want = metric.compute()
    metric.merge(MinibatchCKA(3))
    np.testing.assert_array_equal(metric.compute(), want)


@pytest.mark.parametrize("other", [MinibatchCKA(2), MinibatchCKA(3, 2), MinibatchCKA(3, 3)])
def test_merge_refuses_other_layers(other):
    with pytest.raises(ValueError, match="other"):
        MinibatchCKA(3).merge(other)


def test_merge_refuses_other_things():
    with pytest.raises(TypeError, match=r"other.*MinibatchCKA.*Linear"):
        MinibatchCKA(3).merge(torch.nn.Linear(2, 2))


def test_state_survives_saving_in_the_middle_of_an_epoch():
    x = batches()
    file = io.BytesIO()
    torch.save(updated(MinibatchCKA(3), x[:2]).state_dict(), file)
    file.seek(0)
    resumed = MinibatchCKA(3)
    assert resumed.load_state_dict(torch.load(file, weights_only=True))
    want = updated(MinibatchCKA(3), x).compute()
    np.testing.assert_array_equal(updated(resumed, x[2:]).compute(), want)


def test_state_of_other_layers_is_refused():
    with pytest.raises(RuntimeError, match="size mismatch"):
        MinibatchCKA(3).load_state_dict(MinibatchCKA(2).state_dict())


def test_is_a_module_without_parameters_that_can_be_copied():
    metric = updated(MinibatchCKA(3), batches())
    assert isinstance(metric, torch.nn.Module)
    assert not list(metric.parameters())
    assert copy.deepcopy(metric).compute().equal(metric.compute())


def test_updates_keep_no_graph_and_no_inputs():
    metric = MinibatchCKA(3)
    for batch in batches():
        metric.update([layer.clone().requires_grad_() for layer in batch])
    assert not metric.compute().requires_grad
    assert not any(state.requires_grad for state in metric.buffers())


@pytest.mark.parametrize("convert", ["half", "bfloat16", "float", "double"])
def test_sums_stay_float64(convert):
    """A model's dtype is not that of its metrics."""
    x = batches()
    metric = updated(MinibatchCKA(3), x[:2])
    want = updated(MinibatchCKA(3), x).compute()
    model = torch.nn.ModuleDict({"metric": metric, "layer": torch.nn.Linear(2, 2)})
    getattr(model, convert)()
    assert model["layer"].weight.dtype == getattr(torch.empty(0), convert)().dtype
    assert [state.dtype for state in metric.buffers()] == [torch.float64] * 3 + [torch.int64]
    np.testing.assert_array_equal(updated(metric, x[2:]).compute(), want)
    metric.to(torch.float16)
    np.testing.assert_array_equal(metric.compute(), want)


def test_state_moves_to_another_device():
    metric = updated(MinibatchCKA(3), batches()).to("meta", torch.float16)
    assert {state.device.type for state in metric.buffers()} == {"meta"}
    assert metric.xy.dtype == torch.float64
    back = metric.to_empty(device="cpu")
    assert {state.device.type for state in back.buffers()} == {"cpu"}


def test_the_cka_of_a_batch_is_differentiable():
    x = [layer.clone().requires_grad_() for layer in batches()[0]]
    metric = MinibatchCKA(3)
    got = torch.autograd.grad(metric(x)[0].sum(), x)
    want = torch.autograd.grad(cka_grid(x, estimator="unbiased")[0].sum(), x)
    for one, other in zip(got, want, strict=True):
        tolerance.assert_same(one, other, torch.float64)
    assert not metric.compute().requires_grad


def test_inputs_are_not_modified():
    x = batches()[0]
    before = [layer.clone() for layer in x]
    MinibatchCKA(3).update(x)
    assert all(layer.equal(copied) for layer, copied in zip(x, before, strict=True))


def test_a_refused_batch_leaves_the_state_alone():
    x = batches()
    metric = updated(MinibatchCKA(3), x[:2])
    want = metric.compute()
    for bad in ([layer[:3] for layer in x[0]], x[0][:2], [layer * torch.nan for layer in x[0]]):
        with pytest.raises(ValueError, match="X"):
            metric.update(bad)
    np.testing.assert_array_equal(metric.compute(), want)


def test_constant_layer_is_nan_and_warned_about_once_per_compute():
    x = [[*batch[:2], torch.ones_like(batch[2])] for batch in batches()]
    metric = updated(MinibatchCKA(3), x)
    with pytest.warns(UserWarning, match=r"\b2\b") as record:
        grid = metric.compute()
    assert len(record) == 1
    assert grid[2].isnan().all()
    assert grid[:2, :2].isfinite().all()


@pytest.mark.parametrize("counts", [(0,), (-1,), (3, 0)])
def test_layer_counts_have_to_be_positive(counts):
    with pytest.raises(ValueError, match=r"n_layers_[xy]"):
        MinibatchCKA(*counts)


@pytest.mark.parametrize("counts", [(2.5,), (True,), ("a",), (3, 2.5)], ids=str)
def test_layer_counts_have_to_be_integers(counts):
    with pytest.raises(TypeError, match=r"n_layers_[xy]: wanted an integer, got"):
        MinibatchCKA(*counts)
