"""How an output becomes rows, and which of them are kept."""

from __future__ import annotations

import functools
from collections.abc import Callable
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from simcore._grid.options import check_count
from simcore.recording.axes import (
    CHANNELS,
    LAYERS_FIRST,
    TIME_FIRST,
    TOKENS,
    axes_of,
    channels_second,
)
from simcore.recording.hooks import Pass
from simcore.recording.outputs import Select, check_select, has_states, states_of, tensors_of
from simcore.recording.pools import MANY_ROWS, SPATIAL, Pool, check_pool, plan_rows
from simcore.recording.selection import Choice

# Larger rows of one call do not wait on an accelerator for the end of the pass.
WAITING_BYTES = 2**24


class Sampler:
    """Draws rows of each forward pass, the same ones in every layer that has as many rows.

    `sample` is the largest number of rows of a pass, or a share of them in (0, 1); None keeps all.
    A draw depends on the seed, the number of the pass and the number of its rows alone.
    """

    def __init__(self, sample: float | None, seed: int) -> None:
        whole = isinstance(sample, Integral) and not isinstance(sample, bool) and sample >= 1
        share = isinstance(sample, Real) and not isinstance(sample, Integral) and 0 < sample < 1
        if sample is not None and not whole and not share:
            raise ValueError(
                f"sample: wanted a number of rows or a share in (0, 1), got {sample!r}"
            )
        self.sample = sample
        self.seed = check_count(seed, "seed", 0)

    def draw(self, pass_number: int, rows: int) -> Tensor | None:
        """Return the indices of the rows to keep in rising order, int64, or None for all."""
        if self.sample is None:
            return None
        if isinstance(self.sample, Integral):
            wanted = int(self.sample)
        else:
            wanted = max(1, round(self.sample * rows))
        if wanted >= rows:
            return None
        rng = np.random.default_rng([self.seed, pass_number, rows])
        return torch.from_numpy(np.sort(rng.choice(rows, wanted, replace=False)))


