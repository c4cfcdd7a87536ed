"""Every input of a results table is drawn once, and inputs with equal labels are told apart."""

from dataclasses import replace

import pandas as pd
import pytest

from simlab.errors import UserError
from simlab.figures.measured import CALIBRATED
from simlab.figures.pairs import panels_of
from simlab.figures.table import (
    complete,
    distinguish,
    short_names,
    with_calibrated,
)
from simlab.store.reading import read_table
from simlab.store.results import ResultRow, to_frame, write_results
from simlab.store.tracks import TRAINING
from support.lab.result_rows import curve, grid, joint_grid, majority


def table(tmp_path, **files):
    """Write a results file for each list of rows, and return what is drawn of them."""
    for name, rows in files.items():
        place = tmp_path / f"{name.replace('__', '/')}.parquet"
        place.parent.mkdir(exist_ok=True)
        write_results(to_frame(rows), place)
    return distinguish(read_table(tmp_path))


def sources(frame):
    return sorted(set(frame["source"]))


def test_what_is_given_twice_is_drawn_once(tmp_path):
    rows = [*grid("FT-FT", "FT", "FT"), *curve("FT"), majority(), *joint_grid(["A", "B"])]
    once = table(tmp_path, one=rows)
    assert len(once) == len(rows)
    assert set(once["source"]) == {""}
    file = tmp_path / "one.parquet"
    for results in ([file, file], [tmp_path, file], pd.concat([to_frame(rows)] * 2)):
        assert len(distinguish(read_table(results))) == len(rows)
    assert len(table(tmp_path, two=rows)) == len(rows)  # a copy of the file


def test_files_that_contradict_each_other_are_told_apart(tmp_path):
    frame = table(tmp_path, a=grid("FT-FT", "FT", "FT"), b=grid("FT-FT", "FT", "FT", seed=1))
    assert frame.groupby("source").size().to_dict() == {"a": 16, "b": 16}
    frame = table(tmp_path, c=curve("FT"), d=curve("FT", start=0.1), e=curve("FT", seed=1))
    curves = frame[frame["label_y"].isna()]
    assert curves.groupby("source").size().to_dict() == {"": 4, "c": 4, "d": 4}


def test_inputs_of_one_table_that_contradict_each_other_are_numbered():
    jobs = {"a": 0, "b": 1, "copy of a": 0}
    rows = [to_frame(grid("FT-FT", "FT", "FT", seed=n, grid=job)) for job, n in jobs.items()]
    frame = distinguish(complete(pd.concat(rows)))
    assert frame.groupby("source").size().to_dict() == {"input 1": 16, "input 2": 16}


def test_two_values_of_one_job_are_refused():
    frame = to_frame([*grid("FT-FT", "FT", "FT"), *grid("FT-FT", "FT", "FT", seed=1)])
    with pytest.raises(UserError, match="one value of cka for each layer of FT, found two"):
        distinguish(complete(frame))


def test_joint_grids_stay_whole(tmp_path):
    one, other = joint_grid(["A", "B"]), joint_grid(["A", "B"], seed=1)
    frame = table(tmp_path, one=one, other=other, more=joint_grid(["A", "C"]))
    assert frame.groupby("source").size().to_dict() == {"more": 64, "one": 64, "other": 64}
    tiles = {}
    for row in joint_grid(["A", "B"], grid="one key"):
        tiles.setdefault(f"tile{row.label_x}{row.label_y}", []).append(row)
    (tmp_path / "tiles").mkdir()
    frame = table(tmp_path / "tiles", **tiles)
    assert (len(frame), sources(frame)) == (64, [""])


def test_grids_of_pairs_with_one_name_are_not_joint(tmp_path):
    pairs = [("A", "A"), ("A", "B"), ("B", "A"), ("B", "B")]
    rows = [row for x, y in pairs for row in grid("all", x, y)]
    again = [replace(row, value=0.5, grid="b") for row in rows[:16]]
    frame = table(tmp_path, first=rows, second=again)
    assert frame.groupby("source").size().to_dict() == {"": 48, "first": 16, "second": 16}


def record(steps, value=0.5):
    return [
        ResultRow(
            experiment=TRAINING,
            measure="cka",
            kind="cls",
            label_x="FT",
            step_x=step,
            layer_x=1,
            value=value,
            n=9,
            task="rt",
        )
        for step in steps
    ]


def test_records_of_training_in_two_files_are_two_runs(tmp_path):
    frame = table(tmp_path, one=record([1, 2]), two=record([3, 4]))
    assert sources(frame) == ["one", "two"]
    assert len(table(tmp_path, three=record([3, 4]))) == 4


def test_rows_of_two_steps_are_two_inputs(tmp_path):
    steps = [{"step_x": 1, "step_y": last} for last in (10, 100)]
    rows = [
        row for seed, step in enumerate(steps) for row in grid("FT-FT", "FT", "FT", seed, **step)
    ]
    frame = table(tmp_path, one=rows)
    assert len(frame) == len(rows)
    assert sources(frame) == [""]
    panels = panels_of(frame)
    assert len({panel.title for panel in panels}) == len(panels) == 2
    assert {panel.title for panel in panels} == {
        "FT-FT (steps 1 and 10)",
        "FT-FT (steps 1 and 100)",
    }


def test_calibrated_values_of_one_step_say_nothing_of_another():
    known = grid("FT-FT", "FT", "FT", step_x=1, step_y=1, calibrated=0.5)
    unknown = grid("FT-FT", "FT", "FT", seed=1, step_x=2, step_y=2)
    frame = with_calibrated(distinguish(complete(to_frame([*known, *unknown]))))
    assert set(frame.loc[frame["quantity"] == CALIBRATED, "step_x"]) == {1}


@pytest.mark.parametrize(
    ("files", "names"),
    [
        (["r/a.parquet"], [""]),
        (["r/a.parquet", "r/b.parquet"], ["a", "b"]),
        (["r/a/x.parquet", "r/b/x.parquet"], ["a", "b"]),
        (["r/a/1/x.parquet", "r/b/2/x.parquet"], ["a/1", "b/2"]),
        (["r/x.parquet", "r/a/x.parquet"], ["x", "a/x"]),
    ],
)
def test_files_have_the_shortest_names_that_differ(files, names):
    assert short_names(files) == names
