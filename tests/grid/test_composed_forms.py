"""Grids on a device whose kernels failed their checks: torch alone, and the twins' values.

The tables of measures, their inputs and tolerances are those of the kernels.
"""

import pytest
import torch
from torch.utils._pytree import tree_leaves

from simcore import attention_grid, cka_grid, nn, reference
from simcore._ops import gram_composed, hsic_plan, partners_composed
from simcore._ops.attention import composed_similarity
from simcore._ops.coupling import affine_coupling
from support import tolerance
from support.bad_inputs import assert_refused
from support.cases import DTYPES, ESTIMATORS, HALVES, KERNELS, Case, attention, exact, layers
from support.cka import ESTIMATED, WELL_CONDITIONED_N, check_cka, expected
from support.couplings import CLAMP, OFFSETS, SHAPES, entries, formula
from support.distance_table import DISTANCE_ROWS
from support.stand_in import CUDA, stand_in_device

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*canonical correlations are all 1", "ignore:.*rows of zeros"
)
FAR = Case(45, 1000.0, True, (7, 24, 300))
# Measures with kernels; tests of the families have the composed forms of all others.
FUNCTIONS = ("distance_correlation_grid", "rsm_difference_grid")
CKA_CASES = Case(4, 10.0), Case(33), Case(129, 1000.0, True)
DISTANCES = [row for row in DISTANCE_ROWS if row.function in FUNCTIONS]
COMPARED_BY_ROW = ("cosine_grid", "disagreement_grid", "output_divergence_grid")
ROWWISE = [row for row in DISTANCE_ROWS if row.function in COMPARED_BY_ROW]
ESTIMATED_FEW = [
    pytest.param(*job, marks=() if job[1] in CKA_CASES else pytest.mark.deep)
    for job in ESTIMATED
    if job[1].n in (4, 33, 129) and len(job[1].widths) == 4
]
ATTENTION = ("js", "pearson", "frobenius")
WORDS = (5, 1, 17, 2, 32, 1)
FLOAT64_DEEP = pytest.mark.parametrize(
    "dtype", [torch.float32, pytest.param(torch.float64, marks=pytest.mark.deep)], ids=str
)


def there(values):
    """Return the same nested lists with tensors of the stand-in."""
    if isinstance(values, torch.Tensor):
        return values.to(CUDA)
    return [there(value) for value in values] if isinstance(values, list) else values


def composed(grid, *given, **options):
    """Return a grid of the stand-in, for which no kernel ran."""
    with stand_in_device(kernels=False) as device:
        got = grid(*map(there, given), **options)
    assert not device.kernels
    return got.values


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("measure", DISTANCES, ids=str)
def test_distances_match_the_twins(measure, dtype, monkeypatch):
    monkeypatch.setattr(hsic_plan, "CPU_GRAM_ROWS", 19)
    for case in (Case(33), FAR):
        x, y = layers(case, dtype), layers(Case(case.n, 1.0, widths=(12,)), dtype, seed=1)
        condition = tolerance.DRAWN_CONDITION if case.offset else 1.0
        for other in (None, y):
            got, want = composed(measure, x, other), measure.twin(x, other)
            both = exact(x), exact(other)
            tolerance.assert_other(measure, got, want, *both, dtype, condition)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("measure", ROWWISE, ids=str)
def test_rows_match_the_twins(measure, dtype):
    for case in (Case(33, widths=(7, 7, 7)), Case(45, 1000.0, True, (24, 24))):
        other = Case(case.n, 1.0, widths=case.widths[:1])
        x, y = layers(case, dtype), layers(other, dtype, seed=1)
        x[0][3] = 0  # a row without a direction
        for sides in ((x, None), (x, y)):
            got, want = composed(measure, *sides), measure.twin(*sides)
            tolerance.assert_other(measure, got, want, *map(exact, sides), dtype)


@FLOAT64_DEEP
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(("estimator", "case"), ESTIMATED_FEW, ids=str)
def test_cka_matches_the_twin(estimator, case, kernel, dtype, monkeypatch):
    monkeypatch.setattr(hsic_plan, "CPU_GRAM_ROWS", 50)
    got = composed(cka_grid, layers(case, dtype), kernel=kernel, estimator=estimator)
    absolute = case.n >= WELL_CONDITIONED_N[estimator]
    check_cka(got, *expected(case, dtype, kernel, estimator), dtype, absolute=absolute)


@pytest.mark.parametrize("bandwidth", [0.3, 20.0])
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_bandwidths(estimator, bandwidth):
    x, y = layers(Case(33, 10.0), torch.float32), layers(Case(33, widths=(12,)), torch.float32)
    options = {"kernel": "rbf", "estimator": estimator, "bandwidth": bandwidth}
    got = composed(cka_grid, x, y, **options)
    want = reference.cka_grid(exact(x), exact(y), **options)
    tolerance.assert_float32_cka(got, want)


def test_a_layer_whose_median_distance_is_0_has_no_value():
    x = layers(Case(20, widths=(5, 3)))
    x.append(torch.zeros(20, 2, dtype=torch.float64))
    x[2][0] = 1
    with pytest.warns(UserWarning, match=r"nan for X\[2\]"):
        got = composed(cka_grid, x, kernel="rbf")
    assert got.isnan().tolist() == [[False, False, True], [False, False, True], [True] * 3]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("measure", ATTENTION)
