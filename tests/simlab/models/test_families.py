"""Every family of models: hidden states begin with the input of the first block, and `extract` and
`record` give their rows, whichever side the padding is on.
"""

import functools
import weakref

import pytest
import torch
from transformers import AutoConfig, AutoModel

from simcore import record
from simlab.errors import UserError
from simlab.models.architectures import LAST
from simlab.models.batches import pad
from simlab.models.load import random_twin
from simlab.models.recognise import attend_the_same, classifier_token, padding_side
from simlab.models.states import HiddenStates
from simlab.representations.kinds import ATTENTION, KINDS, find_rows
from simlab.representations.passes import ExtractOptions, forward_layers
from simlab.tasks import Examples
from support import model_families as families
from support.lab.tinymodels import fill_padding, tiny_tokenizer
from support.model_families import (
    ENCODER_DECODERS,
    LAYERS,
    PADDED,
    PICTURES,
    RECORD,
    SOUNDS,
    STATES,
    TEXT,
)
from support.nets import taped
from support.tolerance import assert_same_forward

TEXTS = ("the unbelievable film is a bright and moving one", "dull plot", "some wonderful scenes")
OF_STATES = [name for name in KINDS if name != ATTENTION]
# Of each kind one: shared blocks, experts, no attention, other lengths of states, padding that is
# read, blocks that are not called, a decoder beside an encoder; a picture, and sounds.
QUICK = ("bert", "albert", "xlnet", "gpt2", "llama", "mixtral", "mamba", "longformer", "fnet")
QUICK += ("mobilebert", "big_bird", "yoso", "squeezebert", "xlm", "bart", "vit", "whisper")


def each(chosen):
    """Parametrize a test by families; those that are not `QUICK` are deep."""
    deep = pytest.mark.deep
    params = [f if f.model_type in QUICK else pytest.param(f, marks=deep) for f in chosen]
    return pytest.mark.parametrize("family", params, ids=lambda family: family.model_type)


@functools.cache
def _built(model_type, attention):
    family = next(f for f in (*TEXT, *ENCODER_DECODERS) if f.model_type == model_type)
    config = AutoConfig.for_model(model_type, **family.size)
    model = random_twin(AutoModel, config, 1, **dict(attention)).eval()
    fill_padding(model)
    return attend_the_same(model)


def built(family, **attention):
    """Return a model of random weights; a test changes it only inside a context."""
    return _built(family.model_type, tuple(attention.items()))


@pytest.fixture(scope="module")
def tokenizer():
    return tiny_tokenizer()


@pytest.fixture(params=["right", pytest.param("left", marks=pytest.mark.slow)])
def padded(request, tokenizer):
    """The tokenizer, and the texts as a batch whose padding is on either side."""
    before, tokenizer.padding_side = tokenizer.padding_side, request.param
    encoded = [dict(tokenizer(text)) for text in TEXTS]
    rows = [{k: v for k, v in one.items() if k != "token_type_ids"} for one in encoded]
    yield tokenizer, pad(tokenizer, rows)
    tokenizer.padding_side = before


def by_hooks(model, blocks, batch):
    """Return the inputs of all blocks, and the output of the model, by hooks of our own."""
    inputs = []

    def enter(_module, arguments, options):
        states = arguments[0] if arguments else options["hidden_states"]
        inputs.append(states.transpose(0, 1) if model.config.model_type == "xlnet" else states)

    chosen = record(model, blocks)._listener.modules.values()
    modules = dict.fromkeys(choice.module for choice in chosen)
    handles = [module.register_forward_pre_hook(enter, with_kwargs=True) for module in modules]
    with torch.inference_mode():
        output = model(**batch)
    for handle in handles:
        handle.remove()
    width = batch["attention_mask"].shape[1]
    return [states[:, :width] for states in (*inputs, output.last_hidden_state)]


def pooled(states, mask, pool):
    """Return the rows of `simcore.record`, example by example."""
    kept = [layer[tokens.bool()] for layer, tokens in zip(states, mask, strict=True)]
    rows = {
        "mean": lambda tokens: tokens.mean(0, keepdim=True),
        "first": lambda tokens: tokens[:1],
        "last": lambda tokens: tokens[-1:],
        "tokens": lambda tokens: tokens,
    }
    return torch.cat([rows[pool](tokens) for tokens in kept])


# Models without a list of blocks that are called, and where their embeddings are ready.
APART = {"squeezebert": "embeddings", "xlm": "layer_norm_emb"}


@each([f for f in TEXT if STATES not in f.without and f.model_type not in APART])
def test_layer_0_is_the_input_of_the_first_block(family, padded):
    model, batch = built(family), padded[1]
    states_of, wanted = HiddenStates(model), by_hooks(model, family.blocks, batch)
    assert len(wanted) == LAYERS + 1
    for _ in range(2):  # the first batch is checked, and the next one is not
        with torch.inference_mode():
            found = states_of(batch)
        for layer, states in zip(found, wanted, strict=True):
            assert torch.equal(layer, states)
    with torch.inference_mode():
        returned = model(**batch, output_hidden_states=True).hidden_states
    assert torch.equal(returned[0], wanted[0]) != family.shifted
    assert torch.equal(returned[0], wanted[1]) == family.shifted


