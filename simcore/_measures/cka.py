"""The records of `simcore/cka.py`."""

from math import inf

from .record import ATTENTION, LAYERS, Measure, Variant

_IGNORED = ("translation", "isotropic scaling", "orthogonal map")

RECORDS = (
    Measure(
        name="cka",
        function="cka_grid",
        label="CKA",
        summary="centred kernel alignment",
        page="cka",
        job="cka13",
        options={"estimator": "biased", "kernel": "linear", "bandwidth": 1.0},
        takes=(LAYERS, ATTENTION),
        lowest=-1.0,
        operators=("hsic_terms", "gram_terms"),
        invariant=_IGNORED,
        undefined="variance",
        variants=tuple(
            Variant(f"CKA ({label}, {estimator})", {"kernel": kernel, "estimator": estimator}, job)
            for kernel, label, estimator, job in (
                ("linear", "linear", "biased", "cka13"),
                ("linear", "linear", "unbiased", "unbiased13"),
                ("rbf", "RBF", "biased", "rbf13"),
                ("rbf", "RBF", "unbiased", ""),
            )
        ),
    ),
    Measure(
        name="hsic",
        function="hsic_grid",
        label="HSIC",
        summary="the numerator of CKA",
        page="cka",
        job="cka13",  # the same products of Gram matrices, without the division
        options={"estimator": "biased", "kernel": "linear", "bandwidth": 1.0},
        lowest=-inf,  # of the unbiased estimator
        highest=inf,
        normalised=False,
        operators=("hsic_terms", "gram_terms"),
        invariant=("translation", "orthogonal map"),
        degree=4,
    ),
)
