"""Representations of two tiny models, which no test changes."""

import pytest

from simlab import extract
from simlab.models.sources import resolve
from simlab.representations.passes import ExtractOptions
from support.lab.tinymodels import PIECES, save_tiny_model

KINDS = {"words": "word-mean", "mean": "mean", "attention": "attention", "cls": "cls"}


@pytest.fixture(scope="session")
def reps(tmp_path_factory, review_task):
    """Folders ``a-words``, ``b-words``, and of means, attention and the first token.

    Both models are random twins with weights so large that their heads have preferences.
    """
    folder = tmp_path_factory.mktemp("reps")
    model = save_tiny_model(folder / "model", pieces=PIECES, initializer_range=1.0)
    source = resolve(str(model))
    for name, seed in (("a", 3), ("b", 5)):
        for short, kind in KINDS.items():
            options = ExtractOptions(kind=kind, limit=12, random_init_seed=seed)
            out = folder / f"{name}-{short}"
            extract(source, review_task, out, options, label=name.upper(), seed=seed)
    return folder
