"""The record of `CKACallback` as a figure: a curve for each layer over the steps."""

import numpy as np
import pytest
import torch
from torch import nn

from simcore import Track
from simlab.figures.curves import plot_training
from simlab.figures.draw import plot
from simlab.figures.table import complete
from simlab.results.reading import read_results
from simlab.results.results import TRAINING, ResultRow, write_results
from support.lab.commandline import check_refused
from support.lab.drawing import drawable
from support.lab.result_rows import grid
from support.lab.tinymodels import COLUMNS, LAYERS

STEPS = (10, 20, 30)


def record(model="FT[1]", steps=STEPS, layers=LAYERS + 1, estimator="biased", seed=0):
    """Return rows as `CKACallback.result_rows` does; the embedding output does not vary."""
    draw = np.random.default_rng(seed)
    return [
        ResultRow(
            experiment=TRAINING,
            comparison="start",
            measure="cka",
            kind="cls",
            estimator=estimator,
            kernel="linear",
            label_x=model,
            label_y="initial",
            step_x=step,
            grid=str(seed),
            layer_x=layer,
            layer_y=layer,
            value=draw.uniform() if layer else np.nan,
            n=32,
            task="reviews",
        )
        for step in steps
        for layer in range(layers)
    ]


def curves(axis):
    """Return steps and values of the curves of a panel, from the lowest layer on."""
    return [(line.get_xdata().tolist(), line.get_ydata()) for line in axis.lines]


def titles(figure):
    return [axis.get_title() for axis in figure.axes if axis.get_title()]


def values(rows, layer):
    return [row.value for row in rows if row.layer_x == layer]


def test_every_layer_is_a_curve_over_the_steps():
    rows = record()
    figure = plot_training(drawable(rows))
    assert titles(figure) == ["FT[1]"]
    found = curves(figure.axes[0])
    assert len(found) == LAYERS + 1
    for layer, (steps, drawn) in enumerate(found):
        assert steps == list(STEPS)
        np.testing.assert_array_equal(drawn, values(rows, layer))
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["3", "2", "1"]
    colours = [line.get_color() for line in figure.axes[0].lines]
    named = [tuple(handle.get_color()) for handle in legend.legend_handles]
    assert named == [tuple(colour) for colour in colours[:0:-1]]
    assert "Missing: emb" in figure.get_supxlabel()


def test_runs_have_panels_of_their_own_even_with_one_label():
    """Rows of two jobs with one label would otherwise form one curve that goes back in steps."""
    first, second = record(seed=1), record(seed=2, steps=(5, 15))
    frame = drawable([*first, *second, *record("FT[2]")])
    frame["file"] = ["a/one.parquet"] * len(first) + ["b/two.parquet"] * (len(frame) - len(first))
    figure = plot_training(frame)
    assert titles(figure) == ["FT[1] (one)", "FT[1] (two)", "FT[2]"]
    for place, rows in ((0, first), (1, second)):
        np.testing.assert_array_equal(curves(figure.axes[place])[2][1], values(rows, 2))


def test_a_record_without_a_value_is_drawn_empty():
    figure = plot_training(drawable(record(layers=1)))
    assert [text for legend in figure.legends for text in legend.get_texts()] == []


def test_the_legend_of_many_layers_names_some():
    figure = plot_training(drawable(record(layers=40)))
    (legend,) = figure.legends
    assert len(legend.get_texts()) <= 13
    assert len(curves(figure.axes[0])) == 40


@pytest.mark.deep
def test_the_command_draws_what_fine_tuning_recorded(tmp_path, simcore, tiny_bert, reviews):
    checkpoint, figures = tmp_path / "ft", tmp_path / "figures"
    arguments = (tiny_bert.path, reviews, *COLUMNS, "--max-steps", 4, "--cka-every", 2)
    assert simcore("finetune", *arguments, "--out", checkpoint)[0] == 0
    cka = checkpoint / "cka.parquet"
    assert len(read_results(cka)) == 2 * (LAYERS + 1)
    code, printed, errors = simcore("plot", cka, "--out", figures, "--format", "png")
    assert (code, errors) == (0, [])
    (file,) = figures.iterdir()
    assert file.name == "reviews-training-start-cka-biased.png"
    assert str(file) in printed
    assert file.stat().st_size > 10_000


