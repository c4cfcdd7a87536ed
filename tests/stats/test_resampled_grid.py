"""Statistics of any measure: by name, by function, and by the bases of layers."""

import numpy as np
import pytest
import torch

import simcore
from simcore import cka_grid, stats
from simcore.stats.resampled_grid import GRIDS, GridMeasure, best_value, narrowest_dtype, record_of
from support import tolerance
from support.cases import Case, layers
from support.draws import MEASURED, drawn, pair


@pytest.mark.parametrize(("kernel", "estimator"), MEASURED)
def test_a_function_is_measured_like_the_name(kernel, estimator):
    x, y = pair(Case(33))
    options = {"kernel": kernel, "estimator": estimator}
    by_name = stats.permutation_test(x, y, permutations=9, return_null=True, **options)
    by_call = stats.permutation_test(
        x, y, measure=cka_grid, permutations=9, return_null=True, **options
    )
    tolerance.assert_same(by_call.null, by_name.null, torch.float64)
    tolerance.assert_same(by_call.observed, by_name.observed, torch.float64)


def test_the_observed_grid_has_the_bound_too():
    """Bases of a permutation are made within what it leaves."""
    x, y = pair(Case(33))
    measure = GridMeasure("svcca", x, y, {}, 2**26, stats.permutation_test, permuted=True)
    assert measure.precomputed
    assert measure.grid.keywords["max_memory"] == 2**26


def test_a_function_gets_its_options_and_permuted_rows_of_y_only():
    x, y = pair(Case(33))
    seen = []

    def measure(a, b, *, factor):
        assert all(torch.equal(u, v) for u, v in zip(a, x, strict=True))
        seen.append(b[0])
        return torch.full((len(a), len(b)), factor)

    result = stats.permutation_test(x, y, measure=measure, permutations=4, seed=5, factor=0.25)
    assert (result.observed == 0.25).all()
    assert (result.pvalue == 1).all()
    for rows, layer in zip(drawn(5, 33, 4), seen, strict=True):
        assert torch.equal(layer, y[0][torch.from_numpy(rows).long()])


NAMED = [
    ("cca", {"reduction": "r2"}),
    ("svcca", {"truncation": 0.9, "standardize": True}),
    ("svcca", {"top_k": 3}),
    ("pwcca", {"truncation": [3, 4, 5, 6, 2]}),
    ("pwcca", {"truncation": 0.9, "standardize": True, "top_k": 0.5}),
    ("linreg", {}),
    ("procrustes", {}),
    ("rsa", {"correlation": "spearman"}),
    ("neuronsim", {}),
    ("mixedsim", {}),
    ("mixedsim", {"top_k": 3}),
    ("procrustes", {"form": "distance"}),
    ("distance_correlation", {}),
    ("rsm_difference", {}),
    ("rsm_difference", {"norm": "spectral"}),
    ("gulp", {}),
    ("gulp", {"ridge": 0.1}),
    ("eigenspace_overlap", {}),
    ("matching", {"score": "angular"}),
    ("matching", {"matching": "transport"}),
    ("aligned_cosine", {}),
]


@pytest.mark.parametrize(("name", "own"), NAMED)
def test_a_name_is_measured_like_its_function(name, own):
    """Layers that are decomposed once give what layers permuted before do; options go along."""
    x, y = pair(Case(65, widths=(7, 20, 33)))
    options = {"permutations": 4, "seed": 1, "return_null": True, **own}
    function = getattr(simcore, f"{name}_grid")
    got = stats.permutation_test(x, y, measure=name, **options)
    want = stats.permutation_test(x, y, measure=function, **options)
    tolerance.assert_same(got.null, want.null, torch.float32)
    tolerance.assert_same(got.observed, function(x, y, **own), torch.float32)
    interval = stats.bootstrap_ci(x, y, measure=name, resamples=3, **own)
    tolerance.assert_same(interval.observed, want.observed, torch.float64)


