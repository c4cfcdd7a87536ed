"""The results table survives its file, in every format."""

import dataclasses
import os
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from simlab.errors import UserError
from simlab.results.reading import read_results, results_files
from simlab.results.results import (
    COLUMNS,
    GRID,
    JOINT,
    VERSION,
    Layer,
    ResultRow,
    ensure_results,
    hash_rows,
    joint_table,
    to_frame,
    write_results,
)
from simlab.results.tables import table_key, write_table
from simlab.store.files import hash_json
from simlab.store.jobs import MADE


def rows(comparison="FT-ORIG", estimator="biased"):
    return [
        ResultRow(
            experiment=GRID,
            comparison=comparison,
            measure="cka",
            estimator=estimator,
            kernel="linear",
            label_x="FT[1]",
            label_y="ORIG",
            seed_x=1,
            layer_x=i,
            layer_y=j,
            value=float("nan") if i == 0 else i + j / 10,
            n=50,
            task="rt",
        )
        for i in range(3)
        for j in range(2)
    ]


def test_round_trip_keeps_values_types_and_key(tmp_path):
    frame = to_frame(rows())
    write_results(frame, tmp_path / "a.parquet", key="abc")
    read = read_results(tmp_path / "a.parquet")
    pd.testing.assert_frame_equal(read, frame)
    assert tuple(read.columns) == COLUMNS
    assert read["seed_y"].isna().all()
    assert table_key(tmp_path / "a.parquet") == "abc"
    assert [path.name for path in tmp_path.iterdir()] == ["a.parquet"]


def test_a_folder_is_read_as_one_table(tmp_path):
    write_results(to_frame(rows("A")), tmp_path / "a.parquet")
    write_results(to_frame(rows("B")), tmp_path / "b.parquet")
    assert set(read_results(tmp_path)["comparison"]) == {"A", "B"}


def test_a_file_that_is_named_twice_is_read_once(tmp_path):
    file = tmp_path / "a.parquet"
    write_results(to_frame(rows("A")), file)
    (tmp_path / "link.parquet").symlink_to(file)
    once = read_results(file)
    for paths in ([file, file], [tmp_path, file], [tmp_path / "link.parquet", file]):
        pd.testing.assert_frame_equal(read_results(paths), once)


def test_what_is_no_results_file_is_told(tmp_path):
    (tmp_path / "text.parquet").write_text("a page of text")
    (tmp_path / "damaged.parquet").write_bytes(b"PAR1 and nothing else")
    for name, found in (
        ("text.parquet", "wanted a Parquet file, found .*Parquet"),
        ("damaged.parquet", "wanted a Parquet file, found .*Parquet"),
        ("none.parquet", "wanted a results file or a folder, found neither$"),
    ):
        with pytest.raises(UserError, match=found):
            read_results(tmp_path / name)


def test_a_file_that_is_being_written_is_not_read(tmp_path):
    """Files that a killed process has left unfinished are not read either."""
    write_results(to_frame(rows()), tmp_path / "a.parquet")
    (tmp_path / ".0123456789abcdef.partial.parquet").write_bytes(b"PAR1")
    assert results_files(tmp_path) == [tmp_path / "a.parquet"]
    (tmp_path / "a.parquet").unlink()
    with pytest.raises(UserError, match="wanted a folder with results files, found none in it"):
        read_results(tmp_path)


def joint(pairs):
    return to_frame(
        ResultRow(
            experiment=JOINT,
            comparison="all",
            measure="svcca",
            label_x=x,
            seed_x=4 if x == "FT" else None,
            layer_x=i,
            label_y=y,
            layer_y=j,
            value=10 * (2 * (x == "FT") + i) + 2 * (y == "FT") + j,
            n=9,
            task="rt",
        )
        for x, y in pairs
        for i in range(2)
        for j in range(2)
    )


def test_a_joint_grid_becomes_one_square():
    models = ("ORIG", "FT")
    frame = joint([(x, y) for x in models for y in models])
    layers, values = joint_table(frame)
    assert layers == [
        Layer("ORIG", None, 0),
        Layer("ORIG", None, 1),
        Layer("FT", 4, 0),
        Layer("FT", 4, 1),
    ]
    np.testing.assert_array_equal(values, [[10 * i + j for j in range(4)] for i in range(4)])


def test_work_is_done_once_per_key(tmp_path):
    calls = []

    def make():
        calls.append(1)
        return rows()

    path = tmp_path / "a.parquet"
    assert not ensure_results(path, {"x": 1}, make).skipped
    assert ensure_results(path, {"x": 1}, make).skipped
    with pytest.raises(UserError, match="overwrite=True"):
        ensure_results(path, {"x": 2}, make)
    assert not ensure_results(path, {"x": 2}, make, replace=True).skipped
    assert len(calls) == 2


@pytest.mark.parametrize("version", [[VERSION - 1, MADE], [VERSION, MADE - 1]])
def test_a_table_of_another_version_is_made_anew(tmp_path, version):
    path = tmp_path / "a.parquet"
    write_results(to_frame(rows()), path, key=hash_json({"version": version, "x": 1}))
    assert not ensure_results(path, {"x": 1}, rows, replace=True).skipped
    assert ensure_results(path, {"x": 1}, rows, replace=True).skipped


