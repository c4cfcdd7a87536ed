"""Representations: every layer of a model in one forward pass, written with example ids.

A representation folder holds one safetensors file per kind of representation and a manifest::

    cls.safetensors    "layer.0", "layer.1", ...: float32 [n, p], layer 0 = embedding output
    manifest.json      kind, example ids, hashes, model, task, versions
    job.json           the key of the inputs

`KINDS` maps a kind to the function that reduces a layer's hidden states to the rows to keep;
further kinds (token means, words) register there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from simlab.batches import DEFAULT_MAX_LENGTH, batches, encode, require_cls_first
from simlab.console import progress
from simlab.errors import UserError
from simlab.files import hash_file, read_json, write_json
from simlab.jobs import Outcome, run_job
from simlab.models import ModelSource, load_encoder, load_tokenizer
from simlab.runtime import best_device, versions

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from simlab.tasks import Examples, Task

MANIFEST = "manifest.json"
BATCH_SIZE = 64


@dataclass(frozen=True)
class ExtractOptions:
    """What to extract: which split, how long, and whether from a random twin."""

    kind: str = "cls"
    split: str = "heldout"
    max_length: int = DEFAULT_MAX_LENGTH
    batch_size: int = BATCH_SIZE
    random_init_seed: int | None = None


@dataclass(frozen=True)
class Representations:
    """All layers of one model on one set of examples: `layers` is a list of [n, p_i] arrays."""

    folder: Path
    layers: list[np.ndarray]
    manifest: dict[str, Any]

    @property
    def ids(self) -> list[str]:
        """Example ids in row order."""
        return self.manifest["ids"]


def _cls(hidden: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
    """Keep position 0 of [b, t, p]; batches pad on the right, so that is CLS (Phang et al. 3)."""
    return hidden[:, 0]


KINDS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {"cls": _cls}


def extract(
    source: ModelSource,
    task: Task,
    folder: Path,
    options: ExtractOptions | None = None,
    *,
    label: str | None = None,
    seed: int | None = None,
    replace: bool = False,
) -> Outcome:
    """Write the representations of one split of `task` by every layer of `source`.

    Parameters
    ----------
    folder
        The representation folder to make.
    label, seed
        How results tables name this model, and the seed of its fine-tuning.
    replace
        Make the folder anew if it was made from other inputs.

    Raises
    ------
    UserError
        Unknown kind or split, no CLS at position 0, not an encoder, an occupied `folder`.
    """
    options = options or ExtractOptions()
    if options.kind not in KINDS:
        raise UserError(f"--kind {options.kind}: wanted one of {', '.join(KINDS)}")
    examples = task.split(options.split)
    identity = {
        "kind": options.kind,
        "split": options.split,
        "task": task.name,
        "model": source.name,
        "model_sha256": source.fingerprint,
        "random_init_seed": options.random_init_seed,
        "max_length": options.max_length,
        "examples_sha256": examples.text_fingerprint,
        "label": label or source.name,
        "seed": seed,
    }

    def make(partial: Path) -> None:
        layers = _extract_layers(source, examples, options, identity["label"])
        _write(partial, layers, examples, identity)

    return run_job(folder, {"step": "extract", **identity}, make, replace=replace)


def forward_layers(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    encoded: list[dict[str, Any]],
    options: ExtractOptions,
    description: str,
) -> list[np.ndarray]:
    """Run every example once and keep one row per layer.

    Returns
    -------
    list of ndarray
        Embedding output and every block, each [n, p] float32, rows in the order of `encoded`.
    """
    import torch

    device = best_device()
    model.to(device).eval()
    reduce = KINDS[options.kind]
    layers: list[np.ndarray] = []
    with torch.inference_mode(), progress(description, len(encoded)) as advance:
        for rows, batch in batches(tokenizer, encoded, options.batch_size, device):
            hidden = model(**batch, output_hidden_states=True).hidden_states
            if not layers:
                layers = [np.empty((len(encoded), h.shape[-1]), np.float32) for h in hidden]
            for layer, states in zip(layers, hidden, strict=True):
                layer[rows] = reduce(states, batch["attention_mask"]).float().cpu().numpy()
            advance(len(rows))
    return layers


def load_representations(folder: Path) -> Representations:
    """Read a representation folder, checking that the data is what the manifest describes.

    Raises
    ------
    UserError
        Not a representation folder, or the data file was changed or damaged.
    """
    from safetensors.numpy import load_file

    path = folder / MANIFEST
    if not path.is_file():
        raise UserError(f"{folder}: wanted a folder written by `simcore extract`, found none")
    try:
        manifest = read_json(path)
    except ValueError as error:
        raise UserError(f"{path}: wanted JSON, found a damaged file ({error})") from None
    data = folder / f"{manifest['kind']}.safetensors"
    if not data.is_file() or hash_file(data) != manifest["data_sha256"]:
        raise UserError(f"{data}: wanted the file that {path} describes, found another or none")
    tensors = load_file(data)
    layers = [tensors[f"layer.{index}"] for index in range(manifest["layers"])]
    return Representations(folder, layers, manifest)


def require_same_examples(x: Representations, y: Representations) -> None:
    """Check that rows mean the same in both: equal ids in equal order, of equal texts.

    Raises
    ------
    UserError
        Says which folder, how many examples, and where the first difference is.
    """
    names = f"{x.folder} and {y.folder}"
    if len(x.ids) != len(y.ids):
        raise UserError(
            f"{names}: wanted the same examples, found {len(x.ids)} and {len(y.ids)} of them"
        )
    if x.ids != y.ids:
        pairs = enumerate(zip(x.ids, y.ids, strict=True))
        row, (left, right) = next((row, pair) for row, pair in pairs if pair[0] != pair[1])
        what = "the same ids in another order" if set(x.ids) == set(y.ids) else "different ids"
        raise UserError(
            f"{names}: wanted the same examples, found {what}, first at row {row}: "
            f"{left!r} and {right!r}"
        )
    if x.manifest["examples_sha256"] != y.manifest["examples_sha256"]:
        raise UserError(f"{names}: wanted the same examples, found other texts under the same ids")


def _extract_layers(
    source: ModelSource, examples: Examples, options: ExtractOptions, label: str
) -> list[np.ndarray]:
    tokenizer = load_tokenizer(source)
    encoded = encode(tokenizer, examples, options.max_length)
    require_cls_first(tokenizer, encoded, source.name)
    model = load_encoder(source, options.random_init_seed)
    if model.config.is_encoder_decoder:
        raise UserError(f"model {source.name}: wanted an encoder, found an encoder-decoder")
    return forward_layers(model, tokenizer, encoded, options, f"extracting {label}")


def _write(
    folder: Path, layers: list[np.ndarray], examples: Examples, identity: dict[str, Any]
) -> None:
    from safetensors.numpy import save_file

    data = folder / f"{identity['kind']}.safetensors"
    save_file({f"layer.{index}": layer for index, layer in enumerate(layers)}, data)
    manifest = {
        **identity,
        "n": len(examples),
        "layers": len(layers),
        "widths": [layer.shape[1] for layer in layers],
        "data_sha256": hash_file(data),
        "versions": versions(),
        "ids": list(examples.ids),
    }
    write_json(folder / MANIFEST, manifest)
