"""The records of `simcore/cka.py`."""

from math import inf, pi

from .record import ATTENTION, LAYERS, Measure, Variant

_IGNORED = ("translation", "isotropic scaling", "orthogonal map")
_OPTIONS = {"estimator": "biased", "kernel": "linear", "bandwidth": 1.0}

RECORDS = (
    Measure(
        name="cka",
        function="cka_grid",
        label="CKA",
        summary="centred kernel alignment",
        page="cka",
        job="cka13",
        fixed={"form": "similarity"},
        options=_OPTIONS,
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
        name="cka-angular",
        function="cka_grid",
        label="CKA angle",
        summary="the same as an angle",
        page="cka",
        job="cka13",  # the same but for an arccosine
        fixed={"form": "angular"},
        options=_OPTIONS,
        highest=pi,
        distance=True,
        operators=("hsic_terms", "gram_terms"),
        invariant=_IGNORED,
        undefined="variance",
    ),
    Measure(
        name="hsic",
        function="hsic_grid",
        label="HSIC",
        summary="the numerator of CKA",
        page="cka",
        job="cka13",  # the same products of Gram matrices, without the division
        options=_OPTIONS,
        lowest=-inf,  # of the unbiased estimator
        highest=inf,
        normalised=False,
        operators=("hsic_terms", "gram_terms"),
        invariant=("translation", "orthogonal map"),
        degree=4,
    ),
)
