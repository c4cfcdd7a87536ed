"""The plan of HSIC in operations of torch: its method, its tiles, its cost and its memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

import simcore._C as _C
from simcore._grid.inputs import BLOCK_ENTRIES, DEVICE_BLOCK_ENTRIES
from simcore._ops.tiles import LEAST_SIDE, rows_that_fit, side_that_fits

DEPTH = 8192  # rows of one product, whose sums are float64 from one product to the next
# Rows and columns of a tile of Gram matrices: few launches, or tiles that a cache holds.
GRAM_ROWS, CPU_GRAM_ROWS = 1024, 256
EXACT_MEDIAN_ROWS = 4096  # as kExactMedianRows in csrc/core
MEDIAN_BYTES = 16  # for each pair of rows


class Plan(NamedTuple):
    """See simcore.plan_cka."""

    method: str
    tile: tuple[int, int]
    flops: float
    flops_gram: float
    flops_feature: float
    workspace_bytes: int
    max_memory: int


def flops(
    n: int, widths_x: Sequence[int], widths_y: Sequence[int], kernel: str
) -> tuple[float, float]:
    """Return the costs of the Gram method and of the feature method, as csrc/cpu/hsic/plan.cpp."""
    (sum_x, squares_x), (sum_y, squares_y) = (
        (sum(widths), sum(p * p for p in widths)) for widths in (widths_x, widths_y)
    )
    count_x, count_y, squares = len(widths_x), len(widths_y), squares_x + squares_y
    pairs = count_x * count_y + count_x + count_y if count_y else count_x * (count_x + 1) // 2
    gram = float(n) ** 2 * (sum_x + sum_y + pairs)
    if kernel == "rbf" and n > 0:
        gram += float(_median_rows(n)) ** 2 * (sum_x + sum_y)
    cross = 2 * sum_x * sum_y if count_y else sum_x**2 - squares
    return gram, float(n) * (cross + squares) if kernel == "linear" else float("inf")


def cheaper_method(x: Sequence[Tensor], y: Sequence[Tensor]) -> str:
    """Return what method "auto" stands for, for the linear kernel."""
    widths_x, widths_y = ([layer.shape[1] for layer in side] for side in (x, y))
    gram, feature = flops(len(x[0]), widths_x, widths_y, "linear")
    return "feature" if feature < gram else "gram"


def _median_rows(n: int) -> int:
    return -(-n // -(-n // EXACT_MEDIAN_ROWS))


def pairs_of(count_x: int, count: int) -> list[tuple[int, int]]:
    """Return the pairs that a result has: all of both sides, and every layer with itself."""
    if count_x == count:
        return [(a, b) for a in range(count) for b in range(a, count)]
    own = [(a, a) for a in range(count)]
    return own + [(a, b) for a in range(count_x) for b in range(count_x, count)]


def feature_rows(
    n: int, widths: Sequence[int], sizes: Sequence[int], item: int, bound: int
) -> tuple[int, int]:
    """Return rows of all layers that are read together, and the bytes that remain for products."""
    of_row = item * sum(widths) + 24 * max(widths)
    rows = rows_that_fit(bound, max(sizes), of_row, min(n, DEPTH), "the products of one pair")
    return rows, bound - rows * of_row


def product_bytes(widths: Sequence[int], pairs: Sequence[tuple[int, int]]) -> list[int]:
    """Return the bytes of the products of features of every pair."""
    return [24 * widths[a] * widths[b] for a, b in pairs]


def gram_rows(on_cpu: bool) -> int:
    """Return the most rows of a tile of Gram matrices."""
    return CPU_GRAM_ROWS if on_cpu else GRAM_ROWS


def gram_side(
    n: int, widths: Sequence[int], item: int, bound: int, on_cpu: bool = True
) -> tuple[int, int, bool, int]:
    """Return the side of tiles of linear Gram matrices, and the bytes that are taken."""
    # The third value says whether the centred layers are held; else their rows are read for each
    # tile. The last one is the number of entries that are read at a time.
    whole, fixed = item * n * sum(widths), 8 * len(widths) ** 2
    most = min(n, gram_rows(on_cpu))
    # Narrow layers are read together: as many as a cache holds, or few launches read.
    entries = BLOCK_ENTRIES if on_cpu else DEVICE_BLOCK_ENTRIES
    read = max(max(widths), min(sum(widths), entries // most))
    # Tiles of layers of several widths are joined before they become float64.
    of_row, of_entry = 24 * read, (2 * item + 8) * len(widths)
    least = min(n, LEAST_SIDE)
    held = 2 * whole <= bound - fixed - least * of_row - least**2 * of_entry
    if held:
        fixed += whole
    else:
        of_row += 2 * item * sum(widths)
    side = side_that_fits(bound, fixed, of_row, of_entry, most, "tiles of Gram matrices")
    return side, fixed + side * of_row + side**2 * of_entry, held, side * read


def distance_side(
    n: int, widths: Sequence[int], kernel: str, bound: int, on_cpu: bool = True
) -> tuple[int, int]:
    """Return the side of tiles of Gram matrices of other kernels, and the bytes that they take."""
    held = 8 * n * (sum(widths) + 2 * max(widths) + 3 * len(widths))
    # Half of the distances of a layer, a copy in which the median is sought, and a tile of them.
    of_distances = MEDIAN_BYTES * min(n, EXACT_MEDIAN_ROWS) ** 2 if kernel == "rbf" else 0
    of_entry = 16 * (len(widths) + 1)
    if of_distances > of_entry * LEAST_SIDE**2:
        rows_that_fit(bound, held, of_distances, 1, "the distances of one layer")
    most = min(n, gram_rows(on_cpu))
    side = side_that_fits(bound, held, 0, of_entry, most, "tiles of Gram matrices")
    return side, held + max(of_distances, side**2 * of_entry)


def plan_hsic(
    n: int,
    widths_x: Sequence[int],
    widths_y: Sequence[int],
    kernel: str,
    bandwidth: float,
    method: str,
    float64: bool,
    max_memory: int,
) -> Plan:
    """Plan ``simcore::hsic_terms`` on the CPU, where operations of torch compute it."""
    gram, feature = flops(n, widths_x, widths_y, kernel)
    if method == "feature" and kernel != "linear":
        raise ValueError(
            f"method: wanted 'auto' or 'gram' for kernel {kernel!r}, which has no feature form, "
            "got 'feature'"
        )
    bound, widths = _C.memory_bound(max_memory), [*widths_x, *widths_y]
    item = 8 if float64 else 4

    def planned(method: str) -> Plan:
        if method == "feature":
            sizes = product_bytes(widths, pairs_of(len(widths_x), len(widths)))
            rows, room = feature_rows(n, widths, sizes, item, bound)
            tile, workspace = (rows, max(widths)), bound - room + min(room, sum(sizes))
        elif kernel == "linear":
            side, workspace, *_ = gram_side(n, widths, item, bound)
            tile = side, side
        else:
            side, workspace = distance_side(n, widths, kernel, bound)
            tile = side, side
        cost = feature if method == "feature" else gram
        return Plan(method, tile, cost, gram, feature, workspace, bound)

    if method != "auto":
        return planned(method)
    cheaper, other = ("feature", "gram") if feature < gram else ("gram", "feature")
    if kernel != "linear":
        return planned(cheaper)
    try:
        return planned(cheaper)
    except ValueError:  # does not fit: the other method may
        return planned(other)
