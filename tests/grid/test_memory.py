"""`max_memory` bounds what grids take: peak of a process of its own."""

import pytest

from support.peaks import MB, SLACK, peak

pytestmark = pytest.mark.slow

DECOMPOSED = {"count": 12, "n": 1500, "width": 256}  # 18 MB
COMPARED = {"count": 8, "n": 1000, "width": 200}
RBF = {"kernel": "rbf", "count": 6, "n": 3000, "width": 32}
MANY = {"count": 65, "n": 1000, "width": 128}
# name: (function, MB, what else). Limits are far below what all pairs would take at once; beside
# some of them stands the size of what must not be materialised.
JOBS = {
    # the 325-layer job in small: Grams of all layers would be 260 MB
    "cka of many layers": ("cka_grid", 64, MANY),
    "unbiased cka": ("cka_grid", 64, {"estimator": "unbiased", **MANY}),
    # one Gram of 12,000 rows is 576 MB
    "many rows by Gram": ("cka_grid", 64, {"method": "gram", "count": 3, "n": 12_000, "width": 16}),
    # all products of features would be 1 GB, centred copies 164 MB
    "many rows by features": (
        "cka_grid",
        64,
        {"method": "feature", "count": 8, "n": 20_000, "width": 256},
    ),
    "many rows": ("cka_grid", 64, {"count": 4, "n": 40_000, "width": 64}),
    "rbf": ("cka_grid", 64, RBF),
    "unbiased rbf": ("cka_grid", 64, {"estimator": "unbiased", **RBF}),
    "halves": ("cka_grid", 48, {"count": 8, "n": 6000, "width": 128, "dtype": "bfloat16"}),
    "float64": ("cka_grid", 96, {"dtype": "float64", **MANY}),
    "numpy": ("cka_grid", 64, {"mapped": True, **MANY}),
    # bases and their decompositions; one product of all pairs is far more
    "svcca": ("svcca_grid", 96, DECOMPOSED),
    "pwcca": ("pwcca_grid", 96, DECOMPOSED),
    "neuronsim": ("neuronsim_grid", 24, DECOMPOSED),
    # all centred columns are 96 MB: a tile of each side is made again for every product
    "neurons of many rows": ("neuronsim_grid", 48, {"count": 3, "n": 16_000, "width": 500}),
    # one number for every neuron and layer would be 72 MB
    "neuronsim of many layers": ("neuronsim_grid", 24, {"count": 300, "n": 104, "width": 100}),
    "mixedsim of many layers": ("mixedsim_grid", 48, {"count": 300, "n": 104, "width": 100}),
    # the table of all neurons would be 64 MB
    "the best neurons": ("neuronsim_grid", 12, {"count": 200, "n": 24, "width": 100, "top_k": 5}),
    "rsa-spearman": ("rsa_grid", 45, {"correlation": "spearman", "n": 1000}),
    "rsa of wide layers": ("rsa_grid", 310, {"count": 2, "n": 500, "width": 20000}),
    "rsa in float32": ("rsa_grid", 74, {"count": 3, "n": 600, "width": 4000}),
    "rsa-spearman of wide layers": (
        "rsa_grid",
        54,
        {"count": 2, "n": 600, "width": 8000, "correlation": "spearman"},
    ),
    "linreg of one tall layer": ("linreg_grid", 100, {"count": 1, "n": 40000, "width": 64}),
    "spaces of dependent columns": (
        "eigenspace_overlap_grid",
        190,
        {"count": 40, "n": 2000, "width": 200, "dependent": 40},
    ),
    "procrustes in float64": ("procrustes_grid", 48, {"dtype": "float64", "count": 3}),
    "rsm-difference": ("rsm_difference_grid", 40, {"norm": "spectral", **COMPARED}),
    "distance correlation": ("distance_correlation_grid", 8, COMPARED),
    "gulp": ("gulp_grid", 24, {"ridge": 0.1, **COMPARED}),
    "uniformity": ("descriptor_grid", 6, {"descriptor": "uniformity", **COMPARED}),
    "matching": ("matching_grid", 4, {"score": "distance", **COMPARED}),
    "aligned cosine": ("aligned_cosine_grid", 10, COMPARED),
    "imd": ("imd_grid", 40, COMPARED),
    "neighbours": ("knn_grid", 8, {"count": 40, "n": 700, "width": 200}),
    "second order": (
        "knn_grid",
        12,
        {"measure": "second-order", "count": 24, "n": 700, "width": 200},
    ),
    "cknna": ("cknna_grid", 12, {"count": 24, "n": 700, "width": 200}),
}


@pytest.mark.parametrize("name", JOBS)
def test_max_memory_is_obeyed(name):
    function, limit, options = JOBS[name]
    assert peak(function, max_memory=limit * MB, **options) <= limit * MB + SLACK
