"""Tables of figures: every value once, measures in words, names of models and their seeds."""

import numpy as np
import pandas as pd
import pytest

from simlab.errors import UserError
from simlab.figures.grids import headings, panels_of
from simlab.figures.table import (
    MEASURED,
    Measured,
    in_order,
    with_models,
    without_copies,
    without_seed,
)
from simlab.results.reading import read_table
from simlab.results.results import to_frame, write_results
from support.lab.drawing import drawable
from support.lab.result_rows import curve, grid, joint_grid, majority


def table(tmp_path, **files):
    """Write a results file for each list of rows, and return what is drawn of them."""
    for name, rows in files.items():
        write_results(to_frame(rows), tmp_path / f"{name}.parquet")
    return without_copies(read_table(tmp_path))


def test_what_is_given_twice_is_drawn_once(tmp_path):
    rows = [*grid("FT-FT", "FT", "FT"), *curve("FT"), majority(), *joint_grid(["A", "B"])]
    assert len(table(tmp_path, one=rows)) == len(rows)
    file = tmp_path / "one.parquet"
    for results in ([file, file], [tmp_path, file], pd.concat([to_frame(rows)] * 2)):
        assert len(without_copies(read_table(results))) == len(rows)
    assert len(table(tmp_path, two=rows)) == len(rows)  # a copy of the file


def test_two_values_of_one_cell_are_refused(tmp_path):
    one, other = (grid("FT-FT", "FT", "FT", seed=seed) for seed in (0, 1))
    with pytest.raises(UserError) as refused:
        table(tmp_path, a=one, b=other)
    for words in (
        f"results {tmp_path}/a.parquet and {tmp_path}/b.parquet: wanted one value of cka",
        "of FT (FT-FT, task rt)",
        f"found {one[0].value:.6g} and {other[0].value:.6g}",
    ):
        assert words in str(refused.value)
    with pytest.raises(UserError, match="results: wanted one value of accuracy"):
        without_copies(to_frame([*curve("FT"), *curve("FT", start=0.1)]))


def test_tiles_of_a_joint_grid_are_one_grid(tmp_path):
    tiles = {}
    for row in joint_grid(["A", "B"]):
        tiles.setdefault(f"tile{row.label_x}{row.label_y}", []).append(row)
    assert len(table(tmp_path, **tiles)) == 64


def test_rows_of_two_steps_are_two_grids():
    steps = [{"step_x": 1, "step_y": last} for last in (10, 100)]
    rows = [
        row for seed, step in enumerate(steps) for row in grid("FT-FT", "FT", "FT", seed, **step)
    ]
    frame = without_copies(to_frame(rows))
    assert len(frame) == len(rows)
    titles = ["FT × FT (steps 1 and 10)", "FT × FT (steps 1 and 100)"]
    assert headings(panels_of(frame)) == titles


def measure(name="cka", **options):
    known = dict.fromkeys(("kind", "kernel", "bandwidth", "estimator", "options"))
    return Measured(measure=name, **{**known, **options})


def test_a_name_says_kernel_estimator_and_unusual_options():
    rbf = measure(kernel="rbf", bandwidth=2.0, estimator="biased", kind="cls")
    assert rbf.name == "RBF CKA (biased, bandwidth 2.0)"
    assert rbf.words == ("cka", "rbf", "biased", "bandwidth-2.0")
    assert measure("mine", options='{"k": 3}').name == "mine (k 3)"
    assert measure("mine", kind="mean").words == ("mine", "mean")


@pytest.mark.parametrize(
    ("name", "values", "wanted"),
    [
        ("cka", [0.2, 0.7], (0.0, 1.0)),
        ("cka", [-0.1, 0.7], (-0.1, 1.0)),
        ("mine", [0.2, 4.0], (0.0, 4.0)),  # what is not in the catalogue has no highest value
        ("size-and-shape", [0.2, 5.0], (5.0, 0.0)),
        ("angular", [0.2, 0.4], (1.0, 0.0)),
    ],
)
def test_colours_end_at_the_value_of_equal_layers(name, values, wanted):
    assert measure(name).colours([np.array([*values, np.nan])]) == wanted


