"""Steps run where `device` says, look at the memory there, and tell how far they are."""

import pytest
import torch

from simlab.errors import UserError
from simlab.experiments.influence import influence
from simlab.experiments.inject import inject
from simlab.experiments.shorten import shorten
from simlab.experiments.skip import skip
from simlab.experiments.truncate import truncate
from simlab.training.finetune import finetune
from simlab.training.pretrain import pretrain
from support.lab.tinymodels import save_tiny_classifier

STEPS = {
    "truncate": lambda model, task, out, **how: truncate(model, task, out / "x.parquet", **how),
    "skip": lambda model, task, out, **how: skip(model, task, out / "x.parquet", **how),
    "influence": lambda model, task, out, **how: influence(model, task, out / "x.parquet", **how),
    "inject": lambda model, task, out, **how: inject(
        model, model, task, out / "x.parquet", methods=("itself", "random-classifier"),
        original=str(model.path), **how
    ),
    "shorten": lambda model, task, out, **how: shorten(model, task, 1, out / "short", **how),
    "finetune": lambda model, task, out, **how: finetune(
        model, task, out / "ft", max_steps=1, batch_size=4, **how
    ),
    "pretrain": lambda model, task, out, **how: pretrain(
        task, out / "lm", layers=1, hidden=8, heads=2, vocabulary=100, max_steps=1, **how
    ),
}  # fmt: skip
WHOLE = ("inject", "shorten", "finetune")


@pytest.fixture(scope="module")
def classifier(tmp_path_factory, review_task):
    return save_tiny_classifier(tmp_path_factory.mktemp("device") / "m", "bert", review_task)


@pytest.mark.parametrize("step", STEPS)
def test_a_gpu_that_is_there_is_not_used_unless_asked_for(
    step, classifier, review_task, tmp_path, monkeypatch
):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)  # moving to it would fail
    monkeypatch.setattr(torch.cuda.random, "get_rng_state", lambda: torch.zeros(1))  # saved beside
    STEPS[step](classifier, review_task, tmp_path, device="cpu")
    assert not torch.cuda.is_initialized()


@pytest.mark.parametrize("step", WHOLE)
def test_a_whole_model_has_to_fit(step, classifier, review_task, tmp_path, monkeypatch):
    monkeypatch.setattr("simcore.free_memory", lambda *_: 1_000)
    with pytest.raises(UserError, match=r"found 0\.0 GB of memory free on cpu; use a machine"):
        STEPS[step](classifier, review_task, tmp_path, device="cpu")


@pytest.mark.parametrize("step", [*WHOLE, "pretrain"])
def test_a_whole_model_is_not_read_by_block(step, classifier, review_task, tmp_path):
    with pytest.raises(UserError, match="device='offload': wanted a device that holds the whole"):
        STEPS[step](classifier, review_task, tmp_path, device="offload")