def test_rows_have_the_key_of_their_job_or_of_their_grid(tmp_path):
    """The tiles of a joint grid share a key."""
    own, shared = rows()[0], dataclasses.replace(rows()[1], grid="of all tiles")
    outcome = ensure_results(tmp_path / "a.parquet", {"x": 1}, lambda: [own, shared])
    found = read_results(tmp_path / "a.parquet")["grid"].tolist()
    assert found == [table_key(tmp_path / "a.parquet"), "of all tiles"]
    assert outcome.key == found[0]


def test_a_hash_of_results_is_of_the_rows_alone(tmp_path):
    """Two runs that computed the same rows in other times give the next job the same key."""
    for name, seconds, kept in (("a", 1.0, 2), ("b", 2.0, 2), ("c", 1.0, 1)):
        write_results(to_frame(rows()[:kept]), tmp_path / f"{name}.parquet", "key", seconds)
    a, b, c = (hash_rows(read_results(tmp_path / f"{name}.parquet")) for name in "abc")
    assert a == b != c


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_a_file_without_a_column_is_refused_in_one_line(tmp_path, suffix):
    file, frame = tmp_path / f"old.{suffix}", to_frame(rows()).drop(columns="experiment")
    if suffix == "csv":
        frame.to_csv(file, index=False)
    else:
        frame.to_parquet(file)
    wanted = f"results {file}: wanted column 'experiment', found a table without it; make the file"
    with pytest.raises(UserError, match=f"^{re.escape(wanted)} again$"):
        read_results(file)


def test_statistics_survive_the_file(tmp_path):
    values = {"low": 0.1, "high": 0.4, "pvalue": 0.25, "calibrated": -0.5, "resampling": "{}"}
    frame = to_frame([dataclasses.replace(rows()[3], **values), rows()[3]])
    write_results(frame, tmp_path / "a.parquet")
    read = read_results(tmp_path / "a.parquet")
    assert read.loc[0, list(values)].to_dict() == values
    assert read.loc[1, list(values)].isna().all()


def test_a_failing_computation_leaves_the_old_file(tmp_path):
    path = tmp_path / "a.parquet"
    write_results(to_frame(rows()), path, key="old")

    def fail():
        yield rows()[0]
        raise RuntimeError

    with pytest.raises(RuntimeError):
        ensure_results(path, {"x": 2}, fail, replace=True)
    assert table_key(path) == "old"
    assert len(list(tmp_path.iterdir())) == 1


def test_a_csv_file_without_its_empty_columns_is_read(tmp_path):
    frame = to_frame([*rows(), *rows("none")])
    frame.loc[0, "value"] = 0.1 + 0.2  # 17 digits
    path = tmp_path / "published.csv"
    frame.dropna(axis="columns", how="all").to_csv(path, index=False)
    pd.testing.assert_frame_equal(read_results(path), frame)


def test_a_csv_file_that_pandas_wrote_again_is_read(tmp_path):
    frame = to_frame([*rows(), *rows("none")])
    frame.loc[1, "seed_x"] = pd.NA  # so that pandas reads floats
    path = tmp_path / "again.csv"
    frame.to_csv(path, index=False)
    pd.read_csv(path, keep_default_na=False, na_values=[""]).to_csv(path, index=False)
    assert ",1.0," in path.read_text()
    pd.testing.assert_frame_equal(read_results(path), frame)


def test_a_folder_may_hold_tables_of_other_contents(tmp_path):
    write_results(to_frame(rows()), tmp_path / "a.parquet")
    write_table(to_frame([])[["task"]], tmp_path / "b.parquet", {"task": "string"}, contents="b")
    assert results_files(tmp_path) == [tmp_path / "a.parquet"]


@pytest.mark.parametrize(
    ("column", "text", "words"),
    [
        ("task", "", "wanted column 'task' in every row, found nothing in row 2"),
        ("n", "", "wanted column 'n' in every row, found nothing in row 2"),
        ("options", "{bad", "wanted a JSON object in column 'options', found {bad"),
        ("resampling", "[1]", "wanted a JSON object in column 'resampling', found [1]"),
    ],
)
def test_a_csv_file_with_a_wrong_cell_is_refused(tmp_path, column, text, words):
    frame = to_frame(rows()).astype({column: object})
    frame.loc[1, column] = text
    frame.to_csv(tmp_path / "a.csv", index=False)
    with pytest.raises(UserError, match=re.escape(words)):
        read_results(tmp_path / "a.csv")


def test_a_name_that_is_no_text_is_refused(tmp_path):
    file = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xe9.parquet"))
    write_results(to_frame(rows()), tmp_path / "a.parquet")
    (tmp_path / "a.parquet").rename(file)
    for given in (file, tmp_path):
        with pytest.raises(UserError, match=r"wanted a Parquet file, found .*encode"):
            read_results(given)


NO_RESULTS = ("missing", "empty folder", "not parquet", "other columns", "other csv", "empty csv")
NO_RESULTS += ("csv of words",)


@pytest.mark.parametrize("kind", NO_RESULTS)
def test_what_is_no_results_file_is_refused(tmp_path, kind):
    path = tmp_path / ("a.csv" if "csv" in kind else "a.parquet")
    if kind == "empty folder":
        path = tmp_path
    elif kind == "not parquet":
        path.write_text("hello")
    elif kind == "other columns":
        pd.DataFrame({"a": [1]}).to_parquet(path)
    elif kind == "other csv":
        pd.DataFrame({"a": [1]}).to_csv(path)
    elif kind == "empty csv":
        path.touch()
    elif kind == "csv of words":
        to_frame(rows()).astype({"value": object}).assign(value="high").to_csv(path)
    with pytest.raises(UserError, match="results"):
        read_results(path)
