"""The rooms of simlab: their imports and their docstrings."""

import ast
import re
from pathlib import Path

import pytest

import simlab
from support.imports import between_rooms, find_circle, read_arrows, upward

# The order of the rooms, declared here and nowhere else: a room imports from lower floors only,
# and rooms of one floor do not know each other. `simlab` is the face.
FLOORS = (
    ("errors",),
    ("bounds",),
    ("store", "papers"),
    ("tasks", "results"),
    ("models",),
    ("training", "representations"),
    ("similarity", "experiments"),
    ("figures", "evidence", "steps"),
    ("sweeps", "report"),
    ("answers",),
    ("commands",),
    ("cli", "simlab"),
    ("__main__",),
)
PACKAGE = Path(simlab.__file__).parent
ROOMS = sorted(folder.parent.name for folder in PACKAGE.glob("*/__init__.py"))


@pytest.fixture(scope="module")
def arrows():
    """Return the modules that each module imports."""
    return read_arrows(PACKAGE)


def names_in_docstring(package):
    """Return the names in single backticks in the docstring of a package."""
    tree = ast.parse((package / "__init__.py").read_text())
    return set(re.findall(r"(?<!`)`([a-z_0-9]+)`(?!`)", ast.get_docstring(tree)))


def test_every_room_has_its_floor(arrows):
    assert sorted(between_rooms(arrows)) == sorted(room for floor in FLOORS for room in floor)


def test_no_arrow_points_upward(arrows):
    assert upward(between_rooms(arrows), FLOORS) == []


def test_no_modules_import_one_another_in_a_circle(arrows):
    assert find_circle(arrows) == []


def test_a_room_names_all_its_modules():
    for room in ROOMS:
        modules = {file.stem for file in (PACKAGE / room).glob("*.py")} - {"__init__"}
        assert modules - names_in_docstring(PACKAGE / room) == set(), room


def test_the_package_names_all_its_rooms():
    there = {*ROOMS, *(file.stem for file in PACKAGE.glob("*.py"))} - {"__init__"}
    assert there - names_in_docstring(PACKAGE) == set()
