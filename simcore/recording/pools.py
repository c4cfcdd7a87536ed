"""Pools: the rows ``[r, p]`` that the states of a layer become.

A layer's states are `[B, p]`, `[B, T, p]` (tokens) or `[B, C, H, W]` (channels, with any number of
position axes). Which pool fits which of them is in `FITTING`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from simcore._ops.composed import is_full_float32
from simcore.recording.outputs import accumulation_dtype

Pool = str | Callable[..., Tensor] | None
FITTING = {
    "tokens": ("first", "last", "mean", "tokens", "flatten"),
    "channels": ("spatial-mean", "positions", "flatten"),
}
POOLS = tuple(dict.fromkeys(FITTING["tokens"] + FITTING["channels"]))
SPATIAL = ("spatial-mean", "positions")
MANY_ROWS = ("tokens", "positions")
NEEDING_MASK = ("last", "mean", "tokens")

KeptOf = Callable[[str | None], Tensor | None]
Draw = Callable[[int], Tensor | None]


@dataclass(frozen=True)
class Plan:
    """The rows that a pool will make."""

    shape: tuple[int, int]  # number of rows and of columns
    dtype: torch.dtype
    make: Callable[[], Tensor]  # returns the rows, which may share memory with the states

    @property
    def nbytes(self) -> int:
        """Return the bytes of the rows."""
        return self.shape[0] * self.shape[1] * self.dtype.itemsize


def check_pool(pool: Pool) -> Pool:
    """Return `pool` if it is known, a function or None, else raise a ValueError."""
    if pool is None or callable(pool) or pool in POOLS:
        return pool
    raise ValueError(f"pool: wanted {', '.join(map(repr, POOLS))} or a function, got {pool!r}")


def plan_rows(
    states: Tensor, name: str, pool: Pool, channel_first: bool, kept_of: KeptOf, draw: Draw
) -> Plan:
    """Plan the rows of one layer in one forward pass.

    The `states` have the examples first, and are ``[B, C, ...]`` if `channel_first`. `kept_of`
    takes the name of the pool that needs the mask, or None, and returns the mask ``[B, T]``; `draw`
    takes a number of rows and returns the indices of those to keep, or None for all.
    """
    if callable(pool):
        return _drawn(_custom(states, name, pool, kept_of), draw)
    if states.ndim == 2:
        return _drawn(Plan((len(states), states.shape[1]), states.dtype, lambda: states), draw)
    _check_fits(states, name, pool, channel_first)
    assert isinstance(pool, str)
    kept = None
    if not channel_first and pool != "flatten":  # whose rows hold the padding too
        kept = kept_of(pool if pool in NEEDING_MASK else None)
    if pool in MANY_ROWS:
        view = states.flatten(2).transpose(1, 2) if channel_first else states
        return _positions(view, kept, draw)
    if pool == "flatten":
        shape = (len(states), states.numel() // max(1, len(states)))
        return _drawn(Plan(shape, states.dtype, lambda: states.reshape(shape)), draw)
    width = states.shape[1] if channel_first else states.shape[2]
    plan = Plan((len(states), width), states.dtype, lambda: _PER_EXAMPLE[pool](states, kept))
    return _drawn(plan, draw)


def _check_fits(states: Tensor, name: str, pool: Pool, channel_first: bool) -> None:
    shape = tuple(states.shape)
    if states.ndim < 2:
        raise ValueError(
            f"select: wanted states [B, p], [B, T, p] or [B, C, H, W] of {name!r}, got shape "
            f"{shape}"
        )
    fitting = FITTING["channels" if channel_first else "tokens"]
    if pool not in fitting:
        wanted = ", ".join(map(repr, fitting))
        raise ValueError(
            f"pool: wanted {wanted} or a function for the output {shape} of {name!r}, got {pool!r}"
        )


def _custom(states: Tensor, name: str, pool: Callable[..., Tensor], kept_of: KeptOf) -> Plan:
    takes_mask = "mask" in inspect.signature(pool).parameters
    rows = pool(states, mask=kept_of(None)) if takes_mask else pool(states)
    if not isinstance(rows, Tensor) or rows.ndim != 2 or not rows.is_floating_point():
        got = f"{rows.dtype} {tuple(rows.shape)}" if isinstance(rows, Tensor) else type(rows)
        raise ValueError(f"pool: wanted the function to give rows [r, p] of {name!r}, got {got}")
    return Plan((len(rows), rows.shape[1]), rows.dtype, lambda: rows)


def _drawn(plan: Plan, draw: Draw) -> Plan:
    index = draw(plan.shape[0])
    if index is None:
        return plan
    shape = (len(index), plan.shape[1])

    def make() -> Tensor:
        rows = plan.make()
        return rows[index.to(rows.device)]

    return Plan(shape, plan.dtype, make)


def _positions(view: Tensor, kept: Tensor | None, draw: Draw) -> Plan:
    """Plan a row for each kept position of ``[B, T, p]``, in order, or for the drawn ones alone."""
    index = None if kept is None else kept.flatten().nonzero().flatten()
    drawn = draw(view.shape[0] * view.shape[1] if index is None else len(index))
    if drawn is not None:
        drawn = drawn.to(view.device)
        index = drawn if index is None else index[drawn]
    if index is None:
        shape = (view.shape[0] * view.shape[1], view.shape[2])
        return Plan(shape, view.dtype, lambda: view.reshape(shape))

    def make() -> Tensor:
        if view.is_contiguous():
            return view.view(-1, view.shape[2]).index_select(0, index)
        return view[index // view.shape[1], index % view.shape[1]]

    return Plan((len(index), view.shape[2]), view.dtype, make)


def _first(states: Tensor, kept: Tensor | None) -> Tensor:
    if kept is None:
        return states[:, 0]
    return _at(states, kept.int().argmax(1))


def _last(states: Tensor, kept: Tensor | None) -> Tensor:
    if kept is None:
        return states[:, -1]
    return _at(states, kept.shape[1] - 1 - kept.int().flip(1).argmax(1))


def _at(states: Tensor, position: Tensor) -> Tensor:
    return states[torch.arange(len(states), device=states.device), position]


def _mean(states: Tensor, kept: Tensor | None) -> Tensor:
    """Mean over tokens, summed in float32 where the states are of half precision."""
    dtype = accumulation_dtype(states)
    if kept is None:
        return states.mean(1, dtype=dtype).to(states.dtype)
    count = kept.sum(1, keepdim=True)
    if _products_are_exact(states):
        total = _product_sum(states, kept)
        if not bool(total.isfinite().all()):  # padding may hold NaN, which a product with 0 keeps
            total = _product_sum(_without_padding(states, kept), kept)
    else:
        total = _without_padding(states, kept).sum(1, dtype=dtype)
    return (total / count).to(states.dtype)


def _without_padding(states: Tensor, kept: Tensor) -> Tensor:
    return torch.where(kept[..., None], states, 0)


def _products_are_exact(states: Tensor) -> bool:
    """Whether torch multiplies matrices of this dtype here without rounding the factors."""
    if states.device.type != "cpu" or accumulation_dtype(states) != states.dtype:
        return False
    return states.dtype == torch.float64 or is_full_float32()


def _product_sum(states: Tensor, kept: Tensor) -> Tensor:
    """Sum over tokens by one matrix product, which makes no copy of the states."""
    return torch.bmm(kept.to(states.dtype)[:, None], states)[:, 0]


def _spatial_mean(states: Tensor, kept: Tensor | None) -> Tensor:
    positions = tuple(range(2, states.ndim))
    return states.mean(positions, dtype=accumulation_dtype(states)).to(states.dtype)


_PER_EXAMPLE = {"first": _first, "last": _last, "mean": _mean, "spatial-mean": _spatial_mean}
