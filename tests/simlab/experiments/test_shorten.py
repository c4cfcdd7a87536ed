"""Exported first layers: ordinary checkpoints with the logits of the truncated model."""

import json
from dataclasses import replace

import numpy as np
import pytest
from transformers import PreTrainedModel

from simlab import shorten
from simlab.errors import UserError
from simlab.experiments.shorten import keep_layers
from simlab.experiments.truncate import TruncationOptions, cut_model
from simlab.models.evaluate import predict_logits
from simlab.models.heads import HeadRecipe
from simlab.models.load import load_classifier, load_tokenizer
from simlab.models.sources import resolve
from support.lab.commandline import check_refused
from support.lab.tinyclassifiers import choice_task, save_classifier
from support.lab.tinymodels import (
    ARCHITECTURES,
    COLUMNS,
    LAYERS,
    each,
    save_tiny_decoder,
    save_tiny_model,
)
from support.tolerance import assert_same_forward

KEPT = 2
UNTUNED = TruncationOptions()
TUNED = TruncationOptions(("tuned",), recipe=HeadRecipe(most_steps=10, steps_between=5))


@pytest.mark.parametrize(
    "architecture",
    each([*ARCHITECTURES, "longformer", "gpt_neo"], ("bert", "albert", "modernbert")),
)
def test_plain_from_pretrained_gives_the_truncated_logits(tmp_path, review_task, architecture):
    from transformers import AutoModelForSequenceClassification

    source = save_classifier(tmp_path / "ft", architecture, review_task)
    shorten(source.path, review_task, KEPT, tmp_path / "short", max_length=64)
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "short").eval()
    assert model.config.num_hidden_layers == KEPT
    found = predict_logits(model, load_tokenizer(source), review_task.heldout, 64)
    wanted = cut_model(source, review_task, 64, "untuned", UNTUNED).logits
    assert np.array_equal(found, wanted[KEPT])
    assert not np.allclose(found, wanted[LAYERS])


def test_an_export_that_does_not_answer_as_it_was_cut_gets_no_name(tmp_path, review_task):
    """Layers whose scale goes by their number keep it while they are cut, and not in a file."""
    source = save_classifier(tmp_path / "ft", "gpt2", review_task)
    config = json.loads((source.path / "config.json").read_text())
    changed = config | {"scale_attn_by_inverse_layer_idx": True, "reorder_and_upcast_attn": False}
    (source.path / "config.json").write_text(json.dumps(changed))
    shorten(source.path, review_task, KEPT, tmp_path / "first", max_length=64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("simlab.experiments.shorten.keep_layers", without_the_first)
        with pytest.raises(UserError, match="type 'gpt2': wanted layers that compute alike at ev"):
            shorten(source.path, review_task, KEPT, tmp_path / "short", max_length=64)
    assert not (tmp_path / "short").exists()


def without_the_first(model, _):
    """Return the model without its first layer, whose other layers keep their numbers."""
    return keep_layers(model, range(1, LAYERS))


def test_a_trained_head_goes_along(tmp_path, review_task):
    from transformers import AutoModelForSequenceClassification

    source = save_classifier(tmp_path / "ft", "bert", review_task)
    shorten(source.path, review_task, KEPT, tmp_path / "short", TUNED, max_length=64)
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "short").eval()
    found = predict_logits(model, load_tokenizer(source), review_task.heldout, 64)
    wanted = cut_model(source, review_task, 64, "tuned", TUNED).logits[KEPT]
    assert_same_forward(found, wanted)
    untuned = cut_model(source, review_task, 64, "untuned", UNTUNED).logits[KEPT]
    assert not np.allclose(found, untuned)


