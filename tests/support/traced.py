"""Every public name that takes tensors, as functions of tensors that torch can trace.

`ROWS` has a row for each traced name; those of measures come from their records. `NOT_TRACED` says
why other names have none. ``test_compile.py`` fails for a name in neither.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from dataclasses import dataclass, fields

import torch
from torch import Tensor

import simcore
from simcore import align, nn, stats
from simcore._measures import MEASURES
from support.trained import trained

Inputs = Callable[[int], tuple[Tensor, ...]]


def leaf(values: Tensor) -> Tensor:
    """Return a float64 copy that requires a gradient."""
    return values.double().requires_grad_()


def layers(n: int) -> tuple[Tensor, ...]:
    """Return three layers of n rows: two of X, one of Y."""
    generator = torch.Generator().manual_seed(n)
    return tuple(leaf(torch.randn(n, p, generator=generator)) for p in (5, 3, 4))


def heads(n: int) -> tuple[Tensor, ...]:
    """Attention ``[S, H, t, t]`` of two layers, t = n // 4."""
    t, generator = n // 4, torch.Generator().manual_seed(n)
    draws = (torch.randn(3, h, t, t, generator=generator) for h in (2, 4))
    return tuple(leaf(draw.double().softmax(-1)) for draw in draws)


def grids(n: int) -> tuple[Tensor, ...]:
    """Two square grids of n layers."""
    generator = torch.Generator().manual_seed(n)
    return tuple(leaf(torch.rand(n, n, generator=generator)) for _ in range(2))


def rows(n: int) -> tuple[Tensor, ...]:
    """n rows for maps of 6 columns."""
    generator = torch.Generator().manual_seed(n)
    return (leaf(torch.randn(n, 6, generator=generator)),)


@dataclass(frozen=True)
class Row:
    """A call of a public function: ``function(*inputs(n))`` returns tensors or lists of them."""

    function: Callable[..., object]
    inputs: Inputs = layers
    module: torch.nn.Module | None = None  # the result depends on its parameters
    sizes: tuple[int, ...] = (24, 32)  # numbers of rows; the second compiles with a symbol for it


def _grid(grid: Callable[..., object], **options: object) -> Row:
    return Row(lambda a, b, c: grid([a, b], [c], **options))


def _minibatch(step: Callable[..., object], *, both: bool = True) -> Row:
    metric = simcore.MinibatchCKA()
    x, y, other = layers(24)
    metric.update([x, y], [other] if both else None)  # traced code learns no layers

    def function(a: Tensor, b: Tensor, c: Tensor) -> object:
        metric.reset()
        return step(metric, [a, b], [c])

    return Row(function)


def _updated(metric: simcore.MinibatchCKA, x: list[Tensor], y: list[Tensor]) -> Tensor:
    for part in (slice(0, 9), slice(9, None)):
        metric.update([t[part] for t in x], [t[part] for t in y])
    return metric.compute()


def _merged(metric: simcore.MinibatchCKA, x: list[Tensor], y: list[Tensor]) -> Tensor:
    metric.update(x, y)
    metric.merge(metric)
    return metric.compute()


def _inn(method: str, **options: object) -> Row:
    torch.manual_seed(0)
    inn = nn.CouplingINN(6, 2, 5, depth=1, output_gain=1.0, **options).double()
    # Compiling a network takes seconds: only one direction compiles with a symbol.
    return Row(getattr(inn, method), rows, inn, (24, 32) if method.startswith("forward") else (24,))


def _aligner(aligner: align.Aligner) -> list[Row]:
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(2, 40, 6, generator=generator, dtype=torch.float64).unbind()
    aligner.fit(x, y)
    methods = ["transform"]
    if not isinstance(aligner, align.MLPAligner):
        methods.append("inverse_transform")
    return [Row(getattr(aligner, method), rows) for method in methods]


def _result(test: Callable[..., object], **options: object) -> Row:
    return Row(lambda a, b, c: list_of(test([a, b], [c], **options)))


