"""The extension of CUDA kernels: found and loaded, or one line that says why it is not used.

A build from source puts it beside ``simcore._C``, and the wheel ``simcore-cuda`` into a folder of
its own. Importing it registers the kernels; which there are, `choice` asks torch.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from types import ModuleType

import torch

from simcore._grid.finish import warn_caller

BESIDE, WHEEL = "simcore._cuda", "simcore_cuda._cuda"


def load_kernels() -> ModuleType | None:
    """Import the CUDA kernels; without any return None, and with ones that do not fit warn, too.

    simcore computes without them: torch's operations take their place.
    """
    name = next((name for name in (BESIDE, WHEEL) if _is_there(name)), None)
    if name is None:
        return None
    why = _misfit(name)
    if not why:
        try:
            return import_module(name)
        except ImportError as error:
            why = f"they cannot be loaded with torch {torch.__version__} ({error})"
    warn_caller(f"simcore: the CUDA kernels are not used: {why}; operations of torch replace them")
    return None


def _is_there(name: str) -> bool:
    package = name.partition(".")[0]
    return find_spec(package) is not None and find_spec(name) is not None


def _misfit(name: str) -> str:
    """Return why the kernels must not be loaded; nothing where they may."""
    if torch.version.cuda is None:
        return f"wanted a build of torch for CUDA, found {torch.__version__}"
    if name == BESIDE:
        return ""
    wanted, found = version("simcore"), _version_of_wheel()
    if found == wanted:
        return ""
    return (
        f"wanted simcore-cuda {wanted}, found {found}; `make wheel-cuda` in a clone of "
        f"simcore {wanted} builds it"
    )


def _version_of_wheel() -> str:
    try:
        return version("simcore-cuda")
    except PackageNotFoundError:
        return "a folder that pip did not install"


LOADED = load_kernels()