@pytest.mark.parametrize(
    ("name", "own", "best"),
    [
        ("rsm_difference", {}, 0),
        ("gulp", {"ridge": 0.1}, 0),
        ("procrustes", {"form": "angular"}, 0),
        ("procrustes", {}, 1),
        ("cosine", {}, 1),
        ("cosine", {"form": "angular"}, 0),
        ("disagreement", {}, 0),
        ("output_divergence", {}, 0),
        ("matching", {}, 1),
        ("matching", {"score": "distance"}, 0),
        ("matching", {"matching": "transport", "score": "distance"}, 0),
        ("aligned_cosine", {}, 1),
    ],
)
def test_small_distances_are_evidence(name, own, best):
    """A layer and a noisy copy of it, by name and by function; and an unrelated one."""
    generator = torch.Generator().manual_seed(0)
    x, noise, other = torch.randn(3, 60, 5, generator=generator, dtype=torch.float64).unbind()
    sides = [x], [x, x + 0.3 * noise, other]
    for measure in (name, getattr(simcore, f"{name}_grid")):
        test = stats.permutation_test(
            *sides, measure=measure, permutations=49, return_null=True, **own
        )
        assert test.pvalue[0, :2].tolist() == [0.02, 0.02]
        assert test.pvalue[0, 2] > 0.05
        assert test.calibrated[0, 0] == pytest.approx(1, abs=1e-6)
        assert 0.4 < test.calibrated[0, 1] < 1
        assert abs(test.calibrated[0, 2]) < 0.2
        want = (test.observed - test.null_mean) / (best - test.null_mean)
        tolerance.assert_same(test.calibrated, want, torch.float64)
        closer = (test.null > test.observed if best else test.null < test.observed).sum(0)
        assert bool(((50 * test.pvalue).round() >= 1 + closer).all())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("aligned_cosine", {}),
        ("cosine", {}),
        ("rsm_difference", {}),
        ("matching", {"score": "distance"}),
    ],
)
def test_nothing_is_calibrated_where_permuted_rows_are_as_alike_as_equal_layers(name, own, dtype):
    generator = torch.Generator().manual_seed(0)
    constant = torch.randn(1, 7, generator=generator, dtype=dtype).repeat(40, 1)
    other = torch.randn(40, 7, generator=generator, dtype=dtype)
    test = stats.permutation_test(
        [constant, other], [constant.clone(), other], measure=name, permutations=20, **own
    )
    assert test.calibrated.isnan().tolist() == [[True, False], [False, False]]
    assert test.pvalue[0, 0] == 1
    assert test.calibrated[1, 1] == pytest.approx(1, abs=1e-5)


def test_nothing_is_calibrated_within_rounding_of_equal_layers():
    """Rows in a narrow cone: their cosines differ from 1 by less than float32 can tell."""
    generator = torch.Generator().manual_seed(0)
    x, y = 1 + 1e-3 * torch.randn(2, 40, 7, generator=generator)
    options = {"measure": "aligned_cosine", "permutations": 9}
    assert stats.permutation_test([x], [y], **options).calibrated.isnan().all()
    wide = stats.permutation_test([x.double()], [y.double()], **options)
    assert wide.calibrated.isfinite().all()


UNPAIRED = {"descriptor": {"descriptor": "magnitude"}, "imd": {}}


@pytest.mark.parametrize("name", UNPAIRED)
def test_measures_of_unpaired_rows_are_refused_in_one_line(name):
    x, own = torch.randn(2, 20, 3), UNPAIRED[name]
    for measure in (name, getattr(simcore, f"{name}_grid")):
        with pytest.raises(ValueError, match=rf"^measure: wanted .* rows, got '{name}"):
            stats.permutation_test(x, measure=measure, **own)
        interval = stats.bootstrap_ci(x, measure=measure, resamples=5, **own)
    assert interval.observed.shape == (2, 2)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_layers_tie_as_their_float32_values_do(dtype):
    x, y = ([layer.to(dtype) for layer in side] for side in pair(Case(60, widths=(5, 4))))
    options = {"measure": "cca", "permutations": 49}
    got = stats.permutation_test(x, y, **options)
    want = stats.permutation_test([t.float() for t in x], [t.float() for t in y], **options)
    assert torch.equal(got.pvalue, want.pvalue)


