"""`MinibatchCKA` against its twin and in torchmetrics' manner."""

import copy
import io
import sys

import numpy as np
import pytest
import torch

from simcore import MinibatchCKA, cka_grid, reference
from support import tolerance
from support.cases import DTYPES, HALVES, Case, exact, layers
from support.forks import in_fork

WIDTHS, OTHER = (7, 1, 20), (12, 3)
SIZES = (16, 16, 9, 5, 4)  # the last batches of an epoch are smaller


def batches(widths=WIDTHS, dtype=torch.float64, seed=0, offset=0.0, sizes=SIZES):
    whole = layers(Case(sum(sizes), offset=offset, widths=widths), dtype, seed=seed)
    return list(zip(*(layer.split(sizes) for layer in whole), strict=True))


def named(side):
    return [{"abc"[i]: layer for i, layer in enumerate(batch)} for batch in side]


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
    got, want = updated(MinibatchCKA(), *sides).compute(), twin(*sides)
    assert got.dtype == torch.float64
    assert got.shape == ((3, 2) if cross else (3, 3))
    if dtype == torch.float64:
        tolerance.assert_close(got, want, dtype)
    else:
        tolerance.assert_float32_cka(got, want)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_halves(dtype):
    x = batches(dtype=dtype)
    tolerance.assert_float32_cka(updated(MinibatchCKA(), x).compute(), twin(x))


def test_one_batch_is_the_unbiased_grid():
    x, y = layers(Case(33)), layers(Case(33, widths=OTHER), seed=1)
    got = updated(MinibatchCKA(), [x], [y]).compute()
    tolerance.assert_same(got, cka_grid(x, y, estimator="unbiased"), torch.float64)
    got = updated(MinibatchCKA(), [x]).compute()
    tolerance.assert_same(got, cka_grid(x, estimator="unbiased"), torch.float64)


def test_numpy_and_stacked_batches():
    x = batches(widths=(6, 6, 6))
    want = updated(MinibatchCKA(), x).compute()
    as_numpy = updated(MinibatchCKA(), [exact(batch) for batch in x]).compute()
    stacked = updated(MinibatchCKA(), [torch.stack(batch) for batch in x]).compute()
    for got in (as_numpy, stacked):
        np.testing.assert_array_equal(got, want)


def test_compute_may_be_called_between_updates():
    x = batches()
    metric = updated(MinibatchCKA(), x[:2])
    tolerance.assert_close(metric.compute(), twin(x[:2]), torch.float64)
    np.testing.assert_array_equal(metric.compute(), metric.compute())
    tolerance.assert_close(updated(metric, x[2:]).compute(), twin(x), torch.float64)


def test_order_of_the_batches_does_not_matter():
    x = batches()
    want = updated(MinibatchCKA(), x).compute()
    tolerance.assert_same(updated(MinibatchCKA(), x[::-1]).compute(), want, torch.float64)


def test_reset_forgets_everything():
    x = batches()
    metric = updated(MinibatchCKA(), x)
    metric.reset()
    np.testing.assert_array_equal(
        updated(metric, x[:2]).compute(), updated(MinibatchCKA(), x[:2]).compute()
    )


@pytest.mark.parametrize("prepare", [lambda metric: None, MinibatchCKA.reset])
def test_compute_before_update_gives_no_number(prepare):
    metric = MinibatchCKA()
    prepare(metric)
    with pytest.raises(RuntimeError, match="update"):
        metric.compute()


def test_merge_is_the_union_of_the_batches():
    x, y = batches(), batches(OTHER, seed=1)
    left = updated(MinibatchCKA(), x[:3], y[:3])
    right = updated(MinibatchCKA(), x[3:], y[3:])
    before = right.compute()
    left.merge(right)
    tolerance.assert_close(left.compute(), twin(x, y), torch.float64)
    np.testing.assert_array_equal(right.compute(), before)  # the other one is only read
    left.update(x[0], y[0])
    tolerance.assert_close(left.compute(), twin([*x, x[0]], [*y, y[0]]), torch.float64)


def test_merge_counts_batches_rather_than_halves():
    """One worker saw four batches, the other one: an average of two averages would differ."""
    x = batches()
    left, right = updated(MinibatchCKA(), x[:4]), updated(MinibatchCKA(), x[4:])
    left.merge(right)
    tolerance.assert_close(left.compute(), twin(x), torch.float64)


