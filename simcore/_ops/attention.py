"""The operator for the similarity of attention heads, and its composed form.

CUDA devices may use the form, in torch's own operations. It runs on any device: tests compare it on
CPU tensors with the twin. Sums are float64, and so is everything but the logarithms of float32 and
half-precision weights: their errors, 1e-7 of an entropy that is at most the logarithm of the number
of words, stay within 1e-6 of a value.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from simcore._grid.memory import memory_bound, require_memory
from simcore._grid.progress import reported
from simcore._ops.declared import operator
from simcore._ops.tiles import MOST_BYTES, tiles

MEASURES = ("js", "pearson", "frobenius")
CONSTANT_ROW = 1e-12  # as kConstantRow in csrc/cuda: one repeated value may leave rounding errors
ROW_SUM = 0.02  # as kRowSum in csrc/core
COPIES = 4  # of the entries of a chunk that are alive at once
ROUNDED_TOGETHER = 4096  # entries whose float32 sum is not in float64 yet


@dataclass(frozen=True)
class _Problem:
    """The layers of a call, each a list of sentences ``[H, t, t]``, and how heads are compared."""

    layers: list[list[Tensor]]
    names: list[str]
    measure: str
    causal: bool

    @property
    def heads(self) -> list[int]:
        return [len(layer[0]) for layer in self.layers]

    @property
    def words(self) -> list[int]:
        return [sentence.shape[1] for sentence in self.layers[0]]

    def rows(self, sentence: int, tile: slice) -> Tensor:
        """Return some rows of the heads of all layers as they are compared, ``[H, rows, t]``."""
        rows = torch.cat([layer[sentence][:, tile].double() for layer in self.layers])
        if self.causal:
            rows = rows.tril(tile.start)
            total = rows.sum(-1, keepdim=True)  # [H, rows, 1]
            rows = torch.where(total > 0, rows / total, 0.0)
        if self.measure == "pearson":
            rows = rows - rows.mean(-1, keepdim=True)
            length = torch.linalg.vector_norm(rows, dim=-1, keepdim=True)  # [H, rows, 1]
            rows = torch.where(length > CONSTANT_ROW, rows / length, 0.0)
        return rows


def layers_of(given: Sequence[Tensor], sentences: int) -> list[Sequence[Tensor]]:
    """Return the arrays of each layer: one padded ``[S, H, T, T]``, or one for every sentence."""
    layers = []
    start = 0
    while start < len(given):
        end = start + (1 if given[start].ndim == 4 else sentences)
        layers.append(given[start:end])
        start = end
    return layers


def _sentences(layer: Sequence[Tensor], words: Sequence[int]) -> list[Tensor]:
    """Return views ``[H, t, t]`` of one layer's sentences."""
    if layer[0].ndim != 4:
        return list(layer)
    (batch,) = layer  # [S, H, T, T]
    if len(batch) != len(words):
        raise ValueError(f"wanted shape [{len(words)}, H, T, T], got {tuple(batch.shape)}")
    return [sentence[:, :t, :t] for sentence, t in zip(batch, words, strict=True)]


def _problem(
    x: Sequence[Tensor], y: Sequence[Tensor], words: Sequence[int], measure: str, causal: bool
) -> _Problem:
    """Return the checked problem; `attention_grid` has words for users."""
    if not words:
        raise ValueError("words: wanted at least one sentence, got none")
    if not x:
        raise ValueError("A: wanted at least one layer, got none")
    if measure not in MEASURES:
        raise ValueError(f"measure: wanted 'js', 'pearson' or 'frobenius', got {measure!r}")
    layers, names = [], []
    for name, side in (("A", x), ("B", y)):
        for number, layer in enumerate(layers_of(side, len(words))):
            layers.append(_sentences(layer, words))
            names.append(f"{name}[{number}]")
            if len(layers[-1]) != len(words):
                raise ValueError(
                    f"{name}: wanted {len(words)} sentences of layer {number}, "
                    f"got {len(layers[-1])}"
                )
    for layer in layers:
        for sentence, count in zip(layer, words, strict=True):
            wanted = (len(layer[0]), count, count)
            if tuple(sentence.shape) != wanted or 0 in wanted:
                raise ValueError(f"wanted shape {wanted}, got {tuple(sentence.shape)}")
    return _Problem(layers, names, measure, causal)


def _counts(layer: list[Tensor], measure: str, causal: bool) -> Tensor:
    """Return how many weights are not finite, are negative, and how many rows do not sum to 1."""
    counts = torch.zeros(3, dtype=torch.int64, device=layer[0].device)
    for sentence in layer:
        weights = sentence.tril() if causal else sentence
        counts[0] += (~weights.isfinite()).sum()
        counts[1] += (weights < 0).sum()
        if measure == "js" and not causal:
            counts[2] += ((weights.double().sum(-1) - 1).abs() > ROW_SUM).sum()
    return counts


