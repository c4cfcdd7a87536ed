"""What claims estimate, by hand, and which rows they read."""

import dataclasses
import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import adjusted_rand_score

from simlab.errors import UserError
from simlab.evidence import blocks
from simlab.evidence.blocks import TASKS, adjusted_rand, count_tasks, rand_index
from simlab.evidence.claim import Finding
from simlab.evidence.intervals import FAILS, HOLDS, UNDECIDED, Interval
from simlab.evidence.labels import PRETRAINED, TUNED
from simlab.evidence.options import ClaimOptions
from simlab.evidence.rows import TaskRows
from simlab.store.results import (
    FREEZING,
    FT,
    HELDOUT,
    ORIG,
    SECONDS,
    SKIPPING,
    TRAIN,
    TRAINED,
    TRUNCATIONS,
    to_frame,
)
from support.lab.claimrows import (
    BUILDERS,
    band,
    block_diagonal,
    curve,
    freeze_bottom,
    grid,
    higher_layers_localized,
    planted,
    row,
    skipping,
    top_layers_can_go,
    top_layers_change,
    tuning_delocalizes,
)
from support.lab.judging import estimates, judged


@pytest.mark.parametrize(("tolerance", "wanted"), [(0.0, 0), (0.01, 1), (0.05, 3)])
def test_layers_above_the_lowest_that_is_good_enough_can_go(tolerance, wanted):
    # Layer 2 is as good as the whole; layers that are worse above it do not matter.
    values = [0.5, 0.7, 0.75, 0.6, 0.79, 0.8]
    rows = curve(TRUNCATIONS["untuned"], values, "FT[1]")
    assert estimates("top-layers-can-go", rows, tolerance=tolerance) == [wanted]


def test_a_tuned_head_is_compared_with_the_whole_model():
    rows = curve(TRUNCATIONS["untuned"], [0.5, 0.6, 0.8], "FT[1]")
    rows += curve(TRUNCATIONS["tuned"], [0.5, 0.8, 0.82], "FT[1]")
    assert estimates("top-layers-can-go", rows) == [0, 1]


def test_models_of_different_depth_have_their_own_last_layers():
    rows = curve(TRUNCATIONS["untuned"], [0.5, 0.6, 0.8, 0.8], "FT[1]")
    rows += curve(TRUNCATIONS["untuned"], [0.5, 0.5, 0.6, 0.8, 0.8, 0.8, 0.8], "FT[2]")
    (found,) = judged("top-layers-can-go", to_frame(rows))
    assert (found.interval.estimate, found.interval.models) == (2, 2)
    assert found.note == "of 3 or 6 layers; by model 1, 3"


def test_an_undefined_metric_of_the_whole_model_says_nothing_of_layers():
    rows = curve(TRUNCATIONS["untuned"], [0.5, 0.8, math.nan], "FT[1]")
    rows += curve(TRUNCATIONS["untuned"], [0.5, 0.8, 0.8], "FT[2]")
    (found,) = judged("top-layers-can-go", to_frame(rows))
    assert (found.interval.estimate, found.interval.models) == (1, 1)


def test_tuned_minus_orig_leaves_out_the_embeddings():
    rows = curve(TRUNCATIONS["tuned"], [0.9, 0.6, 0.8], "FT[1]")
    rows += curve(TRUNCATIONS["tuned-orig"], [0.1, 0.5, 0.5], "FT[1]")
    assert estimates("tuned-beats-orig", rows) == pytest.approx([0.2])


def test_the_first_layer_is_compared_with_the_worst_other():
    losses = {(0, 1): 0.5, (1, 2): 0.3, (2, 3): 0.1, (0, 3): 0.7, (0, 2): 0.6, (1, 3): 0.6}
    assert estimates("first-layer-matters", skipping(losses, "FT[1]")) == pytest.approx([0.2])


