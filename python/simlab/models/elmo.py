"""ELMo (Peters et al. 2018): character convolutions, then LSTMs in both directions.

A word is its UTF-8 bytes between two marks. Its vector w is the largest value of every convolution
over its characters, after an activation, highway layers ``c * relu(T w) + (1 - c) * w`` with
``c = sigmoid(C w)``, and a projection. Layer 0 holds w twice, so that all layers have one width:
the width of an LSTM ahead beside an LSTM back. An LSTM computes, from its input x and its last
output h,

    i, j, f, o = W [x; h] + b        c' = clip(sigmoid(f + 1) c + sigmoid(i) tanh(j))
    h' = clip(P (sigmoid(o) tanh(c')))

and every layer above the first adds its input to its output. The recurrence takes h' before that.
Every text starts from zero; the published programs carry the states of the last batch into the next
one instead, so that what they give depends on the texts before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional, init

from simlab.models.elmo_files import CHARACTERS, ElmoConfig, read_options, read_weights
from simlab.models.sources import find_elmo

if TYPE_CHECKING:
    from simlab.models.sources import ModelSource

FORGET_BIAS = 1.0
_CARRY_BIAS = -2.0  # of a new highway layer, which then passes most of its input on
_NARROW = 0.05  # of new convolutions before a ReLU


@dataclass(frozen=True)
class ElmoOutput:
    """The last layer, and all layers on request, as models of transformers give them."""

    last_hidden_state: Tensor
    hidden_states: tuple[Tensor, ...] | None = None


def load_elmo(source: ModelSource, random_init_seed: int | None = None) -> Elmo:
    """Load the ELMo in the folder of `source`, in evaluation mode.

    With `random_init_seed`, only the options are read, and the weights are drawn.
    """
    files = find_elmo(source.path)
    assert files is not None
    config = read_options(files[0])
    with torch.random.fork_rng():
        torch.manual_seed(random_init_seed or 0)
        model = Elmo(config)
    if random_init_seed is None:
        model.load_state_dict(read_weights(files[1], config))
    return model.eval()


class Elmo(nn.Module):
    """A bidirectional language model without its softmax.

    The weights are random, drawn as bilm-tf draws them before training.
    """

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__()
        self.config = config
        self.words = WordVectors(config)
        self.layers = nn.ModuleList(
            ElmoLayer(config, residual=config.residual and layer > 0)
            for layer in range(config.num_hidden_layers)
        )

    @property
    def base_model(self) -> Elmo:
        """Return the model: there is no head around it."""
        return self

    @property
    def device(self) -> torch.device:
        """Return the device of the weights."""
        return self.words.characters.weight.device

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        output_hidden_states: bool = False,
        **_unused: bool,
    ) -> ElmoOutput:
        """Return the states [b, t, 2 p]; `hidden_states` has layer 0 and every other layer.

        `input_ids` are characters of words, int64 [b, t, c], as `elmo_words.ElmoTokenizer` numbers
        them; `attention_mask` is [b, t], 0 at padding.
        """
        if attention_mask is None:
            attention_mask = input_ids.new_ones(input_ids.shape[:2])
        states = self.words(input_ids).repeat(1, 1, 2)
        every = [states]
        for layer in self.layers:
            states = layer(states, attention_mask)
            every.append(states)
        return ElmoOutput(states, tuple(every) if output_hidden_states else None)


class WordVectors(nn.Module):
    """The vectors of words, [b, t, p], from their characters alone."""

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__()
        width, count = config.character_width, config.filter_count
        self.activation = torch.tanh if config.activation == "tanh" else torch.relu
        self.characters = nn.Embedding(CHARACTERS + 1, width, padding_idx=0)
        convolutions = [nn.Conv1d(width, number, size) for size, number in config.filters]
        self.convolutions = nn.ModuleList(convolutions)
        self.highways = nn.ModuleList(Highway(count) for _ in range(config.highways))
        projects = config.projects_words
        self.projection = nn.Linear(count, config.projection) if projects else nn.Identity()
        init.uniform_(self.characters.weight[1:].detach(), -1, 1)
        for (size, _), convolution in zip(config.filters, convolutions, strict=True):
            if config.activation == "tanh":
                init.normal_(convolution.weight, std=(size * width) ** -0.5)
            else:
                init.uniform_(convolution.weight, -_NARROW, _NARROW)
            assert convolution.bias is not None
            init.zeros_(convolution.bias)
        if isinstance(self.projection, nn.Linear):
            init.normal_(self.projection.weight, std=count**-0.5)
            init.zeros_(self.projection.bias)

    def forward(self, characters: Tensor) -> Tensor:
        """Return [b, t, p] from numbers of characters [b, t, c]."""
        rows = self.characters(characters.flatten(0, 1)).transpose(1, 2)
        largest = [convolution(rows).amax(-1) for convolution in self.convolutions]
        vectors = self.activation(torch.cat(largest, -1))
        for highway in self.highways:
            vectors = highway(vectors)
        return self.projection(vectors).unflatten(0, characters.shape[:2])


class Highway(nn.Module):
    """A layer that passes on a share of its input (Srivastava et al. 2015)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.carry, self.transform = nn.Linear(width, width), nn.Linear(width, width)
        for gate, bias in ((self.carry, _CARRY_BIAS), (self.transform, 0.0)):
            init.normal_(gate.weight, std=width**-0.5)
            init.constant_(gate.bias, bias)

    def forward(self, vectors: Tensor) -> Tensor:
        """Return vectors of the same shape."""
        share = torch.sigmoid(self.carry(vectors))
        return share * torch.relu(self.transform(vectors)) + (1 - share) * vectors


