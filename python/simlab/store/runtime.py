"""The process around an experiment: silent libraries, the device, versions, the model hub."""

from __future__ import annotations

import os
import platform
import threading
import urllib.error
import urllib.request
import warnings
from functools import cache
from importlib import metadata

HUB_TIMEOUT_SECONDS = 5.0
REPORTED_PACKAGES = ("simcore", "torch", "transformers", "tokenizers", "datasets", "numpy")


@cache
def quiet_libraries() -> None:
    """Silence the reports and progress bars of transformers; simlab draws its own progress.

    The silenced reports tell the user nothing: for example, that a new classification head has
    random weights, which is intended.
    """
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    warnings.filterwarnings("ignore", module=r"(transformers|accelerate|datasets|torch)\.")


def best_device() -> str:
    """Return ``"cuda"`` if torch can use a GPU, else ``"cpu"``."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


@cache
def hub_reachable() -> bool:
    """Return whether the model hub answers within a few seconds.

    The client of the hub retries for half a minute or longer. Asking here first makes a wrong
    model name fail at once on a machine without a connection. The request runs in a daemon thread,
    because a name look-up cannot be interrupted.
    """
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return False
    answered = threading.Event()

    def ask() -> None:
        request = urllib.request.Request(constants.ENDPOINT, method="HEAD")
        try:
            urllib.request.urlopen(request, timeout=HUB_TIMEOUT_SECONDS).close()
        except urllib.error.HTTPError:
            pass  # an HTTP status is an answer
        except OSError:
            return
        answered.set()

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(HUB_TIMEOUT_SECONDS)
    return answered.is_set()


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that results depend on."""
    found = {"python": platform.python_version()}
    for package in REPORTED_PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:  # running from a source tree
            found[package] = "not installed"
    return found