# torch 2.11 does not trace through the functions that ask a dataclass for its fields.
FIELDS = {
    kind: [field.name for field in fields(kind)]
    for kind in (stats.PermutationTest, stats.BootstrapInterval, simcore.Basis, simcore.KnnCurve)
}


def list_of(result: object) -> object:
    """Return the tensors of a dataclass or of a list of them as a list; else the result itself."""
    if isinstance(result, list):
        return [list_of(item) for item in result]
    if isinstance(result, simcore.Neighbours):
        return [result.index, result.values, result.squares]
    if type(result) in FIELDS:
        values = [getattr(result, name) for name in FIELDS[type(result)]]
        return [value for value in values if isinstance(value, Tensor)]
    return result


def _modules() -> dict[str, list[Row]]:
    torch.manual_seed(0)
    coupling = nn.AffineCoupling(6, 5, output_gain=1.0).double()
    linear, mlp = nn.BatchedLinear(6, 4).double(), nn.BatchedMLP(6, 5, 4).double()
    names = ("forward", "inverse", "log_abs_det")
    both = ("forward_and_log_abs_det", "inverse_and_log_abs_det")
    return {
        "nn.AffineCoupling": [Row(getattr(coupling, name), rows, coupling) for name in names],
        "nn.BatchedLinear": [Row(lambda x: linear(x[None]), rows, linear)],
        "nn.BatchedMLP": [Row(lambda x: mlp(x[None]), rows, mlp)],
        "nn.CouplingINN": [
            *(_inn(name) for name in names),
            *(_inn(name, mixing="permutation") for name in both),
            *(_inn(name, reversible=True) for name in names),
            *(_inn(name, reversible=True, mixing="permutation") for name in both),
        ],
    }


def _aligners() -> dict[str, list[Row]]:
    small = {"hidden": 4, "max_epochs": 2}
    return {
        "align.LinearAligner": _aligner(align.LinearAligner()),
        "align.GradientLinearAligner": _aligner(
            align.GradientLinearAligner(**trained(max_epochs=2))
        ),
        "align.CCAAligner": _aligner(align.CCAAligner()),
        "align.SVCCAAligner": _aligner(align.SVCCAAligner()),
        "align.PWCCAAligner": _aligner(align.PWCCAAligner()),
        "align.INNAligner": _aligner(align.INNAligner(**trained(n_blocks=2, **small))),
        "align.MLPAligner": _aligner(align.MLPAligner(**trained(**small))),
    }


def _basis_rows() -> list[Row]:
    def cut(a: Tensor, b: Tensor, c: Tensor) -> object:
        basis = simcore.bases([a, b, c])[0]
        return list_of([basis.truncate(2), basis.truncate(0.5)])

    def stored(a: Tensor, b: Tensor, c: Tensor) -> object:
        basis = simcore.bases([a])[0].permute(torch.arange(len(a) - 1, -1, -1))
        return list_of(simcore.Basis.from_state_dict(basis.state_dict()))

    def compared(a: Tensor, b: Tensor, c: Tensor) -> object:
        return simcore.svcca_grid(simcore.bases([a, b]), simcore.bases([c]))

    return [Row(cut), Row(stored), Row(compared)]


def _permuted_row() -> Row:
    def permuted(a: Tensor, b: Tensor, c: Tensor) -> object:
        order = torch.arange(len(a) - 1, -1, -1)
        return list_of([one.permute(order) for one in simcore.neighbours([a, b], 2)])

    return Row(permuted)


def _narrow(grid: Callable[..., object], **options: object) -> Row:
    """Layers of one width."""
    return Row(lambda a, b, c: grid([a[:, :3], b], [c[:, :3]], **options))


