"""Patterns of names: a command for one model runs for each, a command for many takes all."""

import pytest

from simlab.commands.patterns import MANY, ONE, expand_arguments
from simlab.errors import UserError
from simlab.results.reading import read_results
from support.lab.runs import save_runs
from support.lab.tinymodels import COLUMNS


def test_every_command_of_models_or_folders_takes_patterns():
    assert len({*ONE, *MANY}) == len(ONE) + len(MANY)
    given = ["grid", "runs/m-{0..2}", "--joint", "--out", "runs/x.parquet"]
    assert expand_arguments(given) == [
        ["grid", "runs/m-0", "runs/m-1", "runs/m-2", "--joint", "--out", "runs/x.parquet"]
    ]


def test_a_command_for_one_model_runs_for_each():
    given = [
        "extract",
        "g/multiberts-seed_{3..4}",
        "rt",
        "--seed",
        "{seed}",
        "--out",
        "r/{name}-{seed}",
    ]
    assert expand_arguments(given) == [
        ["extract", "g/multiberts-seed_3", "rt", "--seed", "3", "--out", "r/multiberts-3"],
        ["extract", "g/multiberts-seed_4", "rt", "--seed", "4", "--out", "r/multiberts-4"],
    ]


def test_a_pattern_may_end_with_steps_of_training():
    given = ["extract", "g/b-{0..1}@step{1,20}", "rt", "--step", "{step}", "--out", "{seed}-{step}"]
    assert [(one[1], *one[4::2]) for one in expand_arguments(given)] == [
        ("g/b-0@step1", "1", "0-1"),
        ("g/b-0@step20", "20", "0-20"),
        ("g/b-1@step1", "1", "1-1"),
        ("g/b-1@step20", "20", "1-20"),
    ]
    alone = [word for word in given if word not in ("--step", "{step}")]
    assert expand_arguments(alone)[0] == [
        *("extract", "g/b-0@step1", "rt", "--out", "0-1", "--step", "1")
    ]
    skipped = expand_arguments(["skip", *given[1:3], "--out", "{seed}-{step}"])
    assert skipped[0] == ["skip", "g/b-0@step1", "rt", "--out", "0-1"]
    with pytest.raises(UserError, match=r"out: wanted \{step\} in it, because .* 4 models"):
        expand_arguments([*given[:3], "--out", "{seed}"])


def test_outputs_need_a_place_for_the_number():
    with pytest.raises(UserError, match=r"out: wanted \{seed\} or \{name\} in it"):
        expand_arguments(["skip", "m-{0..24}", "rt", "--out", "x.parquet"])


def test_other_arguments_are_left_alone():
    for given in ([], ["--help"], ["sweep", "a{0..2}.toml"], ["extract", "minilm", "rt"]):
        assert expand_arguments(given) == [given]


def test_representations_of_two_models_by_one_command(tiny_bert, reviews, tmp_path, simcore):
    for number in (1, 2):
        (tmp_path / f"bert-{number}").symlink_to(tiny_bert.path)
    code, printed, errors = simcore(
        *("extract", tmp_path / "bert-{1..2}", reviews, *COLUMNS),
        *("--label", "B[{seed}]", "--seed", "{seed}", "--out", tmp_path / "reps-{seed}"),
    )
    assert code == 0, errors
    assert len(printed.splitlines()) == 2
    out = tmp_path / "grid.parquet"
    assert simcore("grid", tmp_path / "reps-{1..2}", "--joint", "--out", out)[0] == 0
    assert set(read_results(out)["label_x"]) == {"B[1]", "B[2]"}


def test_rows_have_the_step_of_each_revision(tiny_bert, reviews, tmp_path, simcore):
    name = save_runs(tiny_bert.path, tmp_path, (0,), (1, 20)).replace("{0..0}", "0")
    code, _, errors = simcore(
        *("extract", f"{name}/checkpoint-{{1,20}}", reviews, *COLUMNS, "--step", "{step}"),
        *("--label", "B", "--out", tmp_path / "reps-{step}"),
    )
    assert code == 0, errors
    out = tmp_path / "grid.parquet"
    assert simcore("grid", tmp_path / "reps-1", tmp_path / "reps-20", "--out", out)[0] == 0
    rows = read_results(out)
    assert {*zip(rows["step_x"], rows["step_y"], strict=True)} == {(1, 20)}