def _few_rows(places, seed):
    """The rows of two or more kinds, float64 [n, 6]: of which kind each row is, ``places`` say."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(int(places.max()) + 1, 6, generator=generator, dtype=torch.float64)[places]


def _places(*sizes, seed):
    places = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    return places[torch.randperm(len(places), generator=torch.Generator().manual_seed(seed))]


# Draws of layers of few different rows have few different values, which are far apart.
FEW = {
    "most rows equal": (_places(110, 10, seed=1), _places(112, 8, seed=2)),
    "no relation": (torch.arange(120) % 2, torch.arange(120) // 2 % 2),
    "three kinds": (_places(80, 20, 20, seed=1), _places(90, 20, 10, seed=3)),
}
PAIRED = [name for name in GRIDS if (known := record_of(name)) and known.paired and name != "rtd"]


@pytest.mark.parametrize("name", PAIRED)
def test_equal_values_of_layers_of_few_rows_tie(name):
    for case, places in FEW.items():
        x, y = (_few_rows(of_side, seed) for seed, of_side in enumerate(places))
        test = stats.permutation_test([x], [y], measure=name, permutations=49, return_null=True)
        beyond = test.null[:, 0, 0] - test.observed[0, 0]
        if best_value(name, {}) == 0:
            beyond = -beyond
        reached = int((beyond >= -1e-8 * test.null.abs().max()).sum())
        assert test.pvalue[0, 0] == pytest.approx((1 + reached) / 50), case


def test_counts_of_x_serve_what_x_is_compared_with():
    x = layers(Case(60, widths=(5, 6)))
    counts = np.array([2, 3])
    test = stats.permutation_test(x, measure="svcca", truncation=counts, permutations=9)
    tolerance.assert_same(test.observed, simcore.svcca_grid(x, truncation=counts), torch.float64)
    interval = stats.bootstrap_ci(x, measure="svcca", truncation=[2, 3], resamples=9)
    tolerance.assert_same(interval.observed, test.observed, torch.float64)
    both = stats.permutation_test(x, x, measure="cca", truncation=[2, 3, 2, 3], permutations=9)
    tolerance.assert_same(both.observed, test.observed, torch.float64)


def test_a_measure_warns_once():
    x = layers(Case(20, widths=(30, 40)))
    with pytest.warns(UserWarning, match="cca_grid") as caught:
        stats.permutation_test(x, measure="cca", permutations=3)
    assert len(caught) == 1


@pytest.mark.parametrize("option", ["trunc", "progress_"])
def test_an_option_that_the_measure_lacks_is_named(option):
    x, y = pair(Case(33))
    hint = r"( \(did you mean '\w+'\?\))?"
    with pytest.raises(TypeError, match=rf"^{option}{hint}: wanted .* of measure 'neuronsim'"):
        stats.permutation_test(x, y, measure="neuronsim", permutations=2, **{option: True})


def test_a_layer_with_itself_is_compared_as_without_draws():
    # Dead neurons, as LayerNorm leaves them: their products underflow in float32.
    x = np.random.default_rng(0).standard_normal((40, 6)).astype(np.float32)
    x[:, :3] *= np.float32(1e-32)
    found = stats.bootstrap_ci([x], measure="neuronsim", method="half", resamples=3)
    assert found.observed[0, 0] == 1
    assert np.diff([found.low[0, 0], found.high[0, 0]]) == 0


@pytest.mark.parametrize("dtypes", [("float32", "float64"), ("float64",), ("bfloat16",)])
def test_a_grid_is_as_precise_as_its_least_precise_layer(dtypes):
    given = [torch.ones(2, 1, dtype=getattr(torch, name)) for name in dtypes]
    wanted = torch.float64 if dtypes == ("float64",) else torch.float32
    assert narrowest_dtype(given) == wanted
