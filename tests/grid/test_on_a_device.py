"""The way to a CUDA device without one: every public grid and module on tensors that say `cuda`.

The stand-in (tests/support/stand_in.py) computes values and counts what waits for the device.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial

import pytest
import torch
from torch.utils._pytree import tree_leaves

import simcore
from simcore import nn, stats
from simcore._measures import MEASURES
from simcore._measures.record import ATTENTION, Measure
from simcore._ops.devices import CKA_INTERVAL, OTHERS
from support import tolerance
from support.stand_in import CUDA, OnStandIn, stand_in_device
from support.traced import ROWS

N = 40
# The places of simcore that wait for a device, and why. Each waits a number of times that does not
# depend on the number of layers, where that number is at most basis.DEVICE_BATCH.
WAITS = {
    "_grid.inputs:check_finite": "an error names a layer that holds NaN",
    "_grid.inputs:on_host": "decisions rest on the values: ranks, magnitudes",
    "_grid.finish:warn_undefined": "a warning names the layers without a value",
    "_grid.scale:_sampled_distances": "the places of sampled rows go to the device",
    "_grid.scale:in_range": "float64 layers are scaled where float64 needs it",
    "_grid.accuracy:warn_tied_neighbours": "a warning names layers whose neighbours tie",
    "_grid.finish:warn_left_out": "a warning counts rows of zeros, or neurons without variance",
    "_top:_warn_tied": "a warning counts the pairs whose weights depend on rounding",
    "_hsic:check_representable": "an error names a layer whose HSIC float64 lacks",
    "cka:cka_grid": "the grid goes to the device",
    "cka:hsic_grid": "the grid goes to the device",
    "minibatch:MinibatchCKA._apply": "the state goes to the device",
    "minibatch:MinibatchCKA.compute": "an error says that there was no batch",
    "_ops.rsa:_pearson_moments": "precisions of the layers' dtypes go to the device",
    "_ops.rsa:_moments_of_ranks": "which layers are ranked by differences of rows",
    "rsa:_exact_where_alike": "the dtypes that layers have go to the device",
    "_decomposed:_kept": "counts of components go to the device",
    "_ops.spectral_batched:_centred_side": "numbers of the layers of a stack go to the device",
    "_ops.spectral_batched:_basis_side": "the same",
    "_ops.spectral_batched:pwcca": "counts of components go to the device",
    "_ops.spectral_batched:_decompose": "torch reads whether decompositions have converged",
    "_ops.spectral_batched:_composed_systems": "the same",
    "_ops.polar:nuclear_norms_of": "the same, for float64",
    "_ops.attention:_checked": "an error names a layer of weights without a similarity",
    "_attention_layers:check_weights": "an error names a layer of weights too large for float64",
    "stats.permutation:_cka_values": "the permutations go to the device",
    "stats.bootstrap:_cka_values": "the counts of rows go to the device",
    "stats.bootstrap:_percentiles": "two shares go to the device",
    "stats.bootstrap:_warn_of_few_values": "a warning counts the pairs without an interval",
    "stats.bootstrap:_holding": "a warning names an interval without its value",
    "stats.moments:moment": "coefficients go to the device",
    "_top:top_of_table": "counts of neurons with variance",
    "subspaces:_whitened_layers": "layers whose covariance has no Cholesky factor",
    "_column_spaces:column_spaces": "Cholesky factors; mean rows outside the row spaces",
    "_column_spaces:_factored": "layers whose columns are certainly independent",
    "subspaces:eigenspace_overlap_grid": "layers of zeros go to the device",
    "_column_spaces:overlaps": "widths of the layers go to the device",
    "layer_descriptors:_warn_of_directions": "a warning counts the rows of zeros",
    "layer_descriptors:_uniformity_errors": "bounds on errors go to the device",
    "layer_descriptors:_exact_uniformity": "which layers are computed again",
    "subspaces:_unshared": "counts of components go to the device",
    "_transport:neuron_counts": "a warning counts the neurons without variance",
    "matching:aligned_cosine_grid": "a warning names a value that follows rounding",
    "matching:_near_again": "widths of the layers go to the device",
    "_ops.neurons_composed:_assigned": "the host assigns neurons",
    "_ops.aligned_composed:_along": "torch reads whether decompositions have converged",
    "_ops.aligned_composed:_side": "numbers of the layers of a stack go to the device",
    "_grid.accuracy:places_again": "which pairs are computed again",
    "_spectral_norms:spectral_differences": "exponents of the layers",
    "_spectral_norms:_lanczos": "iterations end where all pairs are known",
    "_spectral_norms:_largest": "torch reads whether decompositions have converged",
    "imd:_imd": "temperatures go to the device",
    "imd:_exact": "torch reads whether decompositions have converged",
    "imd:_estimates": "probes go to the device",
    "_ops.eigh:eigh": "torch reads whether decompositions have converged",
    "topology:_distances": "drawn rows go to the device, and distances to gudhi",
    "topology:_rtd": "the grid goes to the device",
    "_ops.nearest_composed:nearest_rows": "rows with many equal neighbours take all distances",
}


def layers(count: int, widths: tuple[int, ...], seed: int = 0) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shared = torch.randn(N, 3, generator=generator)
    return [
        torch.randn(N, widths[i % len(widths)], generator=generator) + shared[:, :1]
        for i in range(count)
    ]


def two_sides(count: int) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """``count`` layers of two widths, and two more."""
    return layers(count, (5, 7)), layers(2, (6,), seed=1)


def of_one_width(count: int) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """``count`` layers and two more, all of one width."""
    return layers(count, (5,)), layers(2, (5,), seed=1)


def heads(count: int) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Attention ``[S, H, t, t]`` of ``count`` layers, and of one more."""
    generator = torch.Generator().manual_seed(0)
    draws = [torch.rand(3, 2, 5, 5, generator=generator).softmax(-1) for _ in range(count + 1)]
    return draws[:-1], draws[-1:]


