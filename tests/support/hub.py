"""The models of the hub that the documentation names, as offline models in a cache of the hub.

`HUB` says which offline model answers to which name. Code and commands find it in the cache as they
would find a model that was downloaded before; no text of a page is changed.
"""

from __future__ import annotations

from pathlib import Path

MINILM = "minilm"
HUB = {
    "google-bert/bert-base-uncased": MINILM,
    "sentence-transformers/all-MiniLM-L6-v2": MINILM,
    "google/multiberts-seed_0": MINILM,
    "google/multiberts-seed_1": "bert",
    "openai-community/gpt2": "gpt2",
    "Qwen/Qwen3-0.6B": "qwen3",
}
REVISION = "0" * 40


def fill_cache(cache: Path, model_folders: Path) -> None:
    """Fill a cache folder of the hub's client with `HUB`.

    Parameters
    ----------
    cache
        The folder to fill.
    model_folders
        Where tiny models of random weights are made, for the names that stand for an architecture.
    """
    from simlab.models.sources import resolve
    from support.lab.tinymodels import save_tiny_model

    for name, model in HUB.items():
        folder = model_folders / model
        if model == MINILM:
            folder = resolve(MINILM).path
        elif not folder.is_dir():
            save_tiny_model(folder, model)
        place = cache / f"models--{name.replace('/', '--')}"
        (place / "refs").mkdir(parents=True)
        (place / "refs" / "main").write_text(REVISION)
        (place / "snapshots").mkdir()
        (place / "snapshots" / REVISION).symlink_to(folder, target_is_directory=True)