def test_the_cheapest_spans_are_named():
    losses = {(i, j): 0.1 * (j - i) - 0.01 * i for i in range(4) for j in range(i + 1, 5)}
    (found,) = judged("later-spans-cost-less", to_frame(skipping(losses, "FT[1]")))
    assert found.interval.estimate == pytest.approx(1)
    assert found.note == "the spans that cost least: layers 4 (.07), 3 to 4 (.18)"


def test_freezing_is_paired_by_seed():
    values = {("top:2", 1): 0.5, ("bottom:2", 1): 0.6, ("top:2", 2): 0.7, ("bottom:4", 2): 0.9}
    rows = [row(FREEZING, v, model=way, seed_x=seed) for (way, seed), v in values.items()]
    rows += [row(FREEZING, 7.0, TRAINED, "top:2", seed_x=1)]
    (found,) = judged("freeze-bottom", to_frame(rows))
    assert found.interval.estimate == pytest.approx(0.1)
    assert found.interval.models == 1


def test_layers_are_matched_by_relative_depth():
    values = np.arange(8.0).reshape(2, 4) ** 2  # layers 1, 2 against 1, ..., 4
    # Equal depth: (1, 2) and (2, 4); of four layers, the first is as near to 1 as to 0, so to 1.
    x_gains = [1 - (0 + 4 + 9) / 3, 49 - (16 + 25 + 36) / 3]
    y_gains = [0 - 16, 1 - 25, (4 + 36) / 2, 49 - 9]
    y_gains[2] = math.nan  # layer 3 of 4 lies between both: nothing else is left
    wanted = np.nanmean([*x_gains, *y_gains])
    rows = grid("pair", values, "FT[1]", "FT[2]", first=1)
    assert estimates("equal-depth", rows) == pytest.approx([wanted])


def base_in(label):
    return next((base for base in ("bert", "roberta") if label.startswith(base)), None)


@pytest.mark.parametrize(
    ("pairs", "words"),
    [
        ([("bert", "roberta"), ("bert FT[1]", "roberta FT[1]")], ""),
        ([("bert", "roberta"), ("bert FT[1]", "bert ORIG")], ", 1 of them of one base model"),
        ([("FT[1]", "FT[2]"), ("FT[2]", "FT[1]"), ("a", "b")], ", 1 of them of one base model"),
    ],
)
def test_pairs_of_one_base_model_are_counted(pairs, words):
    rows = [
        replaced
        for x, y in pairs
        for row in grid("pair", band(4), x, y)
        for replaced in [dataclasses.replace(row, base_x=base_in(x), base_y=base_in(y))]
    ]
    (found,) = judged("equal-depth", to_frame(rows), ClaimOptions())
    assert found.note == f"2 pairs of models{words}"


def test_the_change_of_a_layer_is_one_minus_similarity():
    values = np.full((5, 5), np.nan)
    np.fill_diagonal(values, [0.0, 0.9, 0.8, 0.3, 0.5])  # the embedding output does not count
    (found,) = judged("top-layers-change", to_frame(grid("FT-ORIG", values, "FT", "ORIG")))
    assert found.interval.estimate == pytest.approx(0.8)
    assert found.note == "layer 1: .10, layer 4: .50"


def test_falling_localization_is_counted():
    found = judged("higher-layers-localized", to_frame(higher_layers_localized(FAILS)))
    assert [f.note for f in found] == ["falls with depth in 3 of 3 models"] * 2


def test_localization_of_fine_tuned_models_alone_is_compared_with_nothing():
    assert judged("tuning-delocalizes", to_frame(higher_layers_localized(HOLDS)[27:])) == []


@pytest.mark.parametrize(
    ("score", "pvalues", "verdict"),
    [
        (0.5, (0.01, 0.01, 0.3), HOLDS),
        (0.5, (0.01, 0.3, 0.3), UNDECIDED),
        (0.05, (0.3, 0.3, 0.3), FAILS),
        (0.05, (0.01, 0.01, 0.01), UNDECIDED),  # beyond chance, but by little
    ],
)
def test_blocks_are_beyond_chance_in_most_models(score, pvalues, verdict, monkeypatch):
    found = [SimpleNamespace(calibrated=score, pvalue=pvalue) for pvalue in pvalues]
    monkeypatch.setattr(blocks, "find_blocks", lambda table, clusters: found.pop(0))
    assert judged("block-diagonal", to_frame(block_diagonal(HOLDS)))[0].verdict == verdict


