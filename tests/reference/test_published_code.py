"""Agreement with the codes of Klabunde et al. 2024 and Huh et al. 2024 (tests/oracle/README.md)."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

import simcore
from simcore import reference
from support import tolerance

ORACLE = Path(__file__).parents[1] / "oracle"


def _centred_squares(layer):
    return np.square(layer - layer.mean(axis=0)).sum()


def _squares(layer):
    return np.square(layer).sum()


@dataclass(frozen=True)
class Published:
    """A grid function, and how its values compare."""

    function: str
    options: dict = field(default_factory=dict)
    compared: Callable = np.asarray  # as they are, as squares or as cosines
    units: Callable = lambda layer: 0.5  # of differences: the sum of this number of both layers
    itself: float = 0.0  # of a layer with itself; theirs holds rounding, a distance of ours is 0
    inputs: str = "layer"  # the beginning of the names of the layers
    agreement: float = tolerance.ORACLE  # how near the published values are


def _descriptor(name):
    return Published("descriptor_grid", {"descriptor": name})


def _knn(measure, k, metric="cosine", **more):
    return Published("knn_grid", {"measure": measure, "k": k, "metric": metric}, itself=1.0, **more)


def _cknna(**options):
    return Published("cknna_grid", options, itself=1.0, agreement=tolerance.ORACLE_CKNNA)


PUBLISHED = {
    "distance_correlation": Published("distance_correlation_grid", itself=1.0),
    "rsm_difference_frobenius": Published("rsm_difference_grid"),
    "rsm_difference_spectral": Published("rsm_difference_grid", {"norm": "spectral"}),
    "gulp_0": Published("gulp_grid"),
    "gulp_0.001": Published("gulp_grid", {"ridge": 0.001}),
    "gulp_0.1": Published("gulp_grid", {"ridge": 0.1}),
    "gulp_1": Published("gulp_grid", {"ridge": 1}),
    "eigenspace_overlap": Published("eigenspace_overlap_grid", itself=1.0),
    "magnitude_difference": _descriptor("magnitude"),
    "concentricity_difference": _descriptor("concentricity"),
    "uniformity_difference": _descriptor("uniformity"),
    "procrustes_size_and_shape": Published(
        "procrustes_grid", {"form": "size-and-shape"}, np.square, _centred_squares
    ),
    "orthogonal_procrustes_normalized": Published(
        "procrustes_grid", {"form": "distance"}, np.square
    ),
    "angular_shape": Published("procrustes_grid", {"form": "angular"}, np.cos),
    "disagreement": Published("disagreement_grid", inputs="logits"),
    "output_jsd_base2": Published("output_divergence_grid", inputs="logits"),
    "hard_correlation_match": Published("matching_grid", itself=1.0),
    "soft_correlation_match": Published("matching_grid", {"matching": "best"}, itself=1.0),
    "permutation_procrustes": Published(
        "matching_grid", {"score": "distance"}, np.square, _squares
    ),
    "permutation_angular_shape": Published("matching_grid", {"score": "angular"}, np.cos),
    "aligned_cosine": Published("aligned_cosine_grid", itself=1.0),
    "mutual_knn_ip_10": _knn("mutual", 10, "inner", agreement=tolerance.ORACLE_FLOAT32_MEAN),
    "jaccard_cosine_5": _knn("jaccard", 5),
    "jaccard_cosine_10": _knn("jaccard", 10),
    "jaccard_euclidean_10": _knn("jaccard", 10, "euclidean"),
    "rank_similarity_cosine_5": _knn("rank", 5),
    "rank_similarity_cosine_10": _knn("rank", 10),
    "second_order_cosine_5": _knn("second-order", 5),
    "second_order_cosine_10": _knn("second-order", 10),
    "cknna_10_biased": _cknna(estimator="biased"),
    "cknna_10_unbiased": _cknna(),
}


@pytest.mark.parametrize("file", ["resi_a", "resi_b"])
@pytest.mark.parametrize("key", PUBLISHED)
@pytest.mark.parametrize("module", [reference, simcore], ids=["twin", "op"])
def test_agrees_with_the_published_code(module, key, file):
    data = np.load(ORACLE / f"{file}.npz")
    measure = PUBLISHED[key]
    x = [data[name] for name in sorted(data.files) if name.startswith(f"{measure.inputs}_")]
    want = np.array(json.loads((ORACLE / f"{file}.json").read_text())[key], dtype=np.float64)
    got = getattr(module, measure.function)(x, **measure.options)
    assert got.shape == want.shape == (len(x), len(x))
    sizes = np.array([measure.units(layer) for layer in x])
    error = np.abs(measure.compared(got) - measure.compared(want)) / (sizes[:, None] + sizes)
    other = ~np.eye(len(x), dtype=bool)
    assert error[other].max() <= measure.agreement
    near = measure.agreement * measure.itself
    np.testing.assert_allclose(np.diag(got), measure.itself, atol=near)
