"""The names of `from simlab import ...`, their agreement with the commands, their examples."""

import ast
import dataclasses
import doctest
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import simlab
from simlab.cli import app
from simlab.similarity.options import OPTIONS
from simlab.steps.catalogue import STEPS as DECLARED
from simlab.tasks import TaskOptions
from simlab.training.pretraining import Pretraining

COMMANDS = {c.name or c.callback.__name__: c.callback for c in app.registered_commands}
# Commands that print tables, or run all the others: `Sweep` has methods for a sweep.
COMMANDS_ALONE = {"demo", "models", "papers", "status", "sweep", "tasks"}
FUNCTION_OF = sorted(COMMANDS.keys() - COMMANDS_ALONE)
# Commands that are made of the function (`tests/simlab/steps` types each of their options).
STEPS = sorted(set(FUNCTION_OF) - DECLARED.keys())
# Classes whose fields a function takes as keywords, besides its own parameters.
FIELDS = {"pretrain": Pretraining}
# Options with another name in Python: repeatable options are plural there.
RENAMED = {
    ("import", "layer"): "layers",
    ("influence", "random_init"): "random_init_seed",
    ("plot", "format"): "formats",
    ("plot", "comparison"): "comparisons",
    ("claims", "family"): "families",
}
# The function of a command with another name: `report` is a room, `import` a word of Python.
FUNCTIONS = {
    "report": "write_report",
    "import": "import_representations",
    "inject": "inject_pairs",
}
# Options that are another call in Python: a loop, a table.
OTHER_CALLS = {("pretrain", "seeds"), ("claims", "list_rules"), ("report", "watch")}


def keywords(command):
    """Return the keywords of the function of a command, with their defaults."""
    function = getattr(simlab, FUNCTIONS.get(command, command.replace("-", "_")))
    found = {p.name: p.default for p in inspect.signature(function).parameters.values()}
    if command in DECLARED:
        found |= {parameter.name: parameter.default for parameter in DECLARED[command].parameters}
    if command in FIELDS:
        found |= {field.name: field.default for field in dataclasses.fields(FIELDS[command])}
    if command == "grid":
        found |= dict.fromkeys(OPTIONS)
    return found


def own_parameters(command):
    """The parameters of a command without those of `TaskOptions`, as Python names them."""
    parameters = inspect.signature(COMMANDS[command]).parameters
    task_options = {field.name for field in dataclasses.fields(TaskOptions)}
    return {
        RENAMED.get((command, name), name): parameter
        for name, parameter in parameters.items()
        if name not in task_options | {"paper"} and (command, name) not in OTHER_CALLS
    }


@pytest.mark.parametrize("command", DECLARED)
def test_a_declared_step_has_its_function(command):
    name = FUNCTIONS.get(command, command.replace("-", "_"))
    assert DECLARED[command].function is getattr(simlab, name)


@pytest.mark.parametrize("command", STEPS)
def test_a_function_takes_what_its_command_takes(command):
    assert not own_parameters(command).keys() - keywords(command).keys()


@pytest.mark.parametrize("command", STEPS)
def test_a_function_takes_a_command_s_defaults(command):
    taken = keywords(command)
    for name, parameter in own_parameters(command).items():
        if parameter.default in (None, False, inspect.Parameter.empty):
            continue  # not given: the function decides
        assert taken[name] == parameter.default, name


@pytest.mark.parametrize("command", sorted({*FUNCTION_OF} - {"blocks", "grid", "localize"}))
def test_tasks_may_come_with_options(command):
    takes_task = {"task", "texts"} & {*inspect.signature(COMMANDS[command]).parameters}
    assert bool(takes_task) == ("task_options" in keywords(command))


def test_type_checkers_see_what_is_found():
    tree = ast.parse(Path(simlab.__file__).read_text())
    seen = {
        alias.asname: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module.startswith("simlab.")
        for alias in node.names
    }
    assert seen == {name: f"simlab.{place}" for name, place in simlab._PLACES.items()}


def test_the_package_imports_nothing_heavy():
    code = "import sys, simlab; dir(simlab); print([m for m in sys.modules if 'simlab.' in m])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


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
