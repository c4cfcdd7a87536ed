"""Matrices over examples that were made elsewhere, as layers of RSA and CKA."""

import itertools

import numpy as np
import pytest
import torch
from scipy.spatial.distance import pdist, squareform
from scipy.stats import pearsonr, spearmanr

from simcore import Gram, Rdm, cka_grid, hsic_grid, rsa_grid, svcca_grid
from support import tolerance

N = 12
rng = np.random.default_rng(0)
BRAINS = [rng.normal(size=(N, 5)) for _ in range(3)]
LAYERS = [rng.normal(size=(N, width)) for width in (7, 4)]
CORRELATIONS = {"pearson": pearsonr, "spearman": spearmanr}
ESTIMATORS = ("biased", "unbiased")


def euclidean():
    return [Rdm(pdist(brain)) for brain in BRAINS]


def symmetric(seed):
    values = np.random.default_rng(seed).normal(size=(N, N))
    return values + values.T  # not positive semidefinite


@pytest.mark.parametrize("name", CORRELATIONS)
def test_matrices_of_any_distance_with_layers_and_with_each_other(name):
    def oracle(x, y):
        return [[CORRELATIONS[name](a, b)[0] for b in y] for a in x]

    brains = [pdist(brain) for brain in BRAINS]
    layers = [pdist(layer, "correlation") for layer in LAYERS]
    mixed = rsa_grid(euclidean(), LAYERS, correlation=name)
    np.testing.assert_allclose(mixed, oracle(brains, layers), atol=1e-14)
    np.testing.assert_allclose(rsa_grid(LAYERS, euclidean(), correlation=name), mixed.T, atol=1e-14)
    alone = rsa_grid(euclidean(), correlation=name)
    np.testing.assert_allclose(alone, oracle(brains, brains), atol=1e-14)
    assert (alone.diagonal() == 1).all()


@pytest.mark.parametrize("name", CORRELATIONS)
def test_the_matrix_of_a_layer_stands_for_it(name):
    given = [Rdm(squareform(pdist(layer, "correlation"))) for layer in LAYERS]
    wanted = rsa_grid(LAYERS, correlation=name)
    for x, y in ((given, None), (given, LAYERS), ([given[0], LAYERS[1]], given)):
        np.testing.assert_allclose(rsa_grid(x, y, correlation=name), wanted, atol=1e-6)


