"""Loads the compiled extension, and says in one line why it cannot be loaded.

An extension without CUDA kernels runs with every torch from the oldest release that simcore
supports on; with them it fits the torch that it was built against, and with another one the loader
names a missing symbol of C++, or calls go wrong. setup.py writes beside the extension which torch
it takes.
"""

import re
from importlib.util import find_spec
from pathlib import Path

RECORD = Path(__file__).with_name("_C_torch.txt")  # ">=2.11", or "==2.13.0"
AGAIN = "in a clone, `pip install --no-build-isolation --force-reinstall --no-deps .` compiles it"


def refusal(message: str) -> ImportError:
    """Return the error of an extension that cannot be used; its name tells it from all others."""
    return ImportError(f"simcore: {message}", name="simcore._C")


def load_extension() -> None:
    """Import ``simcore._C``, which registers the operators.

    Raises
    ------
    ImportError
        There is no torch or no extension, the extension takes another version of torch, or the
        loader refuses it. Its `name` is ``"simcore._C"``.
    """
    wanted = RECORD.read_text().strip() if RECORD.is_file() else ""
    try:
        import torch
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise refusal(
            f"wanted torch, found none; `pip install 'torch{wanted}'` installs it"
        ) from None
    if find_spec("simcore._C") is None:
        raise refusal(
            f"wanted the compiled extension in {RECORD.parent}, found none; in a "
            "checkout, `pip install --no-build-isolation -e .` compiles it"
        )
    running = torch.__version__
    if not _fits(running, wanted):
        raise refusal(
            f"wanted torch{wanted}, which the extension was compiled for, found {running}; "
            f"`pip install 'torch{wanted}'` installs that torch, or, {AGAIN} for this one"
        )
    try:
        import simcore._C  # noqa: F401
    except ImportError as error:
        raise refusal(
            f"the extension, compiled for torch{wanted}, cannot be loaded with {running} "
            f"({error}); "
            f"{AGAIN} again"
        ) from error


def _fits(running: str, wanted: str) -> bool:
    """Return whether a version of torch is the wanted one; builds for CPU and CUDA are alike."""
    if wanted.startswith("=="):
        return running.partition("+")[0] == wanted.removeprefix("==")
    return _numbers(running)[:2] >= _numbers(wanted)


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version.partition("+")[0])]


load_extension()
