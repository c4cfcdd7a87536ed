"""The records of `simcore/attention.py`."""

from math import inf, log
from typing import Any

from .record import ATTENTION, Measure

_HEADS: dict[str, Any] = {
    "function": "attention_grid",
    "page": "attention",
    "options": {"causal": False},
    "takes": (ATTENTION,),
    "symmetric": False,
    "operators": ("attention_similarity",),
    "invariant": ("permutation of heads",),
    "invariant_y": ("permutation of heads", "a head twice"),
}

RECORDS = (
    Measure(
        name="attention-js",
        label="attention, Jensen–Shannon",
        summary="each head of X with its best head of Y, 1 - Jensen-Shannon divergence",
        job="js12",
        fixed={"measure": "js"},
        lowest=1 - log(2),
        **_HEADS,
    ),
    Measure(
        name="attention-pearson",
        label="attention, Pearson",
        summary="the same, Pearson correlation of the words' rows",
        job="pearson12",
        fixed={"measure": "pearson"},
        lowest=-1.0,
        **_HEADS,
    ),
    Measure(
        name="attention-frobenius",
        label="attention, Frobenius",
        summary="the same, 1 - Frobenius distance",
        job="frobenius12",
        fixed={"measure": "frobenius"},
        lowest=-inf,
        **_HEADS,
    ),
)
