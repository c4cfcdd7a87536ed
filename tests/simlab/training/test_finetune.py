"""Fine-tuning: learns, loads with plain from_pretrained, and continues where it was killed."""

import errno
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
from transformers import ReformerConfig, ReformerModel

from simlab import TaskOptions, finetune, load_task, read_results
from simlab.errors import UserError
from simlab.models.checkpoint import read_evaluation
from simlab.store.files import hash_file
from simlab.training.finetune import CKA_RESULTS
from simlab.training.recipes import Recipe
from support.lab.commandline import check_refused
from support.lab.tinymodels import COLUMNS, tiny_tokenizer

RECIPE = Recipe(epochs=6, learning_rate=5e-3, batch_size=8, max_length=24)


def weights_hash(folder):
    return hash_file(folder / "model.safetensors")


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory, tiny_bert, review_task):
    """A checkpoint from one run without a break."""
    folder = tmp_path_factory.mktemp("whole") / "checkpoint"
    finetune(tiny_bert, review_task, folder, RECIPE)
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
    tmp_path, tiny_bert, review_task
):
    hashes = []
    for name, seed in (("first", 1), ("again", 1), ("other", 2)):
        recipe = replace(RECIPE, epochs=0.5, seed=seed)
        finetune(tiny_bert, review_task, tmp_path / name, recipe)
        hashes.append(weights_hash(tmp_path / name))
    assert hashes[0] == hashes[1] != hashes[2]


