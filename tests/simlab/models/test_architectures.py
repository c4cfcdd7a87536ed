"""Families: the statements about each architecture agree with the architecture's own code."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch

from simlab.errors import UserError
from simlab.models.architectures import KNOWN_ARCHITECTURES
from simlab.models.batches import pad
from simlab.models.load import (
    load_classifier,
    load_config,
    load_encoder,
    load_tokenizer,
    random_twin,
)
from simlab.models.recognise import architecture_of
from simlab.models.sources import ModelSource, resolve
from simlab.models.states import apply_head, layer_states
from simlab.models.tokens import encode
from simlab.tasks import Examples, Task
from support.lab.tinymodels import (
    ARCHITECTURES,
    DECODERS,
    LAYERS,
    LLAMAS,
    each,
    save_tiny_model,
    tiny_config,
)

NORM_FOLLOWS = ("gpt2", "modernbert", *LLAMAS)
# Real architectures without a statement.
UNSTATED = ("xlm-roberta", "ernie", "convbert")


@dataclass
class Loaded:
    """A tiny classifier and a padded batch of texts of very different lengths."""

    architecture: str
    source: ModelSource
    model: torch.nn.Module
    batch: dict

    @property
    def mask(self):
        return self.batch["attention_mask"]


def load(folder, architecture, task):
    source = resolve(str(save_tiny_model(folder, architecture)))
    model = load_classifier(source, task, seed=5)
    model.save_pretrained(folder)
    tokenizer = load_tokenizer(source)
    encoded = encode(tokenizer, task.heldout.head(min(6, len(task.heldout))), 64)
    return Loaded(architecture, source, model, pad(tokenizer, encoded))


@pytest.fixture(scope="module", params=each())
def loaded(request, tmp_path_factory, review_task):
    return load(tmp_path_factory.mktemp("models") / request.param, request.param, review_task)


def test_every_stated_architecture_is_tested():
    stated = [
        model_type
        for architecture in KNOWN_ARCHITECTURES
        for model_type in architecture.model_types
    ]
    assert sorted(stated) == sorted(ARCHITECTURES)


def test_layers_are_those_that_the_configuration_counts(loaded):
    architecture, config = architecture_of(loaded.model), loaded.model.config
    layers = architecture.layers(loaded.model)
    assert len(layers) == getattr(config, architecture.count) == LAYERS
    assert len(set(layers)) == (1 if loaded.architecture == "albert" else LAYERS)
    assert architecture_of(config) == architecture


def test_last_states_give_the_model_s_logits_and_others_do_not(loaded):
    with torch.inference_mode():
        wanted = loaded.model(**loaded.batch).logits
        *others, last = layer_states(loaded.model, loaded.batch)
        assert torch.equal(apply_head(loaded.model, last, loaded.mask), wanted)
        for states in others:
            assert not torch.allclose(apply_head(loaded.model, states, loaded.mask), wanted)
        assert torch.equal(loaded.model(**loaded.batch).logits, wanted)  # the layers are back


def test_the_head_reads_the_stated_token_and_no_other(loaded):
    index = architecture_of(loaded.model).token_index(loaded.mask)
    hidden = torch.randn(*loaded.mask.shape, 24, generator=torch.Generator().manual_seed(0))
    there = torch.zeros_like(loaded.mask, dtype=torch.bool)
    there[torch.arange(len(there)), index] = True
    assert loaded.mask[there].all()  # never at padding
    with torch.inference_mode():
        logits = apply_head(loaded.model, hidden, loaded.mask)
        elsewhere = apply_head(loaded.model, hidden + 9 * ~there[..., None], loaded.mask)
        changed = apply_head(loaded.model, hidden * (1 - 2 * there[..., None].int()), loaded.mask)
    assert torch.equal(elsewhere, logits)
    assert not torch.isclose(changed, logits).any()


def test_head_is_everything_with_weights_outside_the_encoder(loaded):
    head = architecture_of(loaded.model).head(loaded.model)
    assert tuple(head) == architecture_of(loaded.model).head_modules
    in_head = {p for module in head.values() for p in module.parameters()}
    in_encoder = set(loaded.model.base_model.parameters()) - in_head
    assert in_head | in_encoder == set(loaded.model.parameters())
    assert ("base_model.pooler" in head) == (loaded.architecture in ("bert", "albert"))
    with pytest.raises(UserError, match=r"wanted a head .*, found \w+Model without one"):
        architecture_of(loaded.model).head(load_encoder(loaded.source))


def choice_task():
    """Return two questions with three answers of different lengths."""
    choices = (("film", "the plot is dull", "music"), ("a cast", "bright", "scenes of the film"))
    labels = np.array([1, 0])
    examples = Examples(("a", "b"), ("the film is", "fresh"), None, labels, choices)
    return Task("choices", examples, examples, ("0", "1", "2"))


@pytest.mark.parametrize("architecture", each([a for a in ARCHITECTURES if a not in DECODERS]))
def test_multiple_choice_heads_answer_to_any_layer(tmp_path, architecture):
    task = choice_task()
    loaded = load(tmp_path / architecture, architecture, task)
    assert loaded.mask.shape[:2] == (2, 3)
    with torch.inference_mode():
        wanted = loaded.model(**loaded.batch).logits
        states = layer_states(loaded.model, loaded.batch)
        assert wanted.shape == (2, 3)
        assert torch.equal(apply_head(loaded.model, states[-1], loaded.mask), wanted)
        nested = states[-1].unflatten(0, (2, 3))
        assert torch.equal(apply_head(loaded.model, nested, loaded.mask), wanted)
        assert not torch.allclose(apply_head(loaded.model, states[0], loaded.mask), wanted)
    architecture = architecture_of(loaded.model)
    assert tuple(architecture.head(loaded.model)) == (
        architecture.choice_modules or architecture.head_modules
    )


@pytest.mark.parametrize("architecture", each(DECODERS))
def test_decoders_have_no_multiple_choice_head(tmp_path, architecture):
    source = resolve(str(save_tiny_model(tmp_path / architecture, architecture)))
    with pytest.raises(UserError, match="wanted a multiple-choice model"):
        load_classifier(source, choice_task())


def test_what_lies_between_layers_is_no_layer(tmp_path, review_task):
    """DeBERTa's convolution changes the first layer's output, even in a model of one layer."""
    from transformers import AutoModelForSequenceClassification

    config = tiny_config("deberta-v2")
    config.conv_kernel_size, config.num_hidden_layers = 3, 1
    model = random_twin(AutoModelForSequenceClassification, config, 0).eval()
    batch = load(tmp_path / "bert", "bert", review_task).batch
    with torch.inference_mode():
        states = layer_states(model, batch)
        wanted = model(**batch, output_hidden_states=True)
        assert all(map(torch.equal, states, wanted.hidden_states))
        assert torch.equal(apply_head(model, states[1], batch["attention_mask"]), wanted.logits)


@pytest.mark.parametrize("architecture", each(UNSTATED, ("ernie",)))
def test_an_unstated_architecture_with_one_list_of_layers_works(
    tmp_path, review_task, architecture
):
    loaded = load(tmp_path / architecture, architecture, review_task)
    assert len(architecture_of(loaded.model).layers(loaded.model)) == LAYERS
    with torch.inference_mode():
        wanted = loaded.model(**loaded.batch).logits
        states = layer_states(loaded.model, loaded.batch)
        assert torch.equal(apply_head(loaded.model, states[-1], loaded.mask), wanted)
    with pytest.raises(UserError, match=f"{architecture}.: wanted one of albert, bert"):
        architecture_of(load_config(loaded.source))


def test_an_architecture_without_one_list_of_layers_is_refused():
    from transformers import FunnelBaseModel, FunnelConfig

    size = {"vocab_size": 50, "d_model": 24, "n_head": 2, "d_head": 12, "d_inner": 32}
    model = FunnelBaseModel(FunnelConfig(block_sizes=[2, 2], **size))
    message = r"'funnel': wanted one of .*, or a base_model with one list of num_hidden_layers = 4"
    with pytest.raises(UserError, match=rf"{message} modules, found encoder.blocks \(2\)"):
        architecture_of(model)