def test_merge_with_an_empty_one_changes_nothing():
    metric = updated(MinibatchCKA(), batches())
    want = metric.compute()
    metric.merge(MinibatchCKA())
    np.testing.assert_array_equal(metric.compute(), want)


OTHERS = {"fewer": batches(WIDTHS[:2]), "names": named(batches())}


@pytest.mark.parametrize("name", [*OTHERS, "Y"])
def test_other_layers_are_refused(name):
    x = batches()
    metric = updated(MinibatchCKA(), x)
    other = (x, x) if name == "Y" else (OTHERS[name],)
    with pytest.raises(ValueError, match="other: wanted the same layers"):
        metric.merge(updated(MinibatchCKA(), *other))
    with pytest.raises(ValueError, match=f"^{'Y' if name == 'Y' else 'X'}_batch: wanted"):
        metric.update(*(side[0] for side in other))
    np.testing.assert_array_equal(metric.compute(), updated(MinibatchCKA(), x).compute())


def test_names_are_those_of_the_first_batch():
    x, y = batches(), batches(OTHER, seed=1)
    metric = updated(MinibatchCKA(), named(x), named(y))
    found = metric.comparison()
    assert (found.rows, found.columns, found.n) == (("a", "b", "c"), ("a", "b"), sum(SIZES))
    assert torch.equal(found.values, metric.compute())
    assert updated(MinibatchCKA(), x).comparison().columns == ("0", "1", "2")
    turned = dict(reversed(named(x)[0].items()))
    with pytest.raises(ValueError, match=r"X_batch: wanted .* a, b, c, got c, b, a"):
        metric.update(turned, named(y)[0])
    kept = MinibatchCKA()
    kept.load_state_dict(metric.state_dict())
    assert kept.comparison()["c", "a"] == found["c", "a"]


def test_an_empty_one_takes_what_it_is_merged_with():
    x, y = batches(), batches(OTHER, seed=1)
    metric, other = MinibatchCKA(), updated(MinibatchCKA(), x, y)
    metric.merge(other)
    np.testing.assert_array_equal(metric.compute(), other.compute())
    np.testing.assert_array_equal(updated(metric, x[:1], y[:1]).xx, updated(other, x[:1], y[:1]).xx)


def of_process(rank, store, results):
    """Reduce what two processes have seen: some batches, then those of one process alone."""
    torch.distributed.init_process_group("gloo", f"file://{store}", rank=rank, world_size=2)
    x = named(batches())
    metric = updated(MinibatchCKA(), x[:3] if rank == 0 else x[3:])
    own = metric.compute()
    total = metric.all_reduce()
    assert torch.equal(metric.all_reduce().xy, total.xy)
    assert torch.equal(metric.compute(), own)
    alone = updated(MinibatchCKA(), x[:2] if rank == 1 else []).all_reduce()
    try:
        updated(MinibatchCKA(), batches() if rank else x).all_reduce()
    except ValueError as error:
        refused = str(error)
    torch.save((total.comparison().columns, total.state_dict(), alone.compute(), refused), results)
    torch.distributed.destroy_process_group()


def test_two_processes_reduce_to_what_one_computes(tmp_path):
    x = named(batches())
    want = updated(MinibatchCKA(), x)
    in_fork(f"""
import os
import sys
sys.path[:] = {sys.path!r}
from hsic.test_minibatch import of_process
child = os.fork()
rank = int(child == 0)
of_process(rank, {str(tmp_path / "store")!r}, f"{tmp_path}/{{rank}}")
if child:
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
""")
    for rank in range(2):
        names, state, alone, refused = torch.load(tmp_path / str(rank), weights_only=True)
        assert names == ("a", "b", "c")
        total = MinibatchCKA()
        total.load_state_dict(state)
        tolerance.assert_close(total.compute(), want.compute(), torch.float64)
        assert (int(total.batches), total.comparison().n) == (len(SIZES), sum(SIZES))
        assert torch.equal(alone, updated(MinibatchCKA(), x[:2]).compute())
        assert refused.startswith("all_reduce: wanted the same layers in every module")


