"""Measures in files: which function is taken, how it is called, and what a bad file says."""

import sys
from pathlib import Path

import numpy as np
import pytest

from simlab.errors import UserError
from simlab.judge.candidates import find
from simlab.judge.functions import as_grid, read_function

X, Y = np.ones((5, 2), np.float32), np.zeros((5, 3), np.float32)
LAYERS = [np.full((4, 2), value, np.float32) for value in range(5)]


@pytest.fixture
def file(tmp_path):
    """Return a function that writes a file and gives its path."""

    def write(text):
        path = tmp_path / "mine.py"
        path.write_text(text)
        return path

    return write


@pytest.mark.parametrize(
    "text",
    [
        "def any_name(x, y): return 2",
        "from os.path import join\ndef measure(x, y): return 2\ndef other(x): return 1",
        "from os.path import join\ndef any_name(x, y): return 2",
        "def _inner(x): return 2\ndef m(x, y, k=3): return _inner(x)",
        "from neighbour_of_mine import measure\ndef other(x, y): return 1",
        "from functools import partial\ndef f(x, y, k): return k\nmeasure = partial(f, k=2)",
        "class Two:\n    def __call__(self, x, y): return 2\nmeasure = Two()",
        "measure = 3\ndef f(x, y): return 2",
    ],
)
def test_the_function_of_a_file(file, tmp_path, text):
    (tmp_path / "neighbour_of_mine.py").write_text("def measure(x, y): return 2")
    assert read_function(file(text))(X, Y) == 2


@pytest.mark.parametrize(
    "text",
    [
        "from neighbour_of_two import TWO\ndef measure(x, y): return TWO",
        "def measure(x, y):\n    from neighbour_of_two import TWO\n    return TWO",
    ],
)
def test_a_file_may_import_its_neighbours(file, tmp_path, monkeypatch, text):
    (tmp_path / "neighbour_of_two.py").write_text("TWO = 2")
    monkeypatch.delitem(sys.modules, "neighbour_of_two", raising=False)
    path, before = file(text), list(sys.path)
    assert as_grid(read_function(path), path)([X], [Y]) == 2
    assert sys.path == before


def test_a_file_is_a_module(file):
    """Dataclasses look their module up by its name, and pools the functions that they run."""
    path = file(
        "from __future__ import annotations\n"
        "from dataclasses import dataclass\n"
        "from multiprocessing import get_context\n"
        "@dataclass\n"
        "class Two:\n    two: int = 2\n"
        "def _half(two): return two / 2\n"
        "def measure(x, y):\n"
        "    with get_context('fork').Pool(2) as pool:\n"
        "        return sum(pool.map(_half, [Two().two, 2]))\n"
    )
    assert read_function(path)(X, Y) == 2


def test_two_files_of_one_name_are_two_modules(file, tmp_path):
    (tmp_path / "other").mkdir()
    other = tmp_path / "other" / "mine.py"
    other.write_text("def measure(x, y): return 3")
    one, two = read_function(file("def measure(x, y): return 2")), read_function(other)
    assert one.__module__ != two.__module__
    assert (one(X, Y), two(X, Y)) == (2, 3)
    assert all(sys.modules[each.__module__].measure is each for each in (one, two))


def test_the_line_of_an_error_is_told_for_a_relative_name(file, tmp_path, monkeypatch):
    file("x = 1\n1 / 0")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"^mine\.py: .*division by zero \(line 2\)"):
        read_function(Path("mine.py"))


def test_the_name_of_a_file_becomes_text(file, tmp_path):
    path = file("def measure(x, y): return 2").rename(tmp_path / "bad\udcff.py")
    [candidate] = find(str(path), False)
    assert candidate.label == "bad?.py"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def measure(x, y) return 2", "wanted a file that runs, found SyntaxError.*line 1"),
        ("x = 1\n1 / 0", r"found ZeroDivisionError: division by zero \(line 2\)"),
        ("raise SystemExit", "wanted a file that runs, found SystemExit"),
        ("", r"wanted a function measure\(x, y\), or one function alone, found none"),
        ("def a(x, y): 1\ndef b(x, y): 1", "or one function alone, found a, b"),
        ("def measure(x): return 1", r"wanted measure\(x, y\), found measure\(x\)"),
        ("def measure(x, y, z): return 1", r"found measure\(x, y, z\)"),
        (
            "from functools import partial\ndef f(x, y): 1\nmeasure = partial(f, 1)",
            r"wanted measure\(x, y\), found measure\(y\)",
        ),
        ("measure = 3", "or one function alone, found none"),
    ],
)
def test_a_file_without_a_measure_is_refused(file, text, message):
    with pytest.raises(UserError, match=message):
        read_function(file(text))


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"none\.py: wanted a Python file, found none"):
        read_function(tmp_path / "none.py")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x @ y", "wanted a value of arrays of .5, 2. and .5, 3., found ValueError"),
        ("x", r"wanted one number, found ndarray of shape \[5, 2\]"),
        ("None", "wanted one number, found NoneType"),
        ("True", "wanted one number, found bool"),
        ("1j", "wanted one number, found complex"),
        ("'1'", "wanted one number, found str"),
    ],
)
def test_a_function_that_gives_no_number_is_refused(file, text, message):
    path = file(f"def measure(x, y):\n    return {text}")
    with pytest.raises(UserError, match=message):
        as_grid(read_function(path), path)([X], [Y])


@pytest.mark.parametrize("text", ["x.sum() * 0 + 3", "3", "float('3')", "np.float32(3)"])
def test_every_number_is_taken(file, text):
    path = file(f"import numpy as np\ndef measure(x, y):\n    return {text}")
    np.testing.assert_array_equal(as_grid(read_function(path), path)([X, X], [Y]), [[3], [3]])


def test_a_tensor_of_one_number_is_taken(file):
    path = file("import torch\ndef measure(x, y):\n    return torch.tensor(3.0)")
    assert as_grid(read_function(path), path)([X], [Y]) == 3


def counted(function):
    calls = []

    def measure(x, y):
        calls.append((x, y))
        return function(x[0, 0], y[0, 0])

    return measure, calls


def test_both_orders_are_computed_where_they_differ(tmp_path):
    one, calls = counted(lambda x, y: x - y)
    found = as_grid(one, tmp_path)(LAYERS, None)
    depths = np.arange(5.0)
    np.testing.assert_array_equal(found, depths[:, None] - depths)
    assert len(calls) == 25


def test_one_order_is_computed_where_both_are_equal(tmp_path):
    one, calls = counted(lambda x, y: x * y)
    found = as_grid(one, tmp_path)(LAYERS, None)
    np.testing.assert_array_equal(found, np.outer(range(5), range(5)))
    assert len(calls) < 20


def test_a_function_may_change_its_arrays(tmp_path):
    def measure(x, y):
        assert x.dtype == y.dtype == np.float64
        x += 1
        return float(x.sum())

    found = as_grid(measure, tmp_path)([X, X], [Y, Y])
    np.testing.assert_array_equal(found, np.full((2, 2), 20))
    assert (X == 1).all()
