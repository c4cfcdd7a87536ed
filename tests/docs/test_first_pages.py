"""README and the pages for a start, tried as a newcomer does: with a hub, then without it.

The snippets are read from the pages. Models of the hub are tiny ones of a hub on the loopback
interface, and every block runs in a process of its own.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from simlab.models.sources import resolve
from support.hub import HUB, MINILM
from support.hubserver import Hub
from support.lab.hubs import environment, publish
from support.lab.tinymodels import save_tiny_model
from support.pages import ROOT, snippets

NAMES = ("google-bert/bert-base-uncased", "google/multiberts-seed_0")
PAGE = ROOT / "docs/start/huggingface.md"


def python_of(page):
    """The blocks of Python of a page as one program."""
    return "\n".join(snippet.text for snippet in snippets(page, "python"))


def extractions(page):
    """The commands of a page that extract a model of the hub, on a few rows."""
    lines = "".join(snippet.text for snippet in snippets(page, "sh")).splitlines()
    own = [line for line in lines if line.startswith(tuple(f"simcore extract {n} " for n in NAMES))]
    return [f"{line} --heldout-size 32 --train-size 32" for line in own]


@pytest.fixture
def newcomer(tmp_path):
    """Run programs and commands in an empty folder with an empty cache, beside a hub."""
    hub = Hub(tmp_path / "hub")
    for name in NAMES:
        model = HUB[name]
        folder = (
            resolve(MINILM).path if model == MINILM else save_tiny_model(tmp_path / model, model)
        )
        publish(hub, name, Path(folder))
    work = tmp_path / "work"
    work.mkdir()

    def run(*command, **more):
        env = {**environment(hub, tmp_path / "home"), "MPLBACKEND": "agg", **more}
        done = subprocess.run(
            [sys.executable, *command],
            cwd=work,
            env=env,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    return hub, run


@pytest.mark.slow
@pytest.mark.assets
def test_the_first_pages_with_a_hub_and_without(newcomer):
    hub, run = newcomer
    commands = extractions(PAGE)
    assert len(commands) == len(NAMES)
    pages = (ROOT / "README.md", PAGE)
    with hub.running():
        for page in pages:
            run("-c", python_of(page))
        hub.log.clear()
        for command in commands:  # `from_pretrained` has filled the cache
            run("-m", "simlab.cli", *command.split()[1:])
        assert not hub.asked(".safetensors")
    for page in pages:
        run("-c", python_of(page), HF_HUB_OFFLINE="1")
    # The hub has stopped, whether the clients know it or not.
    for offline, command in zip(("0", "1"), commands, strict=True):
        again = command.replace("--out runs", "--out again")
        run("-m", "simlab.cli", *again.split()[1:], HF_HUB_OFFLINE=offline)
