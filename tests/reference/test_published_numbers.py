"""Numbers that others printed, on data that anybody can make again, and on two published tables.

Each is held to the digits that were printed. `published/README.md` names the sources of the tables.
"""

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.spatial.distance import cdist
from scipy.stats import kendalltau, spearmanr
from sklearn.datasets import load_iris, load_linnerud

import simcore
from simcore import Gram

STUDIES = Path(__file__).parents[2] / "examples" / "studies"
sys.path.append(str(STUDIES))  # where studies find one another
published_layers = importlib.import_module("published_layers")
criteria = published_layers.criteria
PUBLISHED = Path(__file__).parent / "published"


def _kornblith():
    """Return the data of the notebook of Kornblith et al. 2019."""
    random = np.random.RandomState(1337)
    x = random.randn(100, 10)
    return x, random.randn(100, 10) + x


def _linnerud():
    data = load_linnerud()
    return data.data.astype(float), data.target.astype(float)


def _iris():
    """Return the first two species, as in the example of the package energy for R."""
    rows = load_iris().data
    return rows[:50], rows[50:100]


def _pingouin():
    random = np.random.RandomState(123)
    return random.random_sample((10, 10)), random.random_sample((10, 10))


def _columns(*values):
    return tuple(np.array(one, dtype=float)[:, None] for one in values)


SQUARES = (
    np.arange(1.0, 10).reshape(3, 3),
    np.array([[7.0, 3, 6], [2, 1, 4], [3, 8, 1]]),
    np.array([[1.0, 1, 1], [2, 1, 1], [1, 1, 1]]),
)


@dataclass(frozen=True)
class Printed:
    """A printed number: the data, the grid function, its options, and what became of its value."""

    data: Callable
    function: str
    value: float
    digits: int
    options: dict = field(default_factory=dict)
    compared: Callable = float


RBF = {"kernel": "rbf", "bandwidth": 0.5}
NUMBERS = {
    # The notebook published with Kornblith et al. 2019.
    "linear CKA": Printed(_kornblith, "cka_grid", 0.55761, 5),
    "unbiased CKA": Printed(_kornblith, "cka_grid", 0.51346, 5, {"estimator": "unbiased"}),
    "RBF CKA": Printed(_kornblith, "cka_grid", 0.65483, 5, RBF),
    # It does not centre before CCA: by definition an overlap of eigenspaces.
    "R2 CCA, uncentred": Printed(_kornblith, "eigenspace_overlap_grid", 0.54312, 5),
    # SAS/STAT, PROC CANCORR: Pillai's trace .67848151 and correlations .795608, .200556, .072570.
    "Pillai's trace": Printed(
        _linnerud, "cca_grid", 0.67848151, 8, {"reduction": "r2"}, lambda value: 3 * value
    ),
    "canonical correlations": Printed(
        _linnerud, "cca_grid", 1.068734, 6, {}, lambda value: 3 * value
    ),
    # energy for R, as the tests of statsmodels and pingouin print it.
    "iris": Printed(_iris, "distance_correlation_grid", 0.3060479, 7),
    "vectors": Printed(
        lambda: _columns([1, 2, 3, 4, 5], [1, 2, 9, 4, 4]),
        "distance_correlation_grid",
        0.7626762,
        7,
    ),
    "ten columns": Printed(_pingouin, "distance_correlation_grid", 0.87996, 5),
    # The tests of dcor print squares.
    "squares 1, 2": Printed(
        lambda: SQUARES[:2], "distance_correlation_grid", 0.93387, 5, {}, np.square
    ),
    "squares 1, 3": Printed(
        lambda: SQUARES[::2], "distance_correlation_grid", 0.31623, 5, {}, np.square
    ),
    "six rows": Printed(
        lambda: _columns(range(1, 7), [1, 7, 5, 5, 6, 2]),
        "distance_correlation_grid",
        0.3066099,
        7,
        {},
        np.square,
    ),
}


@pytest.mark.filterwarnings("ignore:.*n - 1 independent columns")
@pytest.mark.parametrize("case", NUMBERS)
def test_a_printed_number_comes_out_again(case):
    printed = NUMBERS[case]
    x, y = printed.data()
    value = np.asarray(getattr(simcore, printed.function)([x], [y], **printed.options))[0, 0]
    assert abs(printed.compared(value) - printed.value) <= 0.5001 * 10.0**-printed.digits