@dataclass(frozen=True)
class Job:
    """A grid, and the operators that it calls."""

    grid: Callable
    operators: tuple[str, ...]
    sides: Callable[[int], tuple[list[torch.Tensor], list[torch.Tensor]]] = two_sides

    def __str__(self) -> str:
        options = getattr(self.grid, "keywords", {})
        function = getattr(self.grid, "func", self.grid)
        named = (getattr(value, "__name__", str(value)) for value in options.values())
        return "-".join([function.__name__.lstrip("_"), *named])


def _minibatch(x: list[torch.Tensor], y: list[torch.Tensor]) -> torch.Tensor:
    metric = simcore.MinibatchCKA().to(x[0].device)
    for rows in (slice(0, 20), slice(20, None)):
        metric.update([t[rows] for t in x], [t[rows] for t in y])
    return metric.compute()


def _wide(x: list[torch.Tensor], y: list[torch.Tensor], grid: Callable) -> torch.Tensor:
    return grid([t.double() for t in x], [t.double() for t in y])


def _tested(x: list[torch.Tensor], y: list[torch.Tensor], **options: object) -> torch.Tensor:
    return stats.permutation_test(x, y, permutations=9, **options).calibrated


def _curve(x: list[torch.Tensor], y: list[torch.Tensor]) -> torch.Tensor:
    curve = simcore.knn_curve(x, y, queries=8, galleries=[20, N], k=4)
    return torch.stack([curve.values, curve.errors])


def _interval(x: list[torch.Tensor], y: list[torch.Tensor], **options: object) -> torch.Tensor:
    return stats.bootstrap_ci(x, y, resamples=9, **options).low


