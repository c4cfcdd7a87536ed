"""What claims estimate, by hand, and which rows they read."""

import dataclasses
import json
import math
from itertools import permutations, product

import numpy as np
import pytest

from simlab.errors import UserError
from simlab.evidence.blocks import rand_index
from simlab.evidence.claim import ARCHITECTURES, BOTH, MODELS, RUNS, TASKS
from simlab.evidence.intervals import CANNOT, FAILS, HOLDS, UNDECIDED
from simlab.evidence.judge import ALL
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
    planted,
    row,
    skipping,
    top_layers_can_go,
    top_layers_change,
)
from support.lab.contrastrows import complexity_drops
from support.lab.judging import estimates, judged


def test_the_top_quarter_is_fixed_beforehand():
    """Layer 2 of 8 is as good as the whole: it is not looked for."""
    values = [0.5, 0.7, 0.8, 0.6, 0.6, 0.6, 0.79, 0.7, 0.8]
    rows = curve(TRUNCATIONS["untuned"], values, "FT[1]")
    rows += curve(TRUNCATIONS["tuned"], [*values[:6], 0.82, 0.7, 0.83], "FT[1]")
    assert estimates("top-layers-can-go", rows) == pytest.approx([-0.01, 0.02])
    assert judged("top-layers-can-go", to_frame(rows))[0].note.startswith("2 of 8 layers")


def test_models_of_different_depth_have_their_own_top_quarters():
    rows = curve(TRUNCATIONS["untuned"], [0.5, 0.6, 0.7, 0.8], "FT[1]")
    rows += curve(TRUNCATIONS["untuned"], [0.5, 0.5, 0.6, 0.8, 0.8, 0.8, 0.8], "FT[2]")
    (found,) = judged("top-layers-can-go", to_frame(rows))
    assert found.interval.estimate == pytest.approx(-0.05)
    assert found.note.startswith("1 or 2 of 3 or 6 layers")


def test_an_undefined_metric_of_the_whole_model_says_nothing_of_layers():
    rows = curve(TRUNCATIONS["untuned"], [0.5, 0.8, math.nan], "FT[1]")
    rows += curve(TRUNCATIONS["untuned"], [0.5, 0.8, 0.8], "FT[2]")
    (found,) = judged("top-layers-can-go", to_frame(rows))
    assert (found.interval.estimate, found.interval.count) == (0, 1)


def test_tuned_minus_orig_leaves_out_the_embeddings():
    rows = curve(TRUNCATIONS["tuned"], [0.9, 0.6, 0.8], "FT[1]")
    rows += curve(TRUNCATIONS["tuned-orig"], [0.1, 0.5, 0.5], "FT[1]")
    assert estimates("tuned-beats-orig", rows) == pytest.approx([0.2])


def test_the_first_layer_is_compared_with_the_mean_of_the_others():
    losses = {(0, 1): 0.5, (1, 2): 0.3, (2, 3): 0.1, (0, 3): 0.7, (0, 2): 0.6, (1, 3): 0.6}
    assert estimates("first-layer-matters", skipping(losses, "FT[1]")) == pytest.approx([0.3])


def test_the_cheapest_spans_are_named():
    losses = {(i, j): 0.1 * (j - i) - 0.01 * i for i in range(4) for j in range(i + 1, 5)}
    (found,) = judged("later-spans-cost-less", to_frame(skipping(losses, "FT[1]")))
    assert found.interval.estimate == pytest.approx(1)
    assert found.note.startswith("the spans that cost least: layers 4 (.07), 3 to 4 (.18)")


def test_freezing_is_paired_by_seed():
    values = {("top:2", 1): 0.5, ("bottom:2", 1): 0.6, ("top:2", 2): 0.7, ("bottom:4", 2): 0.9}
    rows = [row(FREEZING, v, model=way, seed_x=seed) for (way, seed), v in values.items()]
    rows += [row(FREEZING, 7.0, TRAINED, "top:2", seed_x=1)]
    (found,) = judged("freeze-bottom", to_frame(rows))
    assert found.interval.estimate == pytest.approx(0.1)
    assert found.interval.count == 1


def test_layers_are_matched_by_relative_depth():
    values = np.arange(8.0).reshape(2, 4) ** 2  # layers 1, 2 against 1, ..., 4
    # Equal depth: (1, 2) and (2, 4); of four layers, the first is as near to 1 as to 0, so to 1.
    x_gains = [1 - (0 + 4 + 9) / 3, 49 - (16 + 25 + 36) / 3]
    y_gains = [0 - 16, 1 - 25, (4 + 36) / 2, 49 - 9]
    y_gains[2] = math.nan  # layer 3 of 4 lies between both: nothing else is left
    wanted = np.nanmean([*x_gains, *y_gains])
    rows = grid("pair", values, "bert", "gpt", first=1)
    assert estimates("equal-depth", rows) == pytest.approx([wanted])


