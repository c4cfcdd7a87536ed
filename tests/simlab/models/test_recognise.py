"""Models that are on no list: positions, embeddings, nested configurations, decoders, and the
encoder-decoders that no experiment takes.
"""

import functools

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModel, FNetForSequenceClassification, Trainer

from simlab import extract, finetune, load_representations
from simlab.errors import UserError
from simlab.models.batches import batches
from simlab.models.evaluate import predict_logits
from simlab.models.load import load_classifier, load_encoder, load_tokenizer, random_twin
from simlab.models.recognise import architecture_of, blocks_of, position_limit
from simlab.models.sources import ModelSource
from simlab.training.recipes import Recipe
from support.lab.commandline import check_refused
from support.lab.tinymodels import LAYERS, byte_level_tokenizer, each, tiny_tokenizer
from support.model_families import ENCODER_DECODERS, TEXT
from support.tolerance import assert_same_forward

FAMILIES = {family.model_type: family for family in (*TEXT, *ENCODER_DECODERS)}
SIZE = {"hidden_size": 24, "num_hidden_layers": LAYERS, "num_attention_heads": 2}
SIZE |= {"intermediate_size": 32}
WORDS = {**SIZE, "vocab_size": 99, "num_key_value_heads": 1, "head_dim": 12, "sliding_window": 4}
WORDS |= {"max_position_embeddings": 70}
PICTURES = {**SIZE, "image_size": 16, "patch_size": 4}


def configuration(model_type):
    if model_type == "gemma3":
        nested = {"text_config": WORDS, "vision_config": PICTURES, "mm_tokens_per_image": 4}
        return AutoConfig.for_model(model_type, **nested)
    return AutoConfig.for_model(model_type, **FAMILIES[model_type].size)


def saved(folder, model_type, tokenizer=None):
    """Save a model of random weights, and a tokenizer that names no length."""
    tokenizer = tokenizer or tiny_tokenizer()
    tokenizer.model_max_length = 10**30
    tokenizer.save_pretrained(folder)
    model = random_twin(AutoModel, configuration(model_type), 1)
    with torch.no_grad():  # trained checkpoints have values at padding
        words = model.get_input_embeddings()
        words.weight[words.padding_idx or 0] = 0.1
    model.save_pretrained(folder)
    return ModelSource(model_type, folder)


LEARNED = ("bert", "xlm-roberta", "camembert", "data2vec-text", "esm", "ernie", "opt", "gpt_neo")


@pytest.mark.parametrize("model_type", each(LEARNED, ("bert", "xlm-roberta", "opt")))
def test_the_limit_of_positions_is_the_model_s(model_type):
    config = configuration(model_type)
    model, limit = random_twin(AutoModel, config, 1).eval(), position_limit(config)
    assert limit == 64
    with torch.no_grad():
        model(input_ids=torch.full((1, limit), 5))
        with pytest.raises((IndexError, RuntimeError)):
            model(input_ids=torch.full((1, limit + 1), 5))


def test_a_configuration_may_hold_infinity():
    assert position_limit(AutoConfig.for_model("ernie", time_step_limit=[0, float("inf")])) == 512


def test_a_longer_text_than_an_unlisted_model_has_positions_for_is_one_line(tmp_path, review_task):
    source = saved(tmp_path / "model", "xlm-roberta")
    assert load_tokenizer(source).model_max_length == 64
    long = review_task.heldout.texts[0] + " film" * 80
    path = tmp_path / "long.txt"
    path.write_text(f"{long}\n{review_task.heldout.texts[1]}\n")
    with pytest.raises(UserError, match="max_length=66: wanted at most 64 tokens, the limit of"):
        extract(source, path, tmp_path / "reps", split="all", kind="mean", max_length=66)
    extract(source, path, tmp_path / "reps", split="all", kind="mean", max_length=64)


def test_a_token_beyond_the_embeddings_is_one_line(tmp_path, review_task):
    tokenizer = tiny_tokenizer()
    tokenizer.add_tokens([f"<extra_{number}>" for number in range(80)])  # of no text
    source = saved(tmp_path / "extra", "bert", tokenizer)
    extract(source, review_task, tmp_path / "reps", limit=2)
    tokenizer.pad_token = "<extra_79>"
    source = saved(tmp_path / "padded", "bert", tokenizer)
    with pytest.raises(UserError, match="model's 99 embeddings, found '<extra_79>'"):
        extract(source, review_task, tmp_path / "padded-reps", limit=2)


@pytest.mark.parametrize("kind", ["cls", "word-last"])
def test_an_added_token_without_an_embedding_is_one_line(tmp_path, simcore, kind):
    tokenizer = tiny_tokenizer()
    tokenizer.add_tokens([f"<extra_{number}>" for number in range(80)])
    folder = saved(tmp_path / "added", "bert", tokenizer).path
    text, out = tmp_path / "t.txt", tmp_path / "reps"
    command = ("extract", folder, text, "--split", "all", "--kind", kind, "--out", out)
    text.write_text("the film is bright\nthe plot <extra_79> is dull\n")
    words = "a token with one of the model's 99 embeddings, found '<extra_79>' (106) in example"
    check_refused(simcore(*command), f"tokenizer {folder}: wanted ", words)
    assert not out.exists()
    text.write_text("the film is bright\nthe plot is dull\n")
    assert simcore(*command)[0] == 0


