"""torch.compile, torch.export and fake tensors with every public function, by its public name."""

from dataclasses import dataclass

import pytest
import torch
from torch.utils._pytree import tree_leaves, tree_map

from simcore import cca_grid, cka_grid, hsic_grid, rsa_grid, stats
from simcore._grid.one_operator import _tensors_of
from support import tolerance
from support.traced import NOT_TRACED, ROWS, Row, layers, public_names

# One row of each mechanism: operators with a derivative and without one, results that are no
# tensor, shapes that depend on numbers, states, modules, aligners.
OF_A_KIND = {
    "Basis-0",
    "MinibatchCKA-1",
    "align.LinearAligner-0",
    "bases-0",
    "cka_grid-0",
    "knn_grid-2",
    "localization_score-1",
    "neuronsim_grid-1",
    "nn.CouplingINN-0",
    "stats.permutation_test-0",
}
# A second number of rows compiles these once more, with symbols for sizes.
OF_TWO_SIZES = {"cka_grid-0", "neuronsim_grid-1", "nn.CouplingINN-0", "bases-0"}
CASES = {f"{name}-{i}": row for name, rows in ROWS.items() for i, row in enumerate(rows)}


def deep_but(kept, names):
    """Return parameters, of which those that are not in ``kept`` belong to the deep tier."""
    return [pytest.param(n, marks=() if n in kept else pytest.mark.deep) for n in names]


# Numerical ranks decide the shapes of bases: torch asks for this option, as for torch.nonzero.
DYNAMIC_SHAPES = {"capture_dynamic_output_shape_ops": True}


@pytest.fixture(autouse=True)
def _fresh():
    torch.compiler.reset()
    with torch._dynamo.config.patch(DYNAMIC_SHAPES):
        yield


def compiled(function, backend="aot_eager"):
    return torch.compile(function, fullgraph=True, backend=backend)


def test_every_public_name_is_traced_or_says_why_not():
    assert sorted([*ROWS, *NOT_TRACED]) == sorted(public_names())
    assert set(CASES) >= OF_A_KIND


def gradients(outputs, leaves):
    """Gradients of a sum of squares of all results that have some."""
    total = sum(t.square().sum() for t in outputs if t.requires_grad)
    return torch.autograd.grad(total, leaves, allow_unused=True, materialize_grads=True)


def assert_same_results(row: Row, got, want, inputs):
    """The same values, the same need of a gradient, and the same gradients."""
    got, want = tree_leaves(got), tree_leaves(want)
    assert [(t.shape, t.dtype, t.requires_grad) for t in got] == [
        (t.shape, t.dtype, t.requires_grad) for t in want
    ]
    for one, other in zip(got, want, strict=True):
        tolerance.assert_same(one, other, torch.float64)
    if any(t.requires_grad for t in want):
        leaves = [*inputs, *(row.module.parameters() if row.module else ())]
        got, want = gradients(got, leaves), gradients(want, leaves)
        for one, other in zip(got, want, strict=True):
            tolerance.assert_same(one, other, torch.float64)


@pytest.mark.parametrize("case", deep_but(OF_A_KIND, CASES))
def test_compiles_whole(case):
    row = CASES[case]
    call = compiled(row.function)
    for n in row.sizes if case in OF_TWO_SIZES else row.sizes[:1]:
        inputs = row.inputs(n)
        assert_same_results(row, call(*inputs), row.function(*inputs), inputs)


@pytest.mark.parametrize(
    "name", deep_but({"svcca_grid"}, ["cka_grid", "svcca_grid", "nn.AffineCoupling"])
)
def test_compiles_by_inductor(name):
    """The code that torch writes, which a C++ compiler has to take."""
    row = ROWS[name][0]
    inputs = row.inputs(24)
    got = compiled(row.function, "inductor")(*inputs)
    assert_same_results(row, got, row.function(*inputs), inputs)


class Module(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


GRIDS = [name for name in ROWS if name.endswith("_grid")]
EXPORTED = [case for case in CASES if case.rpartition("-")[0] in GRIDS]


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("case", deep_but({"cka_grid-0", "neuronsim_grid-1"}, EXPORTED))
def test_exports(case, strict):
    row = CASES[case]
    inputs = tuple(t.detach() for t in row.inputs(24))
    exported = torch.export.export(Module(row.function), inputs, strict=strict)
    other = tuple(t + t.square() for t in inputs)
    got, want = tree_leaves(exported.module()(*other)), tree_leaves(row.function(*other))
    for one, two in zip(got, want, strict=True):
        tolerance.assert_same(one, two, torch.float64)


@pytest.mark.parametrize("name", GRIDS)
def test_fake_tensors_give_shapes_without_computing(name):
    for row in ROWS[name]:
        inputs = row.inputs(24)
        want = tree_map(lambda t: (t.shape, t.dtype), tree_leaves(row.function(*inputs)))
        mode = torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True)
        with mode:
            got = row.function(*(mode.from_tensor(t.detach()) for t in inputs))
        assert tree_map(lambda t: (t.shape, t.dtype), tree_leaves(got)) == want