def test_models_of_one_base_never_make_a_pair():
    """Neither fine-tunings nor pretraining seeds."""
    models = {"bert[1]": ("bert", 1), "bert[1]-FT": ("bert", 1), "bert[2]": ("bert", 2)}
    models |= {"gpt": ("gpt", 0), "gpt-FT": ("gpt", 0)}
    rows = []
    for x, y in permutations(models, 2):
        known = {}
        for side, name in (("x", x), ("y", y)):
            known[f"stage_{side}"] = FT if "FT" in name else ORIG
            known[f"base_{side}"], known[f"seed_{side}"] = models[name]
        rows += grid("pair", band(4), x, y, **known)
    (found,) = judged("equal-depth", to_frame(rows), ClaimOptions())
    assert (found.unit, found.interval.count) == (ARCHITECTURES, 2)
    assert found.note.startswith("2 pairs of models")
    alone = [one for one in rows if one.base_x == one.base_y]
    assert judged("equal-depth", to_frame(alone), ClaimOptions()) == []


def test_the_change_of_a_layer_is_one_minus_similarity():
    values = np.full((5, 5), np.nan)
    np.fill_diagonal(values, [0.0, 0.9, 0.8, 0.3, 0.5])  # the embedding output does not count
    (found,) = judged("top-layers-change", to_frame(grid("FT-ORIG", values, "FT", "ORIG")))
    assert found.interval.estimate == pytest.approx(0.8)
    assert found.note.startswith("layer 1: .10, layer 4: .50")


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


@pytest.mark.parametrize("name", ["deeper-layers-vary", "attention-varies-less"])
def test_errors_of_training_rows_do_not_count(name):
    rows = [
        found
        for part, case in ((HELDOUT, HOLDS), (TRAIN, FAILS))
        for found in BUILDERS[name](case, 9)
        if json.loads(found.options)["rows"] == part
    ]
    assert {f.verdict for f in judged(name, to_frame(rows))} == {HOLDS}


@pytest.mark.parametrize(
    ("blocky", "tasks", "verdict"),
    [(6, 0, HOLDS), (0, 6, FAILS), (3, 3, UNDECIDED), (2, 0, CANNOT)],
)
def test_tasks_are_units(blocky, tasks, verdict):
    rows = [
        dataclasses.replace(found, task=f"task {task}")
        for task in range(blocky + tasks)
        for found in block_diagonal(HOLDS if task < blocky else FAILS)
    ]
    summary = judged("block-diagonal", to_frame(rows))[-1]
    assert (summary.task, summary.unit, summary.verdict) == (ALL, TASKS, verdict)
    assert summary.interval.count == blocky + tasks


def test_two_seeds_of_twelve_tasks_decide_over_tasks():
    """The design of Phang et al.: no single task is decided."""
    draw = np.random.default_rng(0)
    rows = []
    for task, seed in product(range(12), (1, 2)):
        losses = {(i, i + 1): 0.1 + 0.2 * (i == 0) + 0.02 * draw.normal() for i in range(12)}
        mine = skipping(losses, f"FT[{seed}]")
        rows += [dataclasses.replace(one, task=f"task {task}") for one in mine]
    *single, summary = judged("first-layer-matters", to_frame(rows))
    assert {(f.unit, f.verdict) for f in single} == {(RUNS, CANNOT)}
    assert (summary.unit, summary.verdict) == (TASKS, HOLDS)


@pytest.mark.parametrize(("models", "verdict"), [(5, CANNOT), (8, HOLDS)])
def test_a_trend_holds_by_the_test_of_signs_too(models, verdict):
    """Five curves over layers often rise by chance, and the t test trusts their agreement."""
    frame = to_frame(top_layers_change(HOLDS, models))
    lowest = (frame["label_x"] == "FT[1]") & (frame["layer_x"] == 1)
    frame.loc[lowest & (frame["measure"] == "cka"), "value"] = 0.3  # not all units are equal
    found = judged("top-layers-change", frame)[0]
    assert found.interval.low > found.least
    assert found.verdict == verdict
    assert ("test of signs" in found.note) == (verdict == CANNOT)


