"""The record of `CKACallback` as a figure: a curve for each layer over the steps."""

import numpy as np

from simlab.figures.table import complete, distinguish
from simlab.figures.training import plot_training
from simlab.store.results import TRAINING_CKA, ResultRow, read_results, to_frame, write_results
from support.lab.tinymodels import COLUMNS, LAYERS

STEPS = (10, 20, 30)


def record(model="FT[1]", steps=STEPS, layers=LAYERS + 1, estimator="biased", seed=0):
    """Return rows as `CKACallback.result_rows` does; the embedding output does not vary."""
    draw = np.random.default_rng(seed)
    return [
        ResultRow(
            experiment=TRAINING_CKA,
            measure="cka",
            kind="cls",
            estimator=estimator,
            kernel="linear",
            label_x=model,
            label_y="initial",
            step_x=step,
            grid=str(seed),
            layer_x=layer,
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
    figure = plot_training(to_frame(rows))
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
    """Rows of two files with one label would otherwise form one curve that goes back in steps."""
    first, second = record(seed=1), record(seed=2, steps=(5, 15))
    single = [record(seed=seed, steps=(7,)) for seed in (3, 4)]
    figure = plot_training(
        distinguish(complete(to_frame([*first, *second, *record("FT[2]"), *single[0], *single[1]])))
    )
    ends = ["1", "2", None, "3", "4"]
    names = [f"FT[1] (input {end})" if end else "FT[2]" for end in ends]
    assert titles(figure) == names
    for place, rows in ((0, first), (1, second), (3, single[0]), (4, single[1])):
        np.testing.assert_array_equal(curves(figure.axes[place])[2][1], values(rows, 2))


def test_a_record_without_a_value_is_drawn_empty():
    figure = plot_training(to_frame(record(layers=1)))
    assert [text for legend in figure.legends for text in legend.get_texts()] == []


def test_the_legend_of_many_layers_names_some():
    figure = plot_training(to_frame(record(layers=40)))
    (legend,) = figure.legends
    assert len(legend.get_texts()) <= 13
    assert len(curves(figure.axes[0])) == 40


def test_the_command_draws_what_fine_tuning_recorded(tmp_path, simcore, tiny_bert, reviews):
    checkpoint, figures = tmp_path / "ft", tmp_path / "figures"
    arguments = (tiny_bert.path, reviews, *COLUMNS, "--max-steps", 4, "--cka-every", 2)
    assert simcore("finetune", *arguments, "--out", checkpoint)[0] == 0
    cka = checkpoint / "cka.parquet"
    assert len(read_results(cka)) == 2 * (LAYERS + 1)
    code, printed, errors = simcore("plot", cka, "--out", figures, "--format", "png")
    assert (code, errors) == (0, [])
    (file,) = figures.iterdir()
    assert file.name == "reviews-cka-to-initial-cls-biased.png"
    assert str(file) in printed
    assert file.stat().st_size > 10_000


def test_estimators_have_figures_of_their_own(tmp_path, simcore):
    estimators = ("biased", "unbiased")
    rows = [row for estimator in estimators for row in record(estimator=estimator)]
    write_results(to_frame(rows), tmp_path / "cka.parquet")
    code, _, _ = simcore("plot", tmp_path, "--out", tmp_path / "figures", "--format", "svg")
    assert code == 0
    assert sorted(path.stem for path in (tmp_path / "figures").iterdir()) == [
        f"reviews-cka-to-initial-cls-{estimator}" for estimator in estimators
    ]
