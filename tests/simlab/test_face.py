"""The names of `from simlab import ...`, their agreement with the commands, their examples."""

import ast
import doctest
import inspect
from pathlib import Path

import pytest

import simlab
from simlab.cli import COMMANDS
from support.processes import python

# Commands that print tables, or run all the others: `Sweep` has methods for a sweep.
COMMANDS_ALONE = {"demo", "doctor", "models", "papers", "status", "tasks"}
STEPS = {name: step for name, (step, _) in COMMANDS.items() if name not in COMMANDS_ALONE}


def name_of(step):
    """Return the name of the function or class of a step in `simlab`."""
    return step.path.partition(":")[2].split(".")[0]


def test_every_step_has_a_name_in_python():
    assert {name_of(step) for step in STEPS.values()} <= {*simlab.__all__}
    for step in STEPS.values():
        assert step.function.__module__ == getattr(simlab, name_of(step)).__module__


def test_a_name_in_python_is_the_name_of_the_command():
    # `report` is a room, `import` is a word of Python.
    others = {"report", "import", "sweep"}
    assert {
        name for name, step in STEPS.items() if name_of(step) != name.replace("-", "_")
    } == others


@pytest.mark.parametrize("command", sorted({*STEPS} - {"blocks", "grid", "localize"}))
def test_tasks_may_come_with_options(command):
    taken = inspect.signature(STEPS[command].function).parameters.keys()
    assert bool({"task", "texts"} & taken) == ("task_options" in taken)


def test_type_checkers_see_what_is_found():
    tree = ast.parse(Path(simlab.__file__).read_text())
    seen = {
        alias.asname: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module.startswith("simlab.")
        for alias in node.names
    }
    assert seen == {name: f"simlab.{module}" for name, module in simlab._MODULES.items()}


def test_the_package_imports_nothing_heavy():
    code = "import sys, simlab; dir(simlab); print([m for m in sys.modules if 'simlab.' in m])"
    assert python("-c", code).stdout.strip() == "[]"


def test_an_unknown_name_is_refused():
    with pytest.raises(AttributeError, match="no attribute 'finetoon'"):
        simlab.finetoon  # noqa: B018


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Make one folder for all examples, so that they share the steps they have in common."""
    return tmp_path_factory.mktemp("examples")


@pytest.mark.assets
@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(simlab.__all__))
def test_the_example_runs(name, folder, monkeypatch):
    monkeypatch.chdir(folder)
    (example,) = doctest.DocTestFinder(recurse=False).find(getattr(simlab, name), name, globs={})
    report: list[str] = []
    result = doctest.DocTestRunner().run(example, out=report.append)
    assert result.attempted > 1
    assert not result.failed, "".join(report)
