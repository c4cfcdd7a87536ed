"""Agreement with the codes of Klabunde et al. 2024 and Huh et al. 2024 (tests/oracle/README.md)."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import simcore
from simcore import reference
from support import tolerance

ORACLE = Path(__file__).parents[1] / "oracle"


@dataclass(frozen=True)
class Published:
    """A grid function with options, and how near the published value is."""

    function: str
    options: dict
    agreement: float = tolerance.ORACLE


def _knn(measure, k, metric="cosine", **more):
    return Published("knn_grid", {"measure": measure, "k": k, "metric": metric}, **more)


PUBLISHED = {
    "mutual_knn_ip_10": _knn("mutual", 10, "inner", agreement=tolerance.ORACLE_FLOAT32_MEAN),
    "jaccard_cosine_5": _knn("jaccard", 5),
    "jaccard_cosine_10": _knn("jaccard", 10),
    "jaccard_euclidean_10": _knn("jaccard", 10, "euclidean"),
    "rank_similarity_cosine_5": _knn("rank", 5),
    "rank_similarity_cosine_10": _knn("rank", 10),
    "second_order_cosine_5": _knn("second-order", 5),
    "second_order_cosine_10": _knn("second-order", 10),
    "cknna_10_biased": Published("cknna_grid", {"estimator": "biased"}, tolerance.ORACLE_CKNNA),
    "cknna_10_unbiased": Published("cknna_grid", {}, tolerance.ORACLE_CKNNA),
}


@pytest.mark.parametrize("file", ["resi_a", "resi_b"])
@pytest.mark.parametrize("key", PUBLISHED)
@pytest.mark.parametrize("module", [reference, simcore], ids=["twin", "op"])
def test_agrees_with_the_published_code(module, key, file):
    data, measure = np.load(ORACLE / f"{file}.npz"), PUBLISHED[key]
    x = [data[name] for name in sorted(data.files) if name.startswith("layer_")]
    want = np.array(json.loads((ORACLE / f"{file}.json").read_text())[key], dtype=np.float64)
    got = getattr(module, measure.function)(x, **measure.options)
    assert got.shape == want.shape == (len(x), len(x))
    np.testing.assert_allclose(got, want, rtol=0, atol=measure.agreement)
