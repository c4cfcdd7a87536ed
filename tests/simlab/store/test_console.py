"""Tables in a pipe and on a narrow terminal; progress as a bar, and as lines in a log."""

import re
import sys

import pytest

from simlab.models.architectures import KNOWN_ARCHITECTURES
from simlab.tasks import TASKS
from support.lab.terminals import on_a_terminal
from support.processes import python

NARROW = 80
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
# With these variables rich takes a pipe for a terminal of 80 columns; many CI systems set them.
CI = {"FORCE_COLOR": "1", "TTY_COMPATIBLE": "1", "COLUMNS": str(NARROW)}


ENVIRONMENTS = [pytest.param({}, id="plain", marks=pytest.mark.deep), pytest.param(CI, id="ci")]


def simlab(*arguments):
    return [sys.executable, "-m", "simlab.cli", *map(str, arguments)]


def piped(*arguments, **environment):
    done = python(*simlab(*arguments)[1:], **environment)
    return COLOURS.sub("", done.stdout).splitlines()


def shown(columns, *arguments):
    """Return the lines of a command on a terminal of so many columns."""
    return on_a_terminal(simlab(*arguments), columns).splitlines()


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_a_pipe_gets_every_task_on_one_line(environment):
    header, rule, *rows = piped("tasks", **environment)
    assert header.split() == ["name", "task", "kind", "texts", "label", "metrics", "splits", "from"]
    assert not rule.strip("─ ")
    assert [row.split()[0] for row in rows] == list(TASKS)
    for row, spec in zip(rows, TASKS.values(), strict=True):
        words = (*spec.columns, *spec.labels, *spec.metrics, spec.train, spec.heldout, spec.hub)
        assert all(word in row for word in words)


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("tasks", list(TASKS)),
        pytest.param(
            "models",
            [architecture.name for architecture in KNOWN_ARCHITECTURES],
            marks=pytest.mark.deep,
        ),
    ],
)
def test_a_narrow_terminal_breaks_between_words_alone(command, names):
    lines = shown(NARROW, command)
    assert max(map(len, lines)) <= NARROW
    assert [line for line in lines if line and not line.startswith(" ")] == names
    wide = {word for line in piped(command) for word in line.split()}
    for line in lines:
        for word in line.split():
            assert word.rstrip(":") in wide | {"·"}


@pytest.mark.deep
def test_a_wide_terminal_has_a_table():
    lines = [line.rstrip() for line in shown(400, "models") if line.strip()]
    assert lines == piped("models")


TIME = r"20\d\d-\d\d-\d\d \d\d:\d\d:\d\d"
LOOP = """
import time
from simlab.store import console

console.LINE_SECONDS = {pause}
for title in ("the first", "then [seed]"):
    with console.progress(title, 4) as advance:
        for _ in range(4):
            time.sleep(0.2)
            advance(1)
"""


def loop(pause=0.5):
    return [sys.executable, "-c", LOOP.format(pause=pause)]


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_a_log_gets_a_line_whenever_the_pause_is_over(environment):
    done = python(*loop()[1:], **environment)
    first, *_, last = done.stderr.splitlines()
    assert done.stdout == ""
    # The estimate is of the pace so far, which a busy machine slows: its form is tested here.
    assert re.fullmatch(rf"{TIME} the first [12]/4: about [0-9] s left", first)
    # The pause goes on from one loop to the next.
    assert re.fullmatch(rf"{TIME} then \[seed\] \d/4(: about [0-9] s left)?", last)
    assert len(done.stderr.splitlines()) in (2, 3)


@pytest.mark.deep
def test_a_short_loop_writes_nothing_into_a_log():
    done = python(*loop(pause=60)[1:])
    assert (done.stdout, done.stderr) == ("", "")


def test_a_terminal_has_a_bar_and_no_lines():
    drawn = on_a_terminal(loop(), NARROW, errors=True)
    assert "the first 0/4 ━" in drawn
    assert "then [seed] 3/4 ━" in drawn
    assert not re.search(TIME, drawn)
