"""Which errors of alignment claims read: one study, one protocol, and what the note says of it."""

import json
from dataclasses import replace

import pytest

from simlab.evidence.intervals import FAILS, HOLDS
from simlab.store.results import to_frame
from support.lab.claimrows import BUILDERS
from support.lab.judging import judged


def findings(name, rows):
    found = judged(name, to_frame(rows))
    return found


def with_options(rows, methods=("inn", "linear"), **choices):
    """Return the rows with further choices in the options of these methods."""
    found = [(row, json.loads(row.options or "{}")) for row in rows]
    return [
        replace(row, options=json.dumps(options | choices))
        if options.get("method") in methods
        else row
        for row, options in found
    ]


def test_methods_that_name_their_training_are_compared_with_those_that_have_none():
    name = "inn-beats-linear"
    rows = with_options(BUILDERS[name](HOLDS), ("inn",), training="ren2023")
    assert {f.verdict for f in findings(name, rows)} == {HOLDS}


def test_the_protocol_of_attention_is_not_asked_of_hidden_states():
    rows = with_options(BUILDERS["deeper-layers-vary"](HOLDS, 9), judge="folders")
    attention = [replace(row, kind="attention") for row in BUILDERS["deeper-layers-vary"](FAILS)]
    found = findings("deeper-layers-vary", [*attention[:32], *rows])
    assert {(f.verdict, f.interval.count) for f in found} == {(HOLDS, 9)}


@pytest.mark.parametrize(
    "name", ["inn-beats-linear", "deeper-layers-vary", "attention-varies-less"]
)
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"comparison": "b"}, "read alignment: b, left out alignment: seeds"),
        ({"n": 7}, "read alignment: seeds, left out alignment: seeds (n = 100)"),
    ],
)
def test_studies_are_not_merged_pair_by_pair(name, change, words):
    """The first study has no pairs of the third model, the second has all pairs."""
    first = [r for r in BUILDERS[name](HOLDS) if "FT[3]" not in (r.label_x, r.label_y)]
    second = [replace(row, **change) for row in BUILDERS[name](FAILS)]
    found = findings(name, [*first, *second])
    assert [f.interval for f in found] == [f.interval for f in findings(name, second)]
    assert all(words in f.note for f in found)


def test_the_study_with_all_methods_is_read():
    """The first study has linear maps of all pairs, the second both maps."""
    name = "inn-beats-linear"
    both = BUILDERS[name](HOLDS)
    linear = [replace(r, comparison="a") for r in both if "linear" in r.options]
    assert {f.verdict for f in findings(name, [*linear, *both])} == {HOLDS}


def test_methods_are_compared_in_a_study_that_has_both():
    """A study of linear maps has fewer choices that are not the default, and all pairs."""
    name = "inn-beats-linear"
    rows = BUILDERS[name](HOLDS)
    both = with_options(rows, pairs=8, pair_seed=0)
    linear = [replace(r, comparison="all") for r in rows if "linear" in r.options]
    found = findings(name, [*linear, *both])
    assert {f.verdict for f in found} == {HOLDS}
    assert all("left out alignment: all" in f.note for f in found)


def test_a_protocol_that_is_left_out_is_named():
    name = "inn-beats-linear"
    shared = with_options(BUILDERS[name](FAILS), map="shared")
    found = findings(name, [*shared, *BUILDERS[name](HOLDS)])
    assert {f.verdict for f in found} == {HOLDS}
    assert all("left out alignment: seeds (map shared)" in f.note for f in found)


def test_maps_that_are_all_trained_in_another_way_are_read_last():
    """They have fewer choices besides than the tuned maps of the default training."""
    name = "deeper-layers-vary"
    tuned = with_options(BUILDERS[name](HOLDS, 9), tune=8)
    other = with_options(BUILDERS[name](FAILS, 9), training="ren2023")
    other = [replace(row, comparison="as published") for row in other]
    found = findings(name, [*other, *tuned])
    assert {f.verdict for f in found} == {HOLDS}
    assert all("left out alignment: as published (training ren2023)" in f.note for f in found)
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
    wanted = [f.interval.estimate for f in findings(name, rows)]
    assert wanted
    for some in ([*heads, *states], [*attention, *heads, *states]):
        found = [f.interval.estimate for f in findings(name, some)]
        assert found == pytest.approx(wanted)


def test_an_option_of_one_method_makes_no_other_study():
    name = "inn-beats-linear"
    rows = BUILDERS[name](HOLDS)
    others = [replace(row, options=row.options.replace("linear", "pwcca")) for row in rows]
    pwcca = with_options([r for r in others if "pwcca" in r.options], ("pwcca",), weight_share=1.0)
    found = findings(name, [*pwcca, *rows])
    assert [f.interval for f in found] == [f.interval for f in findings(name, rows)]
    assert all(f.note == g.note for f, g in zip(found, findings(name, rows), strict=True))
