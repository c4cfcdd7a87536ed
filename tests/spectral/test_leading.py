"""Leading components by block Lanczos: planted spectra against the twin, and missing proofs."""

import numpy as np
import pytest
import torch

from simcore import _truncated, pwcca_grid, reference, svcca_grid
from simcore._grid.basis import Basis, Factored
from simcore._grid.side import Side
from simcore._ops.leading import Wanted, _Space, leading_eigenvectors
from simcore._truncated import truncated, working_bytes
from simcore.reference import cca as twin
from support.cases import exact

PLENTY = 1 << 32
EPS = float(torch.finfo(torch.float32).eps)
DECAY = np.arange(1.0, 241.0)
SPECTRA = {
    "slow": DECAY**-1.0,
    "fast": DECAY**-2.0,
    "repeated": np.repeat([1.0, 0.5, 0.01], [4, 6, 230]),
    "an outlier": np.concatenate([[1e3], DECAY[:-1] ** -1.5]),
    "rank 20": np.where(DECAY <= 20, DECAY**-1.0, 0.0),
}


@pytest.fixture(autouse=True)
def small_layers(monkeypatch):
    monkeypatch.setattr(_truncated, "SMALLEST", 100)


def layer(spectrum, n, p, seed=0, offset=0.0, dtype=torch.float32):
    """A layer with centred columns of these singular values."""
    generator = torch.Generator().manual_seed(seed)
    m = len(spectrum)
    u, v = (torch.randn(k, m, generator=generator, dtype=torch.float64) for k in (n, p))
    u, v = torch.linalg.qr(u - u.mean(0))[0], torch.linalg.qr(v)[0]
    return (u * torch.from_numpy(spectrum) @ v.T + offset).to(dtype)


def kept(x, cut, standardize=False):
    (columns,), left = truncated(
        "svcca_grid", Side("X", [x]), [cut], PLENTY, standardize=standardize
    )
    assert left == PLENTY - columns.nbytes
    return columns


@pytest.mark.parametrize("shape", [(260, 500), (500, 260)], ids=str)
@pytest.mark.parametrize(
    "cut", [0.9, 4, *(pytest.param(cut, marks=pytest.mark.deep) for cut in (0.99, 1, 10))]
)
@pytest.mark.parametrize("name", SPECTRA)
def test_spectra(name, cut, shape):
    x = layer(SPECTRA[name], *shape)
    columns = kept(x, cut)
    u, s, vt = twin.svd(exact([x])[0], EPS)
    k = twin.kept(s, cut)
    assert columns.kept == k
    if k < len(s) and s[k - 1] - s[k] < 1e-4 * s[k]:
        return  # equal values: any of their vectors will do
    v = columns.vectors.double().numpy()
    assert np.linalg.norm(u[:, k:].T @ v) < 2e-6
    weighted = columns.coordinates if isinstance(columns, Factored) else None
    if weighted is not None:
        want = (u[:, :k] * s[:k] / s[0]) @ vt[:k]
        assert np.abs(v @ weighted.double().numpy() - want).max() < 2e-6


@pytest.mark.parametrize("cut", [0.9, 4])
def test_lanczos_serves_where_few_are_kept(cut):
    """The spectra above would pass if every layer were decomposed."""
    for shape in ((260, 500), (500, 260)):
        assert isinstance(kept(layer(SPECTRA["fast"], *shape), cut), Factored)


@pytest.mark.parametrize(
    "dtype", [torch.float32, pytest.param(torch.float16, marks=pytest.mark.deep)], ids=str
)
@pytest.mark.parametrize("standardize", [False, True])
@pytest.mark.parametrize("shapes", [((260, 500), (260, 400)), ((500, 260), (500, 300))], ids=str)
def test_grids_equal_the_twin(shapes, standardize, dtype):
    x = [layer(SPECTRA["fast"], *s, seed=i, dtype=dtype) for i, s in enumerate(shapes)]
    x += [layer(SPECTRA["slow"], *shapes[0], seed=7, dtype=dtype)]
    options = {"truncation": 0.9, "standardize": standardize}
    given = exact(x)
    want = reference.svcca_grid(given, eps=EPS, **options)
    np.testing.assert_allclose(svcca_grid(x, **options), want, atol=1e-5)
    want = reference.pwcca_grid(given, eps=EPS, **options)
    np.testing.assert_allclose(pwcca_grid(x, **options), want, atol=1e-4)


def test_an_offset_of_1000_and_constant_columns():
    x = layer(SPECTRA["fast"], 500, 260, offset=1000.0)
    x[:, 5] = 3.0
    columns = kept(x, 5)
    assert isinstance(columns, Factored)
    assert not columns.coordinates[:, 5].any()
    u, _, _ = twin.svd(exact([x])[0], EPS)
    assert np.linalg.norm(u[:, 5:].T @ columns.vectors.double().numpy()) < 2e-6


