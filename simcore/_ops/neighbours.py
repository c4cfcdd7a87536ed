"""The operators for nearest rows, and which rows have others at an equal distance.

On a CUDA device the operators are operations of torch (`simcore._ops.neighbours_composed`).

Row numbers decide between equal distances, and one neighbour more than asked for is sought.
Distances in float64 say which are equal, up to the rounding that csrc/cpu/neighbours/rows.cpp
counts with. Where nobody asked for distances they cost a tenth of the search: on the CPU those of
large layers are computed only if one has copies of a row or rows of zeros, or a sample of its rows
has equal distances.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby

import torch
from torch import Tensor

from simcore._grid.inputs import row_blocks
from simcore._ops.declared import compose, operator
from simcore._ops.nearest_composed import EPS, ROUNDING
from simcore._ops.neighbours_composed import OPERATORS

SAMPLE = 32  # rows whose distances are compared where none are known
COLUMNS = 16  # by which rows are compared before all columns are
DOUBTFUL = 1e-9  # relative difference of two distances of the sample
FEW_TERMS = 2**21  # of all distances, which take less time than the question if they are needed
STACK_BYTES = 2**24  # of layers that are looked at together


@operator
def nearest_rows(
    x: Sequence[Tensor],
    k: int,
    metric: str,
    max_memory: int,
    name: str = "X",
    with_values: bool = True,
) -> tuple[Tensor, Tensor, Tensor]:
    n, valued = len(x[0]), len(x) if with_values else 0
    index = x[0].new_empty((len(x), n, k), dtype=torch.int32)
    values = x[0].new_empty((valued, n, k), dtype=torch.float64)
    return index, values, x[0].new_empty((valued, n), dtype=torch.float64)


@operator
def list_similarity(x: Tensor, y: Tensor, measure: str, max_memory: int) -> Tensor:
    return x.new_empty((len(x), len(y) or len(x)), dtype=torch.float64)


@operator
def second_order_similarity(
    x: Sequence[Tensor], y: Sequence[Tensor], index_x: Tensor, index_y: Tensor, max_memory: int
) -> Tensor:
    return x[0].new_empty((len(x), len(y) or len(x)), dtype=torch.float64)


@operator
def cknna_terms(
    index_x: Tensor,
    values_x: Tensor,
    own_x: Tensor,
    index_y: Tensor,
    values_y: Tensor,
    own_y: Tensor,
    estimator: str,
    max_memory: int,
) -> tuple[Tensor, Tensor, Tensor]:
    rows, columns = len(index_x), len(index_y) or len(index_x)
    shapes = ((rows, columns), (rows,), (columns,))
    xy, xx, yy = (values_x.new_empty(shape) for shape in shapes)
    return xy, xx, yy


compose(OPERATORS)


def nearest_with_ties(
    layers: Sequence[Tensor],
    k: int,
    metric: str,
    bound: int,
    name: str,
    with_values: bool,
    *,
    inside: bool = False,
    of_copies: bool = True,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return `nearest_rows`, and the share of the rows of each layer that have a tie, ``[L]``."""
    # The k-th neighbour and the next one tie; ``inside``, any two in succession do. Copies of one
    # row count unless ``of_copies`` is False.
    sought = min(k + 1, len(layers[0]) - 1)
    may_tie = sought > (1 if inside else k)
    valued = with_values or (may_tie and not _surely_differ(layers, sought, metric, bound))
    index, values, squares = nearest_rows(layers, sought, metric, bound, name, valued)
    if may_tie and not valued and _sample_ties(layers, index, metric, bound, inside):
        valued = True
        index, values, squares = nearest_rows(layers, sought, metric, bound, name, True)
    shares = torch.zeros(len(layers), dtype=torch.float64, device=index.device)
    if valued and may_tie:
        first = 0 if inside else k - 1
        entries = index[0, :, first:].numel()
        for places in _stacks(layers, 2 * entries, bound):
            of = slice(places[0], places[-1] + 1)
            pairs = index[of, :, first:].long().clamp(min=0)  # [L, n, places]
            width = layers[places[0]].shape[1]
            tied = _tied(pairs, values[of, :, first:], squares[of], metric, width)
            if not of_copies:
                blocks = [row_blocks(layer) for layer in layers[of]]
                marks = torch.stack([torch.cat([*map(_marks, parts)]) for parts in blocks])
                tied &= marks.gather(1, pairs.flatten(1)).view(pairs.shape).diff(dim=2) != 0
            shares[of] = tied.any(2).double().mean(1)  # [L]
    if not with_values:
        values, squares = values.new_empty((0, *values.shape[1:])), squares.new_empty((0,))
    index = index[..., :k].contiguous()
    return index, values[..., :k].contiguous(), squares, shares


def _tied(index: Tensor, values: Tensor, squares: Tensor, metric: str, width: int) -> Tensor:
    """Return which values ``[L, n, m]`` equal the one before them, ``[L, n, m - 1]``."""
    size = values[..., 1:]  # [L, n, m - 1]
    if metric == "cosine":
        size = size + size.sqrt()
    elif metric == "inner":
        others = index[..., 1:]
        lengths = squares.sqrt()  # [L, n]
        size = lengths[..., None] * lengths.gather(1, others.flatten(1)).view(others.shape)
    return values.diff(dim=2).abs() <= EPS * (ROUNDING + width**0.5) * size