def _checked(problem: _Problem) -> Tensor:
    """Return the rows of each layer that do not sum to 1, on the host; refuse what has no value."""
    every = [_counts(layer, problem.measure, problem.causal) for layer in problem.layers]
    counts = torch.stack(every).cpu()  # [layers, 3]
    for name, layer, (bad, negative, _) in zip(
        problem.names, problem.layers, counts.tolist(), strict=True
    ):
        of_rows = [t * (t + 1) // 2 if problem.causal else t * t for t in problem.words]
        total = len(layer[0]) * sum(of_rows)
        if bad:
            raise ValueError(f"{name}: wanted finite values, got {bad} NaN or infinite of {total}")
        if negative and problem.measure == "js":
            raise ValueError(
                f"{name}: wanted no negative weights for measure 'js', got {negative} of {total}"
            )
    return counts[:, 2].contiguous()


def _chunks(problem: _Problem, room: int) -> Iterator[tuple[int, slice]]:
    """Yield sentences and as many of their rows as ``room`` bytes hold."""
    for sentence, words in reported(enumerate(problem.words)):
        rows = room // (8 * COPIES * sum(problem.heads) * words)
        for tile in tiles(words, min(rows, words)):
            yield sentence, tile


def _joined(problem: _Problem, room: int) -> Iterator[Tensor]:
    """Yield the weights of all heads ``[H, entries]``, many short sentences together."""
    parts: list[Tensor] = []
    most = max(1, room // (8 * COPIES * sum(problem.heads)))
    entries = 0
    for sentence, tile in _chunks(problem, room):
        part = problem.rows(sentence, tile).flatten(1)  # [H, rows * t]
        if parts and entries + part.shape[1] > most:
            yield torch.cat(parts, 1)
            parts, entries = [], 0
        parts.append(part)
        entries += part.shape[1]
    yield torch.cat(parts, 1)


def _negative_entropies(weights: Tensor) -> Tensor:
    """Return ``sum m log m`` over the last dimension, where 0 log 0 = 0, in float64."""
    logarithms = weights.clamp(min=torch.finfo(weights.dtype).tiny).log_()
    return logarithms.mul_(weights).sum(-1).double()


def _add_entropies(
    rows: Tensor, pairs: list[tuple[slice, slice]], own: Tensor, mixed: Tensor, room: int
) -> None:
    """Add those of all heads ``[H]``, and of the means of the heads of some layers ``[H, H]``."""
    most = max(((a.stop - a.start) * (b.stop - b.start) for a, b in pairs), default=1)
    together = max(1, min(ROUNDED_TOGETHER, room // (8 * 3 * most)))
    for tile in tiles(rows.shape[1], together):
        part = rows[:, tile]  # [H, entries]
        own += _negative_entropies(part)  # [H]
        for a, b in pairs:
            mean = (part[a, None] + part[None, b]).mul_(0.5)  # [Ha, Hb, entries]
            mixed[a, b] += _negative_entropies(mean)  # [Ha, Hb]


def _similarities(problem: _Problem, pairs: list[tuple[slice, slice]], room: int) -> Tensor:
    """Return the similarities of the heads of some pairs of layers, ``[H, H]``; others are nan."""
    heads, device = sum(problem.heads), problem.layers[0][0].device
    sums = torch.zeros(heads, heads, dtype=torch.float64, device=device)  # [H, H]
    words, sentences = sum(problem.words), len(problem.words)
    if problem.measure == "pearson":
        for rows in _joined(problem, room):
            sums.addmm_(rows, rows.T)
        return (sums / words).clamp_(-1, 1)
    if problem.measure == "frobenius":
        squares = torch.zeros_like(sums)
        for sentence, tile in _chunks(problem, room):
            if tile.start == 0:
                sums += squares.sqrt_()
                squares.zero_()
            rows = problem.rows(sentence, tile).flatten(1)  # [H, rows * t]
            exact = "donot_use_mm_for_euclid_dist"
            squares += torch.cdist(rows, rows, compute_mode=exact).square_()
        return 1 - (sums + squares.sqrt_()) / sentences
    own = sums.new_zeros(heads)  # [H]
    wide = any(layer[0].dtype == torch.float64 for layer in problem.layers)
    for rows in _joined(problem, room):
        _add_entropies(rows if wide else rows.float(), pairs, own, sums, room)
    divergences = (own[:, None] + own) / 2 - sums  # [H, H]
    return 1 - divergences.clamp_(min=0) / words


def composed_similarity(
    x: Sequence[Tensor],
    y: Sequence[Tensor],
    words: Sequence[int],
    measure: str,
    causal: bool,
    max_memory: int,
) -> tuple[Tensor, Tensor]:
    problem = _problem(x, y, words, measure, causal)
    rows_off = _checked(problem)
    ends = torch.tensor(problem.heads).cumsum(0).tolist()
    of_layers = [slice(end - heads, end) for end, heads in zip(ends, problem.heads, strict=True)]
    count_x = len(layers_of(x, len(words)))
    left, right = of_layers[:count_x], of_layers[count_x:] or of_layers
    pairs = [(a, b) for a in left for b in right if y or a.start < b.start]
    of_pairs, of_row = 8 * 4 * ends[-1] ** 2, 8 * COPIES * ends[-1] * max(problem.words)
    bound = memory_bound(max_memory, x[0])
    require_memory(of_pairs + 2 * of_row, bound, "one row of every head")
    room = min((bound - of_pairs) // 2, max(MOST_BYTES, of_row))
    similarities = _similarities(problem, pairs, room)  # [H, H]
    grid = similarities.new_ones(len(left), len(right))
    for row, a in enumerate(left):
        for column, b in enumerate(right):
            if not y and row == column and measure != "pearson":
                continue
            turned = not y and column < row and measure == "js"
            of_pair = similarities[b, a].T if turned else similarities[a, b]  # [Ha, Hb]
            grid[row, column] = of_pair.amax(1).mean()  # []
    return grid, rows_off


@operator
def attention_similarity(
    x: Sequence[Tensor],
    y: Sequence[Tensor],
    words: Sequence[int],
    measure: str,
    causal: bool,
    max_memory: int,
) -> tuple[Tensor, Tensor]:
    layers_x, layers_y = (len(layers_of(side, len(words))) for side in (x, y))
    grid = x[0].new_empty((layers_x, layers_y or layers_x), dtype=torch.float64)
    return grid, torch.empty(layers_x + layers_y, dtype=torch.int64, device="cpu")
