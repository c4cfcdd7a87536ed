"""Claims on grids of a fine-tuned model with another one, and on inverses of untrained networks."""

from dataclasses import replace

import numpy as np
import pytest

from simlab.evidence.blocks import score_of_blocks
from simlab.evidence.claim import NETWORKS, TASKS
from simlab.evidence.intervals import HOLDS
from simlab.store.results import to_frame
from support.lab.claimrows import grid
from support.lab.contrastrows import families_share_blocks, inn_finds_known_map
from support.lab.judging import estimates, judged

UNLIKE, SHARED, KNOWN = "top-layers-unlike-any", "families-share-blocks", "inn-finds-known-map"


def tuned_and_orig(top=0.1):
    """Return a grid of layers 0 to 4; the top layer is most like pretrained layer 2."""
    values = np.full((5, 5), 0.05)
    values[0] = 0.3  # the embedding output, which counts for nothing
    values[1:, 1] = (0.9, 0.8, 0.4, 0.02)
    values[4, 2] = top
    return values


def test_the_most_similar_pretrained_layer_counts():
    rows = grid("FT-ORIG", tuned_and_orig(), "FT[1]", "ORIG")
    assert estimates(UNLIKE, rows) == pytest.approx([0.1 - 0.9])
    assert estimates(UNLIKE, grid("FT-ORIG", tuned_and_orig(0.9), "FT[1]", "ORIG")) == [0]


def test_a_joint_grid_has_both_directions():
    values = tuned_and_orig()
    rows = [*grid("joint", values, "FT[1]", "ORIG"), *grid("joint", values.T, "ORIG", "FT[1]")]
    assert estimates(UNLIKE, rows) == pytest.approx([0.1 - 0.9])
    assert estimates(UNLIKE, rows[25:]) == pytest.approx([0.1 - 0.9])


def test_other_pretrained_models_are_not_what_a_model_was():
    rows = grid("FT-ORIG", tuned_and_orig(), "FT[1]", "ORIG", base_x="a", base_y="b")
    assert judged(UNLIKE, to_frame(rows)) == []


def test_tasks_are_the_units_of_blocks_that_families_share():
    (found,) = judged(SHARED, to_frame(families_share_blocks(HOLDS, 9)))
    assert (found.task, found.base, found.unit, found.interval.count) == ("all", "", TASKS, 9)


def test_models_of_one_base_are_no_families():
    rows = [replace(one, base_x="a", base_y="a") for one in families_share_blocks(HOLDS, 9)]
    assert judged(SHARED, to_frame(rows)) == []


@pytest.mark.parametrize("depths", [(7, 7), (13, 7), (7, 13), (25, 13)])
def test_blocks_of_models_of_unequal_depth_are_scored_at_relative_distance(depths):
    """By distance in layers, a similarity that falls with relative depth would score .11."""
    relative = [np.linspace(0, 1, count) for count in depths]
    same = np.equal.outer(*(levels >= 0.5 for levels in relative))
    band = 0.9 - 0.5 * np.abs(np.subtract.outer(*relative))
    assert score_of_blocks(band, same) == pytest.approx(0.0, abs=0.02)
    assert score_of_blocks(same.astype(float), same) == pytest.approx(1.0)


def test_each_untrained_network_is_a_unit():
    rows = inn_finds_known_map(HOLDS, 5)
    fitted = [
        replace(one, options=one.options.replace("heldout", "train"), value=9.0) for one in rows
    ]
    found = judged(KNOWN, to_frame([*rows, *fitted]))
    assert {(one.unit, one.interval.count, one.base) for one in found} == {(NETWORKS, 5, "")}
    shares = [(0.3 - 0.1 * lead) / 0.3 - 1 for lead in (0.9, 1.0, 1.1, 0.9, 1.0)]
    assert [one.interval.estimate for one in found] == pytest.approx([np.mean(shares)] * 8)


def test_maps_between_models_are_no_known_maps():
    rows = [replace(one, experiment="alignment") for one in inn_finds_known_map(HOLDS, 5)]
    assert judged(KNOWN, to_frame(rows)) == []
    assert judged("inn-beats-linear", to_frame(inn_finds_known_map(HOLDS, 5))) == []
