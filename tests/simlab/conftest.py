"""Small models and data that tests make themselves, and the real ones from the assets."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from simlab.models.sources import ModelSource, resolve
from simlab.store import console
from simlab.tasks import Task, TaskOptions, load_task
from support.lab.disks import file_limit
from support.lab.tinymodels import save_tiny_model, write_reviews


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    """Tiny models gain nothing from threads and lose much where the cores are busy.

    Processes that tests start inherit the setting, so that both compute the same bits.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def _no_line_of_another_test(monkeypatch):
    """Begin the minute after which a log gets a line anew in each test, and print notes again."""
    monkeypatch.setattr("simlab.store.console._last_line", None)
    console.note_once.cache_clear()


@pytest.fixture(scope="session")
def reviews(tmp_path_factory) -> Path:
    """A csv file of 160 reviews with columns ``body`` and ``verdict``."""
    return write_reviews(tmp_path_factory.mktemp("data") / "reviews.csv")


@pytest.fixture(scope="session")
def review_task(reviews) -> Task:
    """The reviews as a task: 32 held out, the rest for training."""
    return load_task(str(reviews), TaskOptions(text_column="body", label_column="verdict"))


@pytest.fixture(scope="session")
def tiny_bert(tmp_path_factory) -> ModelSource:
    """A three-block BERT of width 24 without a task head."""
    return resolve(str(save_tiny_model(tmp_path_factory.mktemp("models") / "bert")))


@pytest.fixture(scope="session")
def minilm() -> ModelSource:
    """The real six-block encoder of the assets; tests that use it need the assets."""
    return resolve("minilm")


@pytest.fixture
def small_files():
    """Let the system refuse files of more than 20 kB (`disks.file_limit`)."""
    with file_limit(20_000):
        yield


_TAKEN = re.compile(
    r"note: (task .*: (\d+ classes \(|scores from )|model .*: its files have no head for the task)"
)


@pytest.fixture
def simcore(capfd):
    """Run a ``simcore`` command in this process: returns its code, output and error lines.

    The lines of what was taken for labels and of a head that files lack are left out: tests of
    labels and of loading read them.
    """
    from simlab import cli

    def run(*arguments: object) -> tuple[int, str, list[str]]:
        capfd.readouterr()  # of what the test did before
        code = cli.run([str(argument) for argument in arguments])
        captured = capfd.readouterr()
        errors = [one for one in captured.err.splitlines() if not _TAKEN.match(one)]
        return code, captured.out, errors

    return run


@pytest.fixture
def offline(tmp_path, monkeypatch):
    """No hub for the clients of this process, as HF_HUB_OFFLINE has it, and an empty cache."""
    import datasets
    from huggingface_hub import constants

    for module in (constants, datasets.config):
        monkeypatch.setattr(module, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "no hub"))
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "no data")


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A hub on the loopback interface, which the clients of this process ask, and an empty cache.

    The clients read their settings when they are imported, so that this changes them in place.
    """
    from support.hubserver import Hub
    from support.lab.hubs import point_clients_to

    with Hub(tmp_path / "hub").running() as running:
        point_clients_to(running, tmp_path / "home", monkeypatch)
        yield running
