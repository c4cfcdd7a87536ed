"""The house of simcore: which module may import which, and how long a file may be."""

import re
from pathlib import Path

import pytest

from support.imports import between_rooms, find_circle, read_arrows, upward

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "simcore"
# From the ground up: a room imports from lower floors only. `simcore` is the package's face, and
# `reference` shares no code with the rest.
FLOORS = (
    ("_pure",),
    ("_extension", "_grid", "_measures", "_optional", "reference"),
    ("_attention_layers", "_ops", "_result"),
    ("_kernels", "_hsic", "_neighbour_lists"),
    (
        "basis",
        "cka",
        "rsa",
        "attention",
        "nn",
        "rowwise",
        "layer_descriptors",
        "_spectral_norms",
        "_transport",
    ),
    ("_column_spaces", "_truncated"),
    (
        "_decomposed",
        "_procrustes",
        "minibatch",
        "align",
        "knn",
        "distances",
        "matching",
        "imd",
        "topology",
    ),
    ("_top", "gallery", "subspaces"),
    ("cca", "neurons"),
    ("stats",),
    ("measures",),
    ("recording",),
    ("testing",),
    ("simcore",),
)
MOST_LINES = 400
FOLDERS = ("simcore", "python", "csrc", "tests", "bench", "examples", "tools")


@pytest.fixture(scope="module")
def arrows():
    """Return which modules each module imports; `simcore._C` is no module of Python."""
    return {module: others - {"simcore"} for module, others in read_arrows(PACKAGE).items()}


def test_no_module_imports_the_whole_package():
    whole = re.compile(r"^\s*(import simcore|from simcore import _C)\b(?!\.)", re.MULTILINE)
    assert not [f for f in PACKAGE.rglob("*.py") if whole.search(f.read_text())]


def test_every_room_has_its_floor(arrows):
    assert sorted(between_rooms(arrows)) == sorted(room for floor in FLOORS for room in floor)


def test_no_arrow_points_upward(arrows):
    assert upward(between_rooms(arrows), FLOORS) == []


def test_no_modules_import_one_another_in_a_circle(arrows):
    assert find_circle(arrows) == []


def test_no_file_is_too_long():
    files = (
        file
        for folder in FOLDERS
        for file in (ROOT / folder).rglob("*")
        if file.suffix in (".py", ".cpp", ".cu", ".cuh", ".h") and file.is_file()
    )
    lengths = {str(file.relative_to(ROOT)): len(file.read_text().splitlines()) for file in files}
    assert len(lengths) > 500
    assert {name: length for name, length in lengths.items() if length > MOST_LINES} == {}