def _of_measures() -> dict[str, list[Row]]:
    """Rows of the grids of all records, with the options that the documentation shows."""
    found: dict[str, list[Row]] = {}
    for measure in MEASURES.values():
        row = _narrow if measure.equal_widths else _grid
        function, rows = getattr(simcore, measure.function), found.setdefault(measure.function, [])
        rows += [row(function, **{**measure.fixed, **shown.options}) for shown in measure.shown]
    return found


def _table() -> dict[str, list[Row]]:
    attention = simcore.attention_grid
    return {
        **_of_measures(),
        "cka_grid": [
            _grid(simcore.cka_grid),
            _grid(simcore.cka_grid, estimator="unbiased", method="gram", progress=True),
            _grid(simcore.cka_grid, kernel="rbf", bandwidth=0.5),
            Row(lambda a, b, c: simcore.cka_grid([a, b, c])),
            Row(lambda a, b, c: simcore.cka_grid(torch.stack([a, a + 1, a.square()]))),
        ],
        "hsic_grid": [_grid(simcore.hsic_grid), _grid(simcore.hsic_grid, kernel="rbf")],
        "rsa_grid": [_grid(simcore.rsa_grid), _grid(simcore.rsa_grid, correlation="spearman")],
        "cca_grid": [
            _grid(simcore.cca_grid, truncation=0.9),
            _grid(simcore.cca_grid, reduction="r2", truncation=[2, 3, 2]),
            _grid(simcore.cca_grid, top_k=2),
            Row(lambda a, b, c: simcore.cca_grid(torch.stack([a, a + 1, a.square()]))),
        ],
        "svcca_grid": [_grid(simcore.svcca_grid), _grid(simcore.svcca_grid, standardize=True)],
        "pwcca_grid": [
            _grid(simcore.pwcca_grid),
            _grid(simcore.pwcca_grid, standardize=True, top_k=0.5),
        ],
        "linreg_grid": [_grid(simcore.linreg_grid, max_memory=10**8)],
        "procrustes_grid": [
            _grid(simcore.procrustes_grid),
            _grid(simcore.procrustes_grid, form="size-and-shape"),
        ],
        "descriptors": [Row(lambda a, b, c: list(simcore.descriptors([a, b, c]).values()))],
        "neuronsim_grid": [_grid(simcore.neuronsim_grid), _grid(simcore.neuronsim_grid, top_k=2)],
        "neuron_partners": [_grid(simcore.neuron_partners)],
        "mixedsim_grid": [_grid(simcore.mixedsim_grid), _grid(simcore.mixedsim_grid, top_k=0.5)],
        "localization_score": [
            Row(simcore.localization_score, grids),
            Row(lambda a, b: simcore.localization_score(a[1:], b[1:], same=False), grids),
            Row(lambda a, b: simcore.localization_score(a, b, standardize=True), grids),
        ],
        "attention_grid": [
            Row(lambda a, b: attention([a, b]), heads),
            Row(lambda a, b: attention([list(a)], [b], measure="pearson", causal=True), heads),
            Row(lambda a, b: attention([a], [b], causal=True, lengths=[2, 5, 3]), heads),
            Row(
                lambda a, b: attention([a], measure="frobenius", lengths=torch.tensor([2, 5, 3])),
                heads,
            ),
        ],
        "distributed_attention": [
            Row(lambda a, b: simcore.distributed_attention(a), heads),
            Row(lambda a, b: simcore.distributed_attention(list(b), causal=True), heads),
            Row(lambda a, b: simcore.distributed_attention(a, lengths=[2, 5, 3]), heads),
        ],
        "knn_grid": [
            _grid(simcore.knn_grid, k=3),
            _grid(simcore.knn_grid, measure="second-order", k=2),
            Row(lambda a, b, c: simcore.knn_grid(simcore.neighbours([a, b, c], 4, "inner"))),
        ],
        "cknna_grid": [_grid(simcore.cknna_grid, k=3)],
        "knn_curve": [Row(lambda a, b, c: list_of(simcore.knn_curve([a, b], [c], queries=4, k=3)))],
        "matching_grid": [
            _grid(simcore.matching_grid),
            _grid(simcore.matching_grid, matching="transport", score="distance"),
        ],
        "neuron_matches": [
            _grid(simcore.neuron_matches),
            _grid(simcore.neuron_matches, matching="transport"),
        ],
        "imd_estimate": [_grid(simcore.imd_estimate, probes=5)],
        "rtd_estimate": [_grid(simcore.rtd_estimate, rows=8, draws=2)],
        "neighbours": [Row(lambda a, b, c: list_of(simcore.neighbours([a, b, c], 3)))],
        "Neighbours": [_permuted_row()],
        "bases": [Row(lambda a, b, c: list_of(simcore.bases([a, b, c], truncation=0.9)))],
        "Basis": _basis_rows(),
        "MinibatchCKA": [
            _minibatch(lambda metric, x, y: metric(x, y)),
            _minibatch(_updated),
            _minibatch(_merged),
            _minibatch(lambda metric, x, y: metric(x), both=False),
        ],
        "stats.permutation_test": [
            _result(stats.permutation_test, permutations=9, return_null=True),
            _result(stats.permutation_test, measure="svcca", permutations=9, truncation=0.9),
            _result(stats.permutation_test, method="moments"),
        ],
        "stats.bootstrap_ci": [
            _result(stats.bootstrap_ci, resamples=9, confidence=0.9),
            _result(stats.bootstrap_ci, resamples=9, measure="rsa"),
            _result(stats.bootstrap_ci, resamples=9, method="half", return_draws=True),
        ],
        **_modules(),
        **_aligners(),
    }