@each([f for f in TEXT if STATES not in f.without])
def test_rows_that_are_pooled_at_the_blocks_are_those_of_the_states(family, padded):
    model, batch = built(family), padded[1]
    states_of = HiddenStates(model)

    def pool(states):
        return states.float().mean(1)

    with torch.inference_mode():
        found = states_of(batch, pool)
        wanted = [pool(states) for states in HiddenStates(model)(batch)]
    assert all(map(torch.equal, found, wanted))


@pytest.mark.parametrize("model_type", ["bert", "llama", "gpt2", "mamba", "albert"])
def test_states_of_other_layers_are_not_kept_where_they_are_pooled(model_type):
    """Otherwise all layers of a batch take memory at once."""
    family = next(family for family in TEXT if family.model_type == model_type)
    model = built(family)
    layers, alive = [], []

    def pool(states):
        layers.append(weakref.ref(states))
        alive.append(sum(layer() is not None for layer in layers))
        return states.mean(1)

    batch = {"input_ids": torch.arange(1, 13).reshape(2, 6)}
    with torch.inference_mode():
        HiddenStates(model)(batch, pool)
    assert len(alive) == LAYERS + 1
    assert max(alive) <= 2


@each([f for f in TEXT if f.model_type in APART])
def test_layer_0_is_the_input_of_the_first_part_of_a_list(family, padded):
    model, batch = built(family), padded[1]
    with torch.inference_mode():
        found = HiddenStates(model)(batch)
        wanted = model(**batch, output_hidden_states=True).hidden_states
    embeddings = []
    module = model.get_submodule(APART[family.model_type])
    handle = module.register_forward_hook(lambda *seen: embeddings.append(seen[-1]))
    with torch.inference_mode():
        model(**batch)
    handle.remove()
    kept = batch["attention_mask"].bool()
    assert torch.equal(found[0][kept], embeddings[0][kept])
    assert all(map(torch.equal, found, wanted))


@each([f for f in TEXT if STATES in f.without])
def test_states_that_are_no_layers_are_refused(family, padded):
    with pytest.raises(UserError, match="states that begin with the input of the first block, f"):
        HiddenStates(built(family))(padded[1])


def test_states_that_are_one_layer_off_are_refused(padded):
    """A model that is shifted, and whose blocks are not found."""
    family = next(family for family in TEXT if family.model_type == "mamba")
    model = built(family)
    states_of = HiddenStates(model)
    states_of._blocks = []
    with pytest.raises(UserError, match="found others; modules records any module"):
        states_of(padded[1])


def test_states_of_a_model_without_lists_of_blocks_are_refused():
    """Its one entry would be returned as layer 0."""
    from transformers import PretrainedConfig, PreTrainedModel
    from transformers.modeling_outputs import BaseModelOutput

    class Bare(PreTrainedModel):
        def forward(self, states, **_):
            return BaseModelOutput(states, (states,))

    with pytest.raises(UserError, match="found others; modules records any module"):
        HiddenStates(Bare(PretrainedConfig()))({"states": torch.ones(1, 2, 3)})


@each([f for f in TEXT if STATES not in f.without])
def test_every_kind_of_states(family, padded):
    tokenizer, _ = padded
    model = built(family)
    examples = Examples(("a", "b", "c"), TEXTS, None, torch.zeros(3).numpy())
    token = classifier_token(model.config)
    if family.model_type == "xlnet":  # whose own tokenizer has the CLS token last
        token = LAST
    for kind in OF_STATES:
        options = ExtractOptions(kind=kind, max_length=24, batch_size=3, words="tokenizer")
        rows = find_rows(kind, tokenizer, examples, 24, "tokenizer", family.name, token)
        pads, seen = KINDS[kind].pads, 0
        for order, layers in forward_layers(model, tokenizer, rows, options, ""):
            encoded = [rows.encoded[row] for row in order]
            batch = pad(tokenizer, encoded, length=24 if pads else None)
            with torch.inference_mode():
                states = HiddenStates(model)(batch)
            for place, row in enumerate(order):
                kept = torch.ones(24).bool() if pads else batch["attention_mask"][place].bool()
                groups = torch.zeros(24) if pads else torch.as_tensor(rows.groups[row])
                for layer, hidden in zip(layers, states, strict=True):
                    for number in range(int(groups.max()) + 1):
                        wanted = hidden[place][kept][groups == number].mean(0)
                        assert_same_forward(layer[place, number], wanted)
            seen += len(order)
        assert seen == len(TEXTS)


