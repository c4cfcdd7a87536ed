"""The models of an alignment study, the rows of its maps, and the complexity of a layer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from simlab.errors import UserError, argument
from simlab.experiments.options import KEYS, StudyOptions
from simlab.representations.folder import (
    MANIFEST,
    MORE_ROWS,
    Representations,
    has_same_examples,
    load_representations,
    note_other_lengths,
    require_same_examples,
)
from simlab.results.results import NUCLEAR, NUCLEAR_RAW
from simlab.store.console import note

_BLOCK = 8  # rows of a decomposition, in columns of the layer: what is copied stays small


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
    """Numbers of the rows that maps are fitted on and judged on, from different examples."""

    train: np.ndarray
    heldout: np.ndarray
    examples: np.ndarray  # the number of the example of every held-out row


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

    Each model's folder among `judge` is found by its label; folders of other models are left out.
    """
    fitted = [load_representations(folder) for folder in folders]
    labels = [model.manifest["label"] for model in fitted]
    if len(set(labels)) < len(labels):
        raise UserError(f"align-study: wanted folders with different labels, found {labels}")
    if len(fitted) < 2 and not options.within:
        raise UserError(
            f"align-study: wanted 2 folders or more, or {argument('within')}, found {len(fitted)}"
        )
    if options.causal and not fitted[0].is_attention:
        raise UserError(
            f"{argument('causal')}: wanted kind attention in {fitted[0].folder}, found "
            f"{fitted[0].manifest['kind']}"
        )
    others: list[Representations] = []
    for folder in map(Path, judge):
        inside = sorted(path.parent for path in folder.glob(f"*/{MANIFEST}"))
        inside = [folder] if (folder / MANIFEST).is_file() else inside
        if not inside:
            raise UserError(
                f"{argument('judge', folder)}: wanted a folder written by `simcore extract` or a "
                "folder of such folders, found neither"
            )
        others += map(load_representations, inside)
    members = []
    for model, label in zip(fitted, labels, strict=True):
        same = [other for other in others if other.manifest["label"] == label]
        if judge and len(same) != 1:
            raise UserError(
                f"{argument('judge')}: wanted one folder with label {label!r} for {model.folder}, "
                f"found {' and '.join(str(other.folder) for other in same) or 'none'}"
            )
        members.append(Member(model, same[0] if judge else None))
    for member in members:
        for side, first in ((member.fitted, fitted[0]), (member.judged, members[0].judged)):
            shapes = [f"{len(s.layers)} layers of {s.manifest['kind']}" for s in (fitted[0], side)]
            if shapes[0] != shapes[1]:
                raise UserError(
                    f"{side.folder}: wanted {shapes[0]} as in {fitted[0].folder}, found {shapes[1]}"
                )
            require_same_examples(first, side)
        if judge and has_same_examples(member.fitted, member.judged):
            raise UserError(
                f"{argument('judge', member.judged.folder)}: wanted other examples than in "
                f"{member.fitted.folder}, found the same"
            )
    note_other_lengths([*fitted, *(member.other for member in members if member.other)])
    return members


def split_rows(member: Member, options: StudyOptions, *, heads: bool = False) -> Split:
    """Return the rows to fit on and to judge on, drawn at random with `options.seed`.

    Without a folder to judge on, the rows are split by example. With `heads`, rows are sentences.
    """
    draw = np.random.default_rng(options.seed)
    example = examples_of(member.fitted, options.causal, heads)
    if member.other is not None:
        judged = examples_of(member.other, options.causal, heads)
        train, heldout = (draw.permutation(len(side))[: options.rows] for side in (example, judged))
        return Split(train, heldout, judged[heldout])
    count = int(example.max()) + 1
    share = round(options.heldout_share * count)
    if min(share, count - share) < 2:
        raise UserError(
            f"{argument('heldout_share', options.heldout_share)}: wanted 2 examples or more on "
            f"each side, found {share} of {count} held out in {member.fitted.folder}; {MORE_ROWS}"
        )
    is_judged = np.zeros(count, bool)
    is_judged[draw.permutation(count)[:share]] = True
    order = draw.permutation(len(example))
    on_judged = is_judged[example[order]]
    heldout = order[on_judged][: options.rows]
    return Split(order[~on_judged][: options.rows], heldout, example[heldout])


def note_few_rows(member: Member, options: StudyOptions) -> None:
    """Print a note where the folders of a model have fewer rows than were asked for."""
    if options.rows == StudyOptions.rows:  # the default takes what there is
        return
    heads = options.attention_rows == KEYS and member.fitted.is_attention
    split = split_rows(member, options, heads=heads)
    counts = len(split.train), len(split.heldout)
    if min(counts) < options.rows:
        note(
            f"{argument('rows', options.rows)}: {member.fitted.folder}: found {counts[0]:,} to fit "
            f"on and {counts[1]:,} to judge on"
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


def units_of(member: Member, split: Split, *, heads: bool, causal: bool) -> list[Unit]:
    """Return all layers of a model with the rows of `split`, or with `heads` all heads of all.

    A row of a head has the attention that each word of a sentence receives from all words on
    average, filled with zeros up to the longest sentence (Ren et al. 2023, figures 6 and 8).
    """
    width = 0
    if heads:
        width = max(max(side.manifest["lengths"]) for side in (member.fitted, member.judged))

    def matrices(side: Representations, number: int) -> list[np.ndarray]:
        if heads:
            return list(received_attention(side.layers[number], width, causal))
        return [layer_matrix(side, number, causal)]

    units = []
    for number in range(len(member.fitted.layers)):
        fitted = matrices(member.fitted, number)
        judged = fitted if member.other is None else matrices(member.other, number)
        for head, (x, y) in enumerate(zip(fitted, judged, strict=True)):
            layer = member.fitted.first_layer + number
            units.append(Unit(layer, head if heads else None, x[split.train], y[split.heldout]))
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


def nuclear_norm(rows: np.ndarray) -> float:
    """Return the nuclear norm of the centred rows at unit Frobenius norm; nan if they do not vary.

    The norm is between 1, for rows on a line, and the square root of the rank, if the rows vary
    equally along all directions. The norms of layers of different scale or offset can be compared.
    """
    if not varies(rows):
        return float("nan")
    spectrum = _spectrum(rows, rows.mean(0, dtype=np.float64))
    return float(spectrum.sum() / np.linalg.norm(spectrum))


def raw_nuclear_norm(rows: np.ndarray) -> float:
    """Return the nuclear norm of the rows as they are (Ren et al. 2023, appendix B.2).

    The norm grows with the scale of the layer, the number of its rows and their common offset.
    """
    return float(_spectrum(rows).sum()) if len(rows) else float("nan")


COMPLEXITIES: Mapping[str, Callable[[np.ndarray], float]] = {
    NUCLEAR: nuclear_norm,
    NUCLEAR_RAW: raw_nuclear_norm,
}


def _spectrum(rows: np.ndarray, origin: np.ndarray | float = 0.0) -> np.ndarray:
    """Return the singular values of the rows less ``origin``.

    They are computed in float64: beside large values, float32 would lose the small ones.
    """
    width = rows.shape[1]
    triangle = np.empty((0, width))
    for start in range(0, len(rows), _BLOCK * width):
        block = rows[start : start + _BLOCK * width] - origin
        triangle = np.linalg.qr(np.concatenate([triangle, block.astype(np.float64)]), mode="r")
    return np.linalg.svd(triangle, compute_uv=False)


def varies(rows: np.ndarray) -> bool:
    """Return whether there are rows, and they are not all the same."""
    return bool(len(rows)) and bool((rows != rows[0]).any())
