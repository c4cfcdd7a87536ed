"""What is particular to matched neurons: transport, known assignments, warnings, options."""

import sys
import warnings

import numpy as np
import pytest
import torch

import simcore
from simcore import aligned_cosine_grid, matching_grid, neuron_matches, reference
from support import tolerance
from support.bad_inputs import LAYERS, X, Y, assert_refused
from support.cases import DTYPES, Case, exact, layers
from support.distance_table import DISTANCE_ROWS

FLOAT64 = torch.float64
ROWS = [row for row in DISTANCE_ROWS if row.function == "matching_grid"]
TRANSPORT = [{"matching": "transport", "score": score} for score in ("correlation", "distance")]
EVERY = pytest.mark.parametrize("options", TRANSPORT, ids=lambda o: o["score"])


def check_transport(got, x, y, options, dtype=FLOAT64):
    got, want = np.asarray(got), reference.matching_grid(exact(x), exact(y), **options)
    if options["score"] == "distance":
        largest = max(float(layer.double().square().sum(0).mean()) for layer in x + (y or []))
        got, want = np.square(got) / largest, np.square(want) / largest
    tolerance.assert_measure(got, want, dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@EVERY
def test_transport(options, dtype):
    """Equal widths, for which it is an assignment, and others."""
    for case in (Case(30, widths=(4, 6, 4, 1)), Case(40, 100.0, True, (6, 3))):
        x, y = layers(case, dtype), layers(Case(case.n, 1.0, widths=(4, 3)), dtype, seed=1)
        check_transport(matching_grid(x, **options), x, None, options, dtype)
        check_transport(matching_grid(x, y, **options), x, y, options, dtype)


@EVERY
def test_transport_of_copies_signs_and_scales(options):
    """Invariant to permutations, and to repeating all neurons, which an assignment is not."""
    (x,) = layers(Case(40, 0.5, widths=(5,)))
    other = layers(Case(40, widths=(7,)), seed=1)
    want = matching_grid([x], other, **options)
    order = torch.tensor([3, 0, 4, 1, 2])
    for same in (x[:, order], x.repeat(1, 3)):
        np.testing.assert_allclose(matching_grid([same], other, **options), want, rtol=1e-9)
        np.testing.assert_allclose(matching_grid(other, [same], **options), want.T, rtol=1e-9)
    best = 1.0 if options["score"] == "correlation" else 0.0
    np.testing.assert_allclose(matching_grid([x], [x.repeat(1, 2)], **options), best, atol=1e-7)
    for changed in (-x, x + torch.arange(5.0), 3 * x):
        moved = abs(float(matching_grid([changed], other, **options) - want))
        ignored = options["score"] == "correlation" and changed is not -x
        assert (moved < 1e-9) == (ignored and bool((changed * x).sum() > 0))


def test_transport_without_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "ot", None)
    with pytest.raises(
        ImportError, match="widths: wanted the package POT, found none; `pip install POT`"
    ):
        matching_grid(X, matching="transport")
    assert matching_grid(X[:1], [X[0] + 1], matching="transport").shape == (1, 1)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("width", [1, 2, 33, 300])
def test_a_permutation_is_found(width, dtype):
    """Also where an offset is a thousand times what the neurons differ by."""
    generator = np.random.default_rng(width)
    for offset in (0.0, 1000.0):
        x = torch.from_numpy(generator.standard_normal((60, width)) + offset).to(dtype)
        order = torch.from_numpy(generator.permutation(width))
        noise = torch.from_numpy(1e-2 * generator.standard_normal((60, width)))
        assert matching_grid([x], [x[:, order]], score="distance") == 0
        assert matching_grid([x], [x[:, order]], score="angular") < 1e-14  # of sums in two orders
        near = (x[:, order].double() + noise).to(dtype)
        got = matching_grid([x], [near], score="distance")
        want = (near.double() - x[:, order].double()).norm()
        np.testing.assert_allclose(got, [[want]], rtol=1e-9)
        got = matching_grid([x], [3 * near + 1])
        columns = reference.neurons.correlations(exact([x[:, order]])[0], exact([near])[0])
        np.testing.assert_allclose(got, [[np.diag(columns).mean()]], atol=1e-6)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_scales_and_columns_of_zeros_do_not_matter(dtype):
    generator = np.random.default_rng(3)
    for offset, scale in ((0.0, 1.0), (1000.0, 1.0), (0.0, 1e-30), (0.0, 1e30)):
        x = torch.from_numpy((generator.standard_normal((60, 40)) + offset) * scale).to(dtype)
        moved = x[:, torch.from_numpy(generator.permutation(40))]
        assert matching_grid([x], [moved], score="distance") == 0
        assert matching_grid([x], [moved], score="angular") < 1e-14
        assert abs(float(matching_grid([x], [moved])) - 1) < 1e-6
        wide = torch.cat([moved, torch.zeros(60, 2, dtype=dtype)], 1)
        assert matching_grid([x], [wide], score="distance") == 0
        assert matching_grid([wide], [x], score="distance") == 0