@each([f for f in TEXT if STATES not in f.without])
def test_rows_do_not_depend_on_the_batch(family, tokenizer):
    model = built(family)
    tokenizer.padding_side = padding_side(model.config)
    examples = Examples(("a", "b", "c"), TEXTS, None, torch.zeros(3).numpy())
    rows = find_rows("mean", tokenizer, examples, 24, "tokenizer", family.name)
    found = []
    for size in (1, 3):
        options = ExtractOptions(kind="mean", max_length=24, batch_size=size, words="tokenizer")
        layers = {}
        for numbers, states in forward_layers(model, tokenizer, rows, options, ""):
            layers |= {int(n): torch.stack(states)[:, i] for i, n in enumerate(numbers)}
        found.append(torch.stack([layers[number] for number in range(3)]))
    assert_same_forward(*found)
    assert len(rows.encoded[1]["input_ids"]) == 4
    names, short = ("input_ids", "attention_mask"), rows.encoded[1]
    with torch.inference_mode():
        alone, padded = (
            model(**{name: batch[name] for name in names}).last_hidden_state
            for batch in (pad(tokenizer, [short]), pad(tokenizer, [short], length=14))
        )
    tokens = slice(None, alone.shape[1]) if tokenizer.padding_side == "right" else slice(-4, None)
    apart = (padded[:, tokens] - alone).abs().max()
    assert (PADDED in family.without) == bool(apart > 1e-4)


@each(TEXT)
def test_attention_of_every_block_or_none(family, padded):
    tokenizer, _ = padded
    model = built(family, attn_implementation="eager")
    examples = Examples(("a", "b", "c"), TEXTS, None, torch.zeros(3).numpy())
    rows = find_rows(ATTENTION, tokenizer, examples, 24, "tokenizer", family.name)
    options = ExtractOptions(kind=ATTENTION, max_length=24, words="tokenizer")
    if ATTENTION in family.without:
        with pytest.raises(UserError, match=r"wanted weights .* of every block, found"):
            next(forward_layers(model, tokenizer, rows, options, ""))
        return
    seen = 0
    for order, layers in forward_layers(model, tokenizer, rows, options, ""):
        assert len(layers) == LAYERS
        for row in range(len(order)):
            words = int(rows.groups[order[row]].max()) + 1
            sums = layers[0][row, :, :words].sum(-1)
            assert_same_forward(sums, torch.ones_like(sums))
        seen += len(order)
    assert seen == len(TEXTS)


@each([f for f in (*TEXT, *ENCODER_DECODERS) if RECORD not in f.without])
def test_record_is_the_states_by_hand(family, padded):
    model, batch = built(family), padded[1]
    if model.config.is_encoder_decoder:
        model = model.get_encoder()
        family = families.Family("", "", {}, family.blocks.partition(".")[2])
    outputs = {}

    def leave(module, _inputs, output):
        states = output[0] if isinstance(output, list | tuple) else output
        time_first = model.config.model_type == "xlnet"
        outputs.setdefault(module, []).append(states.transpose(0, 1) if time_first else states)

    tapes = {pool: record(model, family.blocks, pool=pool) for pool in ("mean", "first", "last")}
    tapes["tokens"] = record(model, family.blocks, pool="tokens")
    chosen = tapes["mean"]._listener.modules.values()
    modules = dict.fromkeys(choice.module for choice in chosen)
    handles = [module.register_forward_hook(leave) for module in modules]
    for pool, tape in tapes.items():
        outputs.clear()
        with torch.inference_mode(), tape:
            model(**batch)
        wanted = [states for module in modules for states in outputs[module]]
        assert len(wanted) == LAYERS
        for layer, states in zip(tape.layers().values(), wanted, strict=True):
            assert_same_forward(layer, pooled(states, batch["attention_mask"], pool))
    for handle in handles:
        handle.remove()


@each([family for family in TEXT if RECORD in family.without])
def test_record_refuses_blocks_without_rows(family, padded):
    with torch.inference_mode(), pytest.raises(ValueError, match=r"^(mask|pool|modules): wanted "):
        taped(built(family), family.blocks, [padded[1]], pool="mean")


@each(PICTURES)
def test_record_of_pictures(family):
    config = AutoConfig.for_model(family.model_type, **family.size)
    model = random_twin(AutoModel, config, 1).eval()
    pictures = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode(), record(model, family.blocks, pool="flatten", mask=False) as tape:
        states = model(pixel_values=pictures, output_hidden_states=True).hidden_states
    layers = list(tape.layers().values())
    for layer, wanted in zip(layers[:-1], states[1:], strict=False):
        assert torch.equal(layer, wanted.flatten(1))
    assert len(layers) == len(states) - 1


@each(SOUNDS)
def test_record_of_sounds(family):
    config = AutoConfig.for_model(family.model_type, **family.size)
    model, generator = random_twin(AutoModel, config, 1).eval(), torch.Generator().manual_seed(0)
    if family.model_type == "whisper":
        model = model.get_encoder()
        inputs = {"input_features": torch.randn(2, 8, 40, generator=generator)}
        family = families.Family("", "", {}, "layers.*")
    else:
        inputs = {"input_values": torch.randn(2, 400, generator=generator)}
    with torch.inference_mode(), record(model, family.blocks, pool="tokens", mask=False) as tape:
        states = model(**inputs, output_hidden_states=True).hidden_states
    layers = list(tape.layers().values())
    assert len(layers) == LAYERS
    for layer, wanted in zip(layers[:-1], states[1:], strict=False):
        assert torch.equal(layer, wanted.flatten(0, 1))
