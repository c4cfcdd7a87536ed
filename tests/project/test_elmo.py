"""The example of ELMo: published files against a computation step by step."""

import importlib

import numpy as np
import pytest
import torch

from simlab import extract, import_representations, load_representations
from support.lab.elmofiles import SMALL, changed, write_elmo
from support.tolerance import assert_close, assert_same_forward

NAME = "examples.models.elmo"  # as the commands have it, in the root of the project
TEXTS = ("the unbelievable film", "naïve über-long words", "a", "one two three four five six seven")


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


def naive_layers(text, options, weights):
    """Return layers 0 to L of a text's words, [L + 1, t, 2 p] float64, without the marks."""
    words = [256, *text.split(), 257]
    vectors = np.array([naive_word(word, options, weights) for word in words])
    layers, halves = [np.concatenate([vectors, vectors], 1)], [vectors, vectors]
    for layer in range(options["lstm"]["n_layers"]):
        for direction, step in ((0, 1), (1, -1)):
            place = f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
            out = naive_lstm(halves[direction][::step], place, options, weights)[::step]
            add = options["lstm"]["use_skip_connections"] and layer > 0
            halves[direction] = out + halves[direction] if add else out
        layers.append(np.concatenate(halves, 1))
    return np.array(layers)[:, 1:-1]


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
    weights = write_elmo(tmp_path, VARIANTS[variant])
    model, tokenizer = importlib.import_module(NAME).load(tmp_path)
    encoded = tokenizer(TEXTS)["input_ids"]
    batch = tokenizer.pad([{"input_ids": row} for row in encoded])
    with torch.inference_mode():
        layers = torch.stack(model.double()(**batch))
    for row, text in enumerate(TEXTS):
        found = layers[:, row, 1 : 1 + len(text.split())]
        assert_close(found, naive_layers(text, VARIANTS[variant], weights), torch.float64)


def test_words_come_in_by_import_and_modules_by_extract(tmp_path, monkeypatch):
    weights, corpus = write_elmo(tmp_path / "elmo", SMALL), tmp_path / "texts.txt"
    corpus.write_text("\n".join(TEXTS) + "\n")
    rows = tmp_path / "rows.hdf5"
    importlib.import_module(NAME).main([str(tmp_path / "elmo"), str(corpus), str(rows)])
    how = {"label": "ELMo", "kind": "word-last", "task": str(corpus), "split": "all"}
    imported = load_representations(import_representations(rows, tmp_path / "x", **how).path)
    wanted = np.concatenate([naive_layers(text, SMALL, weights) for text in TEXTS], 1)
    for layer, values in zip(imported.layers, wanted, strict=True):
        assert_same_forward(layer, values)
    monkeypatch.setenv("ELMO", str(tmp_path / "elmo"))
    how = {"modules": ("words", "layers.*"), "pool": "tokens", "split": "all"}
    recorded = load_representations(extract(f"{NAME}:load", corpus, tmp_path / "y", **how).path)
    words = [place for place, one in enumerate(recorded.ids) if not one.endswith("S>")]
    assert len(words) == wanted.shape[1]
    for layer, values in zip(list(recorded.layers)[1:], wanted[1:], strict=True):
        assert_same_forward(np.asarray(layer)[words], values)