# Measures of Cloos et al. 2024, and the function and options of simcore that mean the same.
CLOOS = {
    "cka-kernel=linear-hsic=gretton-score": ("cka_grid", {}),
    "cka-kernel=linear-hsic=song-score": ("cka_grid", {"estimator": "unbiased"}),
    "cca-score": ("cca_grid", {}),
    "cca-squared_score": ("cca_grid", {"reduction": "r2"}),
    "svcca-var=0.99-score": ("svcca_grid", {}),
    "svcca-var=0.95-score": ("svcca_grid", {"truncation": 0.95}),
    "svcca-dim=10-score": ("svcca_grid", {"truncation": 10}),
    "procrustes-score": ("procrustes_grid", {}),
    "procrustes-distance=angular": ("procrustes_grid", {"form": "angular"}),
    "procrustes-distance=euclidean": ("procrustes_grid", {"form": "size-and-shape"}),
    "orthogonal_procrustes_centered_and_normalized": ("procrustes_grid", {"form": "distance"}),
    "orthogonal_angular_shape_metric_centered": ("procrustes_grid", {"form": "angular"}),
    "rsa-rdm=correlation-compare=pearson": ("rsa_grid", {}),
    "rsa-rdm=correlation-compare=spearman": ("rsa_grid", {"correlation": "spearman"}),
    "rsa-rdm=squared_euclidean-compare=cosine_cov": ("cka_grid", {}),
    "distance_correlation": ("distance_correlation_grid", {}),
    "eigenspace_overlap_score": ("eigenspace_overlap_grid", {}),
    "gulp": ("gulp_grid", {}),
    "aligned_cosine_similarity": ("aligned_cosine_grid", {}),
    "hard_correlation_match": ("matching_grid", {}),
    "soft_correlation_match": ("matching_grid", {"matching": "best"}),
    "jaccard_similarity": ("knn_grid", {"measure": "jaccard"}),
    "rank_similarity": ("knn_grid", {"measure": "rank"}),
    "second_order_cosine_similarity": ("knn_grid", {"measure": "second-order"}),
    "cka-kernel=(rbf-sigma=1.0)-hsic=gretton-score": ("cka_grid", {}),
    "cka-kernel=(rbf-sigma=1.0)-hsic=song-score": ("cka_grid", {"estimator": "unbiased"}),
    "magnitude_difference": ("descriptor_grid", {"descriptor": "magnitude"}),
    "concentricity_difference": ("descriptor_grid", {"descriptor": "concentricity"}),
    "uniformity_difference": ("descriptor_grid", {"descriptor": "uniformity"}),
    "rsm_norm_difference": ("rsm_difference_grid", {"norm": "spectral"}),
    "permutation_procrustes": ("matching_grid", {"score": "distance"}),
    "linear_regression": ("linreg_grid", {}),
}
# Repositories that agree, where more than one has the measure. Others centre in another way, or
# not at all, truncate by another rule, or divide by other lengths.
AGREE = {
    "cka-kernel=linear-hsic=gretton-score": 17,
    "cka-kernel=linear-hsic=song-score": 4,
    "cka-kernel=(rbf-sigma=1.0)-hsic=gretton-score": 17,
    "cka-kernel=(rbf-sigma=1.0)-hsic=song-score": 4,
    "cca-score": 5,
    "cca-squared_score": 5,
    "svcca-var=0.99-score": 5,
    "svcca-var=0.95-score": 3,
    "svcca-dim=10-score": 5,
    "procrustes-score": 7,
    "procrustes-distance=angular": 7,
    "procrustes-distance=euclidean": 7,
    "rsa-rdm=correlation-compare=pearson": 4,
    "rsa-rdm=correlation-compare=spearman": 4,
}


def _uniform():
    random = np.random.RandomState(0)
    return random.uniform(size=(30, 25)), random.uniform(size=(30, 25))


@pytest.mark.filterwarnings("ignore:.*n - 1 independent columns")
@pytest.mark.parametrize("measure", CLOOS)
def test_public_repositories_print_the_same_number(measure):
    table = pd.read_csv(PUBLISHED / "cloos2024.csv")
    values = table.loc[table["measure"] == measure, "value"].to_numpy()
    function, options = CLOOS[measure]
    x, y = _uniform()
    if "rbf-sigma=1.0" in measure:
        x, y = (Gram(np.exp(-cdist(layer, layer, "sqeuclidean") / 2)) for layer in (x, y))
    value = float(np.asarray(getattr(simcore, function)([x], [y], **options))[0, 0])
    same = np.abs(values - value) <= 1.5e-6 * max(1.0, abs(value))
    assert same.sum() == AGREE.get(measure, 1), (value, values)


def test_the_difference_of_rsms_counts_each_pair_once():
    """Another repository (llm_repsim) counts pairs of rows once: smaller by the root of 2."""
    table = pd.read_csv(PUBLISHED / "cloos2024.csv")
    values = table.loc[table["measure"] == "rsm_norm_difference", "value"].to_numpy()
    x, y = _uniform()
    value = float(np.asarray(simcore.rsm_difference_grid([x], [y]))[0, 0])
    assert np.abs(values - value / np.sqrt(2)).min() <= 1e-5


def test_a_published_pwcca_of_too_few_rows_is_one_of_many():
    """30 rows, 25 + 25 components: rotations of Y move the value, around that of sim_metric."""
    x, y = _uniform()
    random = np.random.default_rng(0)
    turns = [np.linalg.qr(random.standard_normal((25, 25)))[0] for _ in range(30)]
    with pytest.warns(UserWarning, match="truncate, or take at least 51 rows"):
        values = [simcore.pwcca_grid([x], [y @ turn]).item() for turn in turns]
    assert min(values) < 0.893341 < max(values)
    assert max(values) - min(values) > 0.002


