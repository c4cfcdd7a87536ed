"""ELMo: published files against a computation step by step, and the properties that define it."""

import json
import re

import h5py
import numpy as np
import pytest
import torch

from simlab.errors import UserError
from simlab.models.batches import per_example
from simlab.models.elmo import Elmo, load_elmo
from simlab.models.elmo_words import ElmoTokenizer
from simlab.models.load import load_classifier, load_config, load_tokenizer
from simlab.models.states import layer_states
from simlab.representations.extract import extract
from simlab.representations.folder import load_representations, require_same_examples
from support.lab.elmofiles import SMALL, changed, write_elmo
from support.lab.tinymodels import save_tiny_model
from support.nets import taped
from support.tolerance import assert_close, assert_same_forward

TEXTS = (
    "the unbelievable film",
    "naïve über-long words",
    "a",
    "one two three four five six seven eight",
)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def naive_characters(word, most):
    """Return the numbers of a word's characters; a mark is a number already."""
    inner = [word] if isinstance(word, int) else list(word.encode())[: most - 2]
    codes = [258, *inner, 259]
    return codes + [260] * (most - len(codes))


def naive_word(word, options, weights):
    """Return the vector of a word by loops over filters and places."""
    cnn = options["char_cnn"]
    rows = weights["char_embed"][naive_characters(word, cnn["max_characters_per_token"])]
    found = []
    for number, (size, filters) in enumerate(cnn["filters"]):
        kernel, bias = weights[f"CNN/W_cnn_{number}"][0], weights[f"CNN/b_cnn_{number}"]
        for one in range(filters):
            at = [
                (rows[i : i + size] * kernel[:, :, one]).sum() for i in range(len(rows) - size + 1)
            ]
            found.append(max(at) + bias[one])
    vector = np.array(found)
    vector = np.tanh(vector) if cnn["activation"] == "tanh" else np.maximum(vector, 0)
    for number in range(cnn["n_highway"] or 0):
        at = {name: weights[f"CNN_high_{number}/{name}"] for name in ("W_carry", "b_carry")}
        to = {n: weights[f"CNN_high_{number}/{n}"] for n in ("W_transform", "b_transform")}
        share = sigmoid(vector @ at["W_carry"] + at["b_carry"])
        passed = np.maximum(vector @ to["W_transform"] + to["b_transform"], 0)
        vector = share * passed + (1 - share) * vector
    if "CNN_proj/W_proj" in weights:
        vector = vector @ weights["CNN_proj/W_proj"] + weights["CNN_proj/b_proj"]
    return vector


def naive_lstm(inputs, place, options, weights):
    """Return the outputs of an LSTM that reads `inputs` from the first to the last."""
    lstm = options["lstm"]
    cell, output, outputs = np.zeros(lstm["dim"]), np.zeros(inputs[0].shape), []
    projection = weights.get(f"{place}/W_P_0")
    for x in inputs:
        gates = np.concatenate([x, output]) @ weights[f"{place}/W_0"] + weights[f"{place}/B"]
        i, j, f, o = np.split(gates, 4)
        cell = sigmoid(f + 1) * cell + sigmoid(i) * np.tanh(j)
        if lstm["cell_clip"]:
            cell = np.clip(cell, -lstm["cell_clip"], lstm["cell_clip"])
        output = sigmoid(o) * np.tanh(cell)
        if projection is not None:
            output = output @ projection
            if lstm["proj_clip"]:
                output = np.clip(output, -lstm["proj_clip"], lstm["proj_clip"])
        outputs.append(output)
    return np.array(outputs)


def naive_layers(text, options, weights, marks=True):
    """Return layers 0 to L of a text's words, [L + 1, t, 2 p] float64, without the marks."""
    words = [256, *text.split(), 257] if marks else text.split()
    vectors = np.array([naive_word(word, options, weights) for word in words])
    layers, halves = [np.concatenate([vectors, vectors], 1)], [vectors, vectors]
    for layer in range(options["lstm"]["n_layers"]):
        for direction, step in ((0, 1), (1, -1)):
            place = f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
            out = naive_lstm(halves[direction][::step], place, options, weights)[::step]
            add = options["lstm"]["use_skip_connections"] and layer > 0
            halves[direction] = out + halves[direction] if add else out
        layers.append(np.concatenate(halves, 1))
    return np.array(layers)[:, 1:-1] if marks else np.array(layers)


