"""The published files of ELMo (Peters et al. 2018): options in JSON, weights in HDF5.

Names and shapes of the weights are those that bilm-tf writes and AllenNLP reads. An LSTM has one
matrix for its input and its state. Its columns belong to the input gate, the new values, the
forget gate and the output gate, in this order; the 1 that is added to the forget gate is not in the
file.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import (
    AliasPath,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PositiveFloat,
    PositiveInt,
    ValidationError,
)

from simlab.errors import UserError
from simlab.models.architectures import ELMO
from simlab.store.files import read_json

if TYPE_CHECKING:
    import torch

# Numbers of characters: 256 bytes, then marks that begin and end sentences and words, and one that
# fills words up.
BYTES = 256
SENTENCE_BEGINS, SENTENCE_ENDS, WORD_BEGINS, WORD_ENDS, FILLING = range(BYTES, BYTES + 5)
CHARACTERS = BYTES + 5


_Count = Annotated[int, BeforeValidator(lambda count: count or 0)]  # of null, 0


def _at(*path: str, **limits: Any) -> Any:
    """Return a field that is read at a path of the JSON."""
    return Field(validation_alias=AliasPath(*path), **limits)


class ElmoConfig(BaseModel):
    """The options of an ELMo; other keys of the JSON are about the training."""

    model_config = ConfigDict(frozen=True, protected_namespaces=())

    # Width of a character's vector.
    character_width: PositiveInt = _at("char_cnn", "embedding", "dim")
    # Characters of a word, marks included.
    word_characters: int = _at("char_cnn", "max_characters_per_token", ge=3)
    # Width and number of the convolutions of each width.
    filters: tuple[tuple[PositiveInt, PositiveInt], ...] = _at("char_cnn", "filters", min_length=1)
    activation: Literal["tanh", "relu"] = _at("char_cnn", "activation")  # after the convolutions
    highways: _Count = _at("char_cnn", "n_highway", default=0)
    # Width p of a word's vector, and of each direction of a layer.
    projection: PositiveInt = _at("lstm", "projection_dim")
    # Width of an LSTM's cell; if it is more than p, outputs are projected to p.
    cell: PositiveInt = _at("lstm", "dim")
    # Each layer has an LSTM for each direction.
    num_hidden_layers: PositiveInt = _at("lstm", "n_layers", default=1)
    # Largest magnitudes of a cell and of a projected output.
    cell_clip: PositiveFloat | None = _at("lstm", "cell_clip", default=None)
    projection_clip: PositiveFloat | None = _at("lstm", "proj_clip", default=None)
    # A layer above the first adds its input to its output.
    residual: bool = _at("lstm", "use_skip_connections")

    # The fields that simlab reads in the configuration of any model.
    model_type: ClassVar[str] = ELMO
    architectures: ClassVar[tuple[str, ...]] = ("Elmo",)
    is_encoder_decoder: ClassVar[bool] = False
    pad_token_id: ClassVar[int] = 0

    @property
    def hidden_size(self) -> int:
        """Return the width of a layer: both directions."""
        return 2 * self.projection

    @property
    def filter_count(self) -> int:
        """Return the number of convolutions of all widths."""
        return sum(number for _, number in self.filters)

    @property
    def projects_words(self) -> bool:
        """Return whether the convolutions of a word are projected to `projection`."""
        return self.filter_count != self.projection

    @property
    def projects_outputs(self) -> bool:
        """Return whether the outputs of an LSTM are projected to `projection`."""
        return self.projection < self.cell


def read_options(path: Path) -> ElmoConfig:
    """Read the options."""
    try:
        config = ElmoConfig.model_validate(read_json(path))
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(map(str, first["loc"])) or "no object"
        found = f"{name}: {first['msg'][0].lower()}{first['msg'][1:]}"
        raise UserError(f"{path}: wanted the options of an ELMo, found {found}") from error
    if config.projection > config.cell:
        raise UserError(
            f"{path}: wanted lstm.projection_dim of {config.cell} at most, which is lstm.dim, "
            f"found {config.projection}"
        )
    widest = max(width for width, _ in config.filters)
    if widest > config.word_characters:
        raise UserError(
            f"{path}: wanted char_cnn.filters of {config.word_characters} characters at most, "
            f"found {widest}"
        )
    return config


def read_weights(path: Path, config: ElmoConfig) -> dict[str, torch.Tensor]:
    """Read the weights, under the names that they have in `simlab.models.elmo.Elmo`.

    A weight that is missing, not finite or of another shape than the options say is refused.
    """
    import h5py

    try:
        with h5py.File(path, "r") as file:
            weights = _Weights(file, path)
            return {**_word_weights(weights, config), **_layer_weights(weights, config)}
    except OSError as error:
        raise UserError(f"{path}: wanted the weights of an ELMo, found: {error}") from error


class _Weights:
    """The data sets of a file, checked as they are read."""

    def __init__(self, file: Any, path: Path) -> None:
        self.file, self.path = file, path

    def __call__(self, name: str, *shape: int) -> torch.Tensor:
        import torch

        item = self.file.get(name)
        actual = list(getattr(item, "shape", None) or [])
        if actual != list(shape):
            found_text = f"shape {actual}" if item is not None else "none"
            raise UserError(f"{self.path}, {name}: wanted shape {list(shape)}, found {found_text}")
        values = torch.from_numpy(item[()]).float()
        if not values.isfinite().all():
            raise UserError(f"{self.path}, {name}: wanted finite weights, found NaN or infinity")
        return values


def _word_weights(weights: _Weights, config: ElmoConfig) -> dict[str, torch.Tensor]:
    """Return the weights of the vectors of words."""
    import torch

    width, count = config.character_width, config.filter_count
    characters = weights("char_embed", CHARACTERS, width)
    # Characters in the padding of a batch have number 0.
    tensors = {"words.characters.weight": torch.cat([torch.zeros(1, width), characters])}
    for number, (size, filters) in enumerate(config.filters):
        name = f"words.convolutions.{number}"
        kernel = weights(f"CNN/W_cnn_{number}", 1, size, width, filters)
        tensors[f"{name}.weight"] = kernel[0].permute(2, 1, 0)
        tensors[f"{name}.bias"] = weights(f"CNN/b_cnn_{number}", filters)
    for number in range(config.highways):
        for gate in ("carry", "transform"):
            name, place = f"words.highways.{number}.{gate}", f"CNN_high_{number}"
            tensors[f"{name}.weight"] = weights(f"{place}/W_{gate}", count, count).T
            tensors[f"{name}.bias"] = weights(f"{place}/b_{gate}", count)
    if config.projects_words:
        tensors["words.projection.weight"] = weights("CNN_proj/W_proj", count, config.projection).T
        tensors["words.projection.bias"] = weights("CNN_proj/b_proj", config.projection)
    return tensors


def _layer_weights(weights: _Weights, config: ElmoConfig) -> dict[str, torch.Tensor]:
    """Return the weights of the LSTMs of both directions."""
    tensors = {}
    width, gates = config.projection, 4 * config.cell
    for layer in range(config.num_hidden_layers):
        for number, direction in enumerate(("ahead", "back")):
            place = f"RNN_{number}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
            name = f"layers.{layer}.{direction}"
            # Without a projection, cell and output have the width of the input.
            both = weights(f"{place}/W_0", 2 * width, gates)
            tensors[f"{name}.from_input.weight"] = both[:width].T
            tensors[f"{name}.from_input.bias"] = weights(f"{place}/B", gates)
            tensors[f"{name}.from_state.weight"] = both[width:].T
            if config.projects_outputs:
                projection = weights(f"{place}/W_P_0", config.cell, width)
                tensors[f"{name}.projection.weight"] = projection.T
    return tensors