def test_assignments_of_random_gains():
    """Tied, negative and rectangular matrices, through layers whose products they are."""
    generator = np.random.default_rng(0)
    for p, q in ((1, 1), (1, 9), (9, 1), (2, 3), (17, 17), (20, 33), (33, 20), (64, 64)):
        for values in (generator.standard_normal((p, q)), generator.integers(-2, 3, (p, q)) * 1.0):
            x, y = np.eye(p + q)[:, :p], np.concatenate([values, np.eye(q)])
            got = matching_grid([x], [y], score="distance")
            want = reference.matching_grid([x], [y], score="distance")
            np.testing.assert_allclose(got**2, want**2, rtol=1e-12)


def test_best_partners_are_signed():
    x = torch.tensor([[5.0, 0, 2, 1], [0, 1, 0, 1]], dtype=FLOAT64).T
    r = float(torch.corrcoef(x.T)[0, 1])
    assert r < 0
    got = matching_grid([x[:, :1]], [x[:, 1:]], matching="best")
    np.testing.assert_allclose(got, [[r]], rtol=1e-12)
    np.testing.assert_allclose(
        matching_grid([x], [x[:, 1:]], matching="best"), [[(r + 1) / 4 + 0.5]]
    )


@pytest.mark.parametrize("options", [{"matching": "best"}, {}, TRANSPORT[0]], ids=str)
def test_neurons_without_variance_are_left_out(options):
    x, y = layers(Case(40, 1.0, widths=(5, 4))), layers(Case(40, widths=(6,)), seed=1)
    padded = [torch.cat([torch.full((40, 2), -0.1, dtype=FLOAT64), x[0]], 1), x[1]]
    message = r"matching_grid: neurons without variance are left out: 2 of X\[0\]"
    for other in (y, None):
        with pytest.warns(UserWarning, match=message) as caught:
            got = matching_grid(padded, other, **options)
        assert len(caught) == 1
        assert caught[0].filename == __file__
        np.testing.assert_allclose(got, matching_grid(x, other, **options), rtol=1e-12)
    with pytest.warns(UserWarning, match=r"left out: 2 of Y\[0\]"):
        matching_grid(x, padded, **options)


@pytest.mark.filterwarnings("ignore:.*left out")
@pytest.mark.parametrize("measure", ROWS, ids=str)
def test_constant_neurons_and_layers_without_a_value(measure):
    x, y = layers(Case(40, 1.0, widths=(5, 9))), layers(Case(40, widths=(6,)), seed=1)
    constant = torch.full((40, 2), -0.1, dtype=torch.float64)
    for layer in (torch.cat([constant, x[0]], 1), torch.cat([x[1], constant], 1)):
        got, want = measure([layer], y), measure.twin([layer], y)
        tolerance.assert_other(measure, got, want, exact([layer]), exact(y), torch.float64)
        got = measure(y, [layer])
        tolerance.assert_other(
            measure, got, measure.twin(y, [layer]), exact(y), exact([layer]), torch.float64
        )
    if measure.undefined != "none":
        nothing = torch.zeros_like(x[1])
        with pytest.warns(UserWarning, match=r"nan for X\[1\]"):
            got = measure([x[0], nothing])
        assert got.isnan().tolist() == [[False, True], [True, True]]


def score_of(match, x, y, options):
    """Return the score of an assignment or of a plan, from the definition, in float64."""
    x, y = exact([x])[0], exact([y])[0]
    if options.get("score", "correlation") == "correlation":
        with np.errstate(invalid="ignore", divide="ignore"):
            r = np.nan_to_num(reference.neurons.correlations(x, y))
        if match.ndim == 2:
            return (match * r).sum()
        return np.mean([r[i, j] for i, j in enumerate(match) if j >= 0])
    if match.ndim == 2:
        return np.sqrt((match * np.square(x[:, :, None] - y[:, None]).sum(0)).sum())
    if options["score"] == "angular":
        x, y = x / np.linalg.norm(x), y / np.linalg.norm(y)
    rest = y.copy()
    for i, j in enumerate(match):
        if j >= 0:
            rest[:, j] -= x[:, i]
    alone = x[:, np.asarray(match) < 0]
    distance = np.sqrt(np.square(rest).sum() + np.square(alone).sum())
    return distance if options["score"] == "distance" else 2 * np.arcsin(distance / 2)


MATCHED = [*TRANSPORT, {}, {"score": "distance"}, {"score": "angular"}]


