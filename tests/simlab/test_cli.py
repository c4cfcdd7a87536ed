"""The command: each step by itself, and mistakes that end in one line and code 2."""

import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import typer

from simlab import cli
from simlab.commands.options import explain_interrupt
from simlab.representations.folder import load_representations
from simlab.representations.kinds import KINDS
from simlab.results.reading import read_results
from simlab.results.results import MAJORITY
from simlab.similarity.catalogue import MEASURES
from support.lab.commandline import check_refused
from support.lab.tinymodels import COLUMNS, save_tiny_model
from support.processes import python
from support.tolerance import FLOAT32_CKA_ABSOLUTE

COMMANDS = ("demo", "finetune", "freeze-study", "extract", "grid", "localize", "truncate", "blocks")
COMMANDS += ("skip", "plot", "claims")


@pytest.fixture
def folders(tmp_path, simcore, tiny_bert, reviews):
    """Representations of the model and of its random twin."""
    for name, extra in {"orig": (), "random": ("--random-init-seed", 4, "--seed", 4)}.items():
        out = tmp_path / name
        arguments = (tiny_bert.path, reviews, *COLUMNS, "--label", name.upper(), "--out", out)
        code, printed, _ = simcore("extract", *arguments, *extra)
        assert code == 0
        assert "4 layers of 32 x 24" in printed
    return tmp_path


def test_help_answers_quickly_and_has_an_example_each(simcore):
    started = time.monotonic()
    done = python("-X", "importtime", "-m", "simlab.cli", "--help")
    assert time.monotonic() - started < 5
    heavy = {"torch", "transformers", "numpy", "pandas", "simcore", "matplotlib"}
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert not heavy & imported
    for command in COMMANDS:
        assert command in done.stdout
        code, printed, _ = simcore(command, "--help")
        assert code == 0
        assert f"simcore {command}" in printed


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_grid_agrees_with_the_float64_twin(folders, simcore, kernel):
    from simcore import reference

    out = folders / "results" / f"{kernel}.parquet"
    code, _, errors = simcore(
        "grid",
        folders / "orig",
        folders / "random",
        "--kernel",
        kernel,
        "--comparison",
        "ORIG-RANDOM",
        "--out",
        out,
    )
    assert code == 0
    noted = {"linear": [], "rbf": ["the median distance between rows"]}[kernel]
    assert len(set(errors)) == len(noted)
    assert all(part in line and "nan for X[0], Y[0]" in line for part in noted for line in errors)
    x, y = load_representations(folders / "orig"), load_representations(folders / "random")
    frame = read_results(out).query("comparison == 'ORIG-RANDOM' and measure == 'cka'")
    for estimator in ("biased", "unbiased"):
        rows = frame[frame["estimator"] == estimator]
        found = rows.pivot(index="layer_x", columns="layer_y", values="value").to_numpy()
        assert np.isnan(found[0]).all()  # CLS of the embedding output never varies
        for i in range(1, 4):
            for j in range(1, 4):
                wanted = reference.cka(x.layers[i], y.layers[j], kernel=kernel, estimator=estimator)
                assert found[i, j] == pytest.approx(wanted, abs=FLOAT32_CKA_ABSOLUTE)


def test_the_command_alone_prints_its_help(simcore):
    assert simcore() == simcore("--help")
    code, lines, errors = simcore()
    assert (code, errors) == (0, [])
    assert lines.startswith("Usage: simcore")
    whole = " ".join(lines.split())
    for step, _ in cli.COMMANDS.values():
        assert " ".join(step.text.partition("\n")[0].split()) in whole


def test_parts_of_a_text_that_are_for_python_are_left_out_whole(simcore):
    _, printed, _ = simcore("sweep", "--help")
    whole = " ".join(printed.split())
    assert "in job arrays of Slurm. [default: local]" in whole


def test_the_help_of_grid_and_extract_lists_every_measure_and_kind(simcore):
    _, printed, _ = simcore("grid", "--help")
    for measure in MEASURES:
        assert f"`{measure}`:" in printed
    _, printed, _ = simcore("extract", "--help")
    for kind in KINDS:
        assert f"`{kind}`: " in printed


def test_the_file_in_the_help_of_sweep_can_be_planned(tmp_path, simcore):
    shown = simcore("sweep", "--help")[1].partition("A small FILE:")[2].partition("Example:")[0]
    (tmp_path / "small.toml").write_text(shown)
    code, out, _ = simcore("sweep", tmp_path / "small.toml", "--plan")
    assert code == 0
    assert re.search(r"finetune +3 ", out)