def _accuracies(pairs):
    """Return probing accuracies, [seeds, layers], up to a shift, from their |differences|.

    The differences from one end of a line are the positions on it. Deep layers are the better ones.
    """
    signed = published_layers.similarities(pairs, "QNLI_diff").reshape(120, 120)
    differences = np.abs(signed)
    line = differences[np.unravel_index(differences.argmax(), differences.shape)[0]]
    assert np.abs(np.abs(line[:, None] - line) - differences).max() < 2e-5  # they are on a line
    line = line.reshape(10, 12)
    return line if line[:, 6:].mean() > line[:, 0].mean() else -line


@pytest.mark.parametrize(
    ("measure", "rho", "tau"),
    [("Procrustes", 0.574, 0.435), ("CKA", 0.628, 0.473), ("PWCCA", 0.491, 0.368)],
)
def test_the_table_of_ding_2021_comes_out_again(measure, rho, tau):
    """Rank correlations of distances from the best layer of a depth with loss of accuracy."""
    pairs = pd.read_csv(PUBLISHED / "ding2021.csv")
    best = _accuracies(pairs).argmax(axis=0) + 1
    found = []
    for layer, seed in enumerate(best):
        left = (pairs["seed1"] == seed) & (pairs["layer1"] == layer)
        right = (pairs["seed2"] == seed) & (pairs["layer2"] == layer)
        near = pairs[left | right]
        found.append([f(near[measure], near["QNLI_diff"])[0] for f in (spearmanr, kendalltau)])
    assert np.round(np.mean(found, axis=0), 3).tolist() == [rho, tau]


@pytest.mark.parametrize(
    ("measure", "low", "high"),
    [("PredDist_0.1", 0.78, 0.88), ("CKA", 0.72, 0.84), ("Procrustes", 0.55, 0.68)],
)
def test_layers_of_bert_base_are_identified_over_seeds(measure, low, high):
    """The share of layers whose match in another seed has the same depth; chance is 1/12.

    The bounds are the 95 % intervals over seeds of the survey of these values.
    """
    pairs = pd.read_csv(PUBLISHED / "ding2021.csv")
    estimate = criteria.identification(published_layers.similarities(pairs, measure))
    assert (round(estimate.low, 2), round(estimate.high, 2)) == (low, high)
    assert estimate.pvalue < 0.001
    with pytest.raises(ValueError, match="wanted all pairs of layers, found 7259 rows"):
        published_layers.similarities(pairs[1:], measure)


def test_bures_and_angular_procrustes_are_one_measure():
    """Harvey et al. 2024: the cosine of the angle is the normalised Bures similarity."""
    x, y = (one - one.mean(0) for one in _uniform())
    angle = float(np.asarray(simcore.procrustes_grid([x], [y], form="angular"))[0, 0])
    # Bures: the fidelity of the Gram matrices, tr sqrt(sqrt(K) L sqrt(K)), over their traces.
    values, vectors = np.linalg.eigh(x @ x.T)
    root = vectors * np.sqrt(values.clip(0)) @ vectors.T
    fidelity = np.sqrt(np.linalg.eigvalsh(root @ y @ y.T @ root).clip(0)).sum()
    bures = fidelity / (np.linalg.norm(x) * np.linalg.norm(y))
    assert bures == pytest.approx(0.722779, abs=5e-7)  # printed by seven repositories
    assert np.cos(angle) == pytest.approx(bures, abs=1e-6)  # roots of rounded eigenvalues


def test_cka_of_a_translated_subset_has_the_limit_of_its_closed_form():
    """Davari et al. 2022: far subsets decide alone; the limit depends on their sizes and spread."""
    random = np.random.default_rng(0)
    x = random.standard_normal((400, 20))
    moved = random.permutation(400) < 100
    far = x + 1e8 * moved[:, None] * np.eye(20)[0]
    value = float(np.asarray(simcore.cka_grid([x], [far]))[0, 0])
    centred = x - x.mean(0)
    share = moved - moved.mean()  # the moved layer becomes this single direction
    gram = centred @ centred.T
    limit = share @ gram @ share / (np.linalg.norm(gram) * (share @ share))
    assert value == pytest.approx(limit, rel=1e-5)


def test_r2_cca_of_independent_gaussians_has_its_expectation():
    """E[R2 CCA] is max(p, q) / (n - 1)."""
    random = np.random.default_rng(0)
    values = [
        simcore.cca_grid(
            [random.standard_normal((50, 9))], [random.standard_normal((50, 5))], reduction="r2"
        )
        for _ in range(400)
    ]
    values = np.array([np.asarray(value)[0, 0] for value in values])
    error = values.std(ddof=1) / np.sqrt(len(values))
    assert abs(values.mean() - 9 / 49) < 4 * error
