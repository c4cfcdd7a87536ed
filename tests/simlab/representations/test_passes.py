"""Passes over examples: batches that fit into memory, rows in half the room, steps of training."""

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from simlab import extract, load_representations
from simlab.errors import UserError
from simlab.models.batches import batches
from simlab.models.load import load_tokenizer
from simlab.models.states import HiddenStates
from simlab.models.tokens import encode
from simlab.representations.folder import LayerWriter
from support.lab.commandline import check_refused
from support.lab.tinymodels import COLUMNS, save_tiny_model
from support.tolerance import assert_same_forward


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_takes_half_the_room_and_is_read_as_float32(dtype, tiny_bert, review_task, tmp_path):
    sizes, stored, rounded = [], [], getattr(torch, dtype)
    for name in ("float32", dtype):
        folder = extract(tiny_bert, review_task, tmp_path / name, kind="mean", dtype=name).path
        sizes.append((folder / "mean.safetensors").stat().st_size)
        stored.append(load_representations(folder).layers)
    assert sizes[1] < 0.6 * sizes[0]
    for whole, half in zip(*stored, strict=True):
        assert half.dtype == np.float32
        wanted = torch.from_numpy(np.array(whole)).to(rounded).float()
        np.testing.assert_array_equal(half, wanted.numpy())
        assert not np.array_equal(half, whole)
    files = load_file(folder / "mean.safetensors")
    assert {values.dtype for values in files.values()} == {rounded}


def test_bfloat16_holds_values_that_float16_refuses(tmp_path):
    writer = LayerWriter(tmp_path, "mean", np.array([1]), "bfloat16")
    writer.put(np.array([0]), [np.array([[[7e4, np.nan, -1e38, 0]]], np.float32)])
    bits = writer._arrays[0]
    wanted = torch.tensor([7e4, torch.nan, -1e38, 0]).bfloat16()
    assert torch.equal(torch.from_numpy(bits[0].copy()).view(torch.bfloat16)[2:], wanted[2:])
    with pytest.raises(UserError, match="dtype='bfloat16': wanted values up to 338,"):
        writer.put(np.array([0]), [np.full((1, 1, 4), 3.4e38, np.float32)])
    writer = LayerWriter(tmp_path, "other", np.array([1]), "float16")
    with pytest.raises(UserError, match="dtype='float16': wanted values up to 65,504, found 7"):
        writer.put(np.array([0]), [np.full((1, 1, 4), 7e4, np.float32)])


def test_batches_of_tokens_have_the_rows_of_batches_of_texts(tiny_bert, review_task):
    """No batch has more tokens than allowed, unless it is one text."""
    tokenizer = load_tokenizer(tiny_bert)
    encoded = encode(tokenizer, review_task.heldout, 64)
    counts = sorted({len(one["input_ids"]) for one in encoded})
    for tokens in (counts[-1] - 1, 40, 10_000):
        fed = list(batches(tokenizer, encoded, 7, "cpu", tokens=tokens))
        assert sorted(np.concatenate([rows for rows, _ in fed])) == list(range(len(encoded)))
        sizes = [(len(rows), batch["input_ids"].numel()) for rows, batch in fed]
        assert all(n == 1 or size <= tokens for n, size in sizes)
    assert max(n for n, _ in sizes) == 7
    assert len(fed) == -(-len(encoded) // 7)


def test_a_batch_that_does_not_fit_into_memory_runs_in_halves(
    tiny_bert, review_task, tmp_path, monkeypatch, capsys
):
    whole = extract(tiny_bert, review_task, tmp_path / "whole", kind="mean", batch_size=3)
    sizes = []
    own = HiddenStates.__call__

    def small(self, batch, pool=None):
        sizes.append(len(batch["input_ids"]))
        if sizes[-1] > limit:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
        return own(self, batch, pool)

    monkeypatch.setattr(HiddenStates, "__call__", small)
    limit = 9
    halved = extract(tiny_bert, review_task, tmp_path / "halved", kind="mean", batch_size=32)
    assert sizes[:3] == [32, 16, 8]
    assert sizes.count(32) == 1
    notes = [line for line in capsys.readouterr().err.splitlines() if "halves" in line]
    assert notes == ["note: a batch of 32 examples does not fit into memory: it runs in halves"]
    one, other = (load_representations(step.path) for step in (whole, halved))
    for x, y in zip(one.layers, other.layers, strict=True):
        assert_same_forward(torch.from_numpy(np.array(x)), torch.from_numpy(np.array(y)))
    limit = 0
    with pytest.raises(UserError, match="fit into memory, found one of 64 tokens that does not: C"):
        extract(tiny_bert, review_task, tmp_path / "none", kind="mean-padded")


def test_steps_of_a_training_run_are_folders(tmp_path, simcore, reviews):
    """Their manifests name the step, and a grid of two of them has it in its rows."""
    run = tmp_path / "mini"
    for step in (10, 2):
        save_tiny_model(run / f"checkpoint-{step}")
    arguments = ("extract", run, reviews, *COLUMNS, "--kind", "mean", "--out", tmp_path / "reps")
    code, printed, _ = simcore(*arguments, "--revisions", "checkpoint-{2,10}")
    assert code == 0
    folders = [tmp_path / "reps" / f"step-{step}" for step in (2, 10)]
    assert [line.partition(":")[0] for line in printed.splitlines()] == [str(f) for f in folders]
    for folder, step in zip(folders, (2, 10), strict=True):
        side = load_representations(folder).side
        assert (side.step, side.label) == (step, f"mini @ {step}")
        assert side.base == str(run)  # the same for all steps
    _, printed, told = simcore(*arguments, "--revisions", "checkpoint-*")
    assert "done before" in printed
    assert told == ["note: steps 2, 10 have equal rows, bit by bit"]  # the same weights
    for wrong, words in {
        ("--revisions", "best"): "/best: wanted one step in the name of a revision or folder",
        ("--revisions", "checkpoint-2", "--step", 3): "--revisions: wanted steps in the names",
        ("--revisions", "checkpoint-9"): "checkpoint-9",
    }.items():
        check_refused(simcore(*arguments, *wrong), words)
    inside = (*arguments[:-1], folders[0], "--revisions", "checkpoint-2")
    check_refused(simcore(*inside), "--out", "found the folder of one extraction")
