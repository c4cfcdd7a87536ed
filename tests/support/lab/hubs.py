"""Repositories for the loopback hub, and clients that ask it."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from support.hubserver import Hub, commit_of
from support.lab.taskrows import published, write_published


def point_clients_to(hub: Hub, home: Path, monkeypatch) -> None:
    """Let the clients of this process ask `hub`, and keep what they download in folder `home`."""
    import datasets
    from huggingface_hub import constants
    from huggingface_hub.utils import close_session

    close_session()  # connections to the hub of another test
    template = hub.url + "/{repo_id}/resolve/{revision}/{filename}"
    settings = {
        "ENDPOINT": hub.url,
        "HUGGINGFACE_CO_URL_TEMPLATE": template,
        "HF_HUB_OFFLINE": False,
        "HF_HUB_CACHE": str(home / "hub"),
    }
    for name, value in settings.items():
        monkeypatch.setattr(constants, name, value)
    monkeypatch.setattr(datasets.config, "HF_ENDPOINT", hub.url)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", home / "datasets")


def environment(hub: Hub, home: Path, **more: str) -> dict[str, str]:
    """Return the environment of a process that asks `hub` and begins with an empty cache."""
    own = {"HF_HOME": str(home), "HF_ENDPOINT": hub.url, "HF_HUB_OFFLINE": "0"}
    paths = os.pathsep.join(filter(None, sys.path))
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "TRANSFORMERS_"))}
    return {**kept, **own, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", **more}


def publish(hub: Hub, name: str, folder: Path, revision: str = "main") -> str:
    """Make the files of a folder a revision of a model; return the commit."""
    place = hub.folder(name, revision=revision)
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(folder, place)
    return commit_of(place)


def publish_data(hub: Hub, name: str, config: str = "", task: str = "", splits=None) -> str:
    """Publish rows of a named task as a data set, or as one of its configurations."""
    place = hub.folder(name, "datasets")
    write_published(place / (config or "data"), task, splits)
    configs = sorted(one.name for one in place.iterdir() if one.is_dir() and one.name != "data")
    lines = ["---", *(["configs:"] if configs else [])]
    for one in configs:
        lines += [f"- config_name: {one}", "  data_files:"]
        names = sorted({file.name.partition("-")[0] for file in (place / one).iterdir()})
        lines += [x for s in names for x in (f"  - split: {s}", f"    path: {one}/{s}-*")]
    (place / "README.md").write_text("\n".join([*lines, "---", f"# {name}", ""]))
    return commit_of(place)


def publish_copy(hub: Hub, name: str, config: str, task: str) -> str:
    """Publish rows of a named task as the hub's copy of a data set in parquet, without a card.

    The hub calls the configuration of a data set that has one without a name ``default``.
    """
    place = hub.folder(name, "datasets", "refs/convert/parquet")
    config = config or "default"
    for split, rows in published(task).items():
        (place / config / split).mkdir(parents=True)
        rows.to_parquet(place / config / split / "0000.parquet")
    return commit_of(place)
