"""Asking the hub of Hugging Face: a few tries, then one line that says what heals.

The client of the hub (huggingface_hub) does all transfers, with its time limits, proxies and
certificates. It tries again by itself where the bytes of a file stop; it does not where the hub
says that it is asked too often or has an error of its own, and its messages are long.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from simlab.errors import UserError
from simlab.store.console import note
from simlab.store.files import writing

TRIES = 3
LONGEST_WAIT = 300.0  # seconds: the hub counts requests in windows of five minutes
_PAUSES = (1.0, 4.0)  # seconds before the second and the third try, where the hub names no time
_QUIET_SECONDS = 5.0  # a longer wait is announced
_MOST_LETTERS = 160  # of a client's own words
_NO_ANSWER = {"ConnectError", "ConnectTimeout", "PoolTimeout", "ProxyError", "UnsupportedProtocol"}
_OF_XET = re.compile(r"\b(CAS|Xet|reconstruction|Task error)\b", re.IGNORECASE)
_LOGIN = "`hf auth login` gives this machine your token"
_AGAIN = "the same command tries again"
T = TypeVar("T")


class TransferError(OSError):
    """A download that is not what the hub announced; the message says what was found."""


@dataclass(frozen=True)
class Trouble:
    """Why the hub did not give what was asked."""

    found: str  # the reason in a few words
    remedy: str  # what the user can do
    passes: bool = False  # another try may succeed
    wait: float | None = None  # seconds after which the hub wants to be asked again, if it says so
    answered: bool = True  # whether the hub answered at all


class HubError(UserError):
    """The hub did not give what was asked; `trouble` says why."""

    def __init__(self, message: str, trouble: Trouble) -> None:
        super().__init__(message)
        self.trouble = trouble


def ask_hub(call: Callable[[], T], subject: str, wanted: str) -> T:
    """Return ``call()``, which asks the hub; try again where another try may succeed.

    The client keeps the parts that it has downloaded, so that the next try continues there.
    HubError, whose message begins with `subject` and `wanted`, means that the hub does not answer,
    refuses, does not know the name, or failed `TRIES` times; any other error of `call` passes
    unchanged.
    """
    from huggingface_hub import constants

    _quiet_client()
    for pause in (*_PAUSES, None):
        try:
            with writing(Path(constants.HF_HUB_CACHE)):
                return call()
        except UserError:
            raise
        except Exception as error:
            trouble = find_trouble(error)
            if trouble is None:
                raise
            wait = trouble.wait if trouble.wait is not None else pause
            if not trouble.passes or pause is None or wait is None or wait > LONGEST_WAIT:
                tries = f", {TRIES} times" if trouble.passes and pause is None else ""
                message = f"{subject}: wanted {wanted}, found {trouble.found}{tries}"
                raise HubError(f"{message}; {trouble.remedy}", trouble) from error
        if wait > _QUIET_SECONDS:
            note(f"{subject}: {trouble.found}; trying again in {wait:.0f} s")
        time.sleep(wait)
    raise AssertionError("the last try returns or raises")


def find_trouble(error: BaseException) -> Trouble | None:
    """Return what an error of the hub's client says of the hub; None for any other error."""
    from huggingface_hub import errors

    for one in _chain(error):
        if isinstance(one, errors.OfflineModeIsEnabled):
            remedy = "unset it, or run the same once where there is a network"
            trouble = "HF_HUB_OFFLINE and no such files in the hub's cache"
            return Trouble(trouble, remedy, answered=False)
        if isinstance(one, errors.HfHubHTTPError):
            return _of_status(one, errors)
        if isinstance(one, errors.FileMetadataError | json.JSONDecodeError):  # a page of a proxy
            trouble = f"an answer that is not the hub's: {_short(one)}"
            return Trouble(trouble, "check HF_ENDPOINT, proxies and log-in pages of the network")
        if any(cls.__module__.startswith("http") for cls in type(one).__mro__):  # httpx or httpx2
            return _of_transport(one)
        if isinstance(one, TransferError):
            return Trouble(str(one), _AGAIN, passes=True)
        if isinstance(one, OSError) and "Consistency check failed" in str(one):
            return Trouble("a file of another size than the hub announced", _AGAIN, passes=True)
        if type(one).__module__ == "hf_xet" or (
            isinstance(one, RuntimeError) and _OF_XET.search(str(one))
        ):
            return _of_xet(one)
        if isinstance(one, ConnectionError):  # of the datasets library
            return _no_answer(one)
    return None