def test_equal_bits_on_repetition_and_no_global_generator():
    x = layer(SPECTRA["fast"], 260, 500)
    state = torch.get_rng_state()
    first, second = kept(x, 0.99), kept(x, 0.99)
    assert torch.equal(first.vectors, second.vectors)
    assert torch.equal(torch.get_rng_state(), state)


def test_layers_without_a_proof_are_decomposed_in_their_places():
    fast, flat = layer(SPECTRA["fast"], 260, 500), layer(np.ones(240), 260, 500)
    given = [flat, fast, fast.double(), fast[:50], torch.zeros(260, 500)]
    found = [
        *truncated("svcca_grid", Side("X", given[:3]), [0.9, 4, 4], PLENTY)[0],
        kept(given[3], 4),
    ]
    found.append(kept(given[4], 4))
    assert [type(columns) for columns in found] == [Basis, Factored, Basis, Basis, Basis]
    assert [columns.kept for columns in found[:4]] == [216, 4, 4, 4]


def test_memory_that_lanczos_does_not_fit_into_is_left_to_the_decomposition():
    x = layer(SPECTRA["fast"], 260, 500)
    with pytest.raises(ValueError, match="max_memory: wanted at least"):
        truncated("svcca_grid", Side("X", [x]), [4], working_bytes(260, 500) // 4)


@pytest.mark.parametrize("m", [300])
def test_eigenvalues_of_more_copies_than_a_block_are_found_or_there_is_no_result(m):
    q = torch.linalg.qr(torch.randn(m, m, dtype=torch.float64, generator=torch.Generator()))[0]
    values = torch.full((m,), 1e-3, dtype=torch.float64)
    values[:20] = 1.0
    matrix = (q * values) @ q.T
    for cut, counts in ((20, True), (19, False), (10, False)):
        found = leading_eigenvectors((matrix + matrix.T) / 2, Wanted(cut, 1e-10))
        if not counts:
            assert found is None
        elif found is not None:
            assert torch.linalg.matrix_norm(q[:, 20:].T @ found[1], 2) < 1e-6


def test_a_start_without_an_eigenvector_proves_nothing(monkeypatch):
    """Products of a diagonal matrix never reach the direction that all blocks leave out."""
    values = torch.from_numpy(np.arange(1.0, 301.0) ** -2.0)
    matrix = torch.diag(values.flip(0))
    (known, _) = leading_eigenvectors(matrix, Wanted(4, 1e-10))
    assert known.allclose(values[:4])
    random = _Space._random

    def without_the_second(space):
        rows = random(space)
        rows[:, -2] = 0
        return rows

    monkeypatch.setattr(_Space, "_random", without_the_second)
    assert leading_eigenvectors(matrix, Wanted(4, 1e-10)) is None


def test_a_sample_spares_layers_of_a_slow_decay_the_search(monkeypatch):
    def search(*_):
        raise AssertionError("no search wanted")

    flat, fast = layer(np.ones(240), 260, 500), layer(SPECTRA["fast"], 260, 500)
    monkeypatch.setattr(_truncated, "leading_eigenvectors", search)
    assert isinstance(kept(flat, 0.9), Basis)
    with pytest.raises(AssertionError, match="no search"):
        kept(fast, 0.9)


def test_eigenvalues_count_down_to_the_least():
    """Values of 0.91, 0.05 and many small ones: 2 are kept if these count, else 1."""
    m = 300
    values = torch.full((m,), 0.04 / (m - 2), dtype=torch.float64)
    values[0], values[1] = 0.91, 0.05
    for least, k in ((1e-12, 2), (1e-3, 1)):
        found = leading_eigenvectors(torch.diag(values), Wanted(0.92, least))
        assert found is not None
        assert len(found[0]) == k


@pytest.mark.parametrize(("part", "k"), [(1.4999, 2), (1.5001, 3), (1.5, None)])
def test_eigenvalues_that_do_not_count_have_no_part_in_a_share(part, k):
    """Values below `least` sum to .015, and to .03 at most by their number."""
    values = torch.cat([torch.tensor([1, 0.5, 0.25]), torch.linspace(9e-5, 1e-5, 297)]).double()
    q = torch.linalg.qr(torch.randn(300, 300, dtype=torch.float64, generator=torch.Generator()))[0]
    matrix = (q * values) @ q.T
    found = leading_eigenvectors((matrix + matrix.T) / 2, Wanted(part / 1.75, 1e-4))
    assert (None if found is None else len(found[0])) == k
