"""Untuned truncation: the last layer is the model itself, whatever the architecture."""

import numpy as np
import pytest
from tinymodels import ARCHITECTURES, LAYERS, save_tiny_model

from simlab.batches import batches, encode
from simlab.errors import UserError
from simlab.families import apply_head
from simlab.finetune import predict_logits
from simlab.models import load_classifier, load_tokenizer, resolve
from simlab.tasks import TaskOptions, load_task
from simlab.truncate import truncated_logits, truncation_rows


def save_classifier(folder, architecture, task):
    """A checkpoint with a (random) head, as fine-tuning writes it."""
    source = resolve(str(save_tiny_model(folder, architecture)))
    load_classifier(source, task, seed=5).save_pretrained(folder)
    return source


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_last_layer_equals_the_model_exactly(tmp_path, review_task, architecture):
    source = save_classifier(tmp_path / architecture, architecture, review_task)
    logits = truncated_logits(source, review_task, 64)
    whole = predict_logits(load_classifier(source), load_tokenizer(source), review_task.heldout, 64)
    assert logits.shape == (LAYERS + 1, 32, 2)
    assert np.array_equal(logits[-1], whole)
    assert not np.allclose(logits[-2], whole)


def test_bert_head_is_pooler_dropout_classifier(tmp_path, review_task):
    import torch

    source = save_classifier(tmp_path / "bert", "bert", review_task)
    model, tokenizer = load_classifier(source), load_tokenizer(source)
    _, batch = next(batches(tokenizer, encode(tokenizer, review_task.heldout, 64), 8, "cpu"))
    with torch.inference_mode():
        for states in model(**batch, output_hidden_states=True).hidden_states:
            by_hand = model.classifier(model.bert.pooler(states))
            assert torch.equal(apply_head(model, states, batch["attention_mask"]), by_hand)
        assert torch.equal(model(**batch).logits, by_hand)  # the blocks are back in place


@pytest.mark.assets
def test_real_minilm_rows(tmp_path, minilm):
    task = load_task("rt", TaskOptions(train_size=1, heldout_size=48))
    folder = tmp_path / "checkpoint"
    load_classifier(minilm, task, seed=1).save_pretrained(folder)
    load_tokenizer(minilm).save_pretrained(folder)
    rows = truncation_rows(resolve(str(folder)), task, 64, label="FT[1]", seed=1)
    whole = predict_logits(
        load_classifier(resolve(str(folder))), load_tokenizer(minilm), task.heldout, 64
    )
    assert [row.layer_x for row in rows] == list(range(7))
    assert rows[-1].value == task.score(whole.argmax(axis=1), task.heldout.labels)


def test_a_head_of_another_size_is_refused(tmp_path, review_task):
    source = save_classifier(tmp_path / "bert", "bert", review_task)
    table = tmp_path / "three.csv"
    table.write_text("text,label\n" + "".join(f"the film {i},{i % 3}\n" for i in range(30)))
    with pytest.raises(UserError, match="wanted a head with 3 outputs, found 2"):
        truncated_logits(source, load_task(str(table)), 64)
