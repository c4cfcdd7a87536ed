"""Steps run where `device` says, look at the memory there, and tell how far they are."""

from contextlib import contextmanager

import pytest
import torch

from simlab import (
    extract,
    finetune,
    influence,
    inject,
    pretrain,
    read_results,
    shorten,
    skip,
    truncate,
)
from simlab.errors import UserError
from support.lab.tinymodels import each, save_tiny_classifier

STEPS = {
    "truncate": lambda model, task, out, **how: truncate(model, task, out / "x.parquet", **how),
    "heads": lambda model, task, out, **how: truncate(
        model, task, out / "x.parquet", modes=("tuned", "tuned-orig"), head_most_steps=1,
        original=str(model.path), **how
    ),
    "skip": lambda model, task, out, **how: skip(model, task, out / "x.parquet", **how),
    "influence": lambda model, task, out, **how: influence(model, task, out / "x.parquet", **how),
    "inject": lambda model, task, out, **how: inject(
        [model, model], task, out / "x.parquet", methods=("itself", "random-classifier"),
        original=str(model.path), **how
    )[0],
    "shorten": lambda model, task, out, **how: shorten(model, task, 1, out / "short", **how),
    "shorten heads": lambda model, task, out, **how: shorten(
        model, task, 1, out / "short", modes=("tuned",), head_most_steps=1, **how
    ),
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


@pytest.mark.parametrize("step", each(["truncate", "heads", "skip", "influence"], ("skip",)))
def test_blocks_on_the_disk_give_the_same_rows(step, classifier, review_task, tmp_path):
    for device in ("cpu", "offload"):
        (tmp_path / device).mkdir()
        STEPS[step](classifier, review_task, tmp_path / device, device=device)
        assert [file.name for file in (tmp_path / device).iterdir()] == ["x.parquet"]  # no scratch
    assert read_results(tmp_path / "cpu").equals(read_results(tmp_path / "offload"))


@pytest.mark.parametrize("step", WHOLE)
def test_a_whole_model_has_to_fit(step, classifier, review_task, tmp_path, monkeypatch):
    monkeypatch.setattr("simcore.free_memory", lambda *_: 1_000)
    with pytest.raises(UserError, match=r"found 0\.0 GB of memory free on cpu; use a machine"):
        STEPS[step](classifier, review_task, tmp_path, device="cpu")


@pytest.mark.parametrize("step", [*WHOLE, "pretrain"])
def test_a_whole_model_is_not_read_by_block(step, classifier, review_task, tmp_path):
    with pytest.raises(UserError, match="device='offload': wanted a device that holds the whole"):
        STEPS[step](classifier, review_task, tmp_path, device="offload")


@pytest.mark.parametrize(
    ("place", "step"),
    [
        ("representations.passes", lambda *given: extract(*given, batch_size=8, device="offload")),
        ("experiments.influence", lambda *given: influence(*given, batch_size=8, device="offload")),
        ("models.evaluate", lambda *given: truncate(*given, device="offload")),
    ],
    ids=["extract", "influence", "truncate"],
)
def test_progress_moves_with_each_batch_of_a_model_that_is_read_by_block(
    place, step, classifier, review_task, tmp_path, monkeypatch
):
    counts = []

    @contextmanager
    def counted(title, total):
        yield counts.append
        assert sum(counts) == total

    monkeypatch.setattr(f"simlab.{place}.progress", counted)
    monkeypatch.setattr("simlab.models.evaluate.EVALUATION_BATCH", 8)
    step(classifier, review_task, tmp_path / ("x" if "passes" in place else "x.parquet"))
    assert counts == [8] * 4
