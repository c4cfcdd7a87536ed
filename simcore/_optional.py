"""Packages that simcore does not require: import one, or say in one line how to install it.

Requirements are read from the metadata of the installed simcore, so that pyproject.toml alone lists
them. The commands name packages instead of ``simcore[extra]``, because pip would search an index
for simcore, even where it was installed from a clone or from a wheel.
"""

import re
import shlex
from importlib import import_module
from importlib.metadata import requires
from types import ModuleType

import torch

# Distributions that are named otherwise than their modules.
_DISTRIBUTIONS = {"ot": "POT", "sklearn": "scikit-learn"}
_EXTRA = re.compile(r"extra\s*==\s*['\"]([\w-]+)['\"]")


def import_optional(module: str, wanted_by: str) -> ModuleType:
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0]:
            raise  # the package is installed, and lacks another one
        distribution = distribution_of(module)
        wanted = {name: text for extra in _extras().values() for name, text in extra.items()}
        requirement = shlex.quote(wanted.get(distribution, distribution))
        raise ModuleNotFoundError(
            f"{wanted_by}: wanted the package {distribution}, found none; "
            f"`pip install {requirement}` installs it",
            name=error.name,
        ) from None


def install_command(extra: str) -> str:
    """Return the command that installs the packages of an extra, and leaves torch as it is."""
    # torch is named with its version because packages of an extra may ask for another one, as
    # torchvision does, in place of the one that is installed.
    torch_that_is_here = f"torch=={torch.__version__.partition('+')[0]}"
    return shlex.join(["pip", "install", torch_that_is_here, *_extras()[extra].values()])


def missing_from_lab(error: ImportError, wanted_by: str) -> str | None:
    """Return the line that says what to install; None if no package of the extra lab is missing."""
    if not isinstance(error, ModuleNotFoundError) or not belongs_to(error.name or "", "lab"):
        return None
    return (
        f"{wanted_by} wanted the package {distribution_of(error.name or '')}, found none; "
        f"`{install_command('lab')}` installs all that it needs"
    )


def belongs_to(module: str, extra: str) -> bool:
    return distribution_of(module) in _extras()[extra]


def distribution_of(module: str) -> str:
    """Return the name of the package on the index that holds a module."""
    package = module.partition(".")[0]
    return _DISTRIBUTIONS.get(package, package)


def _extras() -> dict[str, dict[str, str]]:
    """Return the requirements of each extra of the installed simcore by the package's name."""
    extras: dict[str, dict[str, str]] = {}
    for line in requires("simcore") or []:
        requirement, _, marker = line.partition(";")
        if extra := _EXTRA.search(marker):
            name = re.split(r"[^\w.-]", requirement.strip())[0]
            extras.setdefault(extra[1], {})[name] = requirement.strip()
    return extras