def test_help_names_every_option_in_full_at_80_columns(simcore, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    for name, command in typer.main.get_command(cli.make_app()).commands.items():
        printed = simcore(name, "--help")[1]
        options = [word for parameter in command.params for word in parameter.opts if "--" in word]
        assert [option for option in options if f"  {option} " not in printed] == []
        assert max(map(len, printed.splitlines())) <= 80


@pytest.mark.parametrize(
    ("option", "value", "wanted"),
    [
        ("--max-steps", "twenty", "a whole number"),
        ("--max-steps", "2.5", "a whole number"),
        ("--epochs", "many", "a number"),
        ("--max-length", "2", "3 or more"),
    ],
)
def test_values_that_are_no_numbers_are_refused_in_our_words(simcore, option, value, wanted):
    code, _, errors = simcore("finetune", "minilm", "rt", "--out", "x", option, value)
    assert (code, errors) == (2, [f"error: {option}: wanted {wanted}, found {value}"])


def test_what_is_no_folder_of_representations_is_told_apart(tmp_path, simcore):
    (tmp_path / "file").touch()
    for name, found in (("none", "no such folder"), ("file", "a file"), (".", "a folder without")):
        refused = simcore("grid", tmp_path / name, "--out", tmp_path / "x.parquet")
        check_refused(refused, "wanted a folder written by `simcore extract`", f"found {found}")


def test_words_joint_grids_localization_and_their_figure(tmp_path, simcore, tiny_bert, reviews):
    folders = []
    for seed in (1, 2):
        out = tmp_path / f"words-{seed}"
        arguments = (tiny_bert.path, reviews, *COLUMNS, "--kind", "word-last", "--words", "spaces")
        arguments = (
            *arguments,
            "--limit",
            9,
            "--random-init-seed",
            seed,
            "--seed",
            seed,
            "--label",
            seed,
        )
        assert simcore("extract", *arguments, "--out", out)[0] == 0
        folders.append(out)
    results = tmp_path / "results"
    for measure in ("neuronsim", "svcca"):
        arguments = (*folders, "--joint", "--measure", measure, "--comparison", "both")
        code, _, errors = simcore("grid", *arguments, "--out", results / f"{measure}.parquet")
        assert (code, errors) == (0, [])
    out = results / "localization.parquet"
    assert simcore("localize", results, "--out", out)[0] == 0
    assert "done before" in simcore("localize", results, "--out", out)[1]
    assert read_results(out)["layer_x"].tolist() == 2 * [0, 1, 2, 3]
    code, _, _ = simcore("plot", results, "--out", tmp_path / "figures", "--format", "png")
    assert code == 0
    assert [path.name for path in (tmp_path / "figures").iterdir()] == ["reviews-models.png"]


def test_mistakes_of_measures_and_kinds(folders, simcore):
    orig, out = folders / "orig", folders / "out.parquet"

    def refused(*arguments):
        return simcore("grid", orig, *arguments, "--out", out)

    check_refused(refused("--measure", "ckaa"), "--measure ckaa", "did you mean 'cka'?", "cca")
    check_refused(refused("--measure", "rsa", "--kernel", "rbf"), "--kernel", "rsa", "correlation")
    check_refused(refused("--measure", "svcca", "--truncation", "half"), "--truncation", "share")
    check_refused(refused("--measure", "svcca", "--truncation", "0"), "--truncation", "count")
    check_refused(refused("--measure", "attention-js"), "attention-js", "--kind attention")
    check_refused(refused(orig, orig), "--joint", "3 folders")
    check_refused(simcore("localize", folders / "none", "--out", out), "none")


def test_finetune_truncate_and_plot_in_a_row(tmp_path, simcore, tiny_bert, reviews):
    checkpoint, results = tmp_path / "ft", tmp_path / "results"
    code, printed, _ = simcore(
        "finetune",
        tiny_bert.path,
        reviews,
        *COLUMNS,
        "--out",
        checkpoint,
        "--epochs",
        5,
        "--learning-rate",
        5e-3,
        "--batch-size",
        8,
    )
    assert code == 0
    assert "held-out accuracy" in printed
    arguments = (checkpoint, reviews, *COLUMNS, "--out", results / "t.parquet")
    assert simcore("truncate", *arguments)[0] == 0
    assert "done before" in simcore("truncate", *arguments)[1]
    rows = read_results(results)
    assert rows["layer_x"].dropna().tolist() == [0, 1, 2, 3]
    assert rows.loc[rows["layer_x"].isna(), "label_x"].tolist() == [MAJORITY]
    code, printed, _ = simcore("plot", results, "--out", tmp_path / "figures", "--format", "svg")
    assert code == 0
    assert (tmp_path / "figures" / "reviews-truncation.svg").stat().st_size > 2000


def test_mistakes_of_extract_leave_nothing(tmp_path, simcore, tiny_bert, reviews, monkeypatch):
    out = tmp_path / "reps"
    model = str(tiny_bert.path)
    empty = tmp_path / "empty"
    empty.mkdir()
    cases = [
        ((model, reviews), ("--text-column", "'text'", "body, verdict")),
        ((model, tmp_path / "none.csv"), ("none.csv", "no such file")),
        ((model, reviews, *COLUMNS, "--split", "dev"), ("--split dev", "heldout")),
        ((model, reviews, *COLUMNS, "--kind", "sum"), ("--kind sum", "cls")),
        ((empty, reviews, *COLUMNS), ("empty", "config.json")),
        ((tmp_path / "none", reviews, *COLUMNS), ("no such folder",)),
        ((model, reviews, *COLUMNS, "--max-length", "2"), ("--max-length",)),
        ((model,), ("task",)),
    ]
    for arguments, words in cases:
        check_refused(simcore("extract", *arguments, "--out", out), *words)
    assert [path.name for path in tmp_path.iterdir()] == ["empty"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("no-such-model-anywhere", "rt"), ("no-such-model-anywhere", "hub")),
        (("minilm", "no-such-task-anywhere"), ("no-such-task-anywhere", "rt, imdb")),
        (("minilm", "nosuch.txt"), ("nosuch.txt", "wanted a file of texts, found no such file")),
        (("a/b/c", "rt"), ("a/b/c", "folder")),
        (("not a name!", "rt"), ("not a name!",)),
    ],
)
@pytest.mark.assets
def test_unknown_names_fail_in_seconds_without_a_hub(tmp_path, simcore, offline, arguments, words):
    started = time.monotonic()
    check_refused(simcore("finetune", *arguments, "--out", tmp_path / "ft"), *words)
    assert time.monotonic() - started < 10
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("file", ["model.safetensors", "pytorch_model.bin"])
@pytest.mark.parametrize("content", [b"not weights", b"abc", b""])
def test_a_damaged_model_is_refused(tmp_path, simcore, reviews, file, content):
    folder = save_tiny_model(tmp_path / "model")
    (folder / "model.safetensors").unlink()
    (folder / file).write_bytes(content)
    out = tmp_path / "reps"
    result = simcore("extract", folder, reviews, *COLUMNS, "--out", out)
    check_refused(result, f"model {folder}: wanted ", "found: ")
    assert not list(tmp_path.glob("reps*"))