@pytest.mark.parametrize("seed", range(4))
def test_the_rand_index_is_that_of_scikit_learn(seed):
    splits = np.random.default_rng(seed).integers(0, 2, size=(2, 9))
    assert adjusted_rand(*splits) == pytest.approx(adjusted_rand_score(*splits))


def test_equal_splits_are_as_much_above_chance_as_can_be():
    same = {layer: int(layer > 2) for layer in range(7)}
    other = {layer: int(layer > 5) for layer in range(7)}
    assert rand_index(same, same) > 0.5 > rand_index(same, other)
    splits = [{layer: int(layer > k) for layer in range(7)} for k in range(6)]
    mean = np.mean([rand_index(a, b) for a in splits for b in splits])
    assert mean == pytest.approx(0, abs=1e-12)


def test_only_models_with_the_same_layers_are_compared_by_blocks():
    rows = grid("FT-FT", planted(4, 9), "FT[1]", "FT[1]")
    rows += grid("FT-FT", planted(4, 7), "FT[2]", "FT[2]")
    assert judged("blocks-agree", to_frame(rows)) == []


def test_localization_has_one_model_to_be_compared_with():
    rows = tuning_delocalizes(HOLDS)
    second = [dataclasses.replace(r, label_x="ORIG-2") for r in rows if r.label_x == "ORIG"]
    assert judged("tuning-delocalizes", to_frame(rows))
    assert judged("tuning-delocalizes", to_frame(rows + second)) == []


@pytest.mark.parametrize("name", ["deeper-layers-vary", "attention-varies-less"])
def test_errors_of_training_rows_do_not_count(name):
    rows = [
        found
        for part, case in ((HELDOUT, HOLDS), (TRAIN, FAILS))
        for found in BUILDERS[name](case)
        if json.loads(found.options)["rows"] == part
    ]
    assert {f.verdict for f in judged(name, to_frame(rows))} == {HOLDS}


@pytest.mark.parametrize(
    ("blocky", "tasks", "verdict"), [(6, 6, HOLDS), (0, 6, FAILS), (3, 3, UNDECIDED)]
)
def test_tasks_are_counted(blocky, tasks, verdict):
    rows = [
        dataclasses.replace(found, task=f"task {task}")
        for task in range(tasks)
        for found in block_diagonal(HOLDS if task < blocky else FAILS)
    ]
    summary = judged("block-diagonal", to_frame(rows))[-1]
    assert (summary.task, summary.verdict) == (TASKS, verdict)
    assert summary.note.startswith(f"{blocky} of {tasks} tasks")


@pytest.mark.parametrize(
    ("held", "failed", "wanted"),
    [(0, 0, UNDECIDED), (0, 4, UNDECIDED), (16, 1, HOLDS), (1, 16, FAILS)],
)
def test_undecided_tasks_are_evidence_for_neither_side(held, failed, wanted):
    cases = [HOLDS] * held + [FAILS] * failed + [UNDECIDED] * 2
    findings = [
        Finding(f"task {task}", "", "score", Interval(math.nan, math.nan, math.nan, 2), case)
        for task, case in enumerate(cases)
    ]
    found = count_tasks(findings)
    assert found.verdict == wanted
    either = [stats.binomtest(k, len(cases)).proportion_ci() for k in (held, held + 2)]
    assert (found.interval.low, found.interval.high) == (either[0].low, either[1].high)
    assert found.interval.estimate == pytest.approx(
        held / (held + failed) if held + failed else math.nan, nan_ok=True
    )
    assert found.note.startswith(f"{held} of {len(cases)} tasks, 2 undecided")


# Which rows are read.


