"""Every option of every step is typed, and its value arrives at the function of the step."""

import dataclasses
import json
import re
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import simlab
from simlab import cli
from simlab.cli import COUNT_OR_SHARE, help_text
from simlab.errors import UserError
from simlab.steps import catalogue
from simlab.steps.catalogue import LEAVE_OUT, SHORTEN
from simlab.steps.record import REQUIRED, TASK_OPTIONS, texts_of
from simlab.sweeps.status import Count, Status
from simlab.sweeps.sweep import Sweep
from simlab.tasks import TaskOptions

STEPS = {name: step for name, (step, _) in cli.COMMANDS.items()}
EVERY = [(step.name, p.name) for step in STEPS.values() for p in step.parameters]
# Parameters of a command alone, and how their value arrives.
ALONE = {
    ("finetune", "seeds"): ("0..1", {"seed": 0}),
    ("pretrain", "seeds"): ("0..1", {"seed": 0}),
    ("extract", "revisions"): ("step8", {"step": 8}),
    ("truncate", "export"): (("3", "short"), {"layers": 3, "out": "short"}),
    ("report", "out"): ("x.html", {"out": "x.html"}),
}
# Parameters of a command that does something else with them; each has a test of its own.
SWITCHES = [
    ("claims", "list"),
    ("check", "allow"),
    ("influence", "export"),
    ("check", "json"),
    ("sweep", "plan"),
    ("status", "watch"),
    ("status", "json"),
    ("doctor", "json"),
]


class Arrived(Exception):
    """What the function of a step was called with."""


def unread(file):
    """Return a sweep that knows its file alone."""
    sweep = object.__new__(Sweep)
    sweep.file = file
    return sweep


@pytest.fixture
def arriving(monkeypatch):
    """Return a function that runs a command and returns what its function is called with."""

    def record(*places, **given):
        for place in places:  # of `Sweep.run`, and models by name
            named = {"models": places} if isinstance(place, str) else vars(place)
            given |= named
        given |= dataclasses.asdict(given.pop(TASK_OPTIONS)) if TASK_OPTIONS in given else {}
        raise Arrived(given)

    def run(*words):
        steps = (*STEPS.values(), LEAVE_OUT, SHORTEN)
        _ = [step.parameters for step in steps]  # read from the functions before they are replaced
        for step in steps:
            module, _, name = step.path.partition(":")
            owner, _, method = name.rpartition(".")
            place = import_module(module)
            monkeypatch.setattr(getattr(place, owner) if owner else place, method, record)
        monkeypatch.setattr("simlab.tasks.corpus.load_texts", lambda name, options: name)
        monkeypatch.setattr(Sweep, "from_file", unread)
        with pytest.raises(Arrived) as told:
            cli.run([str(word) for word in words])
        (values,) = told.value.args
        return values

    return run


def parameter_of(command, name):
    return next(p for p in STEPS[command].parameters if p.name == name)


def typed(parameter):
    """Return words that give a parameter a value that is not its default, and this value."""
    option = parameter.option
    if parameter.kinds == (bool,):
        off = parameter.default is True
        return [option.replace("--", "--no-", 1) if off else option], not off
    if parameter.kinds == (Mapping,):
        return [option, "A=a*", option, "B=b=c"], {"A": "a*", "B": "b=c"}
    if {*parameter.kinds} == COUNT_OR_SHARE:
        return [option, "0.25"], 0.25
    values = {int: [7, 8], float: [1.25, 1.5]}.get(parameter.kinds[0], ["one", "two"])
    values = ["scores"] if parameter.name == "labels" else values  # refused when it is read
    if parameter.several:
        return [word for value in values for word in (option, value)], tuple(values)
    return [option, values[0]], values[0]


def least(command, *without):
    """Return the words that a command needs, and their values."""
    words, values, step = [command], {}, STEPS[command]
    for parameter in step.parameters:
        needed = parameter.default is REQUIRED or parameter.name in step.optional
        if not needed or parameter.name in without:
            continue
        several = ("a", "b", "c") if parameter.several else (f"x-{parameter.name}",)
        words += several if parameter.is_argument else [parameter.option, *several]
        values[parameter.name] = several if parameter.several else several[0]
    return words, values


def as_typed(arrived):
    """Return arguments with the type of the words."""
    return {**arrived, "out": str(arrived.get("out"))}


