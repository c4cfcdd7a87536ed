"""Models of transformers: `record` gives what ``output_hidden_states`` and hooks of one's own give,
bit by bit.
"""

import pytest
import torch
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM

from simcore import compare, record
from simlab.models.load import load_encoder, load_tokenizer
from simlab.models.sources import resolve
from support.lab.tinymodels import ARCHITECTURES, LAYERS, LLAMAS, tiny_config
from support.nets import taped
from support.tolerance import assert_same_forward

SEVERAL = [f"#{layer}" for layer in range(LAYERS)]


def numbered(path):
    return [f"{path}.{layer}" for layer in range(LAYERS)]


# The modules whose outputs are the hidden states, from the embeddings on. The last hidden state of
# GPT-2, ModernBERT and the Llamas is that of the final norm. The embeddings of XLNet are
# time-first, which a module nn.Embedding does not tell.
DECODER = ["embed_tokens", *numbered("layers")[:-1], "norm"]
MODULES = {
    "bert": ["embeddings", *numbered("encoder.layer")],
    "distilbert": ["embeddings", *numbered("transformer.layer")],
    "albert": ["encoder.embedding_hidden_mapping_in", "encoder.albert_layer_groups.0"],
    "modernbert": ["embeddings", *numbered("layers")[:-1], "final_norm"],
    "xlnet": [None, *numbered("layer")],
    "gpt2": ["drop", *numbered("h")[:-1], "ln_f"],
    "openai-gpt": ["drop", *numbered("h")],
    **dict.fromkeys(LLAMAS, DECODER),
}


def tiny(architecture, kind=AutoModel):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return kind.from_config(tiny_config(architecture)).eval()


def batches(count=2, size=4, tokens=7):
    generator = torch.Generator().manual_seed(1)
    for _ in range(count):
        ids = torch.randint(5, 27, (size, tokens), generator=generator)
        mask = torch.ones_like(ids)
        mask[1, 4:] = mask[2, 1:] = 0
        yield {"input_ids": ids * mask, "attention_mask": mask}


def hooked(model, names, batch):
    """Return the outputs of modules in the order of their calls, [b, t, p], by hooks of our own."""
    outputs = []

    def keep(module, _inputs, output):
        states = output[0] if isinstance(output, list | tuple) else output
        time_first = type(module).__name__ == "XLNetLayer"
        outputs.append(states.transpose(0, 1) if time_first else states)

    modules = dict.fromkeys(model.get_submodule(name.partition("#")[0]) for name in names)
    handles = [module.register_forward_hook(keep) for module in modules]
    with torch.no_grad():
        model(**batch)
    for handle in handles:
        handle.remove()
    return outputs


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_hidden_states(architecture):
    model = tiny(architecture)
    modules = MODULES.get(architecture, MODULES["bert"])
    first = modules[0] is None
    tape = taped(model, modules[first:], batches(), pool="tokens")
    rows = list(tape.layers().values())
    assert len(rows) == LAYERS + 1 - first
    wanted = [[] for _ in rows]
    with torch.no_grad():
        for batch in batches():
            mask = batch["attention_mask"].bool()
            states = model(**batch, output_hidden_states=True).hidden_states[first:]
            for kept, layer in zip(wanted, states, strict=True):
                kept.append(layer[mask])
    by_hooks = [[] for _ in rows]
    for batch in batches():
        for kept, layer in zip(by_hooks, hooked(model, tape.names, batch), strict=True):
            kept.append(layer[batch["attention_mask"].bool()])
    for name, got, states, heard in zip(tape.names, rows, wanted, by_hooks, strict=True):
        assert torch.equal(got, torch.cat(states)), name
        assert torch.equal(got, torch.cat(heard)), name
    if architecture == "albert":
        assert [name[-2:] for name in tape.names[1:]] == SEVERAL


