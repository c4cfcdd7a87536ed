"""The pins that `make` installs from are what pip can read, and cover what the project asks for."""

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]


def pins():
    lines = (ROOT / "requirements" / "lock.txt").read_bytes().decode().split("\n")
    return [line for line in lines if line and not line.startswith("#")]


def test_every_line_pins_one_version():
    pin = re.compile(r"[A-Za-z0-9._-]+==[\w.+!-]+(; .+)?")  # `Requirement` reads what may follow
    assert [line for line in pins() if not pin.fullmatch(line)] == []
    names = [canonicalize_name(Requirement(line).name) for line in pins()]
    assert len(names) == len(set(names))


def test_every_extra_that_make_installs_is_pinned():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pinned = {canonicalize_name(Requirement(line).name) for line in pins()}
    for extra in ("lab", "test", "lint", "docs"):
        wanted = project["optional-dependencies"][extra]
        missing = {canonicalize_name(Requirement(text).name) for text in wanted} - pinned
        assert not missing, f"[{extra}]: no pin of {missing}"