def _of_measure(measure: Measure) -> list[Job]:
    """Return a job for a measure, and for each variant that the documentation shows."""
    sides = two_sides
    if measure.takes == (ATTENTION,):
        sides = heads
    elif measure.equal_widths or measure.fixed.get("matching") == "transport":
        sides = of_one_width
    found = []
    for shown in measure.shown:
        grid = partial(getattr(simcore, measure.function), **{**measure.fixed, **shown.options})
        operators = measure.operators if shown.operators is None else shown.operators
        found.append(Job(grid, operators, sides))
    return found


HSIC = ("hsic_terms", "gram_terms")
OF_MEASURES = [job for measure in MEASURES.values() for job in _of_measure(measure)]
JOBS = [
    *OF_MEASURES,
    Job(partial(_wide, grid=simcore.cka_grid), HSIC),
    Job(partial(simcore.hsic_grid, kernel="rbf"), HSIC),
    Job(_minibatch, HSIC),
    Job(partial(simcore.svcca_grid, standardize=True), MEASURES["svcca"].operators),
    Job(partial(_wide, grid=simcore.svcca_grid), MEASURES["svcca"].operators),
    Job(partial(_wide, grid=simcore.pwcca_grid), ("principal_components", "pwcca")),
    Job(partial(_wide, grid=simcore.eigenspace_overlap_grid), ("principal_components", *HSIC)),
    Job(partial(simcore.neuronsim_grid, top_k=2), MEASURES["neuronsim"].operators),
    Job(partial(_wide, grid=simcore.cknna_grid), MEASURES["cknna"].operators),
    Job(partial(_wide, grid=simcore.aligned_cosine_grid), ("aligned_cosines",)),
    Job(partial(_wide, grid=simcore.attention_grid), ("attention_similarity",), heads),
    Job(partial(simcore.imd_grid, probes=10), MEASURES["imd"].operators),
    Job(_tested, ("permuted_gram_products", *HSIC)),
    Job(
        partial(_tested, kernel="rbf"),
        ("permuted_gram_products", "median_squared_distances", *HSIC),
    ),
    Job(partial(_tested, method="moments"), ("gram_power_sums", "hsic_terms", "gram_terms")),
    Job(partial(_interval, kernel="rbf", estimator="unbiased"), OTHERS[CKA_INTERVAL]),
    Job(partial(_interval, method="bootstrap"), ("permuted_gram_products", *HSIC)),
]
# The first job of a function: variants of it belong to the deep tier.
FIRST = {getattr(job.grid, "func", job.grid): job for job in reversed(JOBS)}.values()
EVERY = pytest.mark.parametrize(
    "job", [pytest.param(j, marks=() if j in FIRST else pytest.mark.deep) for j in JOBS], ids=str
)