@pytest.mark.parametrize(
    ("stages", "changes", "roles"),
    [
        ((FT, ORIG), {}, (TUNED, PRETRAINED)),
        ((FT, FT), {}, (TUNED, TUNED)),
        ((None, None), {}, ("", "")),
        ((None, ORIG), {"tuned": "FT*"}, (TUNED, PRETRAINED)),
        ((ORIG, FT), {"tuned": "FT*", "pretrained": "ORIG"}, (TUNED, PRETRAINED)),
    ],
)
def test_rows_and_patterns_say_what_is_fine_tuned(stages, changes, roles):
    """Labels and names of grids say nothing."""
    known = {"stage_x": stages[0], "stage_y": stages[1]}
    frame = to_frame(grid("FT-ORIG", band(3), "FT[1]", "ORIG", **known))
    found = TaskRows("rt", frame, ClaimOptions(**changes)).frame
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
    assert set(TaskRows("rt", frame, ClaimOptions(families=families)).frame["base_x"]) == {base}


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
            for r in [*top_layers_can_go(case), *block_diagonal(case), *top_layers_change(case)]
        ]
    for name in ("top-layers-can-go", "block-diagonal", "top-layers-change"):
        found = judged(name, to_frame(rows), ClaimOptions())
        verdicts = {(f.base, f.verdict) for f in found if f.task != TASKS}
        assert verdicts == {("roberta", HOLDS), ("electra", FAILS)}
    assert [f.base for f in judged("block-diagonal", to_frame(rows))[-2:]] == ["roberta", "electra"]


@pytest.mark.parametrize("families", [{}, {"one": "bert*", "two": "albert*"}])
def test_freezing_studies_of_two_base_models_are_judged_apart(families):
    rows = []
    for base, case in (("bert-base", HOLDS), ("albert-base", FAILS)):
        rows += [dataclasses.replace(r, base_x=base) for r in freeze_bottom(case)]
    found = judged("freeze-bottom", to_frame(rows), ClaimOptions(families=families))
    names = list(families) or ["bert-base", "albert-base"]
    assert {(f.base, f.verdict) for f in found} == {(names[0], HOLDS), (names[1], FAILS)}


def test_untrained_models_are_left_out():
    rows = grid("RANDOM-ORIG", band(4), "RANDOM", "ORIG") + grid("one", band(4), "FT[1]", "FT[2]")
    (found,) = judged("equal-depth", to_frame(rows))
    assert found.note == "1 pair of models, 1 of them of one base model"
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
    with pytest.raises(UserError, match=r"one accuracy of skipping for FT\[1\], found several"):
        judged("first-layer-matters", to_frame(rows))


def test_the_first_way_of_computing_a_measure_counts():
    rows = top_layers_change(HOLDS)
    other = [dataclasses.replace(r, value=-r.value, estimator="unbiased") for r in rows]
    grids = [r for r in rows + other if r.measure == "cka"]
    (found,) = judged("top-layers-change", to_frame(grids))
    assert found.verdict == HOLDS


def test_models_of_one_label_are_told_apart_by_seed():
    rows = [dataclasses.replace(r, label_x="FT", seed_x=int(r.label_x[3])) for r in
            top_layers_can_go(HOLDS)]  # fmt: skip
    assert all(f.interval.models == 3 for f in judged("top-layers-can-go", to_frame(rows)))


def test_the_seeds_of_a_label_are_counted_over_both_sides_of_grids():
    """On the left, FT has two seeds; on the right, one."""
    rows = grid("FT-FT", planted(4), "FT", "FT", seed_x=1, seed_y=1)
    rows += grid("FT-ORIG", band(), "FT", "ORIG", seed_x=2)
    found = judged("block-diagonal", to_frame(rows), ClaimOptions())
    assert [f.interval.models for f in found if f.task != TASKS] == [1]


def test_families_come_from_patterns():
    options = ClaimOptions(families={"BERT": "BERT-*", "rest": "*"})
    assert [options.family(name) for name in ("BERT-0", "GPT")] == ["BERT", "rest"]
    assert ClaimOptions().family("BERT-0") is None