def _chain(error: BaseException, *, hidden: bool = False) -> Iterator[BaseException]:
    """Yield an error and the errors that it was raised from, with `hidden` also ``from None``.

    The client wraps the answer of the hub into errors of its own that do not name its cause.
    """
    one: BaseException | None = error
    while one is not None:
        yield one
        one = one.__cause__ or (one.__context__ if hidden or not one.__suppress_context__ else None)


def _of_status(error: Any, errors: Any) -> Trouble:
    status = error.response.status_code
    if isinstance(error, errors.GatedRepoError):
        remedy = f"accept them on its page, and {_LOGIN}"
        return Trouble("terms on the hub that you have not accepted", remedy)
    if isinstance(error, errors.RepositoryNotFoundError):
        return Trouble("no such name on the hub", f"if it is private, {_LOGIN}")
    if isinstance(error, errors.RevisionNotFoundError):
        return Trouble("no such revision on the hub", "its page lists branches, tags and commits")
    if isinstance(error, errors.RemoteEntryNotFoundError):
        return Trouble("no such file on the hub", "its page lists the files")
    if status == 429:
        wait = _asked_wait(error.response.headers)
        when = "" if wait is None else f", which asks to wait {wait:.0f} s"
        trouble = f"too many requests to the hub (429){when}"
        return Trouble(
            trouble, f"{_AGAIN} later; {_LOGIN}, for which the limit is higher", True, wait
        )
    if status == 408 or status >= 500:
        wait = _asked_wait(error.response.headers)
        return Trouble(f"an error of the hub ({status})", f"{_AGAIN} later", True, wait)
    if status in (401, 403):
        return Trouble(f"a refusal of the hub ({status})", f"{_LOGIN}, if you may read it")
    return Trouble(f"status {status} of the hub", "its page says more")


def _of_transport(error: BaseException) -> Trouble:
    names = {cls.__name__ for cls in type(error).__mro__}
    if names & _NO_ANSWER:
        return _no_answer(error)
    return Trouble(f"a connection that dropped ({_short(error)})", _AGAIN, passes=True)


def _of_xet(error: BaseException) -> Trouble:
    """Return what an error of the store of large files says; errors of its network have no type."""
    kind = type(error).__name__
    if kind == "XetAuthenticationError":
        return Trouble(f"a refusal of the hub ({_short(error)})", f"{_LOGIN}, if you may read it")
    if kind == "XetObjectNotFoundError":
        return Trouble(f"no such content on the hub ({_short(error)})", "its page says more")
    return Trouble(f"a connection that dropped ({_short(error)})", _AGAIN, passes=True)


def _no_answer(error: BaseException) -> Trouble:
    from huggingface_hub import constants

    trouble = f"no answer of the hub {constants.ENDPOINT} ({_short(error)})"
    remedy = "check the network, HF_ENDPOINT and proxies"
    # A hub or proxy that restarts refuses; where there is no network, a try would wait for nothing.
    restarts = (ConnectionRefusedError, ConnectionResetError)
    passes = any(isinstance(one, restarts) for one in _chain(error, hidden=True))
    return Trouble(trouble, remedy, passes, answered=False)


def _asked_wait(headers: Any) -> float | None:
    """Return the seconds that the headers of an answer ask to wait; None if they do not."""
    from huggingface_hub.utils._http import parse_ratelimit_headers

    text = headers.get("Retry-After", "").strip()
    if text.isdigit():
        return float(text)
    if text:
        try:
            return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
        except ValueError:  # neither a number nor a date
            return None
    limit = parse_ratelimit_headers(headers)
    return None if limit is None or limit.remaining else limit.reset_in_seconds + 1.0


def _short(error: BaseException) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= _MOST_LETTERS else f"{text[:_MOST_LETTERS]}..."


@cache
def _quiet_client() -> None:
    """Silence the client's warnings, which `ask_hub` repeats, and its bars without a terminal."""
    from huggingface_hub import constants
    from huggingface_hub.utils import logging
    from huggingface_hub.utils.tqdm import disable_progress_bars

    logging.set_verbosity_error()
    if not sys.stderr.isatty() and constants.HF_HUB_DISABLE_PROGRESS_BARS is None:
        disable_progress_bars()