def test_a_model_of_texts_and_pictures_is_its_language_model(tmp_path, review_task, simcore):
    source = saved(tmp_path / "model", "gemma3")
    code, out, _ = simcore("models", source.path)
    assert code == 0
    row = next(line for line in out.splitlines() if "gemma3" in line)
    assert {"3", "24", "last"} <= set(row.split())
    assert load_tokenizer(source).model_max_length == 70
    model = load_encoder(source)
    assert blocks_of(model) == list(model.language_model.layers)
    outcome = extract(source, review_task, tmp_path / "reps", kind="mean", limit=4)
    assert len(load_representations(outcome.path).layers) == LAYERS + 1
    classifier = load_classifier(source, review_task)
    assert len(architecture_of(classifier).layers(classifier)) == LAYERS
    ids = torch.full((2, 5), 5)
    assert classifier(input_ids=ids, attention_mask=torch.ones_like(ids)).logits.shape == (2, 2)


@pytest.mark.parametrize("model_type", ["gpt_neox", "opt", "mixtral", "gemma3", "mamba"])
def test_the_classifier_token_of_an_unlisted_decoder_is_its_last(tmp_path, review_task, model_type):
    tokenizer = byte_level_tokenizer(["the film is bright"])
    family = {**FAMILIES.get(model_type, FAMILIES["llama"]).size, "vocab_size": len(tokenizer)}
    tokenizer.save_pretrained(tmp_path)
    config = configuration(model_type)
    if model_type == "gemma3":
        config.text_config.vocab_size = len(tokenizer)
    else:
        config = AutoConfig.for_model(model_type, **family)
    random_twin(AutoModel, config, 1).save_pretrained(tmp_path)
    source = ModelSource(model_type, tmp_path)
    extract(source, review_task, tmp_path / "reps", limit=3)
    (last,) = (layers[-1] for layers in [load_representations(tmp_path / "reps").layers])
    tokenizer, model = load_tokenizer(source), load_encoder(source)
    for row, text in zip(last, review_task.heldout.texts, strict=False):
        batch = tokenizer(text, truncation=True, max_length=64, return_tensors="pt")
        with torch.no_grad():
            states = model(**{k: batch[k] for k in ("input_ids", "attention_mask")})
        assert_same_forward(torch.as_tensor(np.array(row)), states.last_hidden_state[0, -1])


@pytest.mark.parametrize("model_type", each(["fnet", "mobilebert", "big_bird", "yoso"], ("fnet",)))
def test_a_model_that_reads_padding_gets_none(tmp_path, review_task, model_type):
    tokenizer = tiny_tokenizer()
    if model_type == "fnet":
        tokenizer.model_input_names = ["input_ids", "token_type_ids"]  # as its own
    source = saved(tmp_path / model_type, model_type, tokenizer)
    layers = []
    for number, size in enumerate((1, 16)):
        how = {"limit": 16, "batch_size": size}
        for more in ({"kind": "mean"}, {"modules": "encoder.layer.*", "pool": "mean"}):
            outcome = extract(source, review_task, tmp_path / f"{number}{len(more)}", **how, **more)
            layers.append(np.stack(load_representations(outcome.path).layers))
    lengths = {len(ids) for ids in tokenizer(list(review_task.heldout.texts[:16]))["input_ids"]}
    assert len(lengths) > 1
    for one, many in zip(layers[:2], layers[2:], strict=True):
        assert_same_forward(torch.from_numpy(one), torch.from_numpy(many))
    model = load_classifier(source, review_task)
    logits = predict_logits(model, tokenizer, review_task.heldout, 64)
    (alone,) = predict_logits(model, tokenizer, review_task.heldout.head(1), 64)
    assert_same_forward(torch.from_numpy(alone), torch.from_numpy(logits[0]))