def _stacks(layers: Sequence[Tensor], entries: int, bound: int) -> Iterator[list[int]]:
    """Yield the places of layers of one width and dtype, ``entries`` of each of which are taken."""
    # Their float64 copies, and three of these, fit into ``bound`` bytes if one layer's do.
    most = max(1, min(bound, STACK_BYTES) // (32 * entries))
    alike = groupby(range(len(layers)), lambda i: (layers[i].shape[1], layers[i].dtype))
    for _, members in alike:
        places = list(members)
        for first in range(0, len(places), most):
            yield places[first : first + most]


def _surely_differ(layers: Sequence[Tensor], sought: int, metric: str, bound: int) -> bool:
    """Whether no layer has equal rows, or for ``cosine`` rows of zeros."""
    # False for small layers, and on a device, where the answer would have to be waited for.
    terms = sum(layer.numel() for layer in layers) * sought
    if layers[0].device.type != "cpu" or terms <= FEW_TERMS:
        return False
    for places in _stacks(layers, len(layers[0]) * COLUMNS, bound):
        step = -(-layers[places[0]].shape[1] // COLUMNS)
        marks = _marks(torch.stack([layers[i][:, ::step] for i in places]))  # [layers, n]
        doubtful = (marks == 0) | _has_twin(marks)  # [layers, n]
        for i in doubtful.any(1).nonzero().flatten().tolist():
            layer = layers[places[i]]
            rows = doubtful[i].nonzero().flatten()  # [doubtful]
            parts = rows.split(max(1, STACK_BYTES // (32 * layer.shape[1])))
            whole = torch.cat([_marks(layer[part]) for part in parts])
            if bool(_has_twin(whole).any()) or (metric == "cosine" and bool((whole == 0).any())):
                return False
    return True


def _marks(rows: Tensor) -> Tensor:
    """Return a number for every row, equal for equal rows, and 0 for zeros."""
    numbers = torch.arange(1, rows.shape[-1] + 1, dtype=torch.float64, device=rows.device)
    return (rows.double() * numbers.sqrt()).sum(-1)  # [..., rows]


def tied_pairs(layer: Tensor) -> Tensor:
    """Return the sum of t^3 - t over all groups of t pairs of rows that are copies of one pair."""
    # It is given over the cube of the number of pairs.
    marks = torch.cat([*map(_marks, row_blocks(layer))])  # [n]
    m = marks.unique(return_counts=True)[1].double()  # copies of each row
    pairs, of_copies = len(marks) * (len(marks) - 1) / 2, (m * (m - 1)).sum() / 2
    cubes = of_copies**3 + (m.pow(3).sum().square() - m.pow(6).sum()) / 2
    return (cubes - pairs) / pairs**3


def _has_twin(marks: Tensor) -> Tensor:
    """Return which numbers occur twice in the last dimension."""
    ordered, order = marks.sort(-1)  # [..., n] each
    same = ordered.diff(dim=-1) == 0  # [..., n - 1]
    pad = torch.nn.functional.pad
    twice = pad(same, (1, 0)) | pad(same, (0, 1))
    return twice.scatter(-1, order, twice)


def _sample_ties(
    layers: Sequence[Tensor], index: Tensor, metric: str, bound: int, inside: bool
) -> bool:
    """Whether rows of a sample may have others at equal distances; rounding is not counted."""
    n, sought = index.shape[1:]
    width = max(layer.shape[1] for layer in layers)
    sample = max(1, min(SAMPLE, bound // (128 * width)))
    rows = torch.arange(0, n, -(-n // sample))  # [rows]
    place = torch.arange(len(rows)) % (sought - 1) if inside else torch.tensor(sought - 2)
    parts = (rows.expand(len(index), -1), index[:, rows, place], index[:, rows, place + 1])
    chosen = torch.stack(parts, 1)  # [layers, 3, rows]
    defined = index[:, 0, 0] >= 0  # [L]
    for places in _stacks(layers, chosen[0].numel() * width, bound):
        known = [i for i in places if defined[i]]
        if known:
            of_layers = torch.stack([layers[i][chosen[i]] for i in known]).double()
            x, a, b = of_layers.unbind(1)  # [L, rows, p] each
            if _may_be_equal(x, a, b, metric):
                return True
    return False


def _may_be_equal(x: Tensor, a: Tensor, b: Tensor, metric: str) -> bool:
    """Whether a row of x may be equally far from those of a and b."""
    length = torch.linalg.vector_norm
    if metric == "inner":
        first, second = torch.linalg.vecdot(x, a), torch.linalg.vecdot(x, b)
        size = length(x, dim=-1) * (length(a, dim=-1) + length(b, dim=-1))
    else:
        if metric == "cosine":
            x, a, b = (rows / length(rows, dim=-1, keepdim=True) for rows in (x, a, b))
        first, second = length(a - x, dim=-1), length(b - x, dim=-1)  # [L, rows] each
        size = first + second
    return not bool(((first - second).abs() > DOUBTFUL * size).all())  # nan counts as equal