def test_pools_of_a_real_model():
    source = resolve("minilm")
    model, tokenizer = load_encoder(source), load_tokenizer(source)
    texts = ["A delight from start to finish.", "Rain.", "Nobody in this story is worth two hours."]
    batch = dict(tokenizer(texts, padding=True, return_tensors="pt"))
    with torch.no_grad():
        states = model(**batch, output_hidden_states=True).hidden_states[1:]
    mask = batch["attention_mask"][..., None]
    means = [(layer * mask).sum(1) / mask.sum(1) for layer in states]
    recorded = taped(model, "encoder.layer.*", [batch], pool="mean").layers()
    for got, wanted in zip(recorded.values(), means, strict=True):
        assert_same_forward(got, wanted)
    recorded = taped(model, "encoder.layer.*", [batch], pool="first").layers()
    for got, layer in zip(recorded.values(), states, strict=True):
        assert torch.equal(got, layer[:, 0])


@pytest.mark.parametrize("architecture", ["gpt2", "llama"])
@pytest.mark.parametrize("use_cache", [True, False])
def test_generation_records_the_prompt(architecture, use_cache):
    model = tiny(architecture, AutoModelForCausalLM)
    layers = {"gpt2": "transformer.h.*", "llama": "model.layers.*"}[architecture]
    (batch,) = batches(1)
    batch = {name: values.flip(1) for name, values in batch.items()}  # padding on the left
    places = (batch["attention_mask"].cumsum(1) - 1).clamp(0)  # as `generate` counts
    wanted = taped(model, layers, [{**batch, "position_ids": places}], pool="last").layers()
    options = {"max_new_tokens": 4, "min_new_tokens": 4, "do_sample": False, "pad_token_id": 0}
    options["use_cache"] = use_cache
    with record(model, layers, pool="last") as tape:
        model.generate(**batch, **options)
        model.generate(**batch, **options)
    for name, layer in tape.layers().items():
        assert_same_forward(layer, torch.cat([wanted[name]] * 2))
    with record(model, layers, pool="tokens", generate="all") as tape:
        model.generate(**batch, **options)
    tokens, size = int(batch["attention_mask"].sum()), 4
    steps = [size] * 3 if use_cache else [tokens + size, tokens + 2 * size, tokens + 3 * size]
    assert set(tape.row_counts().values()) == {tokens + sum(steps)}


def test_masks_of_an_encoder_decoder():
    size = {"d_model": 24, "encoder_layers": 2, "decoder_layers": 2, "vocab_size": 27}
    size |= {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "pad_token_id": 0}
    size |= {"encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "max_position_embeddings": 70}
    model = AutoModel.from_config(AutoConfig.for_model("bart", **size)).eval()
    (batch,), (decoded,) = batches(1), batches(1)
    inputs = {
        **batch,
        **{f"decoder_{name}": values[[1, 0, 2, 3]] for name, values in decoded.items()},
    }
    tape = taped(model, ["encoder.layers.1", "decoder.layers.1"], [inputs], pool="tokens")
    with torch.no_grad():
        output = model(**inputs)
    halves = (
        (output.encoder_last_hidden_state, inputs["attention_mask"]),
        (output.last_hidden_state, inputs["decoder_attention_mask"]),
    )
    for layer, (states, mask) in zip(tape.layers().values(), halves, strict=True):
        assert torch.equal(layer, states[mask.bool()])


def test_images():
    size = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}
    size |= {"intermediate_size": 32, "image_size": 8, "patch_size": 4, "num_channels": 1}
    model = AutoModel.from_config(AutoConfig.for_model("vit", **size)).eval()
    images = torch.randn(5, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        states = model(images, output_hidden_states=True).hidden_states
    layers = "**layer*.[01]"
    got = list(taped(model, layers, [images], pool="first").layers().values())
    assert torch.equal(got[0], states[1][:, 0])
    got = list(taped(model, layers, [images], pool="tokens", mask=False).layers().values())
    assert torch.equal(got[0], states[1].flatten(0, 1))


def test_a_decoder_and_its_twin_are_compared_in_bounded_memory():
    model = tiny("llama")
    loader = list(batches(6, size=8))
    rows = 8 * LAYERS * 24 * 4  # of one model in one batch
    result = compare(
        model, tiny("mistral"), loader, "layers.*",
        streaming=True, pool="mean", max_memory=3 * rows,
    )  # fmt: skip
    assert result.n == 48
    assert result.values.shape == (LAYERS, LAYERS)
    with pytest.raises(ValueError, match="max_memory"):
        compare(model, model, loader, "layers.*", pool="mean", max_memory=3 * rows)


def two_towers(kind):
    """A CLIP or SigLIP of random weights, and inputs with as many tokens as patches."""
    size = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}
    size["intermediate_size"] = 32
    text = {**size, "vocab_size": 27, "max_position_embeddings": 20, "eos_token_id": 2}
    vision = {**size, "image_size": 16, "patch_size": 4, "num_channels": 3}
    config = AutoConfig.for_model(kind, text_config=text, vision_config=vision, projection_dim=8)
    model = AutoModel.from_config(config).eval()
    tokens = 17 if kind == "clip" else 16
    (batch,) = batches(1, size=3, tokens=tokens)
    generator = torch.Generator().manual_seed(0)
    return model, {**batch, "pixel_values": torch.randn(3, 3, 16, 16, generator=generator)}