def test_the_tokenizer_is_that_of_the_model_before_fine_tuning(tmp_path, review_task):
    source = save_classifier(tmp_path / "ft", "bert", review_task)
    original = save_tiny_decoder(tmp_path / "original", list(review_task.train.texts))
    options = replace(TUNED, modes=("tuned-orig",), original=str(original))
    shorten(source.path, review_task, KEPT, tmp_path / "short", options, max_length=64)
    short = resolve(str(tmp_path / "short"))
    found = predict_logits(load_classifier(short), load_tokenizer(short), review_task.heldout, 64)
    wanted = cut_model(source, review_task, 64, "tuned-orig", options).logits[KEPT]
    assert_same_forward(found, wanted)


def test_multiple_choice(tmp_path):
    from transformers import AutoModelForMultipleChoice

    task = choice_task()
    source = save_classifier(tmp_path / "ft", "bert", task)
    shorten(source.path, task, 1, tmp_path / "short", max_length=64)
    model = AutoModelForMultipleChoice.from_pretrained(tmp_path / "short").eval()
    model.config.num_labels = 3
    found = predict_logits(model, load_tokenizer(source), task.heldout, 64)
    assert np.array_equal(found, cut_model(source, task, 64, "untuned", UNTUNED).logits[1])


def test_the_command_prints_the_metric_and_refuses_mistakes_before_it_writes(
    tmp_path, simcore, review_task, reviews, monkeypatch
):
    source = save_classifier(tmp_path / "ft", "bert", review_task)
    short, other, results = (tmp_path / name for name in ("short", "other", "new.parquet"))
    start = ("truncate", source.path, reviews, *COLUMNS, "--export")
    code, printed, _ = simcore(*start, KEPT, short)
    assert code == 0
    value = json.loads((short / "evaluation.json").read_text())["value"]
    assert f"{short}: written with {KEPT} layers; accuracy {value:.3f} (" in printed
    assert "done before" in simcore(*start, KEPT, short)[1]
    before = {file: file.stat().st_mtime_ns for file in short.iterdir()}
    other.mkdir()
    (other / "notes.txt").write_text("mine")
    encoder = save_tiny_model(tmp_path / "encoder")
    cases = [
        ((*start, 0, tmp_path / "new"), "--export 0: wanted 1 to 3 layers"),
        ((*start, 4, tmp_path / "new"), "--export 4: wanted 1 to 3 layers"),
        ((*start, 1, short), f"--export {short}: wanted a new folder"),
        ((*start, 1, other), f"--export {other}: wanted a new folder"),
        ((*start, 1, tmp_path / "new", "--mode", "tuned", "--mode", "untuned"), "one --mode"),
        (("truncate", encoder, *start[2:], 1, tmp_path / "new"), "simcore finetune"),
    ]
    for arguments, message in cases:
        check_refused(simcore(*arguments, "--out", results), message)
    (tmp_path / "mine.parquet").write_text("mine")
    taken = simcore(*start, 1, tmp_path / "new", "--out", tmp_path / "mine.parquet")
    check_refused(taken, "--out", "mine.parquet: wanted")
    monkeypatch.setattr("simlab.experiments.shorten._ROUNDING", -1)  # no written model will do
    odd = simcore(*start, 1, tmp_path / "new", "--out", results)
    check_refused(odd, "wanted layers that compute alike at every position")
    assert {file: file.stat().st_mtime_ns for file in short.iterdir()} == before
    assert [file.name for file in other.iterdir()] == ["notes.txt"]
    assert not list(tmp_path.glob("new*"))


def test_a_model_that_was_written_is_not_loaded_again(tmp_path, review_task, monkeypatch):
    source = save_classifier(tmp_path / "bert", "bert", review_task)
    how = {"layers": KEPT, "out": tmp_path / "short", "max_length": 64}
    shorten(source.path, review_task, **how)
    monkeypatch.setattr(PreTrainedModel, "from_pretrained", None)
    assert shorten(source.path, review_task, **how).skipped
    with pytest.raises(UserError, match="layers=9: wanted 1 to 3 layers"):
        shorten(source.path, review_task, **how | {"layers": 9})
