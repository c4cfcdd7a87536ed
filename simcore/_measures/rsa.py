"""The record of `simcore/rsa.py`."""

from .record import Measure, Variant

RECORDS = (
    Measure(
        name="rsa",
        function="rsa_grid",
        label="RSA",
        summary="correlation of the layers' dissimilarity matrices",
        page="rsa",
        job="rsa13",
        options={"correlation": "pearson"},
        lowest=-1.0,
        operators=("standardised_rows", "hsic_terms", "gram_terms"),
        invariant=("permutation of neurons", "scaling of rows"),
        undefined="variance",
        variants=(
            Variant("RSA (Pearson)", {"correlation": "pearson"}, "rsa13"),
            Variant(
                "RSA (Spearman)", {"correlation": "spearman"}, "rsa_spearman13", ("rank_moments",)
            ),
        ),
    ),
)
