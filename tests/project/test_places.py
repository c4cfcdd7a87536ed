"""The tests of a module are found by its name, or by a row of `tests/README.md`."""

import re
from fnmatch import fnmatch

from support.pages import ROOT

TESTS = ROOT / "tests"
MODULES = [
    path.relative_to(ROOT)
    for package in ("simcore", "python/simlab")
    for path in sorted((ROOT / package).rglob("*.py"))
    if path.name != "__init__.py"
]


def rows():
    """Return the patterns of modules and the files of tests of each row of the page."""
    lines = (TESTS / "README.md").read_text().splitlines()
    cells = [line.strip("| ").split(" | ") for line in lines if line.startswith("| `")]
    return [tuple(re.findall("`([^`]+)`", cell) for cell in row) for row in cells]


def namesakes():
    """Return the names of modules that have a file of tests, apart for simlab and simcore."""
    names = {True: set(), False: set()}
    for path in TESTS.rglob("test_*.py"):
        names["simlab" in path.relative_to(TESTS).parts].add(path.stem.removeprefix("test_"))
    return names


def unnamed():
    """Return the modules without a file of tests of their name."""
    names = namesakes()
    return [m for m in MODULES if m.stem.strip("_") not in names["simlab" in m.parts]]


def test_every_module_leads_to_its_tests():
    patterns = [pattern for modules, _ in rows() for pattern in modules]
    lost = [str(m) for m in unnamed() if not any(fnmatch(str(m), one) for one in patterns)]
    assert lost == []


def test_every_row_has_a_module_without_a_file_of_its_name():
    needed = [str(module) for module in unnamed()]
    idle = [
        pattern
        for modules, _ in rows()
        for pattern in modules
        if not any(fnmatch(module, pattern) for module in needed)
    ]
    assert idle == []


def test_every_row_leads_to_files():
    missing = [name for _, tests in rows() for name in tests if not (TESTS / name).is_file()]
    assert missing == []
    assert all(tests for _, tests in rows())
