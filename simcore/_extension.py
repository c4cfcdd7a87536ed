"""Loads the compiled extension, and says in one line why it cannot be loaded.

It runs with every torch from the oldest release on that simcore asks for.
"""

import os
import re
import sys
from importlib.metadata import PackageNotFoundError, requires
from importlib.util import find_spec
from pathlib import Path

# Without a compiled library that fits this Python, operations of torch compute on the CPU too.
HIDDEN = os.environ.get("SIMCORE_PURE") == "1"
PURE = HIDDEN or find_spec("simcore._C") is None
SLOWER = "1 to 3 times"
AGAIN = "in a clone, `pip install --force-reinstall --no-deps .` compiles it"


def refusal(message: str) -> ImportError:
    """Return the error of an extension that cannot be used; its name tells it from all others."""
    return ImportError(f"simcore: {message}", name="simcore._C")


def load_extension() -> None:
    folder = Path(__file__).parent
    try:
        wanted = next(text for text in requires("simcore") or () if text.startswith("torch>="))
    except PackageNotFoundError:
        raise refusal(
            f"wanted an installed simcore, found the files of {folder} alone; in a checkout, "
            "`pip install -e .` installs it"
        ) from None
    try:
        import torch
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise refusal(f"wanted torch, found none; `pip install '{wanted}'` installs it") from None
    # The extension calls torch's stable ABI, which later releases have too.
    running = torch.__version__
    if _series(running) < _series(wanted):
        raise refusal(f"wanted {wanted}, found {running}; `pip install '{wanted}'` installs it")
    if PURE:
        import simcore._pure

        sys.modules["simcore._C"] = simcore._pure
        return
    try:
        import simcore._C
    except ImportError as error:
        raise refusal(
            f"the extension, compiled for {wanted}, cannot be loaded with {running} ({error}); "
            f"{AGAIN} again"
        ) from error


def _series(version: str) -> list[int]:
    """Return major and minor number of a release or of a requirement."""
    return [int(number) for number in re.findall(r"\d+", version.partition("+")[0])[:2]]


def why_pure() -> str:
    if HIDDEN:
        why, remedy = "SIMCORE_PURE=1 hides the compiled operators", "unset it"
    else:
        others = [file.name for file in Path(__file__).parent.glob("_C.*")]
        found = f"{others[0]}, which is for another Python" if others else "none"
        why = f"wanted operators compiled for this Python, found {found}"
        command = "SIMCORE_PURE=0 pip install --force-reinstall --no-deps ."
        remedy = f"in a clone, `{command}` compiles them, or says what is missing"
    return f"simcore: computing with torch's operations, {SLOWER} slower: {why}; {remedy}"


load_extension()