def test_fine_tunings_of_one_model_are_one_unit_of_a_trend():
    rows = [dataclasses.replace(one, base_x="bert", base_y="bert", label_y="ORIG")
            for one in top_layers_change(HOLDS, 9) if one.experiment == "grid"]  # fmt: skip
    (found,) = judged("top-layers-change", to_frame(rows))
    assert (found.unit, found.interval.count, found.verdict) == (MODELS, 1, CANNOT)


@pytest.mark.parametrize("place", ["", "google/", "runs/models/of-"])
def test_on_a_corpus_fine_tuned_models_meet_their_base_and_tasks_are_units(place):
    """The design of Wu et al.: models of all tasks read one corpus, with labels of a sweep."""
    rows = []
    for base, task in product(("bert-base", "xlnet-base"), ("mnli", "qnli", "qqp", "sst2")):
        change = np.linspace(0.1, 0.8, 8) + (0.5 if task == "qqp" else 0) * np.eye(8)[0]
        rows += [
            dataclasses.replace(one, base_x=place + base, base_y=place + base, task="ptb")
            for one in grid(
                "joint", np.diag(1 - change), f"{base}-{task}-FT", f"{base}-ORIG", first=1
            )
        ]
    whole, *apart = judged("top-layers-change", to_frame(rows), ClaimOptions())
    assert (whole.unit, whole.interval.count, whole.verdict) == (MODELS, 2, CANNOT)
    assert [(f.base, f.unit, f.interval.count) for f in apart] == [
        *((place + base, TASKS, 4) for base in ("bert-base", "xlnet-base")),
        ("", BOTH, 8),
    ]


def test_a_task_whose_models_read_two_corpora_has_the_mean_of_both():
    """Each corpus counts: neither takes the place of the other."""
    rows = []
    for corpus, slope in (("ptb", 1), ("wiki", -1), ("ptb-2", 1)):
        for task in ("mnli", "qnli", "qqp"):
            change = np.linspace(0.1, 0.8, 8)[::slope]
            labels_of = (f"bert-base-{task}-FT", "bert-base-ORIG")
            rows += [
                dataclasses.replace(one, base_x="bert-base", base_y="bert-base", task=corpus)
                for one in grid("joint", np.diag(1 - change), *labels_of, first=1)
            ]
    for order in (rows, rows[::-1]):
        found = {f.task: f for f in judged("top-layers-change", to_frame(order), ClaimOptions())}
        assert found[ALL].interval.count == 3
        assert found[ALL].interval.estimate == pytest.approx(1 / 3)


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
    with pytest.raises(UserError, match=r"one accuracy of skipping for FT\[1\], found several"):
        judged("first-layer-matters", to_frame(rows))
    rows = [dataclasses.replace(row, layer_x=None) for row in rows]
    with pytest.raises(UserError, match=r"'layer_x' in rows of skipping, found nothing"):
        judged("first-layer-matters", to_frame(rows))


def test_the_first_way_of_computing_a_measure_counts():
    rows = top_layers_change(HOLDS, 9)
    other = [dataclasses.replace(r, value=-r.value, estimator="unbiased") for r in rows]
    grids = [r for r in rows + other if r.measure == "cka"]
    (found,) = judged("top-layers-change", to_frame(grids))
    assert found.verdict == HOLDS


def test_models_of_one_label_are_told_apart_by_seed():
    rows = [dataclasses.replace(r, label_x="FT", seed_x=int(r.label_x[3])) for r in
            top_layers_can_go(HOLDS)]  # fmt: skip
    assert all(f.interval.count == 3 for f in judged("top-layers-can-go", to_frame(rows)))


def test_the_seeds_of_a_label_are_counted_over_both_sides_of_grids():
    """On the left, FT has two seeds; on the right, one."""
    rows = grid("FT-FT", planted(4), "FT", "FT", seed_x=1, seed_y=1)
    rows += grid("FT-ORIG", band(), "FT", "ORIG", seed_x=2)
    found = judged("block-diagonal", to_frame(rows), ClaimOptions())
    assert [f.interval.count for f in found if f.task != ALL] == [1]


def test_families_come_from_patterns():
    options = ClaimOptions(families={"BERT": "BERT-*", "rest": "*"})
    assert [options.family(name) for name in ("BERT-0", "GPT")] == ["BERT", "rest"]
    assert ClaimOptions().family("BERT-0") is None


def test_the_note_says_how_many_layers_are_the_top_third():
    rows = [one for one in complexity_drops(HOLDS) if one.layer_x <= 4]
    found = judged("complexity-drops", to_frame(rows))
    assert {one.note.partition(";")[0] for one in found} == {"top 2 of 4 layers"}
