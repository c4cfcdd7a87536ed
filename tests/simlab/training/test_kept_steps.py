"""Steps that a pretraining keeps: which, what is in them, and that a break changes none of them."""

import filecmp
import math
import sys

import pytest
import torch
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM, AutoTokenizer

from simlab import TaskOptions, extract, load_representations, load_task, pretrain
from simlab.models.load import load_tokenizer
from simlab.models.sources import resolve, training_runs
from simlab.tasks.corpus import load_texts
from simlab.training.pretrain import read_pretraining
from simlab.training.recipes import Pretraining, log_steps

pytestmark = pytest.mark.assets  # MiniLM's words and the sentences of Rotten Tomatoes

FEW = TaskOptions(train_size=120, heldout_size=40)
RECIPE = Pretraining(
    objective="causal",
    keep_steps=5,
    max_steps=16,
    layers=2,
    hidden=16,
    heads=2,
    vocabulary=300,
    batch_size=16,
    max_length=32,
    learning_rate=1e-2,
    seed=3,
)
STEPS = (0, 1, 3, 7, 16)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A decoder from one run without a break."""
    folder = tmp_path_factory.mktemp("kept") / "whole"
    pretrain("rt", folder, RECIPE, task_options=FEW)
    return folder


@pytest.mark.parametrize("count, last", [(2, 1), (2, 9), (3, 2), (7, 9), (10, 9), (20, 2000)])
def test_steps_rise_from_the_first_to_the_last(count, last):
    steps = log_steps(count, last)
    assert (len(steps), steps[0], steps[-1]) == (count, 0, last)
    assert sorted({*steps}) == [*steps]


def test_a_revision_is_found_for_each_step_and_the_last_is_the_model(whole):
    found = training_runs(str(whole), (), ["checkpoint-*"])
    assert tuple(one.step for one in found) == STEPS == RECIPE.kept
    losses = [read_pretraining(whole / f"checkpoint-{step}") for step in STEPS]
    assert [one["steps"] for one in losses] == [*STEPS]
    assert losses[0]["loss"] == pytest.approx(math.log(300), rel=0.02)
    assert losses[-1]["loss"] == read_pretraining(whole)["loss"] < losses[0]["loss"] - 0.5
    assert same_files(whole / "checkpoint-16", whole, "model.safetensors")


def test_each_step_is_a_decoder_with_its_words_and_layers(whole, tmp_path):
    step = whole / "checkpoint-7"
    words = load_tokenizer(resolve(step)).get_vocab()
    assert words == load_tokenizer(resolve(whole)).get_vocab()
    states = []
    for text in ("the film is good", "the film is bad"):
        inputs = AutoTokenizer.from_pretrained(step)(text, return_tensors="pt")
        model = AutoModelForCausalLM.from_pretrained(step).eval()
        states.append(model(input_ids=inputs["input_ids"]).logits[0])
    torch.testing.assert_close(states[0][:4], states[1][:4])  # no token sees the last word
    assert not torch.allclose(states[0][4], states[1][4])
    extract(step, load_task("rt", FEW), tmp_path / "rows", kind="mean", max_length=32)
    assert len(load_representations(tmp_path / "rows").layers) == 3


def test_the_loss_is_that_of_the_next_words(whole):
    """Words alone are predicted: the frequencies know nothing of where a text begins and ends."""
    model = AutoModelForCausalLM.from_pretrained(whole).eval()
    tokenizer = AutoTokenizer.from_pretrained(whole)
    special = torch.tensor(tokenizer.all_special_ids)
    losses = []
    for text in load_texts("rt", FEW).heldout:
        rows = tokenizer(text, truncation=True, max_length=32, return_overflowing_tokens=True)
        for ids in map(torch.tensor, rows["input_ids"]):
            words = ~torch.isin(ids[1:], special)
            with torch.inference_mode():
                logits = model(input_ids=ids[None]).logits[0, :-1]
            losses.append(cross_entropy(logits[words], ids[1:][words], reduction="none"))
    found = read_pretraining(whole)
    assert found["n"] == sum(map(len, losses))
    assert found["loss"] == pytest.approx(torch.cat(losses).mean().item(), rel=1e-4)


# Before the Trainer's first checkpoint, and after it.
@pytest.mark.parametrize("broken", [pytest.param(2, marks=pytest.mark.deep), 10])
def test_a_run_that_was_broken_off_keeps_the_same_steps(whole, tmp_path, monkeypatch, broken):
    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == broken:
            raise KeyboardInterrupt

    out = tmp_path / "broken"
    monkeypatch.setattr("simlab.training.trainer.ShowProgress.on_step_end", on_step_end)
    with pytest.raises(KeyboardInterrupt):
        pretrain("rt", out, RECIPE, task_options=FEW)
    kept = tmp_path / "broken.partial" / "trainer" / "kept"
    assert sorted(path.name for path in kept.glob("*")) == (
        [] if broken == 2 else ["checkpoint-0", "checkpoint-1", "checkpoint-3", "checkpoint-7"]
    )
    monkeypatch.undo()
    pretrain("rt", out, RECIPE, task_options=FEW)
    for step in STEPS:
        name = f"checkpoint-{step}"
        names = [sorted(path.name for path in (run / name).iterdir()) for run in (out, whole)]
        assert names[0] == names[1]
        assert same_files(out / name, whole / name, "model.safetensors")


def test_keeping_steps_changes_no_weight(whole, tmp_path):
    alone = pretrain("rt", tmp_path / "alone", RECIPE, task_options=FEW, keep_steps=2).path
    assert sorted(path.name for path in alone.glob("checkpoint-*")) == [
        "checkpoint-0",
        "checkpoint-16",
    ]
    assert same_files(alone, whole, "model.safetensors")


def same_files(one, other, name):
    return filecmp.cmp(one / name, other / name, shallow=False)


@pytest.mark.deep
def test_a_run_that_was_broken_off_while_it_measures_ends_as_usual(whole, tmp_path, monkeypatch):
    measure, calls = sys.modules["simlab.training.pretrain"]._measure, []

    def break_off(*arguments):
        calls.append(arguments)
        if len(calls) == 3:  # the model, a step, and the next one
            raise KeyboardInterrupt
        return measure(*arguments)

    out = tmp_path / "broken"
    monkeypatch.setattr("simlab.training.pretrain._measure", break_off)
    with pytest.raises(KeyboardInterrupt):
        pretrain("rt", out, RECIPE, task_options=FEW)
    monkeypatch.undo()
    pretrain("rt", out, RECIPE, task_options=FEW)
    for step in STEPS:
        name = f"checkpoint-{step}"
        for file in ("model.safetensors", "pretraining.json"):
            assert same_files(out / name, whole / name, file)
