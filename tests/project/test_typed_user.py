"""A strict type checker takes user code of both packages, and finds the mistakes in it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import simcore
import simlab
from support import typed_user

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = [Path(package.__file__).parent for package in (simcore, simlab)]


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_a_package_says_that_it_is_typed(package):
    assert (package / "py.typed").is_file()


@pytest.mark.slow  # mypy reads torch, unless `make lint` has left its cache
def test_a_strict_checker_finds_the_mistakes_and_nothing_else():
    pytest.importorskip("mypy")
    code = Path(typed_user.__file__)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", str(code)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, "MYPYPATH": os.pathsep.join((str(ROOT / "python"), str(ROOT)))},
    )
    assert done.returncode == 1, done.stdout + done.stderr
    found = {int(line) for line in re.findall(r":(\d+): error: ", done.stdout)}
    lines = enumerate(code.read_text().splitlines(), 1)
    assert found == {number for number, line in lines if line.endswith("# refused")}, done.stdout
