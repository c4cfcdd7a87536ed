"""Every option of every step is typed, and its value arrives at the function of the step."""

import dataclasses
import inspect
from importlib import import_module

import pytest

from simlab import cli
from simlab.steps import catalogue
from simlab.steps.catalogue import INJECT_ONE, SHORTEN, STEPS
from simlab.steps.flags import COUNT_OR_SHARE, help_text
from simlab.steps.record import REQUIRED, TASK_OPTIONS

EVERY = [(step.name, p.name) for step in STEPS.values() for p in step.parameters]
# Parameters of a command alone, and how their value arrives.
ALONE = {
    ("finetune", "seeds"): ("0..1", {"seed": 0}),
    ("truncate", "export"): (("3", "short"), {"layers": 3, "out": "short"}),
    ("inject", "label_a"): ("A", {"label_a": "A"}),
    ("inject", "label_b"): ("B", {"label_b": "B"}),
}


class Arrived(Exception):
    """What the function of a step was called with."""


@pytest.fixture
def arriving(monkeypatch):
    """Return a function that runs a command and returns what its function is called with."""

    def record(*places, **given):
        assert not places
        given |= dataclasses.asdict(given.pop(TASK_OPTIONS)) if TASK_OPTIONS in given else {}
        raise Arrived(given)

    def run(*words):
        for step in (*STEPS.values(), INJECT_ONE, SHORTEN):
            assert step.parameters  # read from the function before it is replaced
            module, _, name = step.place.partition(":")
            monkeypatch.setattr(import_module(module), name, record)
        for command in ("finetune", "truncate"):  # the model and the task are names alone
            module = import_module(f"simlab.commands.{command}")
            monkeypatch.setattr(module, "opened", lambda step, values, model: values)
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
    if {*parameter.kinds} == COUNT_OR_SHARE:
        return [option, "0.25"], 0.25
    values = {int: [7, 8], float: [0.25, 0.5]}.get(parameter.kinds[0], ["one", "two"])
    if parameter.several:
        return [word for value in values for word in (option, value)], tuple(values)
    return [option, values[0]], values[0]


def least(command, *without):
    """Return the words that a command needs, and their values."""
    words, values = [command], {}
    for parameter in STEPS[command].parameters:
        if parameter.default is not REQUIRED or parameter.name in without:
            continue
        several = ("a", "b", "c") if parameter.several else (f"x-{parameter.name}",)
        words += several if parameter.is_argument else [parameter.option, *several]
        values[parameter.name] = several if parameter.several else several[0]
    if command == "truncate" and "out" not in without:
        words += ["--out", "x-out"]
    return words, values


@pytest.mark.parametrize(("command", "name"), EVERY)
def test_the_value_of_an_option_arrives(arriving, command, name):
    parameter = parameter_of(command, name)
    words, values = least(command)
    if (command, name) in ALONE:
        value, wanted = ALONE[command, name]
        words = least(command, "out")[0] if name == "export" else words
        words = ["inject", "a", "b", *words[4:]] if command == "inject" else words
        words += [parameter.option, *([value] if isinstance(value, str) else value)]
    elif parameter.is_argument or parameter.default is REQUIRED:
        wanted = {name: values[name]}
    else:
        chosen, value = typed(parameter)
        assert value != parameter.default
        words, wanted = [*words, *chosen], {name: value}
    arrived = arriving(*words)
    assert wanted.items() <= {**arrived, "out": str(arrived["out"])}.items()


@pytest.mark.parametrize("command", STEPS)
def test_what_is_not_typed_has_its_default(arriving, command):
    words, values = least(command)
    arrived = arriving(*words)
    for parameter in STEPS[command].parameters:
        wanted = values.get(parameter.name, parameter.default)
        if command == "truncate" and parameter.name == "out":
            wanted = "x-out"
        if parameter.several and parameter.name not in values:
            wanted = None  # the function has the default
        assert arrived.get(parameter.name) == wanted or str(arrived.get("out")) == wanted


@pytest.mark.parametrize(("command", "name"), EVERY)
def test_every_option_has_help(command, name):
    text = help_text(parameter_of(command, name))
    assert 8 < len(text) < 480
    assert "None" not in text


@pytest.mark.parametrize("command", STEPS)
def test_a_step_says_what_it_reads_and_writes(command):
    step = STEPS[command]
    assert all((step.text, step.reads, step.writes, step.examples))
    assert all(example.startswith(f"{command} ") for example in step.examples)
    assert step is getattr(catalogue, command.replace("-", "_").upper())


@pytest.mark.parametrize("command", STEPS)
def test_no_parameter_comes_twice(command):
    names = [p.name for p in STEPS[command].parameters]
    options = [p.option for p in STEPS[command].parameters]
    assert len({*names}) == len(names) == len({*options})
    function = inspect.signature(STEPS[command].function)
    assert function.parameters
