"""Where a package of an extra is missing, one line says how to install it."""

import shlex
import sys
import tomllib
from pathlib import Path

import pytest
import torch
from packaging.requirements import Requirement

from simcore._optional import belongs_to, import_optional, install_command

ROOT = Path(__file__).resolve().parents[2]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


@pytest.fixture
def without(monkeypatch):
    """Return a function that hides a package from this process."""
    return lambda name: monkeypatch.setitem(sys.modules, name, None)


@pytest.mark.parametrize("module, package", [("pandas", "pandas"), ("ot", "POT")])
def test_a_missing_package_is_named_as_pip_knows_it(without, module, package):
    without(module)
    with pytest.raises(ModuleNotFoundError) as caught:
        import_optional(module, "some_function")
    assert str(caught.value) == (
        f"some_function: wanted the package {package}, found none; "
        f"`pip install {package}` installs it"
    )


def test_a_package_that_lacks_another_one_says_so_itself(tmp_path, monkeypatch):
    (tmp_path / "broken_package.py").write_text("import a_module_that_nobody_has\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match=r"^No module named 'a_module_that_nobody_has'$"):
        import_optional("broken_package", "some_function")


@pytest.mark.parametrize("extra", ["lab", "vision", "ray", "transport"])
def test_the_command_names_all_packages_and_keeps_torch(extra):
    pip, install, *requirements = shlex.split(install_command(extra))
    assert (pip, install) == ("pip", "install")
    kept, *others = [Requirement(text) for text in requirements]
    assert kept.name == "torch"
    assert kept.specifier.contains(torch.__version__)
    assert len(kept.specifier) == 1
    assert sorted(map(str, others)) == sorted(EXTRAS[extra])


def test_modules_are_found_in_their_extra():
    assert belongs_to("sklearn.metrics", "lab")
    assert belongs_to("typer", "lab")
    assert not belongs_to("typer", "transport")
    assert not belongs_to("simlab", "lab")