def test_every_row_has_its_measure_and_few_objects_are_made():
    rows = [*grid("FT-FT", "FT", "FT"), *grid("FT-FT", "FT", "FT", estimator="unbiased")]
    frame = drawable(rows)
    assert isinstance(frame[MEASURED].dtype, pd.CategoricalDtype)
    assert len(frame[MEASURED].cat.categories) == 2
    for estimator, of in zip(frame["estimator"], frame[MEASURED], strict=True):
        assert of == measure(kind=of.kind, kernel=of.kernel, estimator=estimator)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (("M1", "M10", "M2"), ["M1", "M2", "M10"]),  # M*
        (("orig", "M1", "M10", "M2"), ["orig", "M1", "M2", "M10"]),  # orig M*
        (("FT[1]", "FT[10]", "FT[2]"), ["FT[1]", "FT[2]", "FT[10]"]),
        (("ORIG", "FT[2]", "FT[1]"), ["ORIG", "FT[2]", "FT[1]"]),
        (("FT[10]", "FT[1]", "FT[2]"), ["FT[10]", "FT[1]", "FT[2]"]),
        (("roberta", "albert", "roberta"), ["roberta", "albert"]),
        (("a-10-1", "a-10-2", "a-9-1"), ["a-9-1", "a-10-1", "a-10-2"]),
    ],
)
def test_names_are_in_the_given_order_except_for_numbers_that_a_shell_sorted(given, wanted):
    assert in_order(given) == wanted


@pytest.mark.parametrize(
    ("label", "seed", "base", "wanted"),
    [
        ("FT[1]", 1, "minilm", "FT[*]"),
        ("ft-12", 12, "minilm", "ft-*"),
        ("none-seed3", 3, "minilm", "none-seed*"),
        ("FT[12]", 1, "minilm", "FT[12]"),
        ("FT[12]", 2, "minilm", "FT[12]"),
        ("FT", 1, "minilm", "FT"),
        ("FT[1]", None, "minilm", "FT[1]"),
        ("FT[1]", 1, None, "FT[1]"),
        ("FT[1] @ 10", 1, "minilm", "FT[*] @ 10"),
        ("FT @ 1", 1, "minilm", "FT @ 1"),
    ],
)
def test_the_seed_of_a_model_of_a_known_base_leaves_its_label(label, seed, base, wanted):
    assert without_seed(label, seed, base) == wanted


def found(*rows, **options):
    """Return the seeds of every model by its name."""
    named = with_models(drawable([row for part in rows for row in part]), **options)
    return {
        name: tuple(part["seed_x"].dropna().unique())
        for name, part in named.groupby("model", sort=False)
    }


def test_seeds_of_one_model_are_together_and_nothing_else():
    assert found(curve("FT[1]", 1), curve("FT[2]", 2), curve("FT[3]", 3)) == {"FT[1–3]": (1, 2, 3)}
    assert found(curve("FT", 1), curve("FT", 4)) == {"FT": (1, 4)}
    assert found(curve("FT[1]"), curve("FT[2]")) == {"FT[1]": (), "FT[2]": ()}
    assert found(curve("roberta", 1), curve("albert", 2)) == {"roberta": (1,), "albert": (2,)}
    versions = [curve(f"a-v{number}", number, base=f"a-v{number}") for number in (1, 2)]
    assert found(*versions) == {"a-v1": (1,), "a-v2": (2,)}
    unknown = [curve(f"FT[{seed}]", seed, base=None) for seed in (1, 2)]
    assert found(*unknown) == {"FT[1]": (1,), "FT[2]": (2,)}
    assert found(curve("FT", 1), curve("FT", 2), together=False) == {
        "FT (seed 1)": (1,),
        "FT (seed 2)": (2,),
    }


def test_equal_labels_are_told_apart_by_what_differs():
    tuned = {"options": '{"seed": 0, "learning_rate": 0.1}'}
    other = {"options": '{"seed": 0, "learning_rate": 0.2}'}
    assert list(found(curve("FT", **tuned), curve("FT", **other))) == [
        "FT (learning_rate 0.1)",
        "FT (learning_rate 0.2)",
    ]
    assert list(found(curve("FT"), curve("FT", n=20))) == ["FT (n = 9)", "FT (n = 20)"]
    assert list(found(curve("FT[1]"), curve("FT[1]", 1))) == ["FT[1] (no seed)", "FT[1] (seed 1)"]
    bases = [curve("FT", base=base) for base in ("bert", "albert")]
    assert list(found(*bases)) == ["FT (bert)", "FT (albert)"]


def test_names_leave_out_the_task_where_there_are_several():
    rows = [curve(f"{task}-FT[{seed}]", seed, task=task) for task in "ab" for seed in (1, 2)]
    assert found(*rows, cell=["task"]) == {"FT[1–2]": (1, 2)}
    assert list(found(*rows[:2])) == ["a-FT[1–2]"]
