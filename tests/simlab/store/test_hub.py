"""Asking the hub: which errors of its clients are tried again, and what the others say."""

import pytest

from simlab import load_task
from simlab.models.sources import resolve
from simlab.store.hub import HubError, ask_hub
from support.hubserver import Fault
from support.lab.commandline import check_refused
from support.lab.hubs import publish, publish_data

NAME = "a/bert"
XET = "Task error: File reconstruction error: CAS Client Error: Reqwest error: connection closed"


@pytest.fixture
def unsteady(monkeypatch):
    """Let downloads of files end in the error that Xet raises where its connection drops."""
    from huggingface_hub import file_download

    download = file_download.http_get

    def prepare(times):
        left = iter(range(times))

        def http_get(*arguments, **options):
            if next(left, None) is not None:
                raise RuntimeError(XET)
            return download(*arguments, **options)

        monkeypatch.setattr(file_download, "http_get", http_get)

    return prepare


def test_a_drop_of_xet_is_tried_again_and_then_one_line(hub, tiny_bert, unsteady, simcore):
    publish(hub, NAME, tiny_bert.path)
    unsteady(100)
    refused = simcore("models", NAME)
    words = f"a connection that dropped ({XET}), 3 times; the same command tries again"
    check_refused(refused, f"model {NAME}: wanted a download, found {words}")
    unsteady(2)
    assert (resolve(NAME).path / "model.safetensors").is_file()


def test_a_drop_of_xet_in_a_data_set(hub, unsteady):
    publish_data(hub, "a/set", task="imdb")
    unsteady(100)
    with pytest.raises(HubError, match=r"found a connection that dropped \(Task error"):
        load_task("hub:a/set")
    unsteady(2)
    assert len(load_task("hub:a/set").heldout) == 6


def test_a_refusal_of_xet_is_not_tried_again():
    from hf_xet import XetAuthenticationError, XetObjectNotFoundError

    asked = []

    def ask(error):
        asked.append(error)
        raise error

    for error, words in (
        (XetAuthenticationError("401"), r"a refusal of the hub \(401\); `hf auth login`"),
        (XetObjectNotFoundError("gone"), r"no such content on the hub \(gone\)"),
    ):
        with pytest.raises(HubError, match=words):
            ask_hub(lambda error=error: ask(error), "model a/b", "a download")
    with pytest.raises(RuntimeError, match="of torch"):
        ask_hub(lambda: ask(RuntimeError("an error of torch")), "model a/b", "a download")
    assert len(asked) == 3


def test_a_hub_that_restarts_is_asked_again(hub, tiny_bert, monkeypatch):
    from huggingface_hub import constants

    from simlab.store import hub as store

    publish(hub, NAME, tiny_bert.path)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(store.time, "sleep", lambda _: setattr(constants, "ENDPOINT", hub.url))
    assert resolve(NAME).path.is_dir()


def test_an_error_of_a_data_set_of_the_hub_names_no_other_task(hub):
    publish_data(hub, "a/set", task="imdb")
    hub.faults = [Fault(".", status=500)]
    with pytest.raises(HubError, match="task hub:a/set: wanted the data set hub:a/set of"):
        load_task("hub:a/set")
