"""Which errors of alignment claims read: one study, one protocol, and what the note says of it."""

import json
from dataclasses import replace

import pytest

from simlab.evidence.verdicts import FAILS, HOLDS
from simlab.results.results import to_frame
from support.lab.claimrows import BUILDERS
from support.lab.contrastrows import inn_keeps_metric
from support.lab.judging import judged


def findings(name, rows):
    return judged(name, to_frame(rows))


def numbers(found):
    return [(one.estimate, one.low, one.pvalue) for one in found]


def with_options(rows, methods=("inn", "linear"), **choices):
    """Return the rows with further choices in the options of these methods."""
    found = [(row, json.loads(row.options or "{}")) for row in rows]
    return [
        replace(row, options=json.dumps(options | choices))
        if options.get("method") in methods
        else row
        for row, options in found
    ]


@pytest.mark.parametrize(
    "name", ["inn-beats-linear", "deeper-layers-vary", "attention-varies-less"]
)
@pytest.mark.parametrize(
    ("change", "words"),
    [
        pytest.param(
            {"comparison": "b"}, "read b, n 100, left out seeds, n 100", marks=pytest.mark.deep
        ),
        ({"n": 7}, "read seeds, n 7, left out seeds, n 100"),
    ],
)
def test_studies_are_not_merged_pair_by_pair(name, change, words):
    """The first study has no pairs of the third model, the second has all pairs."""
    first = [r for r in BUILDERS[name](HOLDS) if "FT[3]" not in (r.label_x, r.label_y)]
    second = [replace(row, **change) for row in BUILDERS[name](FAILS)]
    found = findings(name, [*first, *second])
    assert numbers(found) == [(f.estimate, f.low, f.pvalue) for f in findings(name, second)]
    assert all(words in f.note for f in found)


def test_methods_are_compared_in_a_study_that_has_both():
    """A study of linear maps has fewer choices that are not the default, and all pairs."""
    name = "inn-beats-linear"
    rows = BUILDERS[name](HOLDS)
    both = with_options(rows, pairs=8, pair_seed=0)
    linear = [replace(r, comparison="all") for r in rows if "linear" in r.options]
    found = findings(name, [*linear, *both])
    assert {f.verdict for f in found} == {HOLDS}
    assert all("left out all" in f.note for f in found)


def test_a_protocol_that_is_left_out_is_named():
    name = "inn-beats-linear"
    shared = with_options(BUILDERS[name](FAILS), map="shared")
    found = findings(name, [*shared, *BUILDERS[name](HOLDS)])
    assert {f.verdict for f in found} == {HOLDS}
    assert all("left out seeds, map shared" in f.note for f in found)


def test_maps_that_are_all_trained_in_another_way_are_read_last():
    """They have fewer choices besides than the tuned maps of the default training."""
    name = "deeper-layers-vary"
    tuned = with_options(BUILDERS[name](HOLDS, 9), tune=8)
    other = with_options(BUILDERS[name](FAILS, 9), training="ren2023")
    other = [replace(row, comparison="as published") for row in other]
    found = findings(name, [*other, *tuned])
    assert {f.verdict for f in found} == {HOLDS}
    assert all("left out as published" in f.note for f in found)
    assert {f.verdict for f in findings(name, other)} == {FAILS}


def test_attention_is_compared_with_hidden_states_of_the_same_protocol():
    name = "attention-varies-less"
    rows = BUILDERS[name](HOLDS)
    attention = [row for row in rows if row.kind == "attention"]
    states = [row for row in rows if row.kind != "attention"]
    judged = with_options(attention, judge="folders")
    assert findings(name, [*judged, *states]) == []
    trained = with_options(states, ("inn",), training="ren2023")
    quantities = [f.quantity for f in findings(name, [*attention, *trained])]
    assert quantities
    assert all("linear" in quantity for quantity in quantities)
    worse = [replace(row, value=row.value + 1) for row in states]  # by the default protocol
    mixed = [*worse, *with_options(BUILDERS[name](FAILS), judge="folders")]
    assert {f.verdict for f in findings(name, mixed)} == {FAILS}


def test_maps_of_heads_are_averaged_beside_those_of_hidden_states():
    """A map for each head is another object than a map of word pairs, and counts as attention."""
    name = "attention-varies-less"
    rows = BUILDERS[name](HOLDS)
    attention = [row for row in rows if row.kind == "attention"]
    states = [row for row in rows if row.kind != "attention"]
    heads = [
        replace(row, value=row.value * scale)
        for head, scale in enumerate((0.5, 1.5))
        for row in with_options(attention, attention_rows="keys", head_x=head, head_y=head)
    ]
    wanted = [f.estimate for f in findings(name, rows)]
    assert wanted
    for some in ([*heads, *states], [*attention, *heads, *states]):
        found = [f.estimate for f in findings(name, some)]
        assert found == pytest.approx(wanted)


# Injections.


def of_method(rows, method):
    return [row for row in rows if json.loads(row.options)["method"] == method]


def compared_with(method, rows):
    """Return the estimate and the note of the comparison of `inn` with `method`."""
    every = judged("inn-keeps-metric", to_frame(rows))
    (found,) = [one for one in every if one.quantity.endswith(f" {method}")]
    return found.estimate, found.note


@pytest.mark.parametrize("first", [True, False])
def test_the_default_share_of_weights_is_read_and_the_other_is_named(first):
    rows = inn_keeps_metric(HOLDS)
    pwcca = with_options(of_method(rows, "pwcca"), ("pwcca",), weight_share=1.0)
    other = [replace(row, value=0.1) for row in pwcca]
    estimate, note = compared_with("pwcca", [*other, *rows] if first else [*rows, *other])
    assert estimate == pytest.approx(0.1)
    assert "pwcca with weight_share 1.0" in note
    assert "left out" not in compared_with("linear", [*rows, *other])[1]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda rows: [replace(r, layer_x=2, layer_y=2) for r in rows], "layer_x 2"),
        (lambda rows: [replace(r, n=50) for r in rows], "n 50"),
        (lambda rows: with_options(rows, fit_on="tokens", zone="b"), "fit_on tokens, zone b"),
        (lambda rows: with_options(rows, training="ren2023"), "inn with training ren2023"),
    ],
)
def test_another_way_of_injecting_is_named(change, words):
    rows = inn_keeps_metric(HOLDS)
    other = change(of_method(rows, "inn"))
    other += change(of_method(rows, "linear"))
    estimate, note = compared_with("linear", [*rows, *(replace(r, value=0.1) for r in other)])
    assert estimate == pytest.approx(0.1)
    assert words in note.partition("left out")[2]