class Reading:
    """How an output becomes rows: the options `pool`, `select`, `sample` and `detach`."""

    def __init__(self, pool: Pool, select: Select, sampler: Sampler, detach: bool = True) -> None:
        self.pool, self.select = check_pool(pool), check_select(select)
        self.sampler, self.detach = sampler, detach

    def rows(
        self,
        name: str,
        choice: Choice,
        value: Any,
        current: Pass,
        check: Callable[[int, torch.device], None],
    ) -> Tensor | None:
        """Return the rows of an output or an input, which share no memory with it.

        None if it has no row for each example, and a glob chose the module. `check` is called with
        the bytes of the rows and their device before they are made.
        """

        def draw(rows: int) -> Tensor | None:
            # Parts of a pass are drawn from when they are joined.
            return None if current.is_part else self.sampler.draw(current.number, rows)

        if not choice.is_named and not has_states(value, self.select):
            return None
        states, axes = self._oriented(name, choice, value, current)
        if axes in (TIME_FIRST, LAYERS_FIRST) and len(states) != current.examples:
            current.examples = None  # the arguments are [T, B, ...] too
        if self._is_odd(states, name, current) and not choice.is_named:
            return None
        kept_of = functools.partial(current.mask.kept, states, name)
        current.device = current.device or states.device
        gradients = torch.is_grad_enabled() and not self.detach
        with torch.set_grad_enabled(gradients), torch.autocast(states.device.type, enabled=False):
            plan = plan_rows(
                states,
                name,
                self.pool,
                axes == CHANNELS,
                _no_tokens if axes == LAYERS_FIRST else kept_of,
                draw,
            )
            self._check_examples(states, name, current)
            check(plan.nbytes, torch.device("cpu") if self.detach else states.device)
            return self._own(plan.make(), states)

    def _oriented(
        self, name: str, choice: Choice, value: Any, current: Pass
    ) -> tuple[Tensor, str | None]:
        """Return the states, examples first, and what their axes were."""
        states = states_of(value, name, self.select)
        if self.pool in SPATIAL and not callable(self.select):
            states = channels_second(states, choice.module, name, choice.is_input)
        if states.ndim != 3:
            return states, CHANNELS if states.ndim > 3 else TOKENS
        is_part = [states is part for part in tensors_of(value)]
        is_first = is_part[:1] == [True]
        how = {"is_first": is_first, "is_input": choice.is_input}
        axes = axes_of(choice.module, states, current.trail, **how)
        if callable(self.select) and (callable(self.pool) or not any(is_part)):
            # The function has turned the axes, or left them to the function that pools.
            is_square = states.shape[1] == states.shape[2]
            axes = None if is_square or axes in (TIME_FIRST, LAYERS_FIRST) else axes
        if axes is None and callable(self.select):
            return states, CHANNELS if self.pool in SPATIAL else TOKENS
        if axes is None and isinstance(self.pool, str) and self.pool != "flatten":
            raise ValueError(
                f"select: wanted a function for the output {tuple(states.shape)} of {name!r}, got "
                f"{self.select!r}; a layer before gives [B, C, T], and no layer shows whether this "
                "is so too: with select=lambda output: output, pool='mean' takes it as [B, T, p] "
                "and pool='spatial-mean' as [B, C, T]"
            )
        if axes in (TIME_FIRST, LAYERS_FIRST):
            return states.transpose(0, 1), axes
        if isinstance(self.select, int | str) and not is_first and axes == TOKENS:
            self._check_part(states, name, choice.module, current)
        return states, axes

    def _check_part(self, states: Tensor, name: str, module: nn.Module, current: Pass) -> None:
        """Raise a ValueError where the examples seem to be the second axis of a part."""
        is_known = isinstance(module, nn.MultiheadAttention)
        if not is_known and len(states) != current.examples == states.shape[1]:
            raise ValueError(
                f"select: wanted a function for the part {self.select!r} of the output of "
                f"{name!r}, whose axes are not known, got shape {tuple(states.shape)} for "
                f"{current.examples} examples; it gives them first, such as lambda output: "
                f"output[{self.select!r}].transpose(0, 1)"
            )

    def sampled(self, rows: Tensor, complete: Pass) -> Tensor:
        """Return the rows of a joined pass that the sample keeps."""
        index = self.sampler.draw(complete.number, len(rows))
        return rows if index is None else rows[index.to(rows.device)]

    def _is_odd(self, states: Tensor, name: str, current: Pass) -> bool:
        """Note the length of the first axis; return whether the mask has another one."""
        least = 3 if self.pool in MANY_ROWS else 2  # the rows [r, p] of some may be tokens
        if callable(self.pool) or states.ndim < least:
            return False
        if current.first_axes.get(name) in (None, current.examples):  # of several calls the odd one
            current.first_axes[name] = len(states)
        return current.mask.batch_size(name) not in (None, len(states))

    def _check_examples(self, states: Tensor, name: str, current: Pass) -> None:
        batch = current.mask.batch_size(name)
        if states.ndim == 2 and not callable(self.pool) and batch not in (None, len(states)):
            raise ValueError(
                f"pool: wanted {batch} rows, one per example of the mask, in the output of "
                f"{name!r}, got shape {tuple(states.shape)}; a function can pool it"
            )

    def _own(self, rows: Tensor, states: Tensor) -> Tensor:
        """Return rows that keep no larger memory alive and change with nobody else's."""
        if self.detach:
            rows = rows.detach()
            if rows.device.type != "cpu" and rows.nbytes > WAITING_BYTES:
                return rows.cpu()
        if _may_share(rows, states) or rows.untyped_storage().nbytes() > rows.nbytes:
            return rows.clone(memory_format=torch.contiguous_format)
        return rows


def _no_tokens(required_by: str | None) -> None:
    """Return the mask of states whose second axis holds no tokens."""


def _may_share(rows: Tensor, states: Tensor) -> bool:
    """Whether two tensors may share memory; a subclass need not say where its memory is."""
    if type(rows) is not Tensor or type(states) is not Tensor:
        return True
    return rows.untyped_storage().data_ptr() == states.untyped_storage().data_ptr()
