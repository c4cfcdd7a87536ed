"""Tables: every row on one line in a pipe, readable on a narrow terminal."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios

import pytest

from simlab.models.architectures import KNOWN_ARCHITECTURES
from simlab.store.results import ResultRow, to_frame, write_results
from simlab.tasks import TASKS
from support.lab.tinymodels import LAYERS

NARROW = 80
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
# With these variables rich takes a pipe for a terminal of 80 columns; many CI systems set them.
CI = {"FORCE_COLOR": "1", "TTY_COMPATIBLE": "1", "COLUMNS": str(NARROW)}


def simlab(*arguments):
    return [sys.executable, "-m", "simlab.cli", *map(str, arguments)]


def piped(*arguments, **environment):
    done = subprocess.run(
        simlab(*arguments),
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return COLOURS.sub("", done.stdout).splitlines()


def on_a_terminal(columns, *arguments):
    """Return the output of a command on a terminal of so many columns."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    unset = ("COLUMNS", "LINES", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE")
    environment = {k: v for k, v in os.environ.items() if k not in unset}
    process = subprocess.Popen(
        simlab(*arguments), stdin=theirs, stdout=theirs, env={**environment, "TERM": "xterm"}
    )
    os.close(theirs)
    found = b""
    try:
        while part := os.read(ours, 1 << 16):
            found += part
    except OSError:  # Linux reports the end of a terminal by this error
        pass
    os.close(ours)
    assert process.wait() == 0
    return COLOURS.sub("", found.decode()).splitlines()


@pytest.mark.parametrize("environment", [{}, CI], ids=["plain", "ci"])
def test_a_pipe_gets_every_task_on_one_line(environment):
    header, rule, *rows = piped("tasks", **environment)
    assert header.split() == ["name", "task", "kind", "texts", "label", "metrics", "splits", "from"]
    assert not rule.strip("─ ")
    assert [row.split()[0] for row in rows] == list(TASKS)
    for row, spec in zip(rows, TASKS.values(), strict=True):
        words = (*spec.columns, *spec.labels, *spec.metrics, spec.train, spec.heldout, spec.hub)
        assert all(word in row for word in words)


@pytest.mark.parametrize("environment", [{}, CI], ids=["plain", "ci"])
def test_a_pipe_gets_every_architecture_on_one_line(environment):
    _, _, *rows = piped("models", **environment)
    assert len(rows) == len(KNOWN_ARCHITECTURES)
    for row, architecture in zip(rows, KNOWN_ARCHITECTURES, strict=True):
        assert row.startswith(f" {architecture.name} ")
        assert all(word in row for word in (architecture.layers_path, *architecture.examples))


def test_a_pipe_gets_every_row_of_blocks_on_one_line(tmp_path):
    model = "a model with quite a long name that needs most of a narrow line"
    rows = [
        ResultRow(
            comparison="FT-FT",
            measure="cka",
            model_x=model,
            model_y=model,
            layer_x=i,
            layer_y=j,
            value=1.0 - 0.1 * abs(i - j),
            n=9,
            task="a-task-with-a-long-name",
        )
        for i in range(LAYERS)
        for j in range(LAYERS)
    ]
    write_results(to_frame(rows), tmp_path / "grid.parquet")
    lines = piped("blocks", tmp_path / "grid.parquet", **CI)
    rows = [line for line in lines if model in line]
    assert len(rows) == 2  # two clusters, and the best number of them
    assert all("a-task-with-a-long-name" in line for line in rows)
    assert all(" | " in line for line in rows)


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("tasks", list(TASKS)),
        ("models", [architecture.name for architecture in KNOWN_ARCHITECTURES]),
    ],
)
def test_a_narrow_terminal_breaks_between_words_alone(command, names):
    lines = on_a_terminal(NARROW, command)
    assert max(map(len, lines)) <= NARROW
    assert [line for line in lines if line and not line.startswith(" ")] == names
    wide = {word for line in piped(command) for word in line.split()}
    for line in lines:
        for word in line.split():
            assert word.rstrip(":") in wide | {"·"}


def test_a_wide_terminal_has_a_table():
    lines = [line.rstrip() for line in on_a_terminal(400, "models") if line.strip()]
    assert lines == piped("models")