@pytest.mark.parametrize("kind", ["clip", "siglip"])
def test_the_mask_of_the_text_is_not_that_of_the_picture(kind):
    model, inputs = two_towers(kind)
    text, vision = "text_model.encoder.layers.0", "vision_model.encoder.layers.0"
    for pool in ("mean", "last", "tokens"):
        with pytest.raises(
            ValueError, match=f"pool='{pool}'.*{vision}.* of the text, not of pixel"
        ):
            taped(model, vision, [inputs], pool=pool)
    flipped = {**inputs, "attention_mask": inputs["attention_mask"].flip(1)}
    with torch.no_grad():
        output = model(**flipped, output_hidden_states=True)
    states = output.vision_model_output.hidden_states[1]
    first = taped(model, vision, [flipped], pool="first").layers()[vision]
    assert torch.equal(first, states[:, 0])
    whole = taped(model, vision, [flipped], pool="tokens", mask=False).layers()[vision]
    assert torch.equal(whole, states.flatten(0, 1))
    words = taped(model, text, [flipped], pool="tokens").layers()[text]
    wanted = output.text_model_output.hidden_states[1][flipped["attention_mask"].bool()]
    assert torch.equal(words, wanted)


def test_pictures_and_texts_may_differ_in_number():
    model, inputs = two_towers("clip")
    inputs["pixel_values"] = inputs["pixel_values"][:2]
    rows = taped(model, ["visual_projection", "text_projection"], [inputs]).row_counts()
    assert rows == {"visual_projection": 2, "text_projection": 3}


def test_a_mask_of_samples_becomes_one_of_frames():
    """The message says how, and its words run."""
    size = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 27}
    size |= {"intermediate_size": 32, "conv_dim": (8, 8), "conv_stride": (5, 2)}
    size |= {"conv_kernel": (10, 3), "num_conv_pos_embeddings": 4}
    size |= {"num_conv_pos_embedding_groups": 2}
    model = AutoModel.from_config(AutoConfig.for_model("wav2vec2", **size)).eval()
    sound = torch.randn(2, 400, generator=torch.Generator().manual_seed(0))
    mask = torch.ones(2, 400, dtype=torch.long)
    mask[1, 250:] = 0
    inputs = {"input_values": sound, "attention_mask": mask}
    layer = "encoder.layers.1"
    with pytest.raises(ValueError, match=r"shape \(2, 39\) .* got \(2, 400\)") as caught:
        taped(model, layer, [inputs], pool="tokens")
    told = str(caught.value).partition("such as ")[2].partition(" of a mask")[0]
    words = eval(told, {"torch": torch, "model": model})
    rows = taped(model, layer, [inputs], pool="tokens", mask=words).layers()[layer]
    with torch.no_grad():
        states = model(**inputs, output_hidden_states=True).hidden_states[-1]
    assert torch.equal(rows, torch.cat([states[0], states[1, :24]]))
