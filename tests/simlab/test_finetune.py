"""Fine-tuning: learns, loads with plain from_pretrained, and continues where it was killed."""

import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest
from tinymodels import COLUMNS

from simlab.errors import UserError
from simlab.files import hash_file
from simlab.finetune import Recipe, finetune, read_evaluation
from simlab.models import load_tokenizer
from simlab.tasks import TaskOptions, load_task

RECIPE = Recipe(epochs=6, learning_rate=5e-3, batch_size=8, max_length=24)


def weights_hash(folder):
    return hash_file(folder / "model.safetensors")


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory, tiny_bert, review_task):
    """A checkpoint from one run without a break."""
    folder = tmp_path_factory.mktemp("whole") / "checkpoint"
    finetune(tiny_bert, review_task, RECIPE, folder)
    return folder


def test_it_learns_and_plain_from_pretrained_loads_it(uninterrupted, review_task):
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    model = AutoModelForSequenceClassification.from_pretrained(uninterrupted).eval()
    tokenizer = AutoTokenizer.from_pretrained(uninterrupted)
    batch = tokenizer(list(review_task.heldout.texts), padding=True, return_tensors="pt")
    with torch.inference_mode():
        predictions = model(**batch).logits.argmax(-1).numpy()
    value = read_evaluation(uninterrupted)["value"]
    assert value == review_task.score(predictions, review_task.heldout.labels)
    assert value > 0.9
    assert model.config.id2label == {0: "bad", 1: "good"}
    assert not (uninterrupted / "trainer").exists()


def test_the_same_seed_gives_the_same_weights_and_another_does_not(
    tmp_path, tiny_bert, review_task, uninterrupted
):
    finetune(tiny_bert, review_task, RECIPE, tmp_path / "again")
    finetune(tiny_bert, review_task, replace(RECIPE, seed=2), tmp_path / "other")
    assert weights_hash(tmp_path / "again") == weights_hash(uninterrupted)
    assert weights_hash(tmp_path / "other") != weights_hash(uninterrupted)


def test_a_run_broken_off_at_a_save_ends_with_the_same_weights(
    tmp_path, tiny_bert, review_task, uninterrupted, monkeypatch
):
    from transformers import Trainer

    save, saves = Trainer._save_checkpoint, []

    def save_then_break(self, *arguments):
        save(self, *arguments)
        saves.append(self.state.global_step)
        if len(saves) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(Trainer, "_save_checkpoint", save_then_break)
    with pytest.raises(KeyboardInterrupt):
        finetune(tiny_bert, review_task, RECIPE, tmp_path / "checkpoint")
    assert not (tmp_path / "checkpoint").exists()
    monkeypatch.setattr(Trainer, "_save_checkpoint", save)
    outcome = finetune(tiny_bert, review_task, RECIPE, tmp_path / "checkpoint")
    assert not outcome.skipped
    assert weights_hash(tmp_path / "checkpoint") == weights_hash(uninterrupted)
    assert not list(tmp_path.glob("*.partial"))


def test_a_killed_process_leaves_a_folder_that_continues(tmp_path, tiny_bert, reviews):
    out = tmp_path / "checkpoint"
    command = [sys.executable, "-m", "simlab.cli", "finetune", str(tiny_bert.path), str(reviews)]
    command += [*COLUMNS, "--out", str(out), "--epochs", "4", "--batch-size", "2"]
    partial = tmp_path / "checkpoint.partial" / "trainer"
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 60
    while not list(partial.glob("checkpoint-*/trainer_state.json")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    errors = process.communicate(timeout=60)[1].decode()
    assert process.returncode == 130
    assert "continue with `simcore finetune" in errors
    assert "Traceback" not in errors
    assert partial.exists()
    assert not out.exists()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (out / "model.safetensors").exists()
    assert not partial.parent.exists()


def test_a_finished_folder_is_skipped_or_refused_or_replaced(tmp_path, tiny_bert, review_task):
    short = replace(RECIPE, epochs=0.25)
    out = tmp_path / "checkpoint"
    assert not finetune(tiny_bert, review_task, short, out).skipped
    assert finetune(tiny_bert, review_task, short, out).skipped
    other = replace(short, seed=9)
    with pytest.raises(UserError, match=r"different recipe.*--overwrite"):
        finetune(tiny_bert, review_task, other, out)
    assert not finetune(tiny_bert, review_task, other, out, replace=True).skipped
    assert read_evaluation(out)["recipe"]["seed"] == 9


@pytest.mark.assets
def test_regression_on_real_pairs(tmp_path, tiny_bert):
    task = load_task("stsb", TaskOptions(train_size=32, heldout_size=32))
    finetune(tiny_bert, task, replace(RECIPE, epochs=1), tmp_path / "checkpoint")
    evaluation = read_evaluation(tmp_path / "checkpoint")
    assert evaluation["metric"] == "spearman"
    assert -1 <= evaluation["value"] <= 1
    assert load_tokenizer(tiny_bert)("a film", "a plot")["token_type_ids"][-1] == 1


@pytest.mark.assets
def test_real_minilm_beats_chance_after_a_few_steps(tmp_path, minilm):
    task = load_task("rt", TaskOptions(train_size=320, heldout_size=200))
    recipe = Recipe(epochs=1, learning_rate=3e-4, batch_size=16, max_length=32)
    finetune(minilm, task, recipe, tmp_path / "checkpoint")
    assert read_evaluation(tmp_path / "checkpoint")["value"] > 0.55


@pytest.mark.parametrize("wrong", [{"epochs": 0}, {"learning_rate": -1.0}, {"batch_size": 0}])
def test_a_senseless_recipe_is_refused(tmp_path, tiny_bert, review_task, wrong):
    option = next(iter(wrong)).replace("_", "-")
    with pytest.raises(UserError, match=f"--{option}"):
        finetune(tiny_bert, review_task, replace(RECIPE, **wrong), tmp_path / "checkpoint")
    assert not list(tmp_path.iterdir())