@pytest.mark.parametrize("name", [".", "link"])
def test_an_interrupted_step_is_kept_beside_the_place_itself(tmp_path, monkeypatch, capsys, name):
    place = tmp_path / "place"
    place.mkdir()
    (place / "link").symlink_to(place)
    (tmp_path / "place.partial").mkdir()
    (tmp_path / "place.partial" / "job.json").touch()
    monkeypatch.chdir(place)
    with pytest.raises(typer.Exit), explain_interrupt(Path(name)):
        raise KeyboardInterrupt
    assert f"finished steps of {name} are kept" in capsys.readouterr().err


FORKING = """
from multiprocessing import get_context
from pathlib import Path
from simlab.commands.options import explain_interrupt

with explain_interrupt(Path("out")), get_context("fork").Pool(2) as pool:
    assert pool.map(abs, [-1, 2]) == [1, 2]
    pool.terminate()
    pool.join()
"""


def test_a_forked_worker_ends_without_a_word_on_the_signal_of_its_pool():
    """In a process of its own: a fork of a process with threads may wait for a lock for ever."""
    ended = subprocess.run(
        [sys.executable, "-c", FORKING], capture_output=True, text=True, timeout=120
    )
    assert (ended.returncode, ended.stderr) == (0, "")


def test_mistakes_of_grid_truncate_and_plot(folders, simcore, tiny_bert, reviews):
    before = {path.name for path in folders.iterdir()}
    out = folders / "out.parquet"
    orig = folders / "orig"
    check_refused(simcore("grid", reviews.parent, orig, "--out", out), "simcore extract")
    check_refused(simcore("grid", orig, "--estimator", "x", "--out", out), "--estimator", "biased")
    check_refused(simcore("grid", orig, "--kernel", "x", "--out", out), "--kernel", "rbf")
    check_refused(simcore("grid", orig, "--bandwidth", "0", "--out", out), "--bandwidth")
    few = folders / "few"
    arguments = (tiny_bert.path, reviews, *COLUMNS, "--heldout-size", 9, "--out", few)
    assert simcore("extract", *arguments)[0] == 0
    check_refused(simcore("grid", orig, few, "--out", out), "32 and 9")
    check_refused(
        simcore("truncate", tiny_bert.path, reviews, *COLUMNS, "--out", out), "simcore finetune"
    )
    check_refused(simcore("plot", folders / "none", "--out", folders / "figures"), "none")
    check_refused(simcore("plot", few, "--out", folders / "figures"), "few")
    check_refused(simcore("grid", orig, "--no-such-option"), "--no-such-option")
    assert {path.name for path in folders.iterdir()} == before | {"few"}