ROWS = _table()

NOT_TRACED = {
    "__version__": "a string",
    "build_info": "takes nothing",
    "Comparison": "a result",
    "Gram": "reads the entries of a matrix that was made elsewhere",
    "Rdm": "reads the entries of a matrix that was made elsewhere",
    "Tape": "what `record` gives",
    "Track": "runs models beside a training, and gives numbers",
    "compare_layers": "gives a result, no tensors",
    "lightning_callback": "makes a callback",
    "compare": "runs models and gives a result, no tensors",
    "record": "a context manager that hooks into models",
    "free_memory": "takes no tensor",
    "align.ConstantRowsError": "an exception",
    "align.TooFewRowsError": "an exception",
    "plan_cka": "gives a plan, no tensors, and reads shapes alone",
    "align.Aligner": "abstract; `fit` of its subclasses trains an object and gives no tensors",
    "align.AlignmentError": "a result of numbers",
    "align.GridErrors": "a result of numbers",
    "align.Log": "a result",
    "align.METHODS": "a dictionary of classes",
    "align.REN2023": "a dictionary of parameters",
    "align.NotFittedError": "an exception",
    "align.PairResult": "a result",
    "align.Training": "the options of a training",
    "align.align_grid": "fits aligners and gives numbers, no tensors",
    "align.align_pairs": "fits aligners and gives objects, no tensors",
    "nn.ACTIVATIONS": "a dictionary of torch's functions",
    "KnnCurve": "a result",
    "stats.BootstrapInterval": "a result",
    "stats.NoiseCeiling": "a result",
    "stats.noise_ceiling": "takes matrices that were made elsewhere",
    "stats.PermutationTest": "a result",
    "measures.Measure": "gives a number, and the grids of the functions above",
    "testing.AlikeResult": "a result",
    "testing.LayerVerdict": "a result",
    "testing.assert_alike": "runs models and gives nothing",
    "testing.check_alike": "runs models and gives a result, no tensors",
    "testing.judge_alike": "gives a result, no tensors",
}


def public_names() -> list[str]:
    """Return all names of ``simcore.__all__``; names in modules carry the module's name."""
    names = []
    for name in simcore.__all__:
        value = getattr(simcore, name)
        if isinstance(value, types.ModuleType):
            names += [f"{name}.{inner}" for inner in value.__all__]
        else:
            names.append(name)
    return names