@pytest.mark.parametrize(("command", "name"), [pair for pair in EVERY if pair not in SWITCHES])
def test_the_value_of_an_option_arrives(arriving, command, name):
    parameter = parameter_of(command, name)
    words, values = least(command)
    if (command, name) in ALONE:
        value, wanted = ALONE[command, name]
        words = least(command, "out")[0] if (command, name) == ("truncate", "export") else words
        words += [parameter.option, *([value] if isinstance(value, str) else value)]
    elif name in values:
        wanted = {name: values[name]}
    else:
        chosen, value = typed(parameter)
        assert value != parameter.default
        words, wanted = [*words, *chosen], {name: value}
    assert wanted.items() <= as_typed(arriving(*words)).items()


@pytest.mark.parametrize("command", STEPS)
def test_nothing_arrives_that_is_not_typed(arriving, command):
    words, values = least(command)
    arrived = as_typed(arriving(*words))
    assert values.items() <= arrived.items()
    arrived.pop("tell", None)  # a function that prints
    assert {k: v for k, v in arrived.items() if v is not None} == {"out": "None"} | values


def test_claims_lists_its_rules(simcore, arriving):
    code, printed, _ = simcore("claims", "--list")
    assert code == 0
    assert "top-layers-can-go" in printed


def test_sweep_prints_a_plan(simcore, monkeypatch, tmp_path):
    file = tmp_path / "sweep.toml"
    file.write_text('models = ["minilm"]\ntasks = ["rt"]\n')
    monkeypatch.setattr(Sweep, "run", None)
    asked = []
    monkeypatch.setattr(Sweep, "estimate", lambda *given: asked.append(given) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        simcore("sweep", file, "--plan", "--out", tmp_path / "x", "--workers", 3)
    assert asked[0][1:] == (tmp_path / "x",)


def test_status_is_printed_again_and_as_json(simcore, monkeypatch):
    asked = []

    def read(folder):
        asked.append(folder)
        return Status({"grid": Count(done=1)}, 0.0, None, None)

    def interrupt(seconds):
        if len(asked) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr("simlab.sweeps.status.read_status", read)
    monkeypatch.setattr("time.sleep", interrupt)
    code, printed, _ = simcore("status", "x", "--watch", "--json")
    assert (code, asked) == (0, ["x", "x"])
    assert [json.loads(line)["total"]["done"] for line in printed.splitlines()] == [1, 1]


BOUNDED = [
    (step.name, p.name)
    for step in STEPS.values()
    for p in step.parameters
    if p.least is not None and p not in step.extra
]


@pytest.mark.parametrize(("command", "name"), BOUNDED)
def test_the_function_checks_the_bounds_of_the_command(command, name):
    bound, several = parameter_of(command, name).least, parameter_of(command, name).several
    step, (_, values) = STEPS[command], least(command)
    values |= {name: (bound - 1,) if several else bound - 1}
    places = (None,) if command == "sweep" else ()
    if command in ("compare", "check"):
        places = values.pop("models")
    with pytest.raises(UserError, match=f"^{name}: wanted {bound} or more, found {bound - 1}$"):
        step.function(*places, **step.arguments(values))


def test_a_number_of_numpy_has_bounds_too():
    with pytest.raises(UserError, match=r"^train_size: wanted 1 or more, found 0$"):
        TaskOptions(train_size=np.int64(0))


@pytest.mark.parametrize(("command", "name"), EVERY)
def test_every_option_has_help(command, name):
    texts = {p.name: p.option for p in STEPS[command].parameters}
    text = help_text(parameter_of(command, name), texts)
    assert 8 < len(text) < 480
    assert "None" not in text
    assert "As for" not in text  # help says a text itself, and does not refer to a function


def test_a_parameter_has_the_text_that_its_docstring_refers_to():
    texts = texts_of(simlab.influence)
    assert texts["overwrite"] == texts_of(simlab.truncate)["overwrite"] != ""
    beginning = texts_of(simlab.finetune)["task"]
    assert texts["task"].startswith(f"{beginning} With `split` ``all`` also a ")


@pytest.mark.parametrize("command", STEPS)
def test_a_command_has_examples(command):
    step = STEPS[command]
    assert step.text
    assert step.examples
    assert all(f"{example} ".startswith(f"{command} ") for example in step.examples)
    if command in catalogue.STEPS:
        assert step is getattr(catalogue, command.replace("-", "_").upper())


@pytest.mark.parametrize("command", STEPS)
def test_no_parameter_comes_twice(command):
    names = [p.name for p in STEPS[command].parameters]
    options = [p.option for p in STEPS[command].parameters]
    assert len({*names}) == len(names) == len({*options})


def test_options_are_declared_in_one_room():
    places = [
        file.name
        for file in Path(simlab.__file__).parent.rglob("*.py")
        if re.search(r"typer\.(Option|Argument)\(", file.read_text())
    ]
    assert places == ["cli.py"]
