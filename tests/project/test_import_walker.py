"""The reader of imports that the tests of rooms trust (`support.imports`)."""

import pytest

from support.imports import between_rooms, find_circle, read_arrows, upward


@pytest.fixture
def package(tmp_path):
    """A package of two rooms and a face, with every kind of import statement."""
    files = {
        "__init__.py": "from lab.up.stairs import climb\n",
        "down/__init__.py": "",
        "down/cellar.py": "import os.path\nfrom json import loads\n",
        "down/wine.py": "from . import cellar\nfrom .. import NAME\n",
        "up/__init__.py": "from .stairs import climb\n",
        "up/stairs.py": "def climb():\n    from lab.down import cellar, wine as w\n",
        "up/roof.py": "import lab.up.stairs\nfrom ..down.wine import POUR\n",
    }
    for name, text in files.items():
        (tmp_path / "lab" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "lab" / name).write_text(text)
    return tmp_path / "lab"


def test_every_import_statement_is_an_arrow(package):
    assert read_arrows(package) == {
        "lab": {"lab.up.stairs"},
        "lab.down": set(),
        "lab.down.cellar": set(),
        "lab.down.wine": {"lab.down.cellar", "lab"},
        "lab.up": {"lab.up.stairs"},
        "lab.up.roof": {"lab.up.stairs", "lab.down.wine"},
        "lab.up.stairs": {"lab.down.cellar", "lab.down.wine"},
    }


def test_rooms_are_what_stands_at_the_top_level(package):
    rooms = between_rooms(read_arrows(package))
    assert rooms == {"lab": {"up"}, "down": {"lab"}, "up": {"down"}}


def test_a_circle_is_found_with_those_in_it_alone():
    assert find_circle({"a": {"b"}, "b": {"c"}, "c": set()}) == []
    assert find_circle({"a": {"b"}, "b": {"c"}, "c": {"d"}, "d": {"b"}}) == ["b", "c", "d", "b"]


def test_arrows_to_the_same_or_a_higher_floor_are_upward():
    arrows = {"a": set(), "b": {"a"}, "c": {"a", "b"}, "d": {"a"}}
    assert upward(arrows, [["a"], ["b"], ["c", "d"]]) == []
    assert upward(arrows, [["a"], ["b", "c"], ["d"]]) == ["c -> b"]
    assert upward(arrows, [["c"], ["b"], ["d"], ["a"]]) == ["b -> a", "c -> a", "c -> b", "d -> a"]