def test_estimators_have_figures_of_their_own(tmp_path, simcore):
    estimators = ("biased", "unbiased")
    rows = [row for estimator in estimators for row in record(estimator=estimator)]
    write_results(drawable(rows), tmp_path / "cka.parquet")
    code, _, _ = simcore("plot", tmp_path, "--out", tmp_path / "figures", "--format", "svg")
    assert code == 0
    assert sorted(path.stem for path in (tmp_path / "figures").iterdir()) == [
        f"reviews-training-start-cka-{estimator}" for estimator in estimators
    ]


def test_the_file_of_a_track_is_drawn_by_reference(tmp_path, simcore):
    """Steps that grow by powers stand at equal distances."""
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    steps, path = [0, 1, 10, 100, 1000], tmp_path / "run.jsonl"
    track = Track(
        model, "*", torch.randn(40, 6), every=steps, out=path, about={"task": "toy", "seed": 2}
    )
    for step in steps:
        with torch.no_grad():
            model[0].weight += 0.1 * torch.randn(8, 6)
        track.step(step)
    frame = read_results(path)
    for reference, rows in frame.groupby("comparison"):
        found = rows.pivot(index="step_x", columns="layer_x", values="value")
        assert found.index.tolist() == steps
        np.testing.assert_array_equal(found, track.values(reference))
    assert set(frame["label_x"]) == {"run"}
    assert set(frame["seed_x"]) == {2}
    assert set(frame["layer_x"]) == {1, 2, 3}  # layer 0 is the embedding output
    figure = plot_training(complete(frame[frame["comparison"] == "start"]))
    assert figure.axes[0].get_xscale() == "symlog"
    assert "with the state before training" in figure.get_suptitle()
    code, _, errors = simcore("plot", path, "--out", tmp_path / "figures", "--format", "svg")
    assert (code, errors) == (0, [])
    assert sorted(file.name for file in (tmp_path / "figures").iterdir()) == [
        f"toy-training-{reference}-cka-modules-biased.svg" for reference in ("previous", "start")
    ]


def test_a_track_without_its_task_is_refused(tmp_path, simcore):
    path = tmp_path / "run.jsonl"
    Track(nn.Sequential(nn.Linear(6, 8)), "0", torch.randn(40, 6), out=path).step(1)
    check_refused(
        simcore("plot", path, "--out", tmp_path / "figures"),
        "wanted 'task' among the facts of the track",
    )
    path.write_text("{}\n")
    check_refused(
        simcore("plot", path, "--out", tmp_path / "figures"), "wanted the file of a simcore.Track"
    )


def test_grids_of_steps_are_curves(tmp_path):
    """Each seed has a panel, and each layer its values with the last step."""
    rows = [
        row
        for seed in (0, 1)
        for step in (1, 10, 100)
        for row in grid(
            "ORIG-last step",
            f"mini-ORIG[{seed}] @ {step}",
            f"mini-ORIG[{seed}] @ 1000",
            seed=step + seed,
            seeds=(seed, seed),
            step_x=step,
            step_y=1000,
        )
    ]
    names = [file.name for file in plot(drawable(rows), tmp_path, formats=["svg"])]
    assert names == ["rt-ORIG-last-step-cka-biased.svg"]
    own = drawable(rows).query("layer_x == layer_y")
    figure = plot_training(own.assign(label_x=own["label_x"].str.partition(" @ ")[0]))
    assert [axis.get_title() for axis in figure.axes] == ["mini-ORIG[0]", "mini-ORIG[1]"]
    assert figure.axes[0].get_xscale() == "symlog"
    assert "with the last step (ORIG)" in figure.get_suptitle()
    for layer, line in enumerate(figure.axes[1].get_lines()):
        cells = own[(own["seed_x"] == 1) & (own["layer_x"] == layer)]
        assert [*line.get_xdata()] == [1, 10, 100]
        assert [*line.get_ydata()] == cells["value"].tolist()
