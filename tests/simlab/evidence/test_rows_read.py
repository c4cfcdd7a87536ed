"""Which rows claims read: roles and bases of models, metrics, and joint grids."""

import dataclasses

import pytest

from simlab.errors import UserError
from simlab.evidence.rows import PRETRAINED, TUNED, ClaimOptions, tasks_of
from simlab.evidence.verdicts import ALL, FAILS, HOLDS
from simlab.results.results import FT, ORIG, SECONDS, SKIPPING, to_frame
from simlab.similarity.localization import STANDARDIZED
from support.lab.claimrows import (
    band,
    block_diagonal,
    curve,
    freeze_bottom,
    grid,
    higher_layers_localized,
    top_layers_can_go,
    tuning_delocalizes,
)
from support.lab.judging import estimates, judged


@pytest.mark.parametrize(
    ("stages", "roles"),
    [((FT, ORIG), (TUNED, PRETRAINED)), ((FT, FT), (TUNED, TUNED)), ((None, None), ("", ""))],
)
def test_rows_say_what_is_fine_tuned(stages, roles):
    """Labels and names of grids say nothing."""
    known = {"stage_x": stages[0], "stage_y": stages[1]}
    frame = to_frame(grid("FT-ORIG", band(3), "FT[1]", "ORIG", **known))
    (task,) = tasks_of(frame, ClaimOptions())
    found = task.frame
    assert (found["role_x"].iloc[0], found["role_y"].iloc[0]) == roles


@pytest.mark.parametrize(
    ("known", "families", "base"),
    [
        ({}, {}, ""),
        ({"base_x": "roberta"}, {}, "roberta"),
        ({"base_x": "roberta"}, {"one": "FT*"}, "one"),
        ({"base_x": "roberta"}, {"two": "rob*"}, "two"),
    ],
)
def test_the_family_or_the_row_says_the_base_model(known, families, base):
    frame = to_frame(curve(SKIPPING, [0.5], "FT[1]", **known))
    (task,) = tasks_of(frame, ClaimOptions(families=families))
    assert set(task.frame["base_x"]) == {base}


def test_base_models_are_judged_apart():
    rows = []
    for base, case in (("roberta", HOLDS), ("electra", FAILS)):
        rows += [
            dataclasses.replace(
                r,
                label_x=f"{base}-rt {r.label_x}",
                label_y=r.label_y and f"{base}-rt {r.label_y}",
                base_x=base,
                base_y=r.label_y and base,
            )
            for r in [*top_layers_can_go(case, 9), *block_diagonal(case, 9)]
        ]
    for name in ("top-layers-can-go", "block-diagonal"):
        found = judged(name, to_frame(rows), ClaimOptions())
        verdicts = {(f.base, f.verdict) for f in found if f.task != ALL}
        assert verdicts == {("roberta", HOLDS), ("electra", FAILS)}


@pytest.mark.parametrize("families", [{}, {"one": "bert*", "two": "albert*"}])
def test_freezing_studies_of_two_base_models_are_judged_apart(families):
    rows = []
    for base, case in (("bert-base", HOLDS), ("albert-base", FAILS)):
        rows += [dataclasses.replace(r, base_x=base) for r in freeze_bottom(case)]
    found = judged("freeze-bottom", to_frame(rows), ClaimOptions(families=families))
    names = list(families) or ["bert-base", "albert-base"]
    assert {(f.base, f.verdict) for f in found} == {(names[0], HOLDS), (names[1], FAILS)}


def test_untrained_models_are_left_out():
    rows = grid("RANDOM-ORIG", band(4), "RANDOM", "ORIG") + grid("one", band(4), "bert", "gpt")
    (found,) = judged("equal-depth", to_frame(rows))
    assert found.note.startswith("1 pair of models")
    only = to_frame(rows[:16])
    assert judged("equal-depth", only) == []


def test_the_first_metric_counts_unless_another_is_named():
    rows = freeze_bottom(HOLDS)
    rows += [dataclasses.replace(r, measure="f1", value=-r.value) for r in rows]
    rows += [dataclasses.replace(r, measure=SECONDS) for r in rows[:4]]
    first, named = (
        {f.verdict for f in judged("freeze-bottom", to_frame(rows), ClaimOptions(metric=metric))}
        for metric in (None, "f1")
    )
    assert (first, named) == ({HOLDS}, {FAILS})
    with pytest.raises(UserError, match=r"metric='mcc': wanted .* found accuracy, f1"):
        judged("freeze-bottom", to_frame(rows), ClaimOptions(metric="mcc"))


def test_a_model_has_one_value_of_a_metric():
    rows = curve(SKIPPING, [0.5, 0.6], "FT[1]", layer_y=5)
    assert judged("first-layer-matters", to_frame(rows + rows)) == []  # equal rows count once
    rows.append(dataclasses.replace(rows[0], value=0.7))
    with pytest.raises(
        UserError, match=r"one value .* of skipping, found several for FT\[1\], accuracy"
    ):
        judged("first-layer-matters", to_frame(rows))
    rows = [dataclasses.replace(row, layer_x=None) for row in rows]
    with pytest.raises(UserError, match=r"column 'layer_x' in rows of skipping, found nothing"):
        judged("first-layer-matters", to_frame(rows))


def test_models_of_one_label_are_told_apart_by_seed():
    rows = [dataclasses.replace(r, label_x="FT", seed_x=int(r.label_x[3])) for r in
            top_layers_can_go(HOLDS)]  # fmt: skip
    assert all(f.units == 3 for f in judged("top-layers-can-go", to_frame(rows)))


def standardized(rows, value=1.0, **changes):
    return [
        dataclasses.replace(one, options=STANDARDIZED, value=value * one.value, **changes)
        for one in rows
    ]


def test_both_definitions_of_localization_are_judged():
    rows = higher_layers_localized(HOLDS)
    found = judged("higher-layers-localized", to_frame([*rows, *standardized(rows, -1.0)]))
    both = {f.quantity.split("depth and ")[1]: f.estimate for f in found}
    assert both == {
        "localization, pretrained models": pytest.approx(1),
        "localization, fine-tuned models": pytest.approx(1),
        "standardized localization, pretrained models": pytest.approx(-1),
        "standardized localization, fine-tuned models": pytest.approx(-1),
    }


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
