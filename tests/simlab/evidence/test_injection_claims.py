"""Which rows of injections the claim on invertible networks reads, and which its note names."""

import json
from dataclasses import replace

import pytest

from simlab.evidence.intervals import HOLDS
from simlab.store.results import to_frame
from support.lab.contrastrows import inn_keeps_metric
from support.lab.judging import judged

NAME = "inn-keeps-metric"


def with_choices(rows, method=None, **choices):
    """Return the rows, those of `method` or of all methods with further choices."""
    options = [json.loads(row.options) for row in rows]
    return [
        replace(row, options=json.dumps(one | choices)) if method in (None, one["method"]) else row
        for row, one in zip(rows, options, strict=True)
    ]


def of_method(rows, method):
    return [row for row in rows if json.loads(row.options)["method"] == method]


def compared_with(method, rows):
    """Return the estimate and the note of the comparison of `inn` with `method`."""
    (found,) = [f for f in judged(NAME, to_frame(rows)) if f.quantity.endswith(f" {method}")]
    return found.interval.estimate, found.note


@pytest.mark.parametrize("first", [True, False])
def test_the_default_share_of_weights_is_read_and_the_other_is_named(first):
    rows = inn_keeps_metric(HOLDS)
    pwcca = with_choices(of_method(rows, "pwcca"), weight_share=1.0)
    other = [replace(row, value=0.1) for row in pwcca]
    estimate, note = compared_with("pwcca", [*other, *rows] if first else [*rows, *other])
    assert estimate == pytest.approx(0.1)
    assert note.endswith("left out pwcca with weight_share 1.0")
    assert "left out" not in compared_with("linear", [*rows, *other])[1]


def test_of_two_shares_that_are_given_the_first_is_read_and_the_other_is_named():
    rows = with_choices(inn_keeps_metric(HOLDS), "pwcca", weight_share=0.9)
    pwcca = with_choices(of_method(rows, "pwcca"), "pwcca", weight_share=1.0)
    estimate, note = compared_with("pwcca", [*rows, *(replace(r, value=0.1) for r in pwcca)])
    assert estimate == pytest.approx(0.1)
    assert note.endswith("left out pwcca with weight_share 1.0")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda rows: [replace(r, layer_x=2, layer_y=2) for r in rows], "left out layer 2"),
        (lambda rows: [replace(r, n=50) for r in rows], "left out n 50"),
        (lambda rows: with_choices(rows, fit_on="tokens"), "left out fit_on tokens"),
        (lambda rows: with_choices(rows, "inn", training="ren2023"), "left out training ren2023"),
    ],
)
def test_another_way_of_injecting_is_named(change, words):
    rows = inn_keeps_metric(HOLDS)
    other = change(of_method(rows, "inn")) + change(of_method(rows, "linear"))
    if "training" in words:
        other = change(of_method(rows, "inn"))
    estimate, note = compared_with("linear", [*rows, *(replace(r, value=0.1) for r in other)])
    assert estimate == pytest.approx(0.1)
    assert note.endswith(words)