VARIANTS = {
    "original": SMALL,
    "four layers": changed(lstm_n_layers=4),
    "no residual": changed(lstm_use_skip_connections=False),
    "no clip": changed(lstm_cell_clip=None, lstm_proj_clip=None),
    "no projections": changed(lstm_dim=6, lstm_projection_dim=6, cnn_filters=[[1, 2], [3, 4]]),
    "tanh, no highway": changed(cnn_activation="tanh", cnn_n_highway=None),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_layers_are_those_of_a_computation_step_by_step(tmp_path, variant):
    options = VARIANTS[variant]
    source, weights = write_elmo(tmp_path / "elmo", options)
    model, tokenizer = load_elmo(source), load_tokenizer(source)
    encoded = tokenizer(TEXTS)
    rows = [
        dict(zip(encoded, values, strict=True)) for values in zip(*encoded.values(), strict=True)
    ]
    batch = tokenizer.pad(rows)
    for precise in (False, True):
        with torch.inference_mode():
            states = (model.double() if precise else model)(**batch, output_hidden_states=True)
        assert len(states.hidden_states) == options["lstm"]["n_layers"] + 1
        assert torch.equal(states.last_hidden_state, states.hidden_states[-1])
        for row, text in enumerate(TEXTS):
            words = slice(1, 1 + len(text.split()))
            found = torch.stack([layer[row, words] for layer in states.hidden_states])
            wanted = naive_layers(text, options, weights)
            if precise:
                assert_close(found, wanted, torch.float64)
            else:
                assert_same_forward(found, wanted)


def test_clips_of_the_computation_matter(tmp_path):
    _, weights = write_elmo(tmp_path / "elmo", SMALL)
    clipped = naive_layers(TEXTS[0], SMALL, weights)
    for free in ({"lstm_cell_clip": None}, {"lstm_proj_clip": None}):
        assert np.abs(naive_layers(TEXTS[0], changed(**free), weights) - clipped).max() > 0.01


@pytest.fixture(scope="module")
def elmo(tmp_path_factory):
    """An ELMo of two layers, its folder with published names."""
    return write_elmo(tmp_path_factory.mktemp("models") / "elmo", SMALL)[0]


def layers_of(model, tokenizer, text):
    """Return [L + 1, t, 2 p] of a text, marks included."""
    encoded = tokenizer([text])
    batch = tokenizer.pad(per_example(encoded))
    with torch.inference_mode():
        return torch.stack(model(**batch, output_hidden_states=True).hidden_states)[:, 0]


def test_each_half_sees_its_side_and_layer_0_one_word(elmo):
    model, tokenizer = load_elmo(elmo), load_tokenizer(elmo)
    words = ["one", "two", "three", "four", "five"]
    before = layers_of(model, tokenizer, " ".join(words))
    place = 3  # the begin mark is at 0
    words[place - 1] = "other"
    after = layers_of(model, tokenizer, " ".join(words))
    moved = (before != after).any(-1)
    assert moved[0].tolist() == [number == place for number in range(7)]
    ahead, back = ((before != after)[1:, :, half].any(-1) for half in (slice(0, 6), slice(6, 12)))
    for layer in range(2):
        assert ahead[layer].tolist() == [number >= place for number in range(7)]
        assert back[layer].tolist() == [number <= place for number in range(7)]
    alone = layers_of(model, tokenizer, "other")
    assert_same_forward(alone[0, 1], after[0, place])
    assert torch.equal(after[0, :, :6], after[0, :, 6:])


def test_a_word_is_its_bytes_up_to_the_limit_between_marks():
    tokenizer = ElmoTokenizer(6)
    encoded = tokenizer(["é longword"], add_special_tokens=False)
    batch = tokenizer.pad(per_example(encoded))
    wanted = [[258, 0xC3, 0xA9, 259, 260, 260], [258, *b"long", 259]]
    assert (batch["input_ids"][0] - 1).tolist() == wanted
    marks = tokenizer.pad([{"input_ids": tokenizer(["<S>"])["input_ids"][0]}])["input_ids"][0] - 1
    assert marks[0].tolist() == [258, 256, 259, 260, 260, 260]
    assert marks[1].tolist() == [258, *b"<S>", 259, 260]  # a word that looks like the mark
    assert marks[2].tolist() == [258, 257, 259, 260, 260, 260]


def naive_rows(kind, layers):
    """Return the rows of a text with an ELMo's words, from [L + 1, t, 2 p]."""
    return layers.mean(1, keepdims=True) if kind == "mean" else layers


@pytest.mark.parametrize("kind", ["mean", "token", "word-last", "word-mean"])
@pytest.mark.parametrize("marks", [True, False])
def test_extract_gives_the_words_of_every_layer(tmp_path, kind, marks):
    source, weights = write_elmo(tmp_path / "elmo", SMALL)
    corpus = tmp_path / "texts.txt"
    corpus.write_text("\n".join(TEXTS) + "\n")
    how = {"kind": kind, "split": "all", "batch_size": 3, "special_tokens": marks}
    step = extract(tmp_path / "elmo", corpus, tmp_path / "reps", label="ELMo", **how)
    found = load_representations(step.path)
    wanted = [naive_rows(kind, naive_layers(text, SMALL, weights, marks)) for text in TEXTS]
    for layer, rows in zip(found.layers, np.concatenate(wanted, 1), strict=True):
        assert_same_forward(layer, rows)
    assert found.manifest["model_sha256"] == source.fingerprint
    assert found.first_layer == 0


def test_elmo_and_a_transformer_have_the_same_words(tmp_path, elmo):
    corpus = tmp_path / "texts.txt"
    corpus.write_text("\n".join(TEXTS) + "\n")
    how = {"kind": "word-last", "words": "spaces", "split": "all"}
    extract(elmo, corpus, tmp_path / "x", **how)
    pieces = tuple(dict.fromkeys(re.findall(r"\w+|\S", " ".join(TEXTS).lower())))
    extract(save_tiny_model(tmp_path / "bert", pieces=pieces), corpus, tmp_path / "y", **how)
    require_same_examples(*(load_representations(tmp_path / name) for name in "xy"))
    extract(elmo, corpus, tmp_path / "short", **how, max_length=5)
    ids = load_representations(tmp_path / "short").ids
    assert ids[-3:] == ["row-3:0:one", "row-3:1:two", "row-3:2:three"]  # and two marks


def test_a_random_twin_has_the_options_alone(tmp_path, elmo):
    twins = [load_elmo(elmo, seed).state_dict() for seed in (0, 0, 1)]
    model = load_elmo(elmo).state_dict()
    for name, first in twins[0].items():
        assert torch.equal(first, twins[1][name])
        assert first.shape == model[name].shape
        if first.ndim > 1:
            assert not torch.equal(first, twins[2][name])
            assert not torch.equal(first, model[name])
    corpus = tmp_path / "texts.txt"
    corpus.write_text("\n".join(TEXTS) + "\n")
    extract(elmo, corpus, tmp_path / "twin", kind="mean", split="all", random_init_seed=1)


def test_recorded_layers_are_the_hidden_states_and_those_of_hooks_bit_by_bit(elmo):
    model, tokenizer = load_elmo(elmo), load_tokenizer(elmo)
    batch = dict(tokenizer.pad(per_example(tokenizer(TEXTS))))
    tape = taped(model, ["words", "layers.*"], [batch], pool="tokens")
    heard = []
    for module in (model.words, *model.layers):
        module.register_forward_hook(lambda _module, _inputs, output: heard.append(output))
    with torch.no_grad():
        states = model(**batch, output_hidden_states=True).hidden_states
    mask = batch["attention_mask"].bool()
    wanted = [states[0][..., :6], *states[1:]]  # layer 0 holds the vectors of words twice
    assert list(tape.names) == ["words", "layers.0", "layers.1"]
    for layer, state, output in zip(tape.layers().values(), wanted, heard, strict=True):
        assert torch.equal(layer, state[mask])
        assert torch.equal(layer, output[mask])


def test_layers_are_listed_as_those_of_other_architectures(elmo):
    model, tokenizer = load_elmo(elmo), load_tokenizer(elmo)
    encoded = tokenizer([TEXTS[0]])
    batch = tokenizer.pad(per_example(encoded))
    with torch.inference_mode():
        wanted = model(**batch, output_hidden_states=True).hidden_states
        for layer, states in zip(layer_states(model, batch), wanted, strict=True):
            assert torch.equal(layer, states)
    config = load_config(elmo)
    assert (config.model_type, config.num_hidden_layers, config.hidden_size) == ("elmo", 2, 12)


def edited(change):
    """Return a function that changes the weights of a folder."""

    def edit(folder):
        with h5py.File(folder / "tiny_weights.hdf5", "r+") as file:
            change(file)

    return edit


def replaced(name, values):
    def change(file):
        del file[name]
        file[name] = values

    return edited(change)


def spoilt(file):
    file["char_embed"][3, 1] = np.nan


def options_with(**changes):
    return lambda folder: (folder / "tiny_options.json").write_text(json.dumps(changed(**changes)))


B = "RNN_1/RNN/MultiRNNCell/Cell1/LSTMCell/B"
BAD = {
    "no weight": (
        edited(lambda file: file.__delitem__(B)),
        rf"tiny_weights.hdf5, {B}: wanted shape \[48\], found none",
    ),
    "a shape": (replaced(B, np.zeros(4)), rf"{B}: wanted shape \[48\], found shape \[4\]"),
    "nan": (edited(spoilt), "char_embed: wanted finite weights, found NaN or infinity"),
    "half a file": (
        lambda folder: (folder / "tiny_weights.hdf5").write_bytes(b"\x89HDF"),
        "tiny_weights.hdf5: wanted the weights of an ELMo, found",
    ),
    "no JSON": (
        lambda folder: (folder / "tiny_options.json").write_text("{"),
        "tiny_options.json: wanted JSON",
    ),
    "an option": (
        options_with(lstm_dim=0),
        "tiny_options.json: wanted the options of an ELMo, found lstm.dim: input should be greater",
    ),
    "no section": (
        lambda folder: (folder / "tiny_options.json").write_text("{}"),
        "wanted the options of an ELMo, found char_cnn.embedding.dim: field required",
    ),
    "a projection": (options_with(lstm_projection_dim=24), "wanted lstm.projection_dim of 12 at"),
    "a filter": (options_with(cnn_filters=[[10, 4]]), "wanted char_cnn.filters of 9 characters at"),
    "two files": (
        lambda folder: (folder / "other_weights.hdf5").write_bytes(b""),
        r"wanted one \*options.json and one \*weights.hdf5, found 1 and 2",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_file_is_named(tmp_path, case):
    write_elmo(tmp_path / "elmo", SMALL)
    spoil, message = BAD[case]
    spoil(tmp_path / "elmo")
    corpus = tmp_path / "texts.txt"
    corpus.write_text("a film\n")
    with pytest.raises(UserError, match=message):
        extract(tmp_path / "elmo", corpus, tmp_path / "reps", split="all", kind="mean")
    assert not (tmp_path / "reps").exists()


def test_what_elmo_has_not_is_refused(tmp_path, elmo, review_task):
    corpus = tmp_path / "texts.txt"
    corpus.write_text("a film\n")
    for kind, message in (
        ("cls", "kind='cls': wanted a model with a classifier token, found .*elmo"),
        ("attention", "found none in a model of type 'elmo'"),
    ):
        with pytest.raises(UserError, match=message):
            extract(elmo, corpus, tmp_path / "reps", split="all", kind=kind)
    with pytest.raises(UserError, match="wanted a model that can have a head, found an ELMo"):
        load_classifier(elmo, review_task)
    with pytest.raises(UserError, match="wanted single texts for an ELMo, found pairs"):
        load_tokenizer(elmo)(["a"], ["b"])


def test_the_published_size(monkeypatch):
    """The options of the published model: 93.6 million weights, as its page says."""
    published = changed(
        cnn_filters=[[1, 32], [2, 32], [3, 64], [4, 128], [5, 256], [6, 512], [7, 1024]],
        cnn_embedding={"dim": 16},
        **{"cnn_max_characters_per_token": 50, "lstm_cell_clip": 3, "lstm_proj_clip": 3},
        **{"lstm_dim": 4096, "lstm_projection_dim": 512},
    )
    from simlab.models import elmo_files

    monkeypatch.setattr(elmo_files, "read_json", lambda _: published)
    config = elmo_files.read_options("options.json")
    with torch.device("meta"):
        model = Elmo(config)
    count = sum(weights.numel() for weights in model.parameters()) - 16  # the padding's vector
    assert round(count / 1e6, 1) == 93.6