@pytest.mark.parametrize(
    "dtype",
    [torch.float32, *(pytest.param(d, marks=pytest.mark.deep) for d in (torch.float64, *HALVES))],
    ids=str,
)
def test_attention_matches_the_kernels(dtype, measure, causal):
    x, y = attention(WORDS, (4, 1, 3), dtype), attention(WORDS, (2, 5), dtype, seed=1)
    for other in (None, y):
        want = attention_grid(x, other, measure=measure, causal=causal)
        for limit in (None, 2**16):
            options = {"measure": measure, "causal": causal, "max_memory": limit}
            got = composed(attention_grid, x, other, **options)
            bound = torch.float64 if dtype == torch.float64 else torch.float32
            tolerance.assert_attention(got, want, bound)
    with pytest.raises(ValueError, match=r"max_memory: wanted at least \d+ bytes for one row"):
        composed(attention_grid, x, measure=measure, causal=causal, max_memory=2**10)
    if measure != "pearson":
        assert composed(attention_grid, x, measure=measure).diagonal().eq(1).all()


@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_couplings_and_their_gradients_are_the_formula(dtype, inverse):
    for shape in SHAPES:
        for offset in OFFSETS:
            given = entries(shape, dtype, offset=offset, outlier=bool(offset))
            with stand_in_device(kernels=False) as device:
                moved = [t.to(CUDA).requires_grad_() for t in given]
                outputs = affine_coupling(*moved, CLAMP, inverse)
                loss = outputs[0].square().sum() + outputs[1].sum()
                got = [*outputs, *torch.autograd.grad(loss, moved)]
            assert set(device.operators) == {"affine_coupling", "affine_coupling_backward"}
            assert not device.kernels
            wide = [t.double().requires_grad_() for t in given]
            narrow = [t.clone().requires_grad_() for t in given]
            results = []
            for inputs in (wide, narrow):
                y, log_det = formula(*inputs, CLAMP, inverse)
                loss = y.square().sum() + log_det.sum()
                results.append([y, log_det, *torch.autograd.grad(loss, inputs)])
            for one, want, roughly in zip(got, *results, strict=True):
                tolerance.assert_close(one.values, want, dtype, roughly)


def test_a_network_trains_there():
    torch.manual_seed(0)
    inn = nn.CouplingINN(6, 3, 5, depth=1, reversible=True, output_gain=1.0).double()
    x = torch.randn(9, 6, dtype=torch.float64)

    def gradients(module, values):
        outputs = tree_leaves(module.forward_and_log_abs_det(values))
        return torch.autograd.grad(sum(t.square().sum() for t in outputs), [*module.parameters()])

    want = gradients(inn, x)
    with stand_in_device(kernels=False) as device:
        got = gradients(inn.to(CUDA), x.to(CUDA))
    assert not device.kernels
    for one, other in zip(got, want, strict=True):
        tolerance.assert_same(one.values, other, torch.float64)


def test_memory_only_cuts_tiles():
    x, y = layers(Case(60, 1.0, widths=(6, 9, 6))), layers(Case(60, widths=(6, 20)), seed=1)
    bases = [torch.linalg.qr(layer - layer.mean(0))[0] for layer in y]
    for run in (
        lambda limit: gram_composed.gram_terms(x, y, "rbf", "biased", 1.0, limit, "highest"),
        lambda limit: gram_composed.gram_terms(x, [], "distance", "biased", 1.0, limit, "high"),
        lambda limit: partners_composed.best_partners(x, y, True, limit),
        lambda limit: (partners_composed.multiple_correlations(x, bases, limit),),
    ):
        want, limit, refused = run(2**30), 2**22, ""
        while not refused:
            try:
                for one, two in zip(run(limit), want, strict=True):
                    torch.testing.assert_close(one, two, rtol=1e-12, atol=1e-15)
                limit //= 2
            except ValueError as error:
                refused = str(error)
        assert refused.startswith("max_memory: wanted at least")
        assert limit < 2**20


@pytest.mark.parametrize("n", [16, 60])  # tiles take more than distances, and less
@pytest.mark.parametrize("kernel", KERNELS)
def test_the_least_memory_that_a_refusal_names_is_enough(kernel, n):
    x = layers(Case(n, widths=(7,) * 20), torch.float64)
    want = composed(cka_grid, x, kernel=kernel)
    with pytest.raises(ValueError, match="max_memory: wanted at least") as caught:
        composed(cka_grid, x, kernel=kernel, max_memory=1)
    least = int(str(caught.value).split("at least ")[1].split()[0])
    got = composed(cka_grid, x, kernel=kernel, max_memory=least)
    torch.testing.assert_close(got, want, rtol=0, atol=1e-12)


def test_bad_attention_is_refused_in_the_words_of_the_kernels():
    good = [torch.rand(2, t, t).softmax(-1) for t in (3, 4)]
    bad, negative = ([t.clone() for t in good] for _ in range(2))
    bad[1][0, 3, 2], negative[0][1, 0, 0] = torch.nan, -1
    similarity = composed_similarity
    for operator in (similarity, torch.ops.simcore.attention_similarity):
        for x, words in ((bad, "A[0] finite 1 NaN 50"), (negative, "A[0] negative js 1 50")):
            assert_refused(operator, (x, [], [3, 4], "js", False, 0), {}, ValueError, words)
        for given, words in (
            ((good, [], [], "js", False, 0), "words one none"),
            ((good, good[:1], [3, 4], "js", False, 0), "B 2 0 1"),
            ((good, [], [3, 5], "js", False, 0), "5 4"),
            (([torch.rand(3, 2, 4, 4)], [], [3, 4], "js", False, 0), "2, H, T 3, 2, 4"),
            ((good, [], [3, 4], "cosine", False, 0), "measure js cosine"),
        ):
            assert_refused(operator, given, {}, ValueError, words)
