"""`python -m bench`: which jobs the command runs."""

import argparse
import runpy
from pathlib import Path

import pytest

import bench
from bench import harness


class Tiny:
    def scaled(self, factor):
        return self


SUITES = {"first": {"a": Tiny(), "b": Tiny()}, "second": {"c": Tiny()}}


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["--job", "a", "c"], ["a", "c"]),
        (["--job", "c", "--job", "a"], ["a", "c"]),
        ([], ["a", "b", "c"]),
    ],
)
def test_jobs_are_named_side_by_side(arguments, wanted, monkeypatch):
    """The help says "one or more", and argparse refused the second name after one `--job`."""
    assert [label for label, _ in ran_by(monkeypatch, arguments)] == wanted


def test_each_job_runs_with_each_number_of_threads(monkeypatch):
    ran = ran_by(monkeypatch, ["--job", "a", "c", "--threads", "1", "4"])
    assert ran == [("a", 1), ("a", 4), ("c", 1), ("c", 4)]
    assert ran_by(monkeypatch, ["--job", "a"]) == [("a", harness.THREADS)]


def ran_by(monkeypatch, arguments):
    """Return the jobs that a command runs, each with its threads."""
    ran = []
    monkeypatch.setattr(
        harness, "run", lambda suite, label, job, repeats, threads: ran.append((label, threads))
    )
    monkeypatch.setattr(harness, "table", lambda rows: "")
    harness.main(SUITES, "A test.", [*arguments, "--dry-run"])
    return ran


def test_an_unknown_job_is_refused(capsys):
    with pytest.raises(SystemExit) as caught:
        harness.main(SUITES, "A test.", ["--job", "a", "z"])
    assert caught.value.code == 2
    assert "'z'" in capsys.readouterr().err


COMMANDS = sorted(
    file.stem
    for file in Path(bench.__file__).parent.glob("*.py")
    if any(call in file.read_text() for call in ("--job", "harness.main(", "measure_rows("))
    and file.stem not in ("harness", "rows")  # which have the commands of the others
)


def test_every_benchmark_that_takes_jobs_is_found():
    assert {"__main__", "cka", "gpu", "grids", "report", "stats"} <= {*COMMANDS}


@pytest.mark.filterwarnings("ignore:.*found in sys.modules:RuntimeWarning")
@pytest.mark.parametrize("name", COMMANDS)
def test_a_benchmark_takes_two_jobs_after_one_option(name, monkeypatch):
    class Read(Exception):
        pass

    def read(parser, arguments=None):
        names = [*parser._option_string_actions["--job"].choices]
        wanted = (names * 2)[:2]  # two modules have one job, which may be named twice
        assert parse(parser, ["--job", *wanted]).job == wanted
        raise Read

    parse = argparse.ArgumentParser.parse_args
    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", read)
    with pytest.raises(Read):
        runpy.run_module(f"bench.{name}", run_name="__main__")


def test_rows_do_not_go_under_the_columns_of_others(tmp_path):
    path = tmp_path / "rows.csv"
    harness.append_row(path, {"job": "a", "seconds": 1.0})
    harness.append_row(path, {"job": "b", "seconds": 2.0})
    with pytest.raises(ValueError, match=r"rows\.csv: wanted the columns .*'mb'"):
        harness.append_row(path, {"job": "c", "mb": 1.0, "seconds": 2.0})
    assert path.read_text() == "job,seconds\na,1\nb,2\n"
