"""What claims estimate, by hand, and which rows they read."""

import dataclasses
import math
from itertools import permutations, product

import numpy as np
import pytest

from simlab.evidence.claim import ARCHITECTURES, MODELS, NETWORKS, TASKS
from simlab.evidence.phang import rand_index, score_of_blocks, spare_share
from simlab.evidence.rows import ClaimOptions
from simlab.evidence.verdicts import ALL, CANNOT, FAILS, HOLDS, UNDECIDED
from simlab.results.results import FREEZING, FT, ORIG, TRAINED, TRUNCATIONS, to_frame
from support.lab.claimrows import band, block_diagonal, curve, grid, row, skipping
from support.lab.contrastrows import electra_needs_top_layers, inn_finds_known_map
from support.lab.judging import estimates, judged


def test_the_top_quarter_is_fixed_beforehand():
    """Layer 2 of 8 is as good as the whole: it is not looked for."""
    values = [0.5, 0.7, 0.8, 0.6, 0.6, 0.6, 0.79, 0.7, 0.8]
    rows = curve(TRUNCATIONS["untuned"], values, "FT[1]")
    rows += curve(TRUNCATIONS["tuned"], [*values[:6], 0.82, 0.7, 0.83], "FT[1]")
    assert estimates("top-layers-can-go", rows) == pytest.approx([-0.01, 0.02])


def test_an_undefined_metric_of_the_whole_model_says_nothing_of_layers():
    rows = curve(TRUNCATIONS["untuned"], [0.5, 0.8, math.nan], "FT[1]")
    rows += curve(TRUNCATIONS["untuned"], [0.5, 0.8, 0.8], "FT[2]")
    (found,) = judged("top-layers-can-go", to_frame(rows))
    assert (found.estimate, found.units) == (0, 1)


def test_tuned_minus_orig_leaves_out_the_embeddings():
    rows = curve(TRUNCATIONS["tuned"], [0.9, 0.6, 0.8], "FT[1]")
    rows += curve(TRUNCATIONS["tuned-orig"], [0.1, 0.5, 0.5], "FT[1]")
    assert estimates("tuned-beats-orig", rows) == pytest.approx([0.2])


def test_the_first_layer_is_compared_with_the_mean_of_the_others():
    losses = {(0, 1): 0.5, (1, 2): 0.3, (2, 3): 0.1, (0, 3): 0.7, (0, 2): 0.6, (1, 3): 0.6}
    assert estimates("first-layer-matters", skipping(losses, "FT[1]")) == pytest.approx([0.3])


def test_freezing_is_paired_by_seed():
    values = {("top:2", 1): 0.5, ("bottom:2", 1): 0.6, ("top:2", 2): 0.7, ("bottom:4", 2): 0.9}
    rows = [row(FREEZING, v, model=way, seed_x=seed) for (way, seed), v in values.items()]
    rows += [row(FREEZING, 7.0, TRAINED, "top:2", seed_x=1)]
    (found,) = judged("freeze-bottom", to_frame(rows))
    assert found.estimate == pytest.approx(0.1)
    assert found.units == 1


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
    assert (found.unit, found.units) == (ARCHITECTURES, 2)
    assert found.note.startswith("2 pairs of models")
    alone = [one for one in rows if one.base_x == one.base_y]
    assert judged("equal-depth", to_frame(alone), ClaimOptions()) == []


def test_the_change_of_a_layer_is_one_minus_similarity():
    values = np.full((5, 5), np.nan)
    np.fill_diagonal(values, [0.0, 0.9, 0.8, 0.3, 0.5])  # the embedding output does not count
    (found,) = judged("top-layers-change", to_frame(grid("FT-ORIG", values, "FT", "ORIG")))
    assert found.estimate == pytest.approx(0.8)


def test_equal_splits_are_as_much_above_chance_as_can_be():
    assert rand_index(7, 3, 3) > 0.5 > rand_index(7, 3, 6)
    every = [rand_index(7, one, other) for one in range(1, 7) for other in range(1, 7)]
    assert np.mean(every) == pytest.approx(0, abs=1e-12)


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
    assert summary.units == blocky + tasks


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
    assert (whole.unit, whole.units, whole.verdict) == (MODELS, 2, CANNOT)
    assert [(f.base, f.unit, f.units) for f in apart] == [
        (place + base, TASKS, 4) for base in ("bert-base", "xlnet-base")
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
        assert found[ALL].units == 3
        assert found[ALL].estimate == pytest.approx(1 / 3)


def tuned_and_orig(top=0.1):
    """Return a grid of layers 0 to 4; the top layer is most like pretrained layer 2."""
    values = np.full((5, 5), 0.05)
    values[0] = 0.3  # the embedding output, which counts for nothing
    values[1:, 1] = (0.9, 0.8, 0.4, 0.02)
    values[4, 2] = top
    return values


def test_the_most_similar_pretrained_layer_counts():
    rows = grid("FT-ORIG", tuned_and_orig(), "FT[1]", "ORIG")
    assert estimates("top-layers-unlike-any", rows) == pytest.approx([0.1 - 0.9])
    assert estimates(
        "top-layers-unlike-any", grid("FT-ORIG", tuned_and_orig(0.9), "FT[1]", "ORIG")
    ) == [0]


@pytest.mark.parametrize("depths", [(7, 7), (13, 7), (7, 13), (25, 13)])
def test_blocks_of_models_of_unequal_depth_are_scored_at_relative_distance(depths):
    """By distance in layers, a similarity that falls with relative depth would score .11."""
    relative = [np.linspace(0, 1, count) for count in depths]
    same = np.equal.outer(*(levels >= 0.5 for levels in relative))[..., None]
    band = 0.9 - 0.5 * np.abs(np.subtract.outer(*relative))[..., None]
    assert score_of_blocks(band, same) == pytest.approx(0.0, abs=0.02)
    assert score_of_blocks(same.astype(float), same) == pytest.approx(1.0)


def test_each_untrained_network_is_a_unit():
    rows = inn_finds_known_map(HOLDS, 5)
    fitted = [
        dataclasses.replace(one, options=one.options.replace("heldout", "train"), value=9.0)
        for one in rows
    ]
    found = judged("inn-finds-known-map", to_frame([*rows, *fitted]))
    assert {(one.unit, one.units, one.base) for one in found} == {(NETWORKS, 5, "")}
    shares = [(0.3 - 0.1 * lead) / 0.3 - 1 for lead in (0.9, 1.0, 1.1, 0.9, 1.0)]
    assert [one.estimate for one in found] == pytest.approx([np.mean(shares)] * 8)


def test_models_of_one_kind_alone_are_no_contrast():
    rows = to_frame(electra_needs_top_layers(HOLDS, 3))
    assert judged("electra-needs-top-layers", rows[rows["label_x"] == "electra-FT[1]"]) == []


@pytest.mark.parametrize(
    ("gains", "share"),
    [
        ([0.0, 0.0, 0.0, 0.0], 0.75),
        ([-0.2, -0.2, 0.0, 0.0], 0.25),
        ([0.0, -0.2, 0.0, 0.0], 0.25),  # layer 1 is lucky
        ([0.0, 0.0, -0.2, 0.0], 0.0),
    ],
)
def test_layers_go_one_after_the_other_from_the_top(gains, share):
    assert spare_share(np.arange(1, 5), np.array(gains)[:, None], 0.01) == share
