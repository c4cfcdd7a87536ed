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
from simlab.experiments.align_study import StudyOptions
from simlab.experiments.injection_options import InjectOptions
from simlab.experiments.truncate import TruncationOptions
from simlab.models.head_recipe import HeadRecipe
from simlab.representations.extract import ExtractOptions
from simlab.similarity.options import OPTIONS
from simlab.tasks import TaskOptions
from simlab.training.pretraining import Pretraining
from simlab.training.recipes import Recipe

COMMANDS = {c.name or c.callback.__name__: c.callback for c in app.registered_commands}
# Commands that print tables, or run all the others: `Sweep` has methods for a sweep.
COMMANDS_ALONE = {"demo", "models", "papers", "status", "sweep", "tasks"}
STEPS = sorted(COMMANDS.keys() - COMMANDS_ALONE)
# Classes whose fields a function takes as keywords, besides its own parameters.
FIELDS = {
    "pretrain": Pretraining,
    "finetune": Recipe,
    "freeze-study": Recipe,
    "extract": ExtractOptions,
    "truncate": TruncationOptions,
    "inject": InjectOptions,
    "align-study": StudyOptions,
}
# Options with another name in Python: repeatable options are plural there.
RENAMED = {
    ("finetune", "recipe_name"): "recipe",
    ("freeze-study", "recipe_name"): "recipe",
    ("extract", "random_init"): "random_init_seed",
    ("import", "layer"): "layers",
    ("influence", "random_init"): "random_init_seed",
    ("truncate", "mode"): "modes",
    ("truncate", "advise"): "tolerance",
    ("inject", "method"): "methods",
    ("align-study", "method"): "methods",
    ("plot", "format"): "formats",
    ("plot", "comparison"): "comparisons",
    ("claims", "family"): "families",
}
# The function of a command with another name: `report` is a room, `import` a word of Python.
FUNCTIONS = {"report": "write_report", "import": "import_representations"}
# Options that are another call in Python: a loop, `shorten`, a table, `inject_pairs`.
OTHER_CALLS = {
    *(
        ("finetune", "seeds"),
        ("pretrain", "seeds"),
        ("truncate", "export"),
        ("claims", "list_rules"),
    ),
    ("report", "watch"),
    *(("inject", name) for name in ("models", "into", "pairs", "pair_seed", "directions", "label")),
}


def keywords(command):
    """Return the keywords of the function of a command, with their defaults."""
    function = getattr(simlab, FUNCTIONS.get(command, command.replace("-", "_")))
    found = {p.name: p.default for p in inspect.signature(function).parameters.values()}
    if command in FIELDS:
        found |= {field.name: field.default for field in dataclasses.fields(FIELDS[command])}
    if command == "truncate":
        found |= {f"head_{field.name}": field.default for field in dataclasses.fields(HeadRecipe)}
    if command == "grid":
        found |= dict.fromkeys(OPTIONS)
    return found


def own_parameters(command):
    """The parameters of a command without those of `TaskOptions`, as Python names them."""
    parameters = inspect.signature(COMMANDS[command]).parameters
    task_options = {field.name for field in dataclasses.fields(TaskOptions)}
    task_options |= {"text_pair_column"}  # pair_column there
    return {
        RENAMED.get((command, name), name): parameter
        for name, parameter in parameters.items()
        if name not in task_options | {"paper"} and (command, name) not in OTHER_CALLS
    }


@pytest.mark.parametrize("command", STEPS)
def test_a_function_takes_what_its_command_takes(command):
    assert not own_parameters(command).keys() - keywords(command).keys()


@pytest.mark.parametrize("command", STEPS)
def test_a_function_takes_a_command_s_defaults(command):
    taken = keywords(command)
    for name, parameter in own_parameters(command).items():
        if parameter.default in (None, False, inspect.Parameter.empty):
            continue  # not given: the function decides
        default = (1,) if (command, name) == ("freeze-study", "seeds") else parameter.default
        assert taken[name] == default, name


@pytest.mark.parametrize("command", [c for c in STEPS if c not in ("blocks", "grid", "localize")])
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
