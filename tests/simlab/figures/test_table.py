"""Every input of a results table is drawn once, and inputs with equal labels are told apart."""

import pandas as pd
import pytest

from simlab.figures.table import complete, distinguish, read_table, short_names
from simlab.store.results import TRAINING_CKA, ResultRow, to_frame, write_results
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
    curves = frame[frame["model_y"].isna()]
    assert curves.groupby("source").size().to_dict() == {"": 4, "c": 4, "d": 4}


def test_inputs_of_one_table_that_contradict_each_other_are_numbered():
    rows = [to_frame(grid("FT-FT", "FT", "FT", seed=seed)) for seed in (0, 1, 0)]
    frame = distinguish(complete(pd.concat(rows)))
    assert frame.groupby("source").size().to_dict() == {"input 1": 16, "input 2": 16}


def test_joint_grids_stay_whole(tmp_path):
    one, other = joint_grid(["A", "B"]), joint_grid(["A", "B"], seed=1)
    frame = table(tmp_path, one=one, other=other, more=joint_grid(["A", "C"]))
    assert frame["joint"].all()
    assert frame.groupby("source").size().to_dict() == {"more": 64, "one": 64, "other": 64}
    pairs = [("A", "A"), ("A", "B"), ("B", "A"), ("B", "B")]
    files = {f"p{x}{y}": grid("all", x, y) for x, y in pairs}
    (tmp_path / "pairs").mkdir()
    frame = table(tmp_path / "pairs", **files)
    assert frame["joint"].all()
    assert sources(frame) == [""]


def test_seeds_with_one_label_are_no_joint_grid(tmp_path):
    pairs = [("FT", "FT"), ("FT", "ORIG"), ("ORIG", "FT"), ("ORIG", "ORIG")]
    seed_of = {"FT": 1, "ORIG": None}
    grids = [grid("all", x, y, seeds=(seed_of[x], seed_of[y])) for x, y in pairs]
    grids.append(grid("all", "FT", "FT", seeds=(2, 2), seed=1))
    frame = table(tmp_path, **{f"file{number}": rows for number, rows in enumerate(grids)})
    assert not frame["joint"].any()
    assert len(frame) == 5 * 16
    frame = distinguish(complete(to_frame([row for rows in grids for row in rows])))
    assert frame.groupby(["joint", "source"]).size().to_dict() == {
        (True, "input 1"): 64,
        (False, "input 2"): 16,
    }


def record(steps, value=0.5):
    return [
        ResultRow(
            comparison=TRAINING_CKA,
            measure="cka",
            kind="cls",
            options=f'{{"step": {step}}}',
            model_x="FT",
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
