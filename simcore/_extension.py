"""Loads the compiled extension, and says in one line why it cannot be loaded.

Compiled code fits the torch that it was built against: with another one, the loader names a missing
symbol of C++, or calls go wrong. setup.py writes the version beside the extension.
"""

from importlib.util import find_spec
from pathlib import Path

import torch

RECORD = Path(__file__).with_name("_C_torch.txt")
AGAIN = "pip install --no-build-isolation --force-reinstall --no-deps simcore"


def load_extension() -> None:
    """Import ``simcore._C``, which registers the operators.

    Raises
    ------
    ImportError
        There is no extension, it was built against another version of torch, or the loader refuses
        it.
    """
    if find_spec("simcore._C") is None:
        raise ImportError(
            f"simcore: wanted the compiled extension in {RECORD.parent}, found none for this "
            "Python; in a checkout, `pip install --no-build-isolation -e .` compiles it"
        )
    built = RECORD.read_text().strip() if RECORD.is_file() else torch.__version__
    if _release(built) != _release(torch.__version__):
        raise ImportError(
            f"simcore: wanted torch {built}, which it was compiled for, found {torch.__version__}; "
            f"install that torch, or compile simcore again: {AGAIN}"
        )
    try:
        import simcore._C  # noqa: F401
    except ImportError as error:
        raise ImportError(
            f"simcore: the extension was compiled for torch {built}, and cannot be loaded with "
            f"{torch.__version__} ({error}); compile it again: {AGAIN}"
        ) from error


def _release(version: str) -> str:
    """Return the version without what follows a plus: builds for CPU and CUDA share their code."""
    return version.partition("+")[0]


load_extension()
