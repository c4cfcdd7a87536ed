"""Errors of the hub of Hugging Face and its clients, as one line.

The clients (huggingface_hub, datasets) do all transfers, with their time limits, proxies and
certificates, and try again where another try may succeed.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from simlab.errors import UserError
from simlab.store.files import writing

_REQUEST = re.compile(r"\s*\(Request ID: [^)]*\)")
# The store of large files raises RuntimeError where its connection drops.
_OF_XET = re.compile(r"\b(CAS|Xet|reconstruction|Task error)\b", re.IGNORECASE)


class HubError(UserError):
    """The hub did not give what was asked. A later attempt may succeed."""


@contextmanager
def hub_errors(subject: str, wanted: str) -> Iterator[None]:
    """Turn an error of a client of the hub into a HubError; any other error passes unchanged."""
    from huggingface_hub import constants

    _quiet_client()
    cache = Path(constants.HF_HUB_CACHE)
    try:
        with writing(cache, partial=cache):
            yield
    except UserError:
        raise
    except Exception as error:
        if not any(map(_is_of_a_client, _causes(error))):
            raise
        said = " ".join(_REQUEST.sub("", str(error)).split())
        reason = f"{type(error).__name__}: {said}" if said else type(error).__name__
        raise HubError(f"{subject}: wanted {wanted}, found {reason}") from error


def _is_of_a_client(error: BaseException) -> bool:
    is_of_xet = isinstance(error, RuntimeError) and _OF_XET.search(str(error)) is not None
    is_http = any(kind.__module__.startswith("httpx") for kind in type(error).__mro__)
    return is_of_xet or is_http or isinstance(error, OSError)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and the errors that it was raised from: clients wrap the answer of the hub."""
    while error is not None:
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


@functools.cache
def _quiet_client() -> None:
    """Silence the client's warnings, and its bars without a terminal."""
    from huggingface_hub import constants
    from huggingface_hub.utils import logging
    from huggingface_hub.utils.tqdm import disable_progress_bars

    logging.set_verbosity_error()
    if not sys.stderr.isatty() and constants.HF_HUB_DISABLE_PROGRESS_BARS is None:
        disable_progress_bars()
