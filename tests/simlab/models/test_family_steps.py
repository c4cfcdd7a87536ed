"""Every family of models: the statements of `support.model_families` about the experiments agree
with the models' own code.
"""

import functools

import pytest
import torch
from transformers import AutoConfig, AutoModel
from transformers import AutoModelForSequenceClassification as Classifier

from simlab.errors import UserError
from simlab.experiments.shorten import keep_layers
from simlab.models.batches import pad
from simlab.models.load import random_twin
from simlab.models.recognise import architecture_of, attend_the_same
from simlab.models.states import HiddenStates, LayerChain, apply_head, layer_states, replaced_states
from support.lab.tinyclassifiers import vectors_of_layers
from support.lab.tinymodels import fill_padding, tiny_tokenizer
from support.model_families import FINETUNE, INFLUENCE, INJECT, LAYERS, SKIP, TEXT, TRUNCATE, TUNED
from support.tolerance import assert_same_forward

TEXTS = ("the unbelievable film is a bright and moving one", "dull plot", "some wonderful scenes")
SCALE = 3  # fresh weights are so small that a layer more or less hardly changes the output
pytestmark = pytest.mark.slow
each = functools.partial(pytest.mark.parametrize, "family", ids=lambda family: family.model_type)


def without(*steps):
    return [family for family in TEXT if set(steps) & family.without.keys()]


def able(step):
    return each([family for family in TEXT if step not in family.without])


@functools.cache
def built(model_type, auto_class):
    """Return a model of random weights, and a batch of texts."""
    family = next(family for family in TEXT if family.model_type == model_type)
    config = AutoConfig.for_model(model_type, **family.size)
    if getattr(config, "pad_token_id", None) is None:
        config.pad_token_id = 0
    config.use_cache = False  # as `load_classifier` sets it
    model = attend_the_same(random_twin(auto_class, config, 1)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.mul_(SCALE)
    fill_padding(model)
    tokenizer = tiny_tokenizer()
    tokenizer.padding_side = "left" if model_type == "xlnet" else "right"
    rows = [{"input_ids": tokenizer(text)["input_ids"]} for text in TEXTS]
    batch = pad(tokenizer, rows)
    ids, mask = batch["input_ids"], batch["attention_mask"].bool()
    batch["input_ids"] = torch.where(mask, ids + 2, config.pad_token_id)  # no token is padding
    return model, batch


def logits_of(family):
    model, batch = built(family.model_type, Classifier)
    with torch.no_grad():
        return model, batch, model(**batch).logits


@able(TRUNCATE)
def test_truncation_equals_a_model_of_fewer_layers(family):
    model, batch, logits = logits_of(family)
    with torch.no_grad():
        states = layer_states(model, batch)
        assert len(states) == LAYERS + 1
        for kept, hidden in enumerate(states[1:], 1):
            wanted = keep_layers(model, range(kept))(**batch).logits
            assert_same_forward(apply_head(model, hidden, batch["attention_mask"]), wanted)
    assert_same_forward(wanted, logits)


@able(TUNED)
def test_a_head_reads_one_vector(family):
    model, batch, _ = logits_of(family)
    with torch.no_grad():
        assert vectors_of_layers(model, batch).shape[:2] == (LAYERS + 1, len(TEXTS))


@each([f for f in without(TUNED) if FINETUNE not in f.without and SKIP not in f.without])
def test_a_head_of_several_vectors_is_refused(family):
    model, batch, _ = logits_of(family)
    with torch.no_grad(), pytest.raises(UserError, match=r"reads something else; modes='untuned'"):
        vectors_of_layers(model, batch)


@able(SKIP)
def test_skipping_equals_a_model_without_the_layer(family):
    model, batch, logits = logits_of(family)
    with torch.no_grad():
        chain = LayerChain(model, batch)
        (states,) = chain.run(2, [chain.states[1]])
        (found,) = chain.finish([states])
        if architecture_of(model).shared:
            wanted = keep_layers(model, [0, 1])(**batch).logits
        else:
            left_out = architecture_of(model).layers(model)[1]
            several = architecture_of(model).returns_tuple
            left_out.forward = lambda states, *_, **__: (states, None) if several else states
            wanted = model(**batch).logits
            del left_out.forward
    assert_same_forward(chain.logits, logits)
    assert_same_forward(found, wanted)


@able(INJECT)
def test_injected_states_replace_those_of_a_layer(family):
    model, batch, logits = logits_of(family)
    with torch.no_grad():
        for layer in (1, LAYERS):
            with replaced_states(model, layer, lambda states: states * 1):
                assert_same_forward(model(**batch).logits, logits)
            with replaced_states(model, layer, torch.square):
                assert not torch.allclose(model(**batch).logits, logits, rtol=1e-3)


@able(INFLUENCE)
def test_influence_reads_the_states_of_every_layer(family):
    model, batch = built(family.model_type, AutoModel)
    with torch.no_grad():
        states, hidden = layer_states(model, batch), HiddenStates(model)(batch)
    width = batch["attention_mask"].shape[1]
    for found, wanted in zip(states[:-1], hidden[:-1], strict=True):
        assert torch.equal(found[:, :width], wanted)
    assert len(states) == LAYERS + 1


@able(FINETUNE)
def test_a_classifier_learns(family):
    model, batch, _ = logits_of(family)
    loss = model(**batch, labels=torch.tensor([0, 1, 1])).loss
    head = architecture_of(model).head(model) if TRUNCATE not in family.without else {"": model}
    last = list(head.values())[-1]
    (gradient, *_) = torch.autograd.grad(loss, list(last.parameters()), allow_unused=True)
    assert gradient.isfinite().all()
    assert gradient.any()


@each(without(FINETUNE))
def test_families_without_a_classifier(family):
    config = AutoConfig.for_model(family.model_type, **family.size)
    with pytest.raises(ValueError, match="Unrecognized configuration class"):
        Classifier.from_config(config)


@each(without(SKIP))
def test_models_whose_blocks_are_not_called_are_refused(family):
    if FINETUNE in family.without:
        return
    model, batch, _ = logits_of(family)
    with pytest.raises(UserError, match=f"^architecture '{family.model_type}': wanted "):
        LayerChain(model, batch)
