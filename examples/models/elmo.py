"""ELMo (Peters et al. 2018), from its published files, for `simcore import` and `simcore extract`.

A folder has the options (`*options.json`) and weights (`*weights.hdf5`) that AllenNLP published.
The layers of all words of a file of sentences, as AllenNLP writes them, and their import:

    python examples/models/elmo.py elmo-original ptb-dev.txt elmo-original-ptb-dev.hdf5
    simcore import elmo-original-ptb-dev.hdf5 --label ELMo --kind word-last --task ptb-dev.txt \\
      --split all --out runs/words/elmo

In a sweep, the file is `rows` of a model. The modules of the model in the folder ``$ELMO``:

    ELMO=elmo-original simcore extract examples.models.elmo:load rt --module words \\
      --module "layers.*" --pool tokens --out runs/modules/elmo

A word is its UTF-8 bytes between two marks. Its vector w is the largest value of every convolution
over its characters, after an activation, highway layers ``c * relu(T w) + (1 - c) * w`` with
``c = sigmoid(C w)``, and a projection. Layer 0 holds w twice, so that all layers have one width:
the width of an LSTM ahead beside an LSTM back. An LSTM computes, from its input x and its last
output h,

    i, j, f, o = W [x; h] + b        c' = clip(sigmoid(f + 1) c + sigmoid(i) tanh(j))
    h' = clip(P (sigmoid(o) tanh(c')))

and every layer above the first adds its input to its output. The recurrence takes h' before that.
Every text starts from zero, between two marks that are no words; the published programs carry the
states of the last batch into the next one instead, so that their rows depend on the texts before.
"""

from __future__ import annotations

import argparse
import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import BatchEncoding

# Numbers of characters: 256 bytes, then marks that begin and end sentences and words, and one that
# fills words up. In a batch all are one larger: 0 is padding.
SENTENCE_BEGINS, SENTENCE_ENDS, WORD_BEGINS, WORD_ENDS, FILLING, CHARACTERS = range(256, 262)
BEGINS, ENDS = "<S>", "</S>"  # as the vocabulary of the published programs calls the marks


class Tokenizer:
    """The words between white space and the two marks, with the methods that simcore calls.

    The number of a token is the place of its text in the order in which the tokenizer read it.
    """

    model_max_length = 10**9
    pad_token_id = 0
    is_fast = False

    def __init__(self, characters: int) -> None:
        self.characters = characters  # of a word at most, marks included; longer words are cut
        self.numbers: dict[tuple[str, bool], int] = {}

    def __call__(
        self,
        texts: Sequence[str],
        pairs: Sequence[str] | None = None,
        *,
        truncation: bool = False,
        max_length: int | None = None,
    ) -> dict[str, list[list[int]]]:
        """Return the numbers of the tokens of single texts."""
        if pairs is not None:
            raise ValueError("wanted single texts for an ELMo, found pairs")
        most = max_length - 2 if truncation and max_length else None
        rows = []
        for text in texts:
            tokens = [(word, False) for word in text.split()[:most]]
            tokens = [(BEGINS, True), *tokens, (ENDS, True)]
            rows.append([self.numbers.setdefault(one, len(self.numbers)) for one in tokens])
        return {"input_ids": rows, "attention_mask": [[1] * len(row) for row in rows]}

    def convert_ids_to_tokens(self, numbers: Sequence[int]) -> list[str]:
        """Return the texts of tokens."""
        texts = [*self.numbers]
        return [texts[number][0] for number in numbers]

    def pad(self, examples: Sequence[dict[str, list[int]]], *_: Any, **__: Any) -> BatchEncoding:
        """Return characters [b, t, c], 0 at padding, and the mask [b, t]."""
        rows, tokens = [one["input_ids"] for one in examples], [*self.numbers]
        shape = (len(rows), max(map(len, rows)), self.characters)
        characters, mask = np.zeros(shape, np.int64), np.zeros(shape[:2], np.int64)
        for row, numbers in enumerate(rows):
            for place, number in enumerate(numbers):
                characters[row, place] = self.spelled(*tokens[number])
            mask[row, : len(numbers)] = 1
        return BatchEncoding({"input_ids": characters, "attention_mask": mask}, tensor_type="pt")

    def spelled(self, token: str, is_mark: bool) -> np.ndarray:
        """Return the characters of a token [c], counted from 1."""
        inner = list(token.encode("utf-8", "ignore"))[: self.characters - 2]
        if is_mark:
            inner = [SENTENCE_BEGINS if token == BEGINS else SENTENCE_ENDS]
        numbers = np.full(self.characters, FILLING, np.int64)
        numbers[: len(inner) + 2] = [WORD_BEGINS, *inner, WORD_ENDS]
        return numbers + 1


