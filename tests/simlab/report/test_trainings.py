"""Every layer by step: over seeds, from grids of two steps and from trainings."""

from dataclasses import replace

import numpy as np
import pytest

from simlab.figures.table import complete, without_copies
from simlab.report.gather import gather
from simlab.report.trainings import named_by_step, trainings
from simlab.results.results import TRAINING, to_frame
from support.lab.result_rows import STEPS, steps_of_training


def found(rows):
    return list(trainings(named_by_step(without_copies(complete(to_frame(rows))))))


def test_layers_by_step_are_means_over_seeds():
    rows = steps_of_training()
    (training,) = found(rows)
    assert (training["run"], training["reference"]) == ("mini[0–2]", "the last step (ORIG)")
    assert training["steps"] == list(STEPS[:-1])
    for layer in range(4):
        for at, step in enumerate(STEPS[:-1]):
            values = [
                row.value for row in rows
                if row.layer_x == row.layer_y == layer and row.step_x == step
            ]  # fmt: skip
            shown = [training[name][layer][at] for name in ("mean", "sd", "number")]
            wanted = [np.mean(values), np.std(values, ddof=1), 3]
            assert shown == pytest.approx(wanted, abs=1e-5)


def test_the_sentence_names_the_layers_that_settle_first_and_last():
    (training,) = found(steps_of_training())
    assert "the embedding output settles first, from step 1 on" in training["fact"]
    assert "layer 3 last, from step 1,000 on" in training["fact"]
    never = [replace(row, value=0.5) if row.layer_x == 3 else row for row in steps_of_training()]
    assert "and layer 3 not before the last step" in found(never)[0]["fact"]
    assert "no layer settles" in found([replace(row, value=0.5) for row in never])[0]["fact"]
    early = found([replace(row, value=0.95) for row in never])[0]["fact"]
    assert "all layers settle by step 0" in early


def test_an_infinite_value_is_in_no_mean():
    rows = [
        replace(row, value=np.inf) if row.seed_x == 0 and row.layer_x == 0 else row
        for row in steps_of_training()
    ]
    (training,) = found(rows)
    assert training["number"][0] == [2] * 5
    assert np.isfinite(training["mean"][0]).all()


def test_a_record_of_training_is_by_step_too():
    rows = [
        replace(row, experiment=TRAINING, comparison="start", label_x="run", label_y="start",
                step_y=None, grid="1")
        for row in steps_of_training(seeds=[0])
    ]  # fmt: skip
    (training,) = found(rows)
    assert (training["run"], training["fact"]) == ("run", "")
    assert training["reference"] == "the state before training"
    assert np.shape(training["mean"]) == (4, 5)


def test_models_of_one_label_are_told_apart_by_their_steps():
    """Grids of two steps are two grids, whatever the labels are."""
    bare = [
        replace(row, label_x="mini", label_y="mini", seed_x=None, seed_y=None)
        for row in steps_of_training(seeds=[0])
    ]
    page = gather(without_copies(complete(to_frame(bare))))
    assert [model["name"] for model in page.models] == [f"mini @ {step}" for step in STEPS]
    assert {(model["run"], model["step"]) for model in page.models} == {
        ("mini", step) for step in STEPS
    }
    assert len(page.grids) == 5
    assert page.trainings[0]["run"] == "mini"


def test_one_comparison_with_several_references_has_no_curve():
    """As `extract` names models at several steps: a layer has no one value at a step."""
    named = {"label_x": "mini", "label_y": "mini", "comparison": "mini-mini"}
    rows = [replace(row, **named) for row in steps_of_training()]
    other = [replace(row, step_y=row.step_y + 1) for row in rows]
    assert len(found(rows)) == 1
    assert found([*rows, *other]) == []