class ElmoLayer(nn.Module):
    """An LSTM ahead and an LSTM back, each on its half of the states."""

    def __init__(self, config: ElmoConfig, residual: bool) -> None:
        super().__init__()
        self.residual = residual
        self.ahead, self.back = Lstm(config), Lstm(config)

    def forward(self, hidden_states: Tensor, attention_mask: Tensor) -> Tensor:
        """Return states [b, t, 2 p] from states [b, t, 2 p] and a mask [b, t]."""
        ahead, back = hidden_states.chunk(2, -1)
        places = range(hidden_states.shape[1])
        directions = [
            self.ahead(ahead, attention_mask, places),
            self.back(back, attention_mask, places[::-1]),
        ]
        states = torch.cat(directions, -1)
        return hidden_states + states if self.residual else states


class Lstm(nn.Module):
    """An LSTM in one direction, with a projection and two clips."""

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__()
        self.config = config
        self.from_input = nn.Linear(config.projection, 4 * config.cell)
        self.from_state = nn.Linear(config.projection, 4 * config.cell, bias=False)
        self.projection: nn.Module = nn.Identity()
        if config.projects_outputs:
            linear = nn.Linear(config.cell, config.projection, bias=False)
            init.xavier_uniform_(linear.weight)
            self.projection = linear
        # As one matrix of input and state.
        bound = (6 / (2 * config.projection + 4 * config.cell)) ** 0.5
        for part in (self.from_input, self.from_state):
            init.uniform_(part.weight, -bound, bound)
        init.zeros_(self.from_input.bias)

    def forward(self, inputs: Tensor, mask: Tensor, places: range) -> Tensor:
        """Return outputs [b, t, p] of `inputs` [b, t, p], read in the order of `places`.

        Padding changes neither cell nor output.
        """
        config, count = self.config, len(inputs)
        cell, output = inputs.new_zeros(count, config.cell), inputs.new_zeros(inputs[:, 0].shape)
        gates = self.from_input(inputs)
        outputs: dict[int, Tensor] = {}
        for place in places:
            i, j, f, o = (gates[:, place] + self.from_state(output)).chunk(4, -1)
            remembered = torch.sigmoid(f + FORGET_BIAS) * cell
            new = _clipped(remembered + torch.sigmoid(i) * torch.tanh(j), config.cell_clip)
            out = self.projection(torch.sigmoid(o) * torch.tanh(new))
            if config.projects_outputs:
                out = _clipped(out, config.projection_clip)
            there = mask[:, place, None].bool()
            cell, output = torch.where(there, new, cell), torch.where(there, out, output)
            outputs[place] = output
        return torch.stack([outputs[place] for place in range(inputs.shape[1])], 1)


def _clipped(values: Tensor, limit: float | None) -> Tensor:
    return values if limit is None else functional.hardtanh(values, -limit, limit)
