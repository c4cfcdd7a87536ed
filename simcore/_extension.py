"""Loads the compiled extension, and says in one line why it cannot be loaded.

Compiled code fits the torch that it was built against: with another one, the loader names a missing
symbol of C++, or calls go wrong. setup.py writes the version beside the extension.
"""

from importlib.util import find_spec
from pathlib import Path

RECORD = Path(__file__).with_name("_C_torch.txt")
AGAIN = "in a clone, `pip install --no-build-isolation --force-reinstall --no-deps .` compiles it"


def refusal(message: str) -> ImportError:
    """Return the error of an extension that cannot be used; its name tells it from all others."""
    return ImportError(f"simcore: {message}", name="simcore._C")


def load_extension() -> None:
    """Import ``simcore._C``, which registers the operators.

    Raises
    ------
    ImportError
        There is no torch or no extension, the extension was built against another version of torch,
        or the loader refuses it. Its `name` is ``"simcore._C"``.
    """
    built = RECORD.read_text().strip() if RECORD.is_file() else ""
    try:
        import torch
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        exactly = f"=={_release(built)}" if built else ""
        raise refusal(
            f"wanted torch, found none; `pip install torch{exactly}` installs it"
        ) from None
    if find_spec("simcore._C") is None:
        raise refusal(
            f"wanted the compiled extension in {RECORD.parent}, found none for this Python; in a "
            "checkout, `pip install --no-build-isolation -e .` compiles it"
        )
    built = built or torch.__version__
    if _release(built) != _release(torch.__version__):
        raise refusal(
            f"wanted torch {built}, which it was compiled for, found {torch.__version__}; "
            f"`pip install torch=={_release(built)}` installs that torch, or, {AGAIN} for this one"
        )
    try:
        import simcore._C  # noqa: F401
    except ImportError as error:
        raise refusal(
            f"the extension was compiled for torch {built}, and cannot be loaded with "
            f"{torch.__version__} ({error}); {AGAIN} again"
        ) from error


def _release(version: str) -> str:
    """Return the version without what follows a plus: builds for CPU and CUDA share their code."""
    return version.partition("+")[0]


load_extension()