class Elmo(nn.Module):
    """A bidirectional language model without its softmax, of random weights."""

    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__()
        self.words, lstm = Words(options), options["lstm"]
        adds = [lstm["use_skip_connections"] and layer > 0 for layer in range(lstm["n_layers"])]
        self.layers = nn.ModuleList(Layer(lstm, residual=residual) for residual in adds)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> list[Tensor]:
        """Return all layers [b, t, 2 p], from characters [b, t, c] and a mask [b, t]."""
        layers = [self.words(input_ids).repeat(1, 1, 2)]
        for layer in self.layers:
            layers.append(layer(layers[-1], attention_mask))
        return layers


class Words(nn.Module):
    """The vectors of words, [b, t, p], from their characters alone."""

    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__()
        cnn, width = options["char_cnn"], options["char_cnn"]["embedding"]["dim"]
        count, projection = sum(n for _, n in cnn["filters"]), options["lstm"]["projection_dim"]
        self.activation = {"tanh": torch.tanh, "relu": torch.relu}[cnn["activation"]]
        self.characters = nn.Embedding(CHARACTERS + 1, width, padding_idx=0)
        self.convolutions = nn.ModuleList(nn.Conv1d(width, n, size) for size, n in cnn["filters"])
        self.highways = nn.ModuleList(
            nn.ModuleDict({name: nn.Linear(count, count) for name in ("carry", "transform")})
            for _ in range(cnn.get("n_highway") or 0)
        )
        self.projection = nn.Linear(count, projection) if count != projection else nn.Identity()

    def forward(self, characters: Tensor) -> Tensor:
        """Return [b, t, p] from numbers of characters [b, t, c]."""
        rows = self.characters(characters.flatten(0, 1)).transpose(1, 2)
        largest = [convolution(rows).amax(-1) for convolution in self.convolutions]
        vectors = self.activation(torch.cat(largest, -1))
        for gates in self.highways:
            share = torch.sigmoid(gates["carry"](vectors))
            vectors = share * torch.relu(gates["transform"](vectors)) + (1 - share) * vectors
        return self.projection(vectors).unflatten(0, characters.shape[:2])


class Layer(nn.Module):
    """An LSTM ahead and an LSTM back, each on its half of the states."""

    def __init__(self, options: dict[str, Any], residual: bool) -> None:
        super().__init__()
        self.residual, self.ahead, self.back = residual, Lstm(options), Lstm(options)

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        """Return states [b, t, 2 p] from states [b, t, 2 p] and a mask [b, t]."""
        (ahead, back), places = states.chunk(2, -1), range(states.shape[1])
        halves = [self.ahead(ahead, mask, places), self.back(back, mask, places[::-1])]
        return states + torch.cat(halves, -1) if self.residual else torch.cat(halves, -1)


class Lstm(nn.Module):
    """An LSTM in one direction, with a projection and two clips."""

    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__()
        self.cell, width = options["dim"], options["projection_dim"]
        self.clips = [options.get(name) or torch.inf for name in ("cell_clip", "proj_clip")]
        self.from_input = nn.Linear(width, 4 * self.cell)
        self.from_state = nn.Linear(width, 4 * self.cell, bias=False)
        self.projection = nn.Linear(self.cell, width, bias=False) if width < self.cell else None

    def forward(self, inputs: Tensor, mask: Tensor, places: range) -> Tensor:
        """Return outputs [b, t, p] of `inputs` [b, t, p], read in the order of `places`.

        Padding changes neither cell nor output.
        """
        cell, output = inputs.new_zeros(len(inputs), self.cell), torch.zeros_like(inputs[:, 0])
        gates, outputs = self.from_input(inputs), {}
        for place in places:
            i, j, f, o = (gates[:, place] + self.from_state(output)).chunk(4, -1)
            new = torch.sigmoid(f + 1) * cell + torch.sigmoid(i) * torch.tanh(j)
            new = functional.hardtanh(new, -self.clips[0], self.clips[0])
            out = torch.sigmoid(o) * torch.tanh(new)
            if self.projection is not None:
                out = functional.hardtanh(self.projection(out), -self.clips[1], self.clips[1])
            there = mask[:, place, None].bool()
            cell, output = torch.where(there, new, cell), torch.where(there, out, output)
            outputs[place] = output
        return torch.stack([outputs[place] for place in range(inputs.shape[1])], 1)


