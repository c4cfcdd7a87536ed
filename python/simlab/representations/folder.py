"""Representation folders: the rows of every layer on disk, and a manifest that describes them.

A folder has these files::

    <kind>.safetensors    "layer.0", "layer.1", ...: float32 (or half of it on request) [n, p],
                          layer 0 = embedding output
    manifest.json         kind, row ids, the example of each row, hashes, model, task, versions
    job.json              the key of the inputs

`kinds.KINDS` has the kinds of representation. For kind `attention`, layers are numbered from 1,
because the embedding output has no attention. A layer is then a flat array: the [H, t, t] weights
of one sentence after another. The manifest has the `lengths` t, and the ids of all words.
Sentences without a whole word in the kept tokens are left out.

In results, layer 0 is the embedding output. Modules, and layers of unknown kind that were imported,
are numbered from 1 there, in the order of the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from simlab.errors import UserError, argument
from simlab.representations.kinds import ATTENTION, KINDS
from simlab.results.results import SIDE, Side
from simlab.store.arrays import BFLOAT16, as_bits, create_safetensors, flush_arrays, map_safetensors
from simlab.store.console import note
from simlab.store.files import HASHES, hash_file, read_json, write_json
from simlab.store.runtime import versions

MANIFEST = "manifest.json"
_EXAMPLES = "examples"
_ONLY = "layer"  # in memory alone: the number of the one layer that `only` left
DTYPES = ("float32", "float16", BFLOAT16)  # of the stored values
# The end of error messages about too few rows.
MORE_ROWS = (
    f"`simcore extract` of more examples ({argument('limit')}, {argument('train_size')}, "
    f"{argument('heldout_size')}) gives more"
)


@dataclass(frozen=True)
class Representations:
    """All stored layers of one model on one set of examples.

    `layers` is a list of arrays [n, p_i]; for kind `attention`, a list of lists of arrays
    [H, t_s, t_s], one for each sentence s.
    """

    folder: Path
    layers: list[Any]
    manifest: dict[str, Any]

    @property
    def ids(self) -> list[str]:
        """Return the row ids in order; for kind `attention`, the ids of all words."""
        return self.manifest["ids"]

    @property
    def side(self) -> Side:
        """Return how rows of results name the model."""
        return Side(**{name: self.manifest[name] for name in SIDE})

    @property
    def identity(self) -> list[Any]:
        """Return what keys contain of the layers: their hash, and how rows name model and task."""
        facts = [self.manifest["data_sha256"], self.manifest["task"], vars(self.side)]
        facts += [self.manifest[name] for name in ("groups_sha256",) if name in self.manifest]
        return [*facts, self.manifest[_ONLY]] if _ONLY in self.manifest else facts

    @property
    def is_attention(self) -> bool:
        """Return whether the layers are attention weights."""
        return self.manifest["kind"] == ATTENTION

    def row_examples(self, *, pairs: bool = True, causal: bool = False) -> np.ndarray:
        """Return the number of the example that each row belongs to, int64 [rows].

        Parameters
        ----------
        pairs
            Whether the rows of attention are pairs of words, or words.
        causal
            Whether only pairs of a word with itself and with earlier words are rows.
        """
        if not self.is_attention:
            return np.unique(self.manifest[_EXAMPLES], return_inverse=True)[1]
        sizes = lengths = np.array(self.manifest["lengths"])
        if pairs:
            sizes = lengths * (lengths + 1) // 2 if causal else lengths**2
        return np.repeat(np.arange(len(lengths)), sizes)

    @property
    def first_layer(self) -> int:
        """Return the number of the first of `layers` in results; 0 is the embedding output."""
        if _ONLY in self.manifest:
            return int(self.manifest[_ONLY])
        kind = self.manifest["kind"]
        return KINDS[kind].first_layer if kind in KINDS else 1


class LayerWriter:
    """A writer that fills the data file of a folder, with one batch in memory at a time."""

    def __init__(self, folder: Path, kind: str, counts: np.ndarray, dtype: str = DTYPES[0]) -> None:
        """Take the number of rows (for attention, of words) of every example, int64 [n]."""
        self.folder, self.kind, self.counts, self.dtype = folder, kind, counts, dtype
        self.sizes: list[int] = []
        self._arrays: list[np.ndarray] = []

    def put(self, examples: np.ndarray, pooled: Sequence[np.ndarray]) -> None:
        """Write the rows of `examples` [b] to their places.

        `pooled` has [b, R, p] for each layer, or [b, H, R, R] for attention; the rows of an example
        come first.
        """
        if not self._arrays:
            heads = self.kind == ATTENTION
            self.create([layer.shape[1 if heads else -1] for layer in pooled])
        for number, layer in enumerate(pooled):
            self.put_layer(number, examples, layer)

    def create(self, sizes: list[int]) -> None:
        """Create the data file for layers of these widths (for attention, numbers of heads)."""
        self.sizes = sizes
        names = _layer_names(self.kind, len(sizes))
        if self.kind == ATTENTION:
            pairs = int(np.sum(self.counts**2))
            shapes: list[tuple[int, ...]] = [(heads * pairs,) for heads in sizes]
        else:
            shapes = [(int(self.counts.sum()), width) for width in sizes]
        file = _data_file(self.folder, self.kind)
        arrays = create_safetensors(file, dict(zip(names, shapes, strict=True)), self.dtype)
        self._arrays = [arrays[name] for name in names]

    def put_rows(self, layer: int, start: int, rows: np.ndarray) -> None:
        """Write rows [r, p] of layer number `layer` from row `start` on; `create` comes first."""
        self._arrays[layer][start : start + len(rows)] = self._stored(rows)

    def put_layer(self, number: int, examples: np.ndarray, layer: np.ndarray) -> None:
        """Write the rows of `examples` in one layer, as `put` does; `create` comes first."""
        array = self._arrays[number]
        attention = self.kind == ATTENTION
        layer = self._stored(layer)
        # The place of an example follows from the sizes before it: values of a flat array for
        # attention, [H, t, t] of one sentence after another, or else rows [n, p].
        sizes = layer.shape[1] * self.counts**2 if attention else self.counts
        starts = np.cumsum(sizes) - sizes
        for example, values in zip(examples, layer, strict=True):
            start, t = starts[example], self.counts[example]
            own_rows = values[:, :t, :t].ravel() if attention else values[:t]
            array[start : start + sizes[example]] = own_rows

    def _stored(self, values: np.ndarray) -> np.ndarray:
        """Return values in the type of the file; bfloat16 as bits."""
        if self.dtype == DTYPES[0]:
            return values
        _require_range(values, self.dtype)
        return as_bits(values) if self.dtype == BFLOAT16 else values

    def finish(self, ids: list[str], identity: dict[str, Any], examples: np.ndarray) -> None:
        """Flush the data to the disk, and write the manifest, which begins with `identity`.

        `ids` names the rows (for attention, the words). `examples`, int64 [n], has the number of
        the example that each row belongs to.
        """
        flush_arrays(self._arrays)
        facts: dict[str, Any] = {"n": len(ids)}
        if self.kind == ATTENTION:
            lengths = [int(count) for count in self.counts if count]
            facts = {"n": len(lengths), "lengths": lengths}
        manifest = {
            **identity,
            **facts,
            "layers": len(self.sizes),
            "widths": self.sizes,
            "data_sha256": hash_file(_data_file(self.folder, self.kind)),
            "versions": versions(),
            "ids": ids,
            _EXAMPLES: examples.tolist(),
        }
        write_json(self.folder / MANIFEST, manifest)


def load_representations(folder: str | Path) -> Representations:
    """Read a representation folder, and check that its data match the manifest.

    Parameters
    ----------
    folder
        A folder that `extract` made.

    Returns
    -------
    Representations
        The layers (``[n, p]`` float32 each, the embedding output first), the row ids and the
        manifest.

    Raises
    ------
    UserError
        `folder` is not a representation folder, or its data file was changed or damaged.

    Examples
    --------
    >>> from simlab import TaskOptions, extract, load_representations
    >>> few = TaskOptions(train_size=64, heldout_size=32)
    >>> step = extract("minilm", "rt", "runs/reps/orig", label="ORIG", task_options=few)
    >>> stored = load_representations("runs/reps/orig")
    >>> len(stored.layers), stored.layers[0].shape
    (7, (32, 384))
    """
    folder = Path(folder)
    path = folder / MANIFEST
    if not path.is_file():
        found = f"a folder without {MANIFEST}" if folder.is_dir() else "no such folder"
        found = "a file" if folder.is_file() else found
        raise UserError(f"{folder}: wanted a folder written by `simcore extract`, found {found}")
    manifest = read_json(path)
    found = manifest if isinstance(manifest, dict) else {}  # another program's
    if lacking := [name for name in (*SIDE, _EXAMPLES) if name not in found]:  # of older code
        raise UserError(f"{path}: wanted {lacking[0]}, found none; make the folder again")
    data = _data_file(folder, manifest["kind"])
    if not data.is_file() or HASHES.hash(data) != manifest["data_sha256"]:
        raise UserError(
            f"{data}: wanted the file that {path} describes, found another file or no file"
        )
    tensors = map_safetensors(data)
    names = _layer_names(manifest["kind"], manifest["layers"])
    # Half saves room on the disk; all that is computed is computed in float32. Layers of float32
    # stay in the file, and processes that read the same layers share the memory of its pages.
    layers: list[Any] = [tensors[name].astype(np.float32, copy=False) for name in names]
    if manifest["kind"] == ATTENTION:
        heads = zip(layers, manifest["widths"], strict=True)
        layers = [_sentences(flat, width, manifest["lengths"]) for flat, width in heads]
    return Representations(folder, layers, manifest)


def only(side: Representations, layer: int) -> Representations:
    """Return representations that have one of their layers alone, by its number in results."""
    first, last = side.first_layer, side.first_layer + len(side.layers) - 1
    if not first <= layer <= last:
        raise UserError(
            f"{side.folder}: wanted layer {layer} of {side.side.label}, found layers {first} to "
            f"{last}"
        )
    manifest = {**side.manifest, _ONLY: layer}
    return replace(side, layers=[side.layers[layer - first]], manifest=manifest)


def require_same_examples(x: Representations, y: Representations) -> None:
    """Check that `x` and `y` have the same rows: equal ids in equal order, and equal texts.

    The id of a token or word contains its text, so models whose tokenizers split a text into
    different words are not compared. Texts that neither file nor user named are not known, and only
    the ids are compared.
    """
    names = f"{x.folder} and {y.folder}"
    if x.ids != y.ids:
        raise UserError(f"{names}: wanted the same rows, found {_first_difference(x.ids, y.ids)}")
    if not has_same_examples(x, y):
        raise UserError(f"{names}: wanted the same rows, found other texts under the same ids")


def require_same_groups(x: Representations, y: Representations) -> None:
    """Check that the same rows of `x` and `y` belong together, as draws of whole texts want."""
    if not np.array_equal(x.row_examples(), y.row_examples()):
        raise UserError(
            f"{x.folder} and {y.folder}: wanted rows that belong together in both, found other "
            f"groups of rows; {argument('groups', of='import')} names them"
        )


def has_same_examples(x: Representations, y: Representations) -> bool:
    """Return whether ids and texts are equal, or ids alone where the texts are not known."""
    texts = {part.manifest["examples_sha256"] for part in (x, y)} - {None}
    return len(texts) < 2 and x.ids == y.ids


def note_other_lengths(several: Sequence[Representations]) -> None:
    """Print a note if the texts of representations were cut at different numbers of tokens."""
    folders: dict[int, list[str]] = {}
    for one in several:
        if one.manifest["max_length"] is not None:
            folders.setdefault(one.manifest["max_length"], []).append(str(one.folder))
    if len(folders) > 1:
        lengths = ", ".join(f"{n} tokens in {' and '.join(names)}" for n, names in folders.items())
        note(f"the models may have read different inputs: texts were cut at {lengths}")


def describe(folder: Path) -> str:
    """Describe the content of a representation folder in a few words."""
    manifest = read_json(folder / MANIFEST)
    what = " heads" if manifest["kind"] == ATTENTION else ""
    least, most = min(manifest["widths"]), max(manifest["widths"])
    widths = f"{least}" if least == most else f"{least} to {most}"
    size = f"{manifest['n']:,} x {widths}{what}"
    cut = manifest["max_length"]
    texts = "" if cut is None else f", texts cut at {cut} tokens"
    count = manifest["layers"]
    return f"{count} {'layer' if count == 1 else 'layers'} of {size}{texts}"


def _require_range(values: np.ndarray, dtype: str) -> None:
    """Raise UserError if a value is out of the range of a type; nan is not."""
    import torch

    largest, most = abs(values).max(initial=0), torch.finfo(getattr(torch, dtype)).max
    if largest > most:
        raise UserError(
            f"{argument('dtype', dtype)}: wanted values up to {most:,.0f}, found {largest:,.0f}; "
            f"choose {DTYPES[0]}"
        )


def _first_difference(x: list[str], y: list[str]) -> str:
    differing = (row for row, pair in enumerate(zip(x, y, strict=False)) if pair[0] != pair[1])
    row = next(differing, None)
    if row is None:
        return f"{len(x):,} and {len(y):,} rows with the same ids as far as both go"
    if len(x) != len(y):
        what = f"{len(x):,} and {len(y):,} rows with different ids"
    elif set(x) == set(y):
        what = "the same ids in another order"
    else:
        what = "different ids"
    return f"{what}, first at row {row}: {x[row]!r} and {y[row]!r}"


def _data_file(folder: Path, kind: str) -> Path:
    return folder / f"{kind}.safetensors"


def _layer_names(kind: str, count: int) -> list[str]:
    first = KINDS[kind].first_layer if kind in KINDS else 0
    return [f"layer.{layer}" for layer in range(first, first + count)]


def _sentences(flat: np.ndarray, heads: int, lengths: list[int]) -> list[np.ndarray]:
    """Return the views [H, t, t] of a flat attention layer, one for each sentence."""
    ends = np.cumsum([heads * t * t for t in lengths])
    blocks = np.split(flat, ends[:-1])
    return [block.reshape(heads, t, t) for block, t in zip(blocks, lengths, strict=True)]
