"""Claims about localization: both definitions, and which models are compared."""

import dataclasses

import pytest

from simlab.evidence.intervals import FAILS, HOLDS
from simlab.similarity.localization import STANDARDIZED
from simlab.store.results import ORIG, to_frame
from support.lab.claimrows import (
    higher_layers_localized,
    tuning_delocalizes,
)
from support.lab.judging import estimates, judged


def test_localization_has_one_model_to_be_compared_with():
    rows = tuning_delocalizes(HOLDS)
    second = [
        dataclasses.replace(r, label_x=f"other {r.label_x}") for r in rows if r.stage_x == ORIG
    ]
    assert judged("tuning-delocalizes", to_frame(rows))
    assert judged("tuning-delocalizes", to_frame(rows + second)) == []


def test_localization_of_fine_tuned_models_alone_is_compared_with_nothing():
    assert judged("tuning-delocalizes", to_frame(higher_layers_localized(HOLDS)[27:])) == []


def test_falling_localization_is_counted():
    found = judged("higher-layers-localized", to_frame(higher_layers_localized(FAILS)))
    assert all(f.note.startswith("falls with depth in 3 of 3 models") for f in found)


def standardized(rows, value=1.0, **changes):
    return [
        dataclasses.replace(one, options=STANDARDIZED, value=value * one.value, **changes)
        for one in rows
    ]


def test_both_definitions_of_localization_are_judged():
    rows = higher_layers_localized(HOLDS)
    found = judged("higher-layers-localized", to_frame([*rows, *standardized(rows, -1.0)]))
    both = {f.quantity.split("depth and ")[1]: f.interval.estimate for f in found}
    assert both == {
        "localization, pretrained models": pytest.approx(1),
        "localization, fine-tuned models": pytest.approx(1),
        "standardized localization, pretrained models": pytest.approx(-1),
        "standardized localization, fine-tuned models": pytest.approx(-1),
    }


def test_standardized_localization_has_a_least_effect_of_its_own():
    rows = tuning_delocalizes(HOLDS)  # -.1 for all
    assert estimates("tuning-delocalizes", rows) == estimates(
        "tuning-delocalizes", standardized(rows)
    )
    least = [f.least for f in judged("tuning-delocalizes", to_frame([*rows, *standardized(rows)]))]
    assert least == [-0.02, -0.1]


def test_localization_is_compared_within_one_joint_grid():
    """Scores of ORIG in the grid of pretrained models alone are those of another company."""
    rows = [dataclasses.replace(one, comparison="ORIG + FT") for one in tuning_delocalizes(HOLDS)]
    alone = [
        dataclasses.replace(one, comparison="ORIG", value=one.value + 5)
        for one in rows
        if one.stage_x == ORIG
    ]
    want = estimates("tuning-delocalizes", rows)
    assert want[0] < -0.05
    for both in (rows + alone, alone + rows):
        assert estimates("tuning-delocalizes", both) == pytest.approx(want)


def test_of_two_companies_the_larger_one_is_read():
    """A pretrained model may be in a joint grid of all models and in another one of a few."""
    rows = [
        dataclasses.replace(one, comparison="ORIG")
        for one in higher_layers_localized(HOLDS)
        if one.label_x.startswith("GPT")
    ]
    name = rows[0].label_x
    few = [
        dataclasses.replace(one, comparison="few", value=-one.value)
        for one in rows
        if one.label_x == name
    ]
    assert 0 < len(few) < len(rows)
    want = estimates("higher-layers-localized", rows)
    assert want == [pytest.approx(1)]
    for both in (rows + few, few + rows):
        assert estimates("higher-layers-localized", both) == pytest.approx(want)
