"""The records of `simcore/knn.py`."""

from math import inf
from typing import Any

from .record import LARGEST_PRODUCTS, NEIGHBOURS, Measure, Variant

_KNN: dict[str, Any] = {
    "function": "knn_grid",
    "page": "neighbours",
    "precomputed": NEIGHBOURS,
    "invariant": ("orthogonal map", "scaling of rows"),
}

RECORDS = (
    Measure(
        name="knn-mutual",
        label="mutual k-NN",
        summary="share of the k nearest rows that two layers have in common",
        job="mutual13",
        operators=("nearest_rows", "list_similarity"),
        fixed={"measure": "mutual"},
        options={"k": 10, "metric": "cosine"},
        variants=(
            Variant("mutual k-NN (cosine)", {"metric": "cosine"}, "mutual13"),
            Variant("mutual k-NN (Euclidean)", {"metric": "euclidean"}),
        ),
        **_KNN,
    ),
    Measure(
        name="knn-jaccard",
        label="Jaccard k-NN",
        summary="the same, over the rows that are nearest in either layer",
        job="jaccard13",
        operators=("nearest_rows", "list_similarity"),
        fixed={"measure": "jaccard"},
        options={"k": 10, "metric": "cosine"},
        **_KNN,
    ),
    Measure(
        name="knn-rank",
        label="rank k-NN",
        summary="agreement of the ranks of common nearest rows",
        job="rank13",
        operators=("nearest_rows", "list_similarity"),
        fixed={"measure": "rank"},
        options={"k": 10, "metric": "cosine"},
        **_KNN,
    ),
    Measure(
        name="knn-second-order",
        label="second-order cosine",
        summary="cosine of the distances to the rows that are nearest in either layer",
        job="second_order13",
        operators=("nearest_rows", "second_order_similarity"),
        fixed={"measure": "second-order"},
        options={"k": 10},
        **_KNN,
    ),
    Measure(
        name="cknna",
        function="cknna_grid",
        label="CKNNA",
        summary="kernel alignment of the nearest rows that two layers have in common",
        page="cknna",
        job="cknna13",
        options={"k": 10, "estimator": "unbiased"},
        symmetric=False,
        lowest=-inf,  # the numerator has another mask than either factor of the denominator
        highest=inf,
        precomputed=LARGEST_PRODUCTS,
        operators=("nearest_rows", "cknna_terms"),
        invariant=("isotropic scaling", "orthogonal map"),
    ),
)