@pytest.mark.slow
@pytest.mark.parametrize("group_by_length", [True, False])
def test_a_run_broken_off_in_an_epoch_ends_with_the_same_weights(
    tmp_path, tiny_bert, review_task, monkeypatch, group_by_length
):
    # 32 steps, 16 an epoch, saved every 8: a run that breaks off at 30 goes on in the second epoch.
    recipe = replace(RECIPE, epochs=2, group_by_length=group_by_length)
    finetune(tiny_bert, review_task, tmp_path / "whole", recipe, cka_every=6)
    out = tmp_path / "broken"
    break_at(30, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        finetune(tiny_bert, review_task, out, recipe, cka_every=6)
    assert not out.exists()
    kept = tmp_path / "broken.partial"
    assert [path.name for path in (kept / "trainer").iterdir()] == ["checkpoint-24"]
    monkeypatch.undo()
    assert not finetune(tiny_bert, review_task, out, recipe, cka_every=6).skipped
    assert weights_hash(out) == weights_hash(tmp_path / "whole")
    assert not kept.exists()
    records = [read_results(folder / CKA_RESULTS) for folder in (out, tmp_path / "whole")]
    assert records[0].equals(records[1])
    assert records[0]["step_x"].nunique() == 5


@pytest.mark.slow
def test_a_run_broken_off_after_its_last_step_trains_no_more(
    tmp_path, tiny_bert, review_task, monkeypatch
):
    recipe = replace(RECIPE, epochs=0.5)
    finetune(tiny_bert, review_task, tmp_path / "whole", recipe)
    out = tmp_path / "broken"
    monkeypatch.setattr("simlab.training.finetune.predict_logits", interrupt)
    with pytest.raises(KeyboardInterrupt):
        finetune(tiny_bert, review_task, out, recipe)
    monkeypatch.undo()
    break_at(9, monkeypatch)  # half an epoch is 8
    finetune(tiny_bert, review_task, out, recipe)
    assert weights_hash(out) == weights_hash(tmp_path / "whole")
    assert read_evaluation(out)["seconds_per_step"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("several", [False, True])
def test_ctrl_c_says_what_is_kept_only_if_something_is(
    tmp_path, simcore, tiny_bert, reviews, monkeypatch, several
):
    seeds = ("--seeds", "1,2") if several else ()
    out = tmp_path / "ft"
    command = ("finetune", tiny_bert.path, reviews, *COLUMNS, *seeds, "--out", out)
    break_at(1, monkeypatch)
    code, _, errors = simcore(*command)
    assert code == 130
    assert errors[-1].startswith("interrupted: nothing was finished; start again with `simcore")
    monkeypatch.undo()
    monkeypatch.setattr("simlab.training.finetune.predict_logits", interrupt)  # after training
    code, _, errors = simcore(*command)
    assert code == 130
    assert errors[-1].startswith(f"interrupted: finished steps of {out} are kept; continue with")


def interrupt(*_arguments, **_options):
    raise KeyboardInterrupt


def break_at(step, monkeypatch):
    """Interrupt training after so many steps."""

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == step:
            raise KeyboardInterrupt

    monkeypatch.setattr("simlab.training.trainer.ShowProgress.on_step_end", on_step_end)


def test_rows_come_in_an_order_of_seed_and_epoch():
    from simlab.training.trainer import RowOrder

    def order(seed, epoch, group_by_length):
        rows = RowOrder(range(40), 4, seed, group_by_length=group_by_length)
        rows.set_epoch(epoch)
        return list(rows)

    for grouped in (True, False):
        orders = [order(seed, epoch, grouped) for seed in (0, 1, 2) for epoch in (0, 1, 2)]
        assert all(sorted(found) == list(range(40)) for found in orders)
        assert len({tuple(found) for found in orders}) == 9
        assert order(1, 2, grouped) == orders[5]


def test_a_checkpoint_cut_short_by_a_kill_is_not_taken(tmp_path):
    from simlab.training.trainer import last_checkpoint, remove_incomplete_checkpoints

    for step, state in {9: "{}", 10: '{"epoch": 1', 11: None}.items():
        folder = tmp_path / f"checkpoint-{step}"
        folder.mkdir()
        if state is not None:
            (folder / "trainer_state.json").write_text(state)
    assert last_checkpoint(tmp_path) == tmp_path / "checkpoint-9"
    remove_incomplete_checkpoints(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-9"]
    assert last_checkpoint(tmp_path / "none") is None


@pytest.mark.slow
def test_a_full_disk_keeps_complete_checkpoints_and_nothing_else(
    tmp_path, tiny_bert, review_task, monkeypatch, uninterrupted
):
    from transformers import Trainer

    save = Trainer._save_optimizer_and_scheduler

    def no_room_after_step_24(self, folder):
        if self.state.global_step > 24:
            raise OSError(errno.ENOSPC, "No space left on device")
        save(self, folder)

    monkeypatch.setattr(Trainer, "_save_optimizer_and_scheduler", no_room_after_step_24)
    out = tmp_path / "checkpoint"
    with pytest.raises(UserError, match=r"checkpoint: wanted to write there, found: No space left"):
        finetune(tiny_bert, review_task, out, RECIPE)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint.partial"]
    kept = sorted(path.name for path in (tmp_path / "checkpoint.partial" / "trainer").iterdir())
    assert kept == ["checkpoint-24"]
    monkeypatch.undo()
    finetune(tiny_bert, review_task, out, RECIPE)
    assert weights_hash(out) == weights_hash(uninterrupted)


def test_a_disk_that_is_full_from_the_start_leaves_nothing(
    tmp_path, tiny_bert, reviews, simcore, small_files
):
    out = tmp_path / "checkpoint"
    arguments = (tiny_bert.path, reviews, *COLUMNS, "--max-steps", 2, "--batch-size", 8)
    code, _, errors = simcore("finetune", *arguments, "--out", out)
    assert code == 2
    (error,) = errors
    assert error.startswith(f"error: {out}: wanted to write there, found: ")
    assert "File too large" in error
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_run_killed_outright_ends_with_the_same_weights(
    tmp_path, tiny_bert, reviews, review_task, uninterrupted
):
    out = tmp_path / "checkpoint"
    command = [sys.executable, "-m", "simlab.cli", "finetune", str(tiny_bert.path), str(reviews)]
    command += [*COLUMNS, "--out", str(out), "--epochs", "6", "--learning-rate", "5e-3"]
    command += ["--batch-size", "8", "--max-length", "24"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    wait_for_checkpoint(process, tmp_path / "checkpoint.partial" / "trainer")
    process.kill()
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    assert not out.exists()
    finetune(tiny_bert, review_task, out, RECIPE)
    assert weights_hash(out) == weights_hash(uninterrupted)


def wait_for_checkpoint(process, folder):
    deadline = time.monotonic() + 300
    while not list(folder.glob("checkpoint-*/trainer_state.json")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_finished_folder_is_skipped_or_refused_or_replaced(tmp_path, tiny_bert, review_task):
    short = replace(RECIPE, epochs=0.25)
    out = tmp_path / "checkpoint"
    assert not finetune(tiny_bert, review_task, out, short).skipped
    assert finetune(tiny_bert, review_task, out, short).skipped
    other = replace(short, seed=9)
    with pytest.raises(UserError, match=r"different recipe.*overwrite=True"):
        finetune(tiny_bert, review_task, out, other)
    assert not finetune(tiny_bert, review_task, out, other, overwrite=True).skipped
    assert read_evaluation(out)["recipe"]["seed"] == 9


@pytest.mark.slow
@pytest.mark.assets
def test_real_minilm_fits_the_rows_it_has_seen(tmp_path, minilm):
    task = load_task("rt", TaskOptions(train_size=32, heldout_size=32))
    recipe = Recipe(epochs=5, learning_rate=3e-4, batch_size=8, max_length=32)
    seen = replace(task, heldout=task.train)
    finetune(minilm, seen, tmp_path / "checkpoint", recipe)
    assert read_evaluation(tmp_path / "checkpoint")["value"] > 0.8


def test_a_warm_up_longer_than_the_training_is_told(tmp_path, capfd, tiny_bert, review_task):
    recipe = Recipe(max_steps=2, batch_size=8, warmup=8)
    finetune(tiny_bert, review_task, tmp_path / "long", recipe)
    told = "note: warmup=8: training ends after 2 steps, before the warm-up does, at 25.0% of"
    assert told in " ".join(capfd.readouterr().err.split())
    finetune(tiny_bert, review_task, tmp_path / "short", replace(recipe, warmup=2))
    assert "warm-up" not in capfd.readouterr().err


def test_seeds_make_a_folder_each_and_finish_one_by_one(tmp_path, tiny_bert, reviews, simcore):
    def run(seeds):
        arguments = (tiny_bert.path, reviews, *COLUMNS, "--max-steps", 2, "--batch-size", 8)
        return simcore("finetune", *arguments, "--seeds", seeds, "--out", tmp_path / "ft")

    code, printed, errors = run("2")
    assert (code, errors) == (0, [])
    assert "1 seeds: mean accuracy" in printed
    code, printed, _ = run("1..2")
    assert code == 0
    assert printed.count("done before") == 1
    assert "2 seeds: mean accuracy" in printed
    assert sorted(path.name for path in (tmp_path / "ft").iterdir()) == ["seed-1", "seed-2"]
    assert read_evaluation(tmp_path / "ft" / "seed-2")["recipe"]["seed"] == 2
    assert weights_hash(tmp_path / "ft" / "seed-1") != weights_hash(tmp_path / "ft" / "seed-2")
    arguments = ("finetune", tiny_bert.path, reviews, *COLUMNS, "--seeds", "0..1")
    for extra, found in {
        ("--seed", 1, "--out", tmp_path / "x"): "wanted --seeds or --seed, found both",
        ("--out", tmp_path / "ft" / "seed-1"): "found a folder that is itself a checkpoint",
    }.items():
        code, _, errors = simcore(*arguments, *extra)
        assert (code, len(errors)) == (2, 1)
        assert found in errors[0]


def test_one_held_out_row_is_too_few_for_cka(tmp_path, tiny_bert, reviews, simcore):
    out = tmp_path / "ft"
    arguments = (tiny_bert.path, reviews, *COLUMNS, "--heldout-size", 1, "--max-steps", 1)
    outcome = simcore("finetune", *arguments, "--cka-every", 1, "--out", out)
    check_refused(outcome, "--heldout-size 1: wanted at least 2 rows for --cka-every")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("split", ["train", "heldout"])
def test_splits_without_variation_are_refused(tmp_path, tiny_bert, split):
    from simlab.tasks import Examples, Task

    def examples(name, labels):
        ids = tuple(f"{name}-{i}" for i in range(len(labels)))
        return Examples(ids, ids, None, np.array(labels))

    labels = {"train": [0.5, 1.5], "heldout": [0.5, 1.5], split: [2.5, 2.5]}
    task = Task("scores", *(examples(name, labels[name]) for name in ("train", "heldout")))
    name = {"train": r"training rows \(train_size\)", "heldout": r"held-out rows \(heldout_size\)"}[
        split
    ]
    with pytest.raises(UserError, match=rf"{name}: wanted at least two .* found \[2.5\]"):
        finetune(tiny_bert, task, tmp_path / "checkpoint", RECIPE)


def test_a_model_that_trains_on_other_lengths_is_refused_in_one_line(tmp_path, review_task):
    tokenizer = tiny_tokenizer()
    sizes = {"hidden_size": 32, "feed_forward_size": 32, "max_position_embeddings": 64}
    sizes |= {"axial_pos_embds_dim": [16, 16], "axial_pos_shape": [8, 8]}  # it trains on 64 tokens
    heads = {"attention_head_size": 16, "num_attention_heads": 2, "attn_layers": ["local", "lsh"]}
    config = ReformerConfig(vocab_size=len(tokenizer), is_decoder=True, **sizes, **heads)
    ReformerModel(config).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    with pytest.raises(UserError, match="type 'reformer': wanted a model that trains on these"):
        finetune(tmp_path / "model", review_task, tmp_path / "out", RECIPE)
    assert not (tmp_path / "out").exists()
