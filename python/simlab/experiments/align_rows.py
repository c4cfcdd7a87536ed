"""The rows of stored layers that maps are fitted on, and the rows that maps are judged on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from simlab.errors import UserError, argument
from simlab.experiments.align_options import KEYS, StudyOptions
from simlab.representations.folder import (
    MANIFEST,
    MORE_ROWS,
    Representations,
    has_same_examples,
    load_representations,
    note_other_lengths,
    require_same_examples,
)
from simlab.store.console import note


@dataclass(frozen=True)
class Member:
    """A model of a study: its layers, and its layers of other examples to judge on, if given."""

    fitted: Representations
    other: Representations | None = None

    @property
    def judged(self) -> Representations:
        """Return the layers that maps are judged on."""
        return self.fitted if self.other is None else self.other

    @property
    def manifest(self) -> dict[str, Any]:
        """Return the manifest of the layers that maps are fitted on."""
        return self.fitted.manifest


@dataclass(frozen=True)
class Split:
    """Numbers of the rows that maps are fitted on and judged on, from different examples.

    `examples` has the number of the example of every held-out row.
    """

    train: np.ndarray
    heldout: np.ndarray
    examples: np.ndarray


@dataclass(frozen=True)
class Unit:
    """A layer of a model, or a head of a layer: a side of a map."""

    layer: int  # 0 is the embedding output
    head: int | None  # counted from 0; None for a whole layer
    fitted: np.ndarray  # [n, p], the rows that maps are fitted on
    judged: np.ndarray  # [m, p], the rows that maps are judged on


def load_members(
    folders: Sequence[str | Path], judge: Sequence[str | Path], options: StudyOptions
) -> list[Member]:
    """Load and check the models of a study, one for each of `folders`.

    `judge` names representation folders of other examples, or folders of such folders. Each model's
    folder is found there by its label, and folders of other models are left out.
    """
    fitted = [load_representations(folder) for folder in folders]
    _check_models(fitted, options)
    if not judge:
        note_other_lengths(fitted)
        return [Member(model) for model in fitted]
    loaded: dict[str, Representations] = {}
    labels = {model.manifest["label"] for model in fitted}
    for other in (load_representations(folder) for folder in _folders_in(judge)):
        label = other.manifest["label"]
        if label in loaded:
            raise UserError(
                f"{argument('judge')}: wanted one folder with label {label!r}, found "
                f"{loaded[label].folder} and {other.folder}"
            )
        if label in labels:
            loaded[label] = other
    members = []
    for model in fitted:
        label = model.manifest["label"]
        if label not in loaded:
            raise UserError(
                f"{argument('judge')}: wanted a folder with label {label!r} for {model.folder}, "
                "found none"
            )
        members.append(Member(model, loaded[label]))
    _check_judged(members)
    note_other_lengths([*fitted, *(member.judged for member in members)])
    return members


def _folders_in(places: Sequence[str | Path]) -> Iterator[Path]:
    """Yield the representation folders among `places`, and those that lie in one of `places`."""
    for place in map(Path, places):
        if (place / MANIFEST).is_file():
            yield place
            continue
        inside = sorted(path.parent for path in place.glob(f"*/{MANIFEST}"))
        if not inside:
            raise UserError(
                f"{argument('judge', place)}: wanted a folder written by `simcore extract` or a "
                "folder of such folders, found neither"
            )
        yield from inside


def _check_models(models: list[Representations], options: StudyOptions) -> None:
    labels = [model.manifest["label"] for model in models]
    if len(set(labels)) < len(labels):
        raise UserError(f"align-study: wanted folders with different labels, found {labels}")
    if len(models) < 2 and not options.within:
        raise UserError(
            f"align-study: wanted 2 folders or more, or {argument('within')}, found {len(models)}"
        )
    first = models[0]
    if options.causal and not first.is_attention:
        raise UserError(
            f"{argument('causal')}: wanted kind attention in {first.folder}, found "
            f"{first.manifest['kind']}"
        )
    for other in models[1:]:
        _check_alike(first, other)
        require_same_examples(first, other)


def _check_judged(members: list[Member]) -> None:
    for member in members:
        _check_alike(member.fitted, member.judged)
        if has_same_examples(member.fitted, member.judged):
            raise UserError(
                f"{argument('judge', member.judged.folder)}: wanted other examples than in "
                f"{member.fitted.folder}, found the same"
            )
    for other in members[1:]:
        require_same_examples(members[0].judged, other.judged)


def _check_alike(first: Representations, other: Representations) -> None:
    """Raise UserError if two folders differ in kind or number of layers."""
    if other.manifest["kind"] != first.manifest["kind"]:
        raise UserError(
            f"{other.folder}: wanted kind {first.manifest['kind']} as in {first.folder}, found "
            f"{other.manifest['kind']}"
        )
    if len(other.layers) != len(first.layers):
        raise UserError(
            f"{other.folder}: wanted {len(first.layers)} layers as in {first.folder}, found "
            f"{len(other.layers)}"
        )


def split_rows(model: Representations, options: StudyOptions, *, heads: bool = False) -> Split:
    """Split the rows by example, at random with `options.seed`.

    With `heads`, the rows are sentences, as in `head_units`.
    """
    example = examples_of(model, options.causal, heads)
    count = int(example.max()) + 1
    heldout = round(options.heldout_share * count)
    if min(heldout, count - heldout) < 2:
        raise UserError(
            f"{argument('heldout_share', options.heldout_share)}: wanted 2 examples or more on "
            f"each side, found {heldout} of {count} held out in {model.folder}; {MORE_ROWS}"
        )
    draw = np.random.default_rng(options.seed)
    judged = np.zeros(count, bool)
    judged[draw.permutation(count)[:heldout]] = True
    order = draw.permutation(len(example))
    on_judged = judged[example[order]]
    heldout = order[on_judged][: options.rows]
    return Split(order[~on_judged][: options.rows], heldout, example[heldout])


def split_member(member: Member, options: StudyOptions, *, heads: bool = False) -> Split:
    """Return the rows to fit on and to judge on; with a folder to judge on, drawn from both."""
    if member.other is None:
        return split_rows(member.fitted, options, heads=heads)
    draw = np.random.default_rng(options.seed)
    fitted, judged = (examples_of(m, options.causal, heads) for m in (member.fitted, member.judged))
    train, heldout = (draw.permutation(len(side))[: options.rows] for side in (fitted, judged))
    return Split(train, heldout, judged[heldout])


def note_few_rows(member: Member, options: StudyOptions) -> None:
    """Print a note where the folders of a model have fewer rows than were asked for."""
    if options.rows == StudyOptions.rows:  # the default takes what there is
        return
    heads = options.attention_rows == KEYS and member.fitted.is_attention
    split = split_member(member, options, heads=heads)
    counts = {"fit": len(split.train), "judge": len(split.heldout)}
    few = [f"{count:,} to {use} on" for use, count in counts.items() if count < options.rows]
    if few:
        note(
            f"{argument('rows', options.rows)}: {member.fitted.folder}"
            f"{f' and {member.judged.folder}' if member.other else ''}: found {' and '.join(few)}"
        )


def examples_of(model: Representations, causal: bool, heads: bool) -> np.ndarray:
    """Return the number of the example that each row belongs to, int64 [n]."""
    return np.arange(model.manifest["n"]) if heads else model.row_examples(causal=causal)


def layer_matrix(model: Representations, layer: int, causal: bool) -> np.ndarray:
    """Return stored layer number `layer`, counted from 0, as [rows, columns] float32.

    In attention, word pairs are rows and heads are columns.
    """
    import simcore

    stored = model.layers[layer]
    if not model.is_attention:
        return stored
    return np.asarray(simcore.distributed_attention(stored, causal=causal), np.float32)


def layer_units(member: Member, split: Split, causal: bool) -> list[Unit]:
    """Return all layers of a model with the rows of `split`."""
    first = member.fitted.first_layer
    units = []
    for number in range(len(member.fitted.layers)):
        fitted = layer_matrix(member.fitted, number, causal)
        judged = fitted if member.other is None else layer_matrix(member.other, number, causal)
        units.append(Unit(first + number, None, fitted[split.train], judged[split.heldout]))
    return units


def head_units(member: Member, split: Split, causal: bool) -> list[Unit]:
    """Return all heads of all layers with the sentences of `split` as rows.

    A row has the attention that each word of a sentence receives from all words on average, and is
    filled with zeros up to the longest sentence (Ren et al. 2023, figures 6 and 8).
    """
    width = max(max(m.manifest["lengths"]) for m in (member.fitted, member.judged))
    units = []
    for number in range(len(member.fitted.layers)):
        fitted = received_attention(member.fitted.layers[number], width, causal)
        judged = fitted
        if member.other is not None:
            judged = received_attention(member.other.layers[number], width, causal)
        units += [
            Unit(member.fitted.first_layer + number, head, one[split.train], other[split.heldout])
            for head, (one, other) in enumerate(zip(fitted, judged, strict=True))
        ]
    return units


def received_attention(layer: Sequence[np.ndarray], width: int, causal: bool) -> np.ndarray:
    """Return the mean weight that each word receives, [H, sentences, width] float32.

    `layer` has the weights [H, t, t] of every sentence; each row, the attention of one word, sums
    to 1. With `causal`, a word's weights of later words are left out, and the others scaled to sum
    to 1.
    """
    received = np.zeros((len(layer[0]), len(layer), width), np.float32)
    for sentence, weights in enumerate(layer):
        if causal:
            weights = np.tril(weights)
            sums = weights.sum(-1, keepdims=True)
            if not sums.all():
                head, word, _ = np.argwhere(sums == 0)[0]
                raise UserError(
                    f"{argument('causal')}: wanted words with attention to themselves or to words "
                    f"before them, found none of word {word} of text {sentence} in head {head}"
                )
            weights = weights / sums
        received[:, sentence, : weights.shape[-1]] = weights.mean(1)
    return received