def read_weights(path: Path, options: dict[str, Any]) -> dict[str, Tensor]:
    """Read the weights, under the names that they have in `Elmo`.

    Names and shapes are those that bilm-tf writes: an LSTM has one matrix for its input and its
    state, whose columns belong to i, j, f and o.
    """
    tensors, width = {}, options["lstm"]["projection_dim"]
    with h5py.File(path, "r") as file:

        def read(name: str) -> Tensor:
            return torch.from_numpy(file[name][()]).float()

        characters = read("char_embed")
        padding = torch.zeros(1, characters.shape[1])
        tensors["words.characters.weight"] = torch.cat([padding, characters])
        for number in range(len(options["char_cnn"]["filters"])):
            kernel = read(f"CNN/W_cnn_{number}")[0].permute(2, 1, 0)
            tensors[f"words.convolutions.{number}.weight"] = kernel
            tensors[f"words.convolutions.{number}.bias"] = read(f"CNN/b_cnn_{number}")
        for number in range(options["char_cnn"].get("n_highway") or 0):
            for gate in ("carry", "transform"):
                name, place = f"words.highways.{number}.{gate}", f"CNN_high_{number}"
                tensors[f"{name}.weight"] = read(f"{place}/W_{gate}").T
                tensors[f"{name}.bias"] = read(f"{place}/b_{gate}")
        if "CNN_proj" in file:
            tensors["words.projection.weight"] = read("CNN_proj/W_proj").T
            tensors["words.projection.bias"] = read("CNN_proj/b_proj")
        for layer in range(options["lstm"]["n_layers"]):
            for number, direction in enumerate(("ahead", "back")):
                place = f"RNN_{number}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
                name, both = f"layers.{layer}.{direction}", read(f"{place}/W_0")
                tensors[f"{name}.from_input.weight"] = both[:width].T
                tensors[f"{name}.from_input.bias"] = read(f"{place}/B")
                tensors[f"{name}.from_state.weight"] = both[width:].T
                if f"{place}/W_P_0" in file:
                    tensors[f"{name}.projection.weight"] = read(f"{place}/W_P_0").T
    return tensors


def load(folder: str | Path | None = None) -> tuple[Elmo, Tokenizer]:
    """Load the ELMo in a folder, by default ``$ELMO``, and its tokenizer."""
    place = Path(folder or os.environ["ELMO"])
    (file,), (weights,) = place.glob("*options.json"), place.glob("*weights.hdf5")
    options = json.loads(file.read_text())
    options["lstm"].setdefault("n_layers", 1)
    model = Elmo(options)
    model.load_state_dict(read_weights(weights, options))
    return model.eval(), Tokenizer(options["char_cnn"]["max_characters_per_token"])


def sentences(file: Path) -> list[str]:
    """Return the sentences of a file, words between spaces: one on each line, or CoNLL-U."""
    text = file.read_text()
    if file.suffix != ".conllu":
        return [line for line in text.splitlines() if line.strip()]
    blocks = [re.findall(r"^\d+\t([^\t]+)\t", block, re.M) for block in text.split("\n\n")]
    return [" ".join(words) for words in blocks if words]


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the layers of every sentence, an array [layers, words, 2 p] under its number."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="options and weights")
    parser.add_argument("sentences", type=Path, help="a .txt or .conllu file")
    parser.add_argument("out", type=Path, help="the layers (.hdf5)")
    given = parser.parse_args(arguments)
    model, tokenizer = load(given.folder)
    with h5py.File(given.out, "w") as file, torch.inference_mode():
        for number, text in enumerate(sentences(given.sentences)):
            encoded = tokenizer([text])
            batch = tokenizer.pad([{"input_ids": encoded["input_ids"][0]}])
            layers = torch.stack(model(**batch))[:, 0, 1:-1]  # without the marks
            file[str(number)] = layers.numpy()


if __name__ == "__main__":
    main()