def on_device(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    return [t.to(CUDA) for t in tensors]


@cache
def run(job: Job, count: int):
    """Run a job on the stand-in, once; return the grid and what the stand-in counted."""
    x, y = job.sides(count)
    with stand_in_device() as device:
        x, y = on_device(x), on_device(y)
        device.waits.clear()
        return job.grid(x, y), device


@EVERY
def test_grids_run_there_and_wait_as_often_for_any_number_of_layers(job):
    counted = []
    for count in (3, 6):
        grid, device = run(job, count)
        assert grid.device == CUDA
        assert set(device.operators) == set(job.operators)
        counted.append(device.waits)
        assert set(device.waits) <= set(WAITS)
    assert counted[0] == counted[1]
    tolerance.assert_same(grid.values, job.grid(*job.sides(6)), torch.float32)


def test_a_cka_grid_reads_the_device_once_and_hands_back_once():
    _, device = run(JOBS[0], 6)
    assert dict(device.waits) == {"_grid.inputs:on_host": 1, "cka:cka_grid": 1}
    assert device.queries == 0
    assert device.launches < 20  # 77 when the grid was normalised on the device


def test_a_curve_of_neighbours_waits_for_layers_and_not_for_pairs():
    for count in (3, 6):
        curve, device = run(Job(_curve, ()), count)
        assert dict(device.waits) == {
            "_grid.inputs:check_finite": 2,
            "gallery:knn_curve": 1,  # the order of the rows goes to the device
            "_ops.nearest_composed:nearest_of_first": 2 * (count + 2),  # of two galleries
            "_grid.finish:warn_undefined": 1,
            "_grid.accuracy:warn_tied_neighbours": 1,
        }
        tolerance.assert_same(curve.values, _curve(*two_sides(count)), torch.float64)


@pytest.mark.deep
def test_every_place_that_may_wait_does():
    waits = set()
    for job in JOBS:
        waits |= set(run(job, 3)[1].waits)
    assert set(WAITS) - waits == set()


def _refused(grid: Callable, x: list[torch.Tensor], y: list[torch.Tensor], match: str) -> None:
    with stand_in_device(), pytest.raises(ValueError, match=match):
        grid(on_device(x), on_device(y))


@EVERY
def test_entries_that_are_not_finite_are_refused_there(job):
    x, y = job.sides(3)
    x[1].flatten()[5] = float("nan")
    _refused(job.grid, x, y, r"\[1\]: wanted finite values, got 1 NaN")


def test_a_plan_is_for_the_cpu_alone():
    x, y = two_sides(3)
    _refused(simcore.plan_cka, x, y, r"X\[0\]: wanted device cpu for a plan, got cuda:0$")


def test_two_devices_are_refused():
    x, y = two_sides(3)
    with stand_in_device(), pytest.raises(ValueError, match=r"Y\[0\]: wanted device cuda:0 as in"):
        simcore.cka_grid(on_device(x), y)


def _losses(module: torch.nn.Module, method: str, x: torch.Tensor) -> list[torch.Tensor]:
    outputs = tree_leaves(getattr(module, method)(x))
    return torch.autograd.grad(
        sum(t.square().sum() for t in outputs), [x, *module.parameters()], allow_unused=True
    )


@pytest.mark.parametrize("reversible", [False, True])
@pytest.mark.parametrize("mixing", ["none", "permutation"])
def test_networks_run_there_without_waiting(mixing, reversible):
    torch.manual_seed(0)
    inn = nn.CouplingINN(
        6, 3, 5, depth=1, mixing=mixing, reversible=reversible, output_gain=1.0
    ).double()
    x = torch.randn(9, 6, dtype=torch.float64)
    for method in ("forward_and_log_abs_det", "inverse_and_log_abs_det"):
        want = _losses(inn, method, x.clone().requires_grad_())
        with stand_in_device() as device:
            there, of_x = copy.deepcopy(inn).to(CUDA), x.to(CUDA).requires_grad_()
            device.waits.clear()
            got = _losses(there, method, of_x)
        assert not device.waits
        assert set(device.operators) == set(OTHERS["nn.CouplingINN"])
        for one, other in zip(got, want, strict=True):
            tolerance.assert_same(one.values, other, torch.float64)


# Networks have parameters of their own: the test above moves them. Grids are jobs, too.
TRACED = [
    pytest.param(
        name, row, id=f"{name}-{i}", marks=pytest.mark.deep if name.endswith("_grid") else ()
    )
    for name, rows in ROWS.items()
    if not name.startswith("nn.")
    for i, row in enumerate(rows)
]


@pytest.mark.parametrize(("name", "row"), TRACED)
def test_every_public_name_runs_there(name, row):
    given = [t.detach() for t in row.inputs(24)]
    want = tree_leaves(row.function(*given))
    with stand_in_device():
        got = tree_leaves(row.function(*on_device(given)))
    for one, other in zip(got, want, strict=True):
        if isinstance(other, torch.Tensor):
            there = isinstance(one, OnStandIn)
            assert there == (name != "MinibatchCKA")  # whose state, and so its result, is here
            tolerance.assert_same(one.values if there else one, other, torch.float64)
        else:
            assert one == other
