"""CKACallback: right values in any Trainer, and no influence on the training."""

import numpy as np
import pytest
import torch

from simcore import reference
from simlab import CKACallback, read_results
from simlab.models.batches import batches
from simlab.models.load import load_classifier, load_tokenizer
from simlab.models.sources import resolve
from simlab.models.states import HiddenStates
from simlab.models.tokens import encode
from simlab.results.results import TRAINING
from support.lab.tinymodels import LAYERS, save_tiny_decoder
from support.tolerance import FLOAT32_CKA_ABSOLUTE, assert_same_forward

STEPS = 6


@pytest.fixture(scope="module")
def tokenizer(tiny_bert):
    return load_tokenizer(tiny_bert)


@pytest.fixture(scope="module")
def rows(tokenizer, review_task):
    """Tokenised training rows with labels, and held-out rows without."""
    train = encode(tokenizer, review_task.train, 24)
    for row, label in zip(train, review_task.train.labels.tolist(), strict=True):
        row["labels"] = label
    return train, encode(tokenizer, review_task.heldout, 24)


def test_layer_0_is_the_embedding_output_of_any_family():
    """Mamba's own hidden states begin with the output of its first block."""
    from transformers import AutoConfig, AutoModel, TrainingArguments

    from support.model_families import TEXT

    family = next(family for family in TEXT if family.shifted)
    model = AutoModel.from_config(AutoConfig.for_model(family.model_type, **family.size))
    ids = torch.arange(24).reshape(4, 6)
    callback = CKACallback({"input_ids": ids}, every=1, pooling="mean")
    callback.on_init_end(TrainingArguments(report_to="none"), None, None, model=model)
    with torch.no_grad():
        wanted = model.get_input_embeddings()(ids).mean(1)
    initial = callback._track.state_dict()["layers"]["start"]
    assert list(initial) == [str(layer) for layer in range(LAYERS + 1)]
    assert_same_forward(initial["0"], wanted)


def train(folder, source, task, rows, callbacks=(), tokenizer=None, **options):
    """Train a fresh classifier for a few steps with a plain Trainer; dropout is on."""
    from transformers import DataCollatorWithPadding, Trainer, TrainingArguments, set_seed

    model = load_classifier(source, task, seed=3)
    set_seed(0)
    arguments = TrainingArguments(
        output_dir=str(folder),
        max_steps=STEPS,
        per_device_train_batch_size=8,
        learning_rate=1e-2,
        save_strategy="no",
        dataloader_pin_memory=False,
        report_to="none",
        disable_tqdm=True,
        logging_strategy="no",
        **options,
    )
    trainer = Trainer(
        model=model,
        args=arguments,
        train_dataset=rows[0],
        data_collator=DataCollatorWithPadding(tokenizer),
        processing_class=tokenizer,
        callbacks=list(callbacks),
    )
    trainer.train()
    return model


def states(model, tokenizer, encoded, pooling):
    """Pooled hidden states one batch of one length at a time, float64."""
    model.eval()
    layers = None
    with torch.no_grad():
        for chosen, batch in batches(tokenizer, encoded, 1, "cpu"):
            hidden = model(**batch, output_hidden_states=True).hidden_states
            layers = layers or [np.empty((len(encoded), h.shape[-1])) for h in hidden]
            for layer, h in zip(layers, hidden, strict=True):
                layer[chosen] = h[:, 0] if pooling == "cls" else h.mean(1)
    return layers


@pytest.mark.parametrize("pooling, estimator", [("cls", "biased"), ("mean", "unbiased")])
def test_values_are_the_cka_of_now_with_the_initial_state(
    tmp_path, tiny_bert, review_task, tokenizer, rows, pooling, estimator
):
    callback = CKACallback(
        rows[1], every=[2, STEPS], pooling=pooling, estimator=estimator, batch_size=7
    )
    model = train(tmp_path, tiny_bert, review_task, rows, [callback], tokenizer)
    frame = callback.frame()
    assert frame["step"].unique().tolist() == [2, STEPS]
    last = frame[frame["step"] == STEPS]
    assert last["layer"].tolist() == list(range(LAYERS + 1))
    before = states(load_classifier(tiny_bert, review_task, seed=3), tokenizer, rows[1], pooling)
    now = states(model, tokenizer, rows[1], pooling)
    wanted = [reference.cka(x, y, estimator=estimator) for x, y in zip(now, before, strict=True)]
    if pooling == "cls":  # the same vector for every example
        wanted[0] = np.nan
    np.testing.assert_allclose(last["cka"], wanted, atol=FLOAT32_CKA_ABSOLUTE)
    assert last["cka"].iloc[-1] < 0.999


def test_a_model_is_examined_once_for_all_steps(
    tmp_path, tiny_bert, review_task, tokenizer, rows, monkeypatch
):
    """An examination takes passes of its own."""
    examined, examine = [], HiddenStates._examine
    monkeypatch.setattr(
        HiddenStates, "_examine", lambda self, batch: (examined.append(1), examine(self, batch))[1]
    )
    callback = CKACallback(rows[1], every=1)
    train(tmp_path, tiny_bert, review_task, rows, [callback], tokenizer)
    assert len(callback.records) == STEPS
    assert len(examined) == 1