@pytest.mark.parametrize("side", each(["right", "left"], ("left",)))
def test_training_gives_no_padding_to_a_model_that_reads_it(
    tmp_path, review_task, monkeypatch, side
):
    tokenizer = tiny_tokenizer()
    tokenizer.padding_side = side
    tokenizer.model_input_names = ["input_ids", "token_type_ids"]  # as FNet's own
    source = saved(tmp_path / "fnet", "fnet", tokenizer)
    shapes, losses = [], []
    forward, step = FNetForSequenceClassification.forward, Trainer.training_step

    @functools.wraps(forward)  # the Trainer reads its signature
    def seen(self, input_ids=None, **more):
        if self.training:
            assert (input_ids != tokenizer.pad_token_id).all()
            shapes.append(tuple(input_ids.shape))
        return forward(self, input_ids=input_ids, **more)

    def compared(self, model, inputs, *rest):
        model.eval()  # no dropout
        with torch.no_grad():
            alone = []
            for ids, label in zip(inputs["input_ids"], inputs["labels"], strict=True):
                ids = ids[ids != tokenizer.pad_token_id][None]
                alone.append(forward(model, input_ids=ids, labels=label[None]).loss)
            batch = {name: values.clone() for name, values in inputs.items()}
            losses.append((self.compute_loss(model, batch), torch.stack(alone).mean()))
        return step(self, model, inputs, *rest)

    monkeypatch.setattr(FNetForSequenceClassification, "forward", seen)
    monkeypatch.setattr(Trainer, "training_step", compared)
    finetune(source, review_task, tmp_path / "ft", Recipe(max_steps=2, batch_size=8, warmup=0))
    assert len(shapes) > 2 == len(losses)
    assert sum(count for count, _ in shapes) == 2 * 8
    for found, alone in losses:
        assert_same_forward(found, alone)


def test_choices_of_other_lengths_are_refused_where_padding_is_read():
    encoded = [{"input_ids": [[1, 2], [1, 2, 3]], "attention_mask": [[1, 1], [1, 1, 1]]}]
    with pytest.raises(UserError, match=r"choices of equally many tokens .* found 2 and 3 in exam"):
        next(batches(tiny_tokenizer(), encoded, 2, "cpu", alike=True))


def test_an_encoder_without_a_cls_token_names_the_kinds_that_need_none(tmp_path, review_task):
    source = saved(tmp_path / "model", "bert", byte_level_tokenizer(["a"]))
    config = configuration("bert")
    config.vocab_size = 300
    random_twin(AutoModel, config, 1).save_pretrained(source.path)
    with pytest.raises(UserError, match=r"wanted a CLS token .* kind='mean' needs none, and mod"):
        extract(source, review_task, tmp_path / "reps")


@pytest.mark.parametrize("model_type", ["t5", "bart"])
def test_an_encoder_decoder_is_refused_before_training(tmp_path, review_task, model_type):
    source = saved(tmp_path / "model", model_type)
    with pytest.raises(UserError, match=f"found an encoder-decoder .{model_type}., whose head no"):
        finetune(source, review_task, tmp_path / "ft")
    assert not (tmp_path / "ft").exists()
    with pytest.raises(UserError, match="found an encoder-decoder; modules records its encoder"):
        extract(source, review_task, tmp_path / "reps")


def test_a_model_whose_blocks_are_not_called_is_one_line():
    from transformers import AutoModelForSequenceClassification

    family = FAMILIES["squeezebert"]
    config = AutoConfig.for_model(family.model_type, **family.size)
    model = random_twin(AutoModelForSequenceClassification, config, 1).eval()
    with pytest.raises(UserError, match=r"'squeezebert': wanted .* found layers whose parts alone"):
        architecture_of(model)


def longformer(folder, task):
    """A classifier whose first token attends to all, and a window that some texts fill."""
    source = saved(folder, "longformer")
    model = load_classifier(source, task)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3 if parameter.ndim > 1 else 1)
    model.save_pretrained(folder)
    return source


def test_states_of_a_longformer_are_those_that_its_head_reads(tmp_path, review_task):
    source = longformer(tmp_path / "model", review_task)
    found = extract(source, review_task, tmp_path / "reps", limit=3, batch_size=1)
    layers = load_representations(found.path).layers
    tokenizer, model = load_tokenizer(source), load_classifier(source)
    for row, text in enumerate(review_task.heldout.texts[:3]):
        with torch.inference_mode():
            batch = tokenizer(text, return_tensors="pt")
            states = model(**batch, output_hidden_states=True).hidden_states
        for layer, wanted in zip(layers, states, strict=True):
            assert_same_forward(torch.as_tensor(np.array(layer[row])), wanted[0, 0])


def test_a_batch_whose_blocks_are_given_more_positions_than_its_texts_have(tmp_path):
    """The window is 4: the first batch has 8 tokens, the next one 6."""
    tokenizer, source = tiny_tokenizer(), saved(tmp_path / "model", "longformer")
    texts = ("the film is a bright film", "the film is dull")
    assert [len(ids) for ids in tokenizer(list(texts))["input_ids"]] == [8, 6]
    file = tmp_path / "t.txt"
    file.write_text("\n".join(texts))
    found = extract(source, file, tmp_path / "reps", split="all", kind="mean-all", batch_size=1)
    layers, model = load_representations(found.path).layers, load_encoder(source)
    for row, text in enumerate(texts):
        batch = tokenizer(text, return_tensors="pt")
        with torch.inference_mode():
            states = model(**batch, output_hidden_states=True).hidden_states
        for layer, wanted in zip(layers, states, strict=True):
            assert_same_forward(torch.as_tensor(np.array(layer[row])), wanted[0].mean(0))
