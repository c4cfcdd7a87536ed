"""The reference of the documentation has every public name and option; no Sphinx is needed."""

import importlib
import inspect
import re
from contextlib import suppress
from functools import cache, reduce
from pathlib import Path
from types import ModuleType
from typing import Literal, get_args, get_origin, get_type_hints

import pytest
from typer.main import get_command

import simcore
import simlab
from simlab.cli import make_app
from support.documentation import documented_names, extension

NAMES = documented_names()
command_line = extension("command_line")


def public_modules(package):
    """Return the modules of a package that list their public names; no part begins with `_`."""
    found = [package]
    (folder,) = package.__path__
    for path in sorted(Path(folder).rglob("*.py")):
        *parts, name = path.relative_to(folder).with_suffix("").parts
        parts += [name] if name != "__init__" else []
        is_public = parts and not any(part.startswith("_") for part in parts)
        if is_public and re.search(r"^__all__ = ", path.read_text(), re.MULTILINE):
            found.append(importlib.import_module(".".join([package.__name__, *parts])))
    return found


def found_at(name):
    """Return the object of a full name; a function before a module of the same name."""
    parts = name.split(".")
    for cut in (*range(len(parts) - 1, 0, -1), len(parts)):
        with suppress(ModuleNotFoundError, AttributeError):
            return reduce(getattr, parts[cut:], importlib.import_module(".".join(parts[:cut])))
    raise AssertionError(name)


@cache
def all_found():
    """Return the objects of all names of the reference."""
    return [found_at(name) for name in NAMES]


def is_listed(name, value):
    """Return whether a name has a page, or another name of the same class or function has one."""
    if name in NAMES or (isinstance(value, ModuleType) and value.__name__ in NAMES):
        return True
    return callable(value) and any(value is other for other in all_found())


@pytest.mark.parametrize("package", [simcore, simlab])
def test_every_public_name_is_in_the_reference(package):
    modules = public_modules(package)
    assert len(modules) >= 2
    missing = [
        f"{module.__name__}.{name}"
        for module in modules
        for name in module.__all__
        if not is_listed(f"{module.__name__}.{name}", getattr(module, name))
    ]
    assert missing == []


def test_every_name_of_the_reference_exists_and_says_what_it_is():
    for name in NAMES - {"simcore.__version__"}:
        value = found_at(name)
        assert inspect.getdoc(value), name


def test_an_option_that_is_a_choice_of_strings_has_the_type_of_its_choices():
    compared = 0
    for name in NAMES:
        value = found_at(name)
        if not callable(value) or name.startswith("simcore.reference."):
            continue
        function = inspect.unwrap(value.__init__ if inspect.isclass(value) else value)
        parameters = (inspect.getdoc(value) or "").partition("Parameters\n---")[2].split("\n---")[0]
        for option, said in re.findall(r'^(\w+) : \{(".*")\}', parameters, re.M):
            hint = get_type_hints(function)[option]
            literals = [one for one in (hint, *get_args(hint)) if get_origin(one) is Literal]
            typed = {choice for one in literals for choice in get_args(one)}
            assert typed == set(re.findall(r'"([^"]+)"', said)), f"{name}: {option}"
            compared += 1
    assert compared > 30


def test_every_command_and_option_is_in_the_help():
    text = command_line.command_line()
    commands = get_command(make_app()).commands
    assert len(commands) > 15
    sections = dict(re.findall(r"^## simcore (\S+)\n(.*?)(?=^## |\Z)", text, re.M | re.S))
    assert sections.keys() == commands.keys()
    for name, command in commands.items():
        assert f"[`simcore {name}`](#simcore-{name})\n: " in text
        for parameter in command.params:
            if parameter.param_type_name == "option":
                assert re.search(rf"^:::{{option}} .*{parameter.opts[0]}", sections[name], re.M)
                assert parameter.help


def test_help_is_read_as_text():
    assert command_line.literal("5 * 5 of `a*b` and [x] <y>") == r"5 \* 5 of `a*b` and \[x\] \<y\>"
    example = "Example: `simcore grid a\n    --out b`"
    assert command_line.described(f"Say so.\n\n{example}") == (
        "Say so.\n\n```sh\nsimcore grid a \\\n    --out b\n```"
    )