def test_training_is_not_disturbed(tmp_path, tiny_bert, review_task, tokenizer, rows):
    callbacks = [CKACallback(rows[1], every=1), CKACallback(rows[1], every=2, pooling="mean")]
    plain = train(tmp_path / "a", tiny_bert, review_task, rows, (), tokenizer)
    watched = train(tmp_path / "b", tiny_bert, review_task, rows, callbacks, tokenizer)
    for name, weights in plain.state_dict().items():
        assert torch.equal(weights, watched.state_dict()[name]), name
    assert callbacks[0].frame()["step"].unique().tolist() == [1, 2, 3, 4, 5, 6]
    assert callbacks[1].frame()["step"].unique().tolist() == [2, 4, 6]


def test_modes_and_random_state_are_restored_even_where_a_model_draws(tiny_bert, review_task, rows):
    model = load_classifier(tiny_bert, review_task).train()
    model.base_model.embeddings.eval()  # some users keep frozen parts in this mode
    modes = {name: module.training for name, module in model.named_modules()}
    forward = model.forward

    def draws(*arguments, **options):
        torch.rand(3)
        assert not model.training
        return forward(*arguments, **options)

    model.forward = draws
    callback = CKACallback(rows[1], every=1)
    state = torch.random.get_rng_state()
    initial(callback, model, load_tokenizer(tiny_bert))
    assert torch.equal(torch.random.get_rng_state(), state)
    assert {name: module.training for name, module in model.named_modules()} == modes


def initial(callback, model, tokenizer):
    """Return the pooled states before training."""
    callback.on_init_end(None, None, None, model=model, processing_class=tokenizer)
    return list(callback._track.state_dict()["layers"]["start"].values())


def test_one_batch_of_tensors_is_a_probe_too(tiny_bert, review_task, tokenizer, rows):
    model = load_classifier(tiny_bert, review_task)
    batch = dict(tokenizer.pad(rows[1], return_tensors="pt"))
    as_rows = CKACallback(rows[1], every=1, batch_size=5)
    as_batch = CKACallback({**batch, "labels": torch.zeros(32)}, every=1, batch_size=5)
    assert as_batch.examples == as_rows.examples == 32
    found = [initial(c, model, t) for c, t in ((as_rows, tokenizer), (as_batch, None))]
    for x, y in zip(*found, strict=True):
        assert_same_forward(x, y)


def test_the_token_is_the_one_the_head_reads(tmp_path, review_task):
    source = resolve(str(save_tiny_decoder(tmp_path / "gpt", list(review_task.train.texts))))
    model, tokenizer = load_classifier(source, review_task), load_tokenizer(source)
    model.config.pad_token_id = tokenizer.pad_token_id
    encoded = encode(tokenizer, review_task.heldout, 24)
    found = initial(CKACallback(encoded, every=1), model, tokenizer)
    with torch.no_grad():
        one = model(torch.tensor([encoded[3]["input_ids"]]), output_hidden_states=True)
    assert_same_forward(found[-1][3], one.hidden_states[-1][0, -1])


def test_results_table_takes_the_record(tmp_path, tiny_bert, review_task, tokenizer, rows):
    callback = CKACallback(rows[1], every=[3], pooling="mean")
    train(tmp_path, tiny_bert, review_task, rows, [callback], tokenizer)
    callback.write(tmp_path / "cka.parquet", task="reviews", label="FT[0]", seed=0)
    frame = read_results(tmp_path / "cka.parquet")
    assert frame["value"].tolist() == callback.frame()["cka"].tolist()
    assert set(frame["experiment"]) == {TRAINING}
    assert set(frame["step_x"]) == {3}
    assert set(frame["step_y"]) == {0}
    assert set(frame["stage_x"]) == {"ft"}
    assert frame["n"].unique().tolist() == [32]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"every": 1, "pooling": "max"}, "pooling: wanted one of cls, mean, found 'max'"),
        ({"every": 1, "estimator": "unbiased"}, "probe: wanted at least 4 examples, found 3"),
    ],
)
def test_wrong_options_are_refused(rows, options, message):
    with pytest.raises(ValueError, match=message):
        CKACallback(rows[1][:3], **options)


def test_wrong_steps_are_refused_before_the_training(tiny_bert, review_task, tokenizer, rows):
    model = load_classifier(tiny_bert, review_task)
    for every in (0, []):
        with pytest.raises(ValueError, match="every: wanted"):
            initial(CKACallback(rows[1], every=every), model, tokenizer)


def test_memory_is_bounded(tiny_bert, review_task, tokenizer, rows):
    model = load_classifier(tiny_bert, review_task)
    layer = 32 * 24 * 4
    needed = 2 * (LAYERS + 1) * layer + layer
    initial(CKACallback(rows[1], every=1, max_memory=needed), model, tokenizer)
    with pytest.raises(ValueError, match=f"wanted room for {needed} bytes .*, got {needed - 1}"):
        initial(CKACallback(rows[1], every=1, max_memory=needed - 1), model, tokenizer)
    with pytest.raises(ValueError, match="wanted a Trainer with a tokenizer"):
        initial(CKACallback(rows[1], every=1), model, None)
