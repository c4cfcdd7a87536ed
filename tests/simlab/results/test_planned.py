"""Rows of a sweep stand in the order of its plan, whatever ended first; other files keep theirs."""

import pandas as pd

from simlab.results.reading import read_results, read_table
from simlab.results.results import to_frame, write_results
from simlab.sweeps.outputs import SweepFolder
from simlab.sweeps.sweep import write_plan
from support.lab.result_rows import curve
from support.lab.toysweep import rows, run_toy, toy_plan


def test_rows_stand_in_the_order_of_the_plan(tmp_path):
    plan = toy_plan(tmp_path, seeds=4)
    run_toy(tmp_path, plan)
    wanted = rows(tmp_path, plan)
    results = tmp_path / "results"
    pd.testing.assert_frame_equal(read_results(results), wanted)
    pd.testing.assert_frame_equal(read_results(next(results.glob("*.parquet"))), wanted)
    assert read_table(results)["experiment"].tolist() == wanted["experiment"].tolist()
    # Rows that a smaller plan does not have come last.
    few = toy_plan(tmp_path, seeds=2)
    write_plan(SweepFolder(tmp_path), few)
    names = list(dict.fromkeys(read_results(results)["experiment"]))
    assert names[:4] == ["grid0", "blocks0", "grid1", "blocks1"]
    assert set(names[4:]) == {"grid2", "blocks2", "grid3", "blocks3", "joint"}


def test_other_files_keep_their_order(tmp_path):
    for name in ("z", "a"):
        write_results(to_frame(curve(name)), tmp_path / f"{name}.parquet")
    files = [tmp_path / "z.parquet", tmp_path / "a.parquet"]
    assert list(dict.fromkeys(read_results(files)["label_x"])) == ["z", "a"]
