"""The sources of the documentation site, read without Sphinx."""

from __future__ import annotations

import importlib
import importlib.util
import re
from pathlib import Path
from types import ModuleType

from simcore._measures import MODULES

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
API = DOCS / "reference" / "api"


def extension(name: str) -> ModuleType:
    """Return an extension of the site, whose module imports no Sphinx."""
    spec = importlib.util.spec_from_file_location(name, DOCS / "_ext" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def documented_names() -> set[str]:
    """Return the full name of everything that the reference of Python has a page or line for."""
    names = set()
    for page in API.glob("*.md"):
        text = page.read_text()
        (module,) = re.findall(r"^\.\. (?:auto)?module:: (\S+)$", text, re.MULTILINE) or [""]
        listed = re.findall(r"^   ([A-Za-z_][\w.]*)$", text, re.MULTILINE)
        listed += re.findall(r"^\.\. (?:py:|auto)data:: (\S+)$", text, re.MULTILINE)
        families = " ".join(re.findall(r"^```{grids} (.*)$", text, re.MULTILINE)).split()
        listed += [name for name, family in MODULES.items() if family in families]
        if re.search(r"^   :members:$", text, re.MULTILINE):
            listed += importlib.import_module(module).__all__
        names |= {f"{module}.{name}" for name in listed} | {module}
    return names - {""}
