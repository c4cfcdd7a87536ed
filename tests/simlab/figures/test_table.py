"""Every value of a results table is drawn once, and two values of one cell are refused."""

import pandas as pd
import pytest

from simlab.errors import UserError
from simlab.figures.grids import headings, panels_of
from simlab.figures.table import without_copies
from simlab.results.reading import read_table
from simlab.results.results import to_frame, write_results
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