def test_equal_dissimilarities_share_their_rank():
    ties = np.random.default_rng(1).integers(0, 3, size=(2, N * (N - 1) // 2)).astype(float)
    value = rsa_grid([Rdm(ties[0])], [Rdm(ties[1])], correlation="spearman")
    assert value.item() == pytest.approx(spearmanr(*ties)[0], abs=1e-14)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_a_gram_matrix_stands_for_its_layer(estimator):
    layers = [layer + 1000 for layer in (*BRAINS, *LAYERS)]  # an offset changes the matrix alone
    grams = [Gram(layer @ layer.T) for layer in layers]
    for grid in (cka_grid, hsic_grid):
        wanted = grid(layers, estimator=estimator)
        for x, y in ((grams, None), (grams, layers), (layers, grams)):
            atol = 1e-8 * wanted.max()
            np.testing.assert_allclose(grid(x, y, estimator=estimator), wanted, atol=atol)


def by_definition(k, m, estimator):
    """HSIC of any symmetric matrices: by projections, or as a sum over different examples."""
    if estimator == "biased":
        h = np.eye(N) - 1 / N
        return np.trace(k @ h @ m @ h) / (N - 1) ** 2
    four = list(itertools.permutations(range(N), 4))
    i, j, q, r = np.array(four).T
    return np.mean(k[i, j] * (m[i, j] + m[q, r] - 2 * m[i, q]))


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_kernels_that_are_no_inner_products(estimator):
    k, m = symmetric(2), symmetric(3)
    xy, xx, yy = (by_definition(*pair, estimator) for pair in ((k, m), (k, k), (m, m)))
    got = cka_grid([Gram(1e100 * k)], [Gram(m)], estimator=estimator)
    assert got.item() == pytest.approx(xy / np.sqrt(xx * yy), abs=1e-12)
    got = hsic_grid([Gram(1e100 * k)], [Gram(m)], estimator=estimator)
    assert got.item() == pytest.approx(1e100 * xy, rel=1e-12)
    with pytest.raises(ValueError, match=r"X\[0\]: wanted features whose HSIC float64 can hold"):
        hsic_grid([Gram(1e200 * k)], estimator=estimator)


def test_one_array_of_all_layers_stands_beside_matrices():
    stacked = np.random.default_rng(4).normal(size=(3, N, 5))
    for x, y, grid in (
        (euclidean(), stacked, rsa_grid),
        ([Gram(symmetric(0))], torch.from_numpy(stacked), cka_grid),
    ):
        np.testing.assert_array_equal(grid(x, y), grid(x, list(stacked)))
        assert grid(x, y).shape == (len(x), 3)
        assert grid(y, x).shape == (3, len(x))


def test_layers_have_the_gradient_of_cka_and_none_of_rsa():
    x, y = (torch.from_numpy(layer).requires_grad_() for layer in (BRAINS[0], LAYERS[0]))
    for estimator in ESTIMATORS:
        (wanted,) = torch.autograd.grad(cka_grid([x], [y], estimator=estimator).sum(), y)
        grid = cka_grid([Gram((x @ x.T).detach())], [y], estimator=estimator)
        (got,) = torch.autograd.grad(grid.sum(), y)
        torch.testing.assert_close(got, wanted)
    with pytest.warns(UserWarning, match=r"rsa_grid: Y\[0\] requires a gradient, and gets none"):
        assert not rsa_grid(euclidean(), [y]).requires_grad


def test_torch_in_torch_out_and_dictionaries():
    x = torch.randn(2, N, 5)
    grid = cka_grid({"v1": Gram(x[0] @ x[0].T)}, {"layer": x[1]})
    assert isinstance(grid, torch.Tensor)
    assert grid.item() == pytest.approx(cka_grid([x[0]], [x[1]]).item(), abs=1e-5)
    assert isinstance(rsa_grid([Rdm(torch.rand(66))], LAYERS), torch.Tensor)


def test_undefined_matrices_are_nan_with_one_warning():
    constant = [Rdm(np.ones(66)), euclidean()[0]]
    with pytest.warns(UserWarning, match=r"rsa_grid: nan for X\[0\]") as warned:
        assert np.isnan(rsa_grid(constant)).tolist() == [[True, True], [True, False]]
    assert len(warned) == 1
    with pytest.warns(UserWarning, match=r"cka_grid: nan for X\[0\]"):
        assert np.isnan(cka_grid([Gram(np.full((N, N), 0.1))], LAYERS)).all()
    flat = [np.ones((N, 4))]
    with pytest.warns(UserWarning, match=r"rsa_grid: nan for Y\[0\]"):
        assert np.isnan(rsa_grid(euclidean(), flat)).all()


@pytest.mark.parametrize(
    ("kind", "values", "message"),
    [
        (Rdm, np.ones(4), r"wanted n \(n - 1\) / 2 entries, such as 3, 6 or 10, got 4"),
        (Rdm, np.ones((4, 4)), "wanted 0 on the diagonal"),
        (Rdm, np.arange(9.0).reshape(3, 3), "wanted a symmetric matrix, got entries 4 apart"),
        (Rdm, np.ones((2, 3)), r"wanted shape \[n, n\] or"),
        (Rdm, np.array([1, np.nan, 2]), "wanted finite values, got 1 NaN or infinite"),
        (Rdm, np.ones(1), "wanted at least 3 examples, got 2"),
        (Gram, np.ones(3), r"wanted shape \[n, n\], got \(3,\)"),
        (Gram, np.arange(9.0).reshape(3, 3), "wanted a symmetric matrix"),
    ],
)
def test_what_is_no_such_matrix_is_refused(kind, values, message):
    with pytest.raises(ValueError, match=f"{kind.__name__}: values: {message}"):
        kind(values)


def test_rounding_in_the_callers_dtype_is_no_asymmetry():
    rough = torch.cdist(torch.randn(40, 9), torch.randn(40, 9)).float()
    rough = (rough + rough.T) / 2
    rough.fill_diagonal_(0).add_(1e-7 * torch.rand(40, 40))
    assert Rdm(rough).n == 40


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_distances_of_torch_are_dissimilarities(dtype):
    """Products leave roots of rounding on the diagonal, and between equal rows."""
    x = torch.randn(300, 200, generator=torch.Generator().manual_seed(0)).to(dtype)
    x[7] = x[3]
    distances, given = torch.cdist(x, x), torch.pdist(x.double())
    assert distances.diagonal().max() > 0
    value = rsa_grid([Rdm(distances)], [Rdm(given)])
    assert 1 - value.item() < tolerance.FLOAT32_MEASURE_ABSOLUTE
    far = x + 1000
    with pytest.raises(ValueError, match=r"0 on the diagonal.*donot_use_mm_for_euclid_dist"):
        Rdm(torch.cdist(far, far))
    Rdm(torch.cdist(far, far, compute_mode="donot_use_mm_for_euclid_dist"))


def test_layers_that_do_not_fit_together_are_refused():
    with pytest.raises(ValueError, match="Y: wanted at least one layer, got none"):
        rsa_grid(euclidean(), [])
    with pytest.raises(ValueError, match=r"Y: wanted one \[L, n, p\] array or a list"):
        rsa_grid(euclidean(), LAYERS[0])
    with pytest.raises(ValueError, match=r"Y\[0\]: wanted n = 12 rows as in X\[0\], got 9"):
        rsa_grid(euclidean(), [LAYERS[0][:9]])
    with pytest.raises(ValueError, match=r"max_memory: wanted at least \d+ bytes for the matrices"):
        rsa_grid(euclidean(), max_memory=1000)
    with pytest.raises(ValueError, match="kernel: wanted 'linear' where a layer is a Gram"):
        cka_grid([Gram(symmetric(0))], kernel="rbf")
    with pytest.raises(ValueError, match=r"X\[0\]: wanted at least 4 rows"):
        cka_grid([Gram(np.eye(3))], estimator="unbiased")
    with pytest.raises(ValueError, match=r"Y\[0\]: wanted finite values"):
        rsa_grid(euclidean(), [np.full((N, 3), np.inf)])


@pytest.mark.parametrize(
    ("grid", "layer"),
    [(svcca_grid, Rdm(np.ones(3))), (rsa_grid, Gram(np.eye(4))), (cka_grid, Rdm(np.ones(3)))],
)
def test_other_measures_refuse_them(grid, layer):
    wanted = f"X.0.: wanted a torch tensor or numpy array, got {type(layer).__name__}"
    with pytest.raises(TypeError, match=wanted):
        grid([layer])


def test_dissimilarities_are_no_gram_matrix():
    """CKA of a matrix of distances would be a number below 0."""
    distances = np.abs(np.subtract.outer(np.arange(5.0), np.arange(5.0)))
    with pytest.raises(ValueError, match="got 0; a matrix of dissimilarities is an `Rdm`"):
        Gram(distances)
    with pytest.warns(UserWarning, match="no variance"):  # examples that are all alike
        assert np.isnan(cka_grid([Gram(np.zeros((5, 5)))], [np.eye(5)])).all()