@pytest.mark.parametrize("options", MATCHED, ids=str)
@pytest.mark.parametrize("both", [True, False], ids=["Y", "X alone"])
def test_the_grid_has_the_scores_of_the_matches(both, options):
    x, y = layers(Case(30, widths=(4, 6, 4))), layers(Case(30, widths=(5, 4)), seed=1)
    constant = torch.full((30, 1), 2.0, dtype=FLOAT64)
    if options.get("score") is None or options["score"] == "correlation":
        x[1] = torch.cat([x[1][:, :2], constant, x[1][:, 2:]], 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the constant neuron
        grid, matches = neuron_matches(x, y if both else None, **options)
        want = matching_grid(x, y if both else None, **options)
    np.testing.assert_allclose(grid, want, rtol=1e-12, atol=1e-14)
    for i, row in enumerate(matches):
        for j, match in enumerate(row):
            a, b = x[i], (y if both else x)[j]
            if match.ndim == 2:
                kept = [int((layer != layer[0]).any(0).sum()) for layer in (a, b)]
                sums = [match.sum(1), match.sum(0)]
                for total, count in zip(sums, kept, strict=True):
                    assert sorted(set(total.round(decimals=9).tolist()) - {0.0}) == [
                        pytest.approx(1 / count, abs=1e-9)
                    ]
            else:
                partners = match[match >= 0].tolist()
                varying = [int((layer != layer[0]).any(0).sum()) for layer in (a, b)]
                assert len(set(partners)) == len(partners) == min(varying)
            got = score_of(match.numpy(), a, b, options)
            assert got == pytest.approx(float(grid[i, j]), abs=1e-7)


def test_matches_of_permuted_neurons_are_the_permutation():
    (x,) = layers(Case(40, 0.5, widths=(5,)))
    order = torch.tensor([3, 0, 4, 1, 2])
    _, ((match,),) = neuron_matches([x[:, order].numpy()], [x.numpy()])
    assert isinstance(match, np.ndarray)
    assert match.dtype == np.int64
    assert match.tolist() == order.tolist()
    plan = neuron_matches([x[:, order]], [x], matching="transport").matches[0][0]
    assert torch.equal(plan, torch.eye(5, dtype=FLOAT64)[order] / 5)
    x[:] = 1.0
    with pytest.warns(UserWarning, match="no variance"):
        _, ((none,),) = neuron_matches([x], [order[:, None].double().repeat(8, 3)])
    assert none.tolist() == [-1] * 5
    with pytest.warns(UserWarning, match="no variance"):
        _, ((none,),) = neuron_matches([x], matching="transport")
    assert not none.any()


@pytest.mark.parametrize("both", [True, False], ids=["Y", "X alone"])
def test_transport_beside_a_sink_is_that_of_float64(both):
    """Rows of 1e5 leave float32 products no digit of the other rows."""
    x, noise = torch.randn(2, 30, 12, generator=torch.Generator().manual_seed(0)).unbind()
    layers = [x.clone(), x[:, torch.randperm(12)] + 0.1 * noise, torch.randn(30, 5)]
    for layer in layers:
        layer[3] = 1e5
    sides = (layers[:1], layers[1:]) if both else (layers,)
    options = {"matching": "transport", "score": "distance"}
    got, plans = neuron_matches(*sides, **options)
    want, exact = neuron_matches(*([t.double() for t in side] for side in sides), **options)
    tolerance.assert_close(got, want, torch.float64)
    for row, of_row in zip(plans, exact, strict=True):
        for plan, other in zip(row, of_row, strict=True):
            tolerance.assert_close(plan, other, torch.float64)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_known_rotations(dtype):
    generator = np.random.default_rng(0)
    x = torch.from_numpy(generator.standard_normal((50, 8)) + 1)
    q = torch.from_numpy(np.linalg.qr(generator.standard_normal((12, 12)))[0])
    wide = x @ q[:8]
    grid = aligned_cosine_grid([x.to(dtype)], [wide.to(dtype), (5 * x @ q[:8, :8]).to(dtype)])
    tolerance.assert_measure(grid[:, :1], [[1.0]], dtype)
    assert grid[0, 1] < 1  # q[:8, :8] is no rotation
    lengths = torch.from_numpy(generator.uniform(0.1, 9, (50, 1)))
    got = aligned_cosine_grid([x.to(dtype)], [(lengths * wide).to(dtype)])
    tolerance.assert_measure(got, [[1.0]], dtype)  # x' D x has no rotation of its own


OPTIONS = {
    "matching": ({"matching": "any"}, "matching best one-to-one transport any"),
    "score": ({"score": "cosine"}, "score correlation distance angular cosine"),
    "best distance": ({"matching": "best", "score": "distance"}, "score correlation best distance"),
    "transport angular": (
        {"matching": "transport", "score": "angular"},
        "score correlation distance transport angular",
    ),
    "memory": ({"matching": "transport", "max_memory": 5000}, "max_memory 5000"),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_option(name):
    options, words = OPTIONS[name]
    assert_refused(matching_grid, (X, Y), options, ValueError, words)


def test_the_best_are_no_matches():
    words = "matching one-to-one transport best"
    assert_refused(neuron_matches, (X, Y), {"matching": "best"}, ValueError, words)


@pytest.mark.parametrize("name", LAYERS)
def test_message_of_transport(name):
    arguments, options, error, words = LAYERS[name]
    assert_refused(
        lambda *a, **o: matching_grid(*a, matching="transport", **o),
        arguments, options, error, words,
    )  # fmt: skip


def test_terms_of_equal_rows_do_not_add_up_their_rounding():
    """Sums over many rows of which most are equal."""
    generator = torch.Generator().manual_seed(0)
    layers = []
    for _ in range(2):
        places = torch.randint(20, (8000,), generator=generator)
        places[torch.rand(8000, generator=generator) < 0.95] = 0
        layers.append(torch.randn(20, 8, generator=generator)[places])
    want = aligned_cosine_grid([layer.double() for layer in layers])
    assert (aligned_cosine_grid(layers) - want).abs().max() < 1e-6


def test_a_layer_with_itself_has_cosines_of_1_whichever_argument_it_is():
    """float32 turns directions of rows that are 1e-4 of the others."""
    x = torch.randn(60, 8, generator=torch.Generator().manual_seed(0))
    x[::2] *= 1e-4
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert float(aligned_cosine_grid([x], [x])) == float(aligned_cosine_grid([x])) == 1


def test_operators():
    ops = torch.ops.simcore
    for y in ([], Y):
        torch.library.opcheck(ops.match_neurons.default, (X, y, "one-to-one", "angular", 0))
        torch.library.opcheck(ops.aligned_cosines.default, (X, y, 0))
    for arguments, words in (
        (("all", "distance", 0), "matching best all"),
        (("best", "cosine", 0), "score correlation cosine"),
        (("best", "distance", 0), "score correlation best distance"),
        (("best", "correlation", 1), "max_memory 1"),
        (("one-to-one", "distance", 1), "max_memory 1"),
    ):
        assert_refused(ops.match_neurons, (X, [], *arguments), {}, ValueError, words)
    others = [Y[0][:5]]
    options = "best", "correlation", 0
    assert_refused(ops.match_neurons, (X, others, *options), {}, ValueError, "Y 0 37 5")
    assert_refused(ops.aligned_cosines, (X, [Y[0][:5]], 0), {}, ValueError, "Y 0 37 5")
    assert simcore.matching_grid(X).shape == (3, 3)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_best_assignments(dtype):
    """With rows and columns that take no part, against the twin's least cost."""
    generator = np.random.default_rng(0)
    gains = torch.from_numpy(generator.standard_normal((6, 9, 7))).to(dtype)
    rows = torch.from_numpy(generator.random((6, 9)) < 0.7)
    columns = torch.from_numpy(generator.random((6, 7)) < 0.7)
    rows[0] = True
    columns[1] = False
    partner = torch.ops.simcore.best_assignments(gains, rows, columns)
    for matrix, left, right, found in zip(gains, rows, columns, partner, strict=True):
        some = found >= 0
        assert int(some.sum()) == min(int(left.sum()), int(right.sum()))
        assert not bool((some & ~left).any())
        assert bool(right[found[some]].all())
        assert len(set(found[some].tolist())) == int(some.sum())
        costs = -matrix[left][:, right].double().numpy()
        want = reference.matching.least_cost(costs) if costs.size else 0.0
        total = matrix.double()[some, found[some]].sum()
        np.testing.assert_allclose(float(-total), want, rtol=1e-6, atol=1e-12)
    torch.library.opcheck(torch.ops.simcore.best_assignments.default, (gains, rows, columns))


def test_direct_calls_of_best_assignments_are_checked():
    gains, rows, columns = torch.zeros(2, 3, 4), torch.ones(2, 3).bool(), torch.ones(2, 4).bool()
    for arguments, error, words in (
        ((gains[0], rows, columns), ValueError, "gains B p q 3 4"),
        ((gains.half(), rows, columns), TypeError, "gains float32 float64 Half"),
        ((gains, rows.int(), columns), TypeError, "rows bool Int"),
        ((gains, columns, columns), ValueError, "rows 2 3 4"),
        ((gains, rows, rows), ValueError, "columns 2 4 3"),
    ):
        assert_refused(torch.ops.simcore.best_assignments, arguments, {}, error, words)
