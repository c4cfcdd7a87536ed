"""Every command that writes, on a disk that is full: one line, code 2, nothing half-written."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest
import typer
from safetensors.numpy import load_file

from simlab import cli
from support.lab.disks import file_limit
from support.lab.tinymodels import COLUMNS

pytestmark = pytest.mark.slow

# A doctor writes what it found of GPUs into the cache, where a full disk is no error.
WRITE_NOTHING = {"models", "papers", "tasks", "status", "doctor", "check"}
# tests/simlab/sweeps/test_damage.py: a sweep leaves files of many kinds. A demo is a sweep.
IN_ITS_ROOM = {"sweep", "demo"}
REASON = r".*(File too large|No space left on device|inline_container|iostream).*"
SHORT = ("--max-steps", "4", "--batch-size", "8", "--max-length", "24")


@dataclass(frozen=True)
class Row:
    """One command that writes, small.

    `arguments` get the inputs and a folder to write to. `limits` are limits of a file's size, with
    which the command fails, each at another file. `parts`: outputs that the command had finished
    before stay.
    """

    arguments: Callable[[Path, Path], tuple[object, ...]]
    limits: tuple[int, ...]
    parts: bool = False


def reviews(inputs):
    return (inputs / "reviews.csv", *COLUMNS)


SMALLEST = ("--layers", "1", "--hidden", "8", "--heads", "1", "--vocabulary", "200")
ROWS = {
    "pretrain": Row(
        lambda i, o: (
            *(*reviews(i), "--tokenizer", i / "bert", *SMALLEST, *SHORT, "--out", o / "x"),
        ),
        (0, 4096),
    ),
    "finetune": Row(
        lambda i, o: (i / "bert", *reviews(i), *SHORT, "--cka-every", 2, "--out", o / "x"),
        (0, 4096, 100_000),
    ),
    "freeze-study": Row(
        lambda i, o: (i / "bert", *reviews(i), *SHORT, "--bottom", 1, "--out", o / "x"),
        (4096,),
        parts=True,
    ),
    "extract": Row(
        lambda i, o: (i / "ft-1", *reviews(i), "--kind", "token", "--out", o / "x"), (0, 512, 4096)
    ),
    "import": Row(
        lambda i, o: (
            *(i / "reps" / "ft-1" / "cls.safetensors", "--label", "x", "--out", o / "x"),
        ),
        (0, 512, 4096),
    ),
    "grid": Row(
        lambda i, o: (i / "reps" / "ft-1", i / "reps" / "ft-2", "--out", o / "x.parquet"), (0, 4096)
    ),
    "compare": Row(
        lambda i, o: (
            *(i / "ft-1", i / "ft-2", i / "reviews.csv", *COLUMNS[:2], "--limit", 8),
            *("--bootstrap", 0, "--permutations", 0, "--out", o / "x"),
        ),
        (0, 4096),
        parts=True,
    ),
    "localize": Row(lambda i, o: (i / "joint", "--out", o / "x.parquet"), (0, 4096)),
    "truncate": Row(
        lambda i, o: (
            *(i / "ft-1", *reviews(i), "--out", o / "x.parquet"),
            *("--export", 2, o / "short"),
        ),
        (4096, 32_768),
        parts=True,
    ),
    "skip": Row(lambda i, o: (i / "ft-1", *reviews(i), "--out", o / "x.parquet"), (4096,)),
    "influence": Row(lambda i, o: (i / "ft-1", *reviews(i), "--out", o / "x.parquet"), (4096,)),
    "inject": Row(
        lambda i, o: (
            *(i / "ft-1", i / "ft-2", *reviews(i), "--method", "identity"),
            *("--fit-size", 40, "--out", o / "x.parquet"),
        ),
        (4096,),
    ),
    "align-study": Row(
        lambda i, o: (i / "reps" / "ft-1", i / "reps" / "ft-2", *ALIGN, "--out", o / "x"),
        (0, 4096),
        parts=True,
    ),
    "blocks": Row(lambda i, o: (i / "self", "--out", o / "x.parquet"), (0, 4096)),
    "claims": Row(lambda i, o: (i / "self", "--out", o / "x.parquet"), (0, 4096)),
    "plot": Row(
        lambda i, o: (i / "self", "--format", "pdf", "--format", "png", "--out", o / "x"),
        (4096, 30_000),
        parts=True,
    ),
    "report": Row(lambda i, o: (i / "self", "--out", o / "x.html"), (0, 4096)),
}
ENDS = {".png": b"IEND\xaeB`\x82", ".pdf": b"%%EOF\n", ".html": b"</html>"}
ALIGN = ("--method", "cca", "--heldout-share", "0.1")


def run(*arguments):
    return cli.run([str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def inputs(tmp_path_factory, tiny_bert, reviews):
    """Make the inputs of the commands: a model, reviews, checkpoints, representations, grids."""
    folder = tmp_path_factory.mktemp("inputs")
    (folder / "bert").symlink_to(tiny_bert.path)
    (folder / "reviews.csv").symlink_to(reviews)
    task = (folder / "reviews.csv", *COLUMNS)
    reps = folder / "reps"
    for seed, name in enumerate(("ft-1", "ft-2"), 1):
        out = folder / name
        assert run("finetune", folder / "bert", *task, *SHORT, "--seed", seed, "--out", out) == 0
        assert run("extract", out, *task, "--label", name, "--out", reps / name) == 0
    for measure in ("neuronsim", "svcca"):
        out = folder / "joint" / f"{measure}.parquet"
        both = (reps / "ft-1", reps / "ft-2")
        assert run("grid", *both, "--joint", "--measure", measure, "--out", out) == 0
    named = ("--comparison", "FT-FT", "--out", folder / "self" / "grid.parquet")
    assert run("grid", reps / "ft-1", *named) == 0
    return folder


def check_refused(code, errors, place, row):
    """Check for one line with place, file and reason, and for no unfinished output."""
    assert code == 2
    assert [line for line in errors if not line.startswith("note: ")] == errors[-1:]
    message = rf"error: {place}/\S+: wanted to write (there|[\d,]+ bytes there), found: {REASON} "
    assert re.match(message + r"\([\d,]+ bytes free", errors[-1]), errors[-1]
    left = [path for path in place.rglob("*") if path.is_file()]
    resumable = [path for path in left if is_resumable(path)]
    assert row.parts or not set(left) - set(resumable), left
    for path in set(left) - set(resumable):
        assert_finished(path, place)


def is_resumable(path):
    """Return True for a file of a complete checkpoint of the Trainer and for its job record."""
    partial = next((folder for folder in path.parents if folder.suffix == ".partial"), None)
    if partial is None:
        return False
    states = list(partial.glob("trainer/checkpoint-*/trainer_state.json"))
    return bool(states) and (
        path == partial / "job.json" or any(path.is_relative_to(s.parent) for s in states)
    )


def assert_finished(path, place):
    """Check that `path` can be read to its end and has a name to stay."""
    assert not any(part.startswith(".") for part in path.relative_to(place).parts)
    assert ".partial" not in str(path)
    content = path.read_bytes()
    if path.suffix == ".parquet":
        pd.read_parquet(path)
    elif path.suffix == ".json":
        json.loads(content)
    elif path.suffix == ".safetensors":
        load_file(path)
    else:
        assert content.endswith(ENDS[path.suffix])


def test_every_command_has_a_row():
    assert (
        set(typer.main.get_command(cli.make_app()).commands)
        == set(ROWS) | WRITE_NOTHING | IN_ITS_ROOM
    )


@pytest.mark.parametrize("command", ROWS)
def test_a_limited_file(command, inputs, tmp_path, capsys):
    row = ROWS[command]
    for limit in row.limits:
        with file_limit(limit):
            code = run(command, *row.arguments(inputs, tmp_path))
        check_refused(code, capsys.readouterr().err.splitlines(), tmp_path, row)
    check_done(command, inputs, tmp_path)


def check_done(command, inputs, place):
    """Check that the command finishes with room, and that all files it leaves are finished."""
    assert run(command, *ROWS[command].arguments(inputs, place)) == 0
    left = [path for path in place.rglob("*") if path.is_file()]
    assert left
    for path in left:
        assert_finished(path, place)
