"""How an output becomes rows."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from simcore.recording.axes import channels_second, is_channel_first
from simcore.recording.outputs import Select, check_select, states_of
from simcore.recording.passes import Pass
from simcore.recording.pools import SPATIAL, Pool, check_pool, plan_rows
from simcore.recording.sampling import Sampler

# Larger rows of one call do not wait on an accelerator for the end of the pass.
WAITING_BYTES = 2**24


class Reading:
    """How an output becomes rows: the options `pool`, `select`, `sample` and `detach`."""

    def __init__(self, pool: Pool, select: Select, sampler: Sampler, detach: bool = True) -> None:
        self.pool, self.select = check_pool(pool), check_select(select)
        self.sampler, self.detach = sampler, detach

    def rows(
        self,
        name: str,
        module: nn.Module,
        output: Any,
        current: Pass,
        check: Callable[[int, torch.device], None],
    ) -> Tensor:
        """Return the rows of an output, which share no memory with it.

        `check` is called with their bytes and their device before they are made.
        """

        def draw(rows: int) -> Tensor | None:
            # Parts of a pass are drawn from when they are joined.
            return None if current.is_part else self.sampler.draw(current.number, rows)

        states = states_of(output, module, name, self.select)
        if self.pool in SPATIAL and not callable(self.select):
            states = channels_second(states, module, name)
        current.device = current.device or states.device
        gradients = torch.is_grad_enabled() and not self.detach
        with torch.set_grad_enabled(gradients), torch.autocast(states.device.type, enabled=False):
            plan = plan_rows(
                states,
                name,
                self.pool,
                is_channel_first(module, states),
                functools.partial(current.mask.kept, states, name),
                draw,
            )
            self._check_examples(states, name, current)
            check(plan.nbytes, torch.device("cpu") if self.detach else states.device)
            return self._own(plan.make(), states)

    def sampled(self, rows: Tensor, complete: Pass) -> Tensor:
        """Return the rows of a joined pass that the sample keeps."""
        index = self.sampler.draw(complete.number, len(rows))
        return rows if index is None else rows[index.to(rows.device)]

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


def _may_share(rows: Tensor, states: Tensor) -> bool:
    """Whether two tensors may share memory; a subclass need not say where its memory is."""
    if type(rows) is not Tensor or type(states) is not Tensor:
        return True
    return rows.untyped_storage().data_ptr() == states.untyped_storage().data_ptr()