def operators(function, inputs):
    """What torch.compile calls in the graph of a function."""
    found = []

    def backend(graph, _):
        found.extend(node.target for node in graph.graph.nodes if node.op == "call_function")
        return graph

    torch.compile(function, fullgraph=True, backend=backend)(*inputs)
    return found


@pytest.mark.parametrize("name", ["rsa_grid", "cca_grid", "neuronsim_grid", "attention_grid"])
def test_a_grid_without_derivative_is_one_operator(name):
    row = ROWS[name][0]
    found = operators(row.function, row.inputs(24))
    assert found.count(getattr(torch.ops.simcore, name).default) == 1


def test_its_operator_is_well_behaved():
    a, b, c = (t.detach() for t in layers(24))
    text = "([[('tensor', 0), ('tensor', 1)], [('tensor', 2)]], {'max_memory': 1000000}, '')"
    torch.library.opcheck(torch.ops.simcore.neuron_partners.default, ([a, b, c], text))


def test_warnings_come_when_the_compiled_code_runs():
    calls = {
        "cka_grid": compiled(lambda a, b: cka_grid([a, b])),
        "hsic_grid": compiled(lambda a, b: hsic_grid([a, b], kernel="rbf")),
        "cca_grid": compiled(lambda a, b: cca_grid([a, b])),
        "rsa_grid": compiled(lambda a, b: rsa_grid([a, b])),
    }
    a = layers(24)[0].detach()
    for name, call in calls.items():
        assert not call(a, a.square()).isnan().any()
        for _ in range(2):
            with pytest.warns(UserWarning, match=rf"{name}: nan for X\[1\]") as record:
                grid = call(a, torch.ones_like(a))
            assert [warning.filename for warning in record] == [__file__]
            assert grid[1].isnan().all()


@pytest.mark.parametrize("grid", [cka_grid, cca_grid, rsa_grid])
def test_errors_come_when_the_compiled_code_runs(grid):
    call = compiled(lambda a, b: grid([a], [b]))
    a, b, _ = (t.detach() for t in layers(24))
    assert call(a, b).isfinite().all()
    infinite = torch.tensor(torch.inf, dtype=a.dtype)
    with pytest.raises(ValueError, match=r"X\[0\]: wanted finite values, got 1 NaN or infinite"):
        call(a.index_put((torch.tensor(3), torch.tensor(1)), infinite), b)


def test_compiled_code_warns_of_a_gradient_that_there_is_not():
    a, b, _ = layers(24)
    call = compiled(lambda a, b: cca_grid([a], [b]))
    with pytest.warns(UserWarning, match=r"cca_grid: X\[0\] requires a gradient"):
        assert not call(a, b).requires_grad


def test_numbers_may_change_from_call_to_call():
    def function(a, b, count, share):
        return cca_grid([a], [b], truncation=count), cca_grid([a], [b], truncation=share)

    call = compiled(function)
    a, b, _ = (t.detach() for t in layers(24))
    for count, share in ((1, 0.3), (2, 0.6), (3, 0.9), (2, 1.0)):
        got, want = call(a, b, count, share), function(a, b, count, share)
        assert all(map(torch.equal, got, want))


def test_what_no_operator_can_take_is_named():
    call = compiled(lambda a, b: stats.permutation_test([a], [b], measure=cka_grid).pvalue)
    with pytest.raises(torch._dynamo.exc.Unsupported, match="measure: wanted tensors, numbers"):
        call(*layers(24)[:2])


def test_a_result_that_is_no_tensor_is_refused():
    """The compiled program could not know it: shapes alone are known when it is made."""

    @dataclass
    class Result:
        grid: torch.Tensor
        null: torch.Tensor | None = None
        exponent: int = 0

    grid = torch.ones(2, 2)
    assert _tensors_of([Result(grid), (grid, Result(grid, grid))]) == [grid] * 4
    with pytest.raises(ValueError, match=r"Result\.exponent: wanted 0 .* got 3"):
        _tensors_of(Result(grid, exponent=3))


def test_nothing_is_shown_while_torch_traces(capfd):
    a, b, _ = layers(24)
    compiled(lambda a, b: cka_grid([a], [b], progress=True))(a, b)
    assert "cka_grid" not in capfd.readouterr().err