def test_merge_refuses_other_things():
    with pytest.raises(TypeError, match=r"other.*MinibatchCKA.*Linear"):
        MinibatchCKA().merge(torch.nn.Linear(2, 2))


def test_state_survives_saving_in_the_middle_of_an_epoch():
    x = batches()
    file = io.BytesIO()
    torch.save(updated(MinibatchCKA(), x[:2]).state_dict(), file)
    file.seek(0)
    resumed = MinibatchCKA()
    assert resumed.load_state_dict(torch.load(file, weights_only=True))
    want = updated(MinibatchCKA(), x).compute()
    np.testing.assert_array_equal(updated(resumed, x[2:]).compute(), want)


def test_state_of_other_layers_is_refused():
    other = updated(MinibatchCKA(), batches(WIDTHS[:2]))
    with pytest.raises(RuntimeError, match="size mismatch"):
        updated(MinibatchCKA(), batches()).load_state_dict(other.state_dict())


def test_is_a_module_without_parameters_that_can_be_copied():
    metric = updated(MinibatchCKA(), batches())
    assert isinstance(metric, torch.nn.Module)
    assert not list(metric.parameters())
    assert copy.deepcopy(metric).compute().equal(metric.compute())


def test_updates_keep_no_graph_and_no_inputs():
    metric = MinibatchCKA()
    for batch in batches():
        metric.update([layer.clone().requires_grad_() for layer in batch])
    assert not metric.compute().requires_grad
    assert not any(state.requires_grad for state in metric.buffers())


@pytest.mark.parametrize("convert", ["half", "bfloat16", "float", "double"])
def test_sums_stay_float64(convert):
    """A model's dtype is not that of its metrics."""
    x = batches()
    metric = updated(MinibatchCKA(), x[:2])
    want = updated(MinibatchCKA(), x).compute()
    model = torch.nn.ModuleDict({"metric": metric, "layer": torch.nn.Linear(2, 2)})
    getattr(model, convert)()
    assert model["layer"].weight.dtype == getattr(torch.empty(0), convert)().dtype
    assert [state.dtype for state in metric.buffers()] == [torch.float64] * 3 + [torch.int64] * 2
    np.testing.assert_array_equal(updated(metric, x[2:]).compute(), want)
    metric.to(torch.float16)
    np.testing.assert_array_equal(metric.compute(), want)


def test_state_moves_to_another_device():
    metric = updated(MinibatchCKA(), batches()).to("meta", torch.float16)
    assert {state.device.type for state in metric.buffers()} == {"meta"}
    assert metric.xy.dtype == torch.float64
    back = metric.to_empty(device="cpu")
    assert {state.device.type for state in back.buffers()} == {"cpu"}


def test_the_cka_of_a_batch_is_differentiable():
    x = [layer.clone().requires_grad_() for layer in batches()[0]]
    metric = MinibatchCKA()
    got = torch.autograd.grad(metric(x)[0].sum(), x)
    want = torch.autograd.grad(cka_grid(x, estimator="unbiased")[0].sum(), x)
    for one, other in zip(got, want, strict=True):
        tolerance.assert_same(one, other, torch.float64)
    assert not metric.compute().requires_grad


def test_inputs_are_not_modified():
    x = batches()[0]
    before = [layer.clone() for layer in x]
    MinibatchCKA().update(x)
    assert all(layer.equal(copied) for layer, copied in zip(x, before, strict=True))


def test_a_refused_batch_leaves_the_state_alone():
    x = batches()
    metric = updated(MinibatchCKA(), x[:2])
    want = metric.compute()
    for bad in ([layer[:3] for layer in x[0]], x[0][:2], [layer * torch.nan for layer in x[0]]):
        with pytest.raises(ValueError, match="X"):
            metric.update(bad)
    np.testing.assert_array_equal(metric.compute(), want)


def test_constant_layer_is_nan_and_warned_about_once_per_compute():
    x = [[*batch[:2], torch.ones_like(batch[2])] for batch in batches()]
    metric = updated(MinibatchCKA(), x)
    with pytest.warns(UserWarning, match=r"\b2\b") as record:
        grid = metric.compute()
    assert len(record) == 1
    assert grid[2].isnan().all()
    assert grid[:2, :2].isfinite().all()
