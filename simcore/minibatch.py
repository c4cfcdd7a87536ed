"""CKA from batches: one ratio of averages that are unbiased at any batch size."""

import copy
import re
from collections.abc import Callable, Mapping
from typing import Any, Self

import torch
from torch import Tensor, nn

from simcore._grid.inputs import LEAST_ROWS, Layers
from simcore._grid.one_operator import named_tensors, refuse_derivatives
from simcore._grid.side import Side, Sides, read_sides
from simcore._hsic import (
    HsicOptions,
    HsicTerms,
    check_representable,
    exact_near_one,
    normalise,
    unbiased_terms,
)
from simcore._ops.hsic_derivatives import Terms
from simcore._result import Comparison

# Names of the layers of X and of Y; the second is None where X is compared with itself.
Names = tuple[tuple[str, ...], tuple[str, ...] | None]
SIDES = ("X_batch", "Y_batch")
OPTIONS = HsicOptions(function="MinibatchCKA", estimator="unbiased")


class MinibatchCKA(nn.Module):
    """CKA of all layer pairs, accumulated over batches of examples.

    The numerator and both factors of the denominator are averages over batches of the *unbiased*
    HSIC; one ratio is taken at the end. An average of the CKA of batches would depend on the batch
    size instead.

    The first batch decides which layers there are, and whether X is compared with Y or with itself.

    Notes
    -----
    The state is three float64 buffers, two counts and the names of the layers, so that
    ``state_dict``, ``load_state_dict`` and moves to another device work as for any module. The sums
    stay float64 under ``.half()``, ``.bfloat16()`` and ``.float()``. Batches count equally; a last,
    smaller batch needs 4 rows. Sums over batches need one scale: unlike in `simcore.cka_grid`,
    float64 layers are not scaled, so that features above 1e77 are refused and features below 1e-80
    count as constant.

    References
    ----------
    Nguyen et al. 2021, *Do wide and deep networks learn the same things?*, section 3.

    Examples
    --------
    >>> import torch
    >>> from simcore import MinibatchCKA
    >>> metric = MinibatchCKA()
    >>> for _ in range(5):
    ...     metric.update({"first": torch.randn(64, 16), "second": torch.randn(64, 8)})
    >>> metric.compute().shape
    torch.Size([2, 2])
    >>> metric.comparison()["first", "first"]
    1.0
    """

    xy: Tensor
    xx: Tensor
    yy: Tensor
    batches: Tensor
    examples: Tensor

    def __init__(self) -> None:
        super().__init__()
        self._names: Names | None = None
        for name, kind, shape in (
            *(("xy", torch.float64, (0, 0)), ("xx", torch.float64, 0), ("yy", torch.float64, 0)),
            *(("batches", torch.int64, ()), ("examples", torch.int64, ())),
        ):
            self.register_buffer(name, torch.zeros(shape, dtype=kind))

    def _learn(self, names: Names) -> None:
        """Make the sums of layers of these names; there were none before."""
        rows, columns = len(names[0]), len(names[0] if names[1] is None else names[1])
        self.xy = self.xy.new_zeros(rows, columns)
        self.xx, self.yy = self.xx.new_zeros(rows), self.yy.new_zeros(columns)
        self._names = names

    def get_extra_state(self) -> Names | None:
        """Return the names of the layers, for `state_dict`."""
        return self._names

    def set_extra_state(self, state: Names | None) -> None:
        """Take the names of the layers, for `load_state_dict`."""
        self._names = state

    def _load_from_state_dict(self, state: dict[str, Any], prefix: str, *args: Any) -> None:
        names = state.get(f"{prefix}_extra_state")
        if self._names is None and names is not None:
            self._learn(names)  # torch copies into sums of the right shapes
        super()._load_from_state_dict(state, prefix, *args)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move the state as for any module, but keep its dtype: float32 sums would lose digits."""

        def move(state: Tensor) -> Tensor:
            moved = fn(state)
            return moved if moved.dtype == state.dtype else state.to(moved.device)

        return super()._apply(move, recurse)

    def _read(self, X_batch: Layers, Y_batch: Layers | None) -> tuple[Sides, Names]:
        if self._names is not None and (Y_batch is None) != (self._names[1] is None):
            expected, got = ("none", "one") if self._names[1] is None else ("one", "none")
            raise ValueError(f"Y_batch: wanted {expected}, as in the first batch, got {got}")
        sides = read_sides(
            X_batch,
            Y_batch,
            "the unbiased estimator of a batch",
            least_rows=LEAST_ROWS["unbiased"],
            differentiable=True,
            names=SIDES,
        )
        columns = None if Y_batch is None else _names(Y_batch, sides.y)
        names = _names(X_batch, sides.x), columns
        if self._names is not None:
            for side, wanted, got in zip(SIDES, self._names, names, strict=True):
                if got != wanted:
                    raise ValueError(
                        f"{side}: wanted the layers of the first batch in their order, "
                        f"{', '.join(wanted or ())}, got {', '.join(got or ())}"
                    )
        return sides, names

    def _terms(self, x: list[Tensor], y: list[Tensor], max_memory: int = 0) -> Terms:
        try:
            terms = unbiased_terms(OPTIONS, x, y, max_memory, SIDES)
        except ValueError as error:  # for NaN or infinity: the operator names its arguments X and Y
            raise ValueError(re.sub(r"^([XY])\[", r"\1_batch[", str(error))) from None
        everything = torch.cat([term.flatten() for term in terms])
        check_representable(everything, terms[1], terms[2], names=SIDES)
        xy, xx, yy = (term.to(self.xy.device) for term in terms)
        return xy, xx, yy

    def _sums(self) -> tuple[Tensor, ...]:
        return self.xy, self.xx, self.yy, self.batches, self.examples

    def _add(self, terms: tuple[Tensor | int, ...], names: Names) -> None:
        if self._names is None:
            self._learn(names)
        for state, term in zip(self._sums(), terms, strict=True):
            state += term.detach() if isinstance(term, Tensor) else term

    def update(self, X_batch: Layers, Y_batch: Layers | None = None) -> None:
        """Add one batch.

        Parameters
        ----------
        X_batch, Y_batch : sequence of ``[b, p_i]`` arrays, or one ``[L, b, p]`` array
            The same b >= 4 examples in every layer; or a dictionary of such arrays, whose names are
            kept. Without `Y_batch`, X is compared with itself.

        Raises
        ------
        TypeError, ValueError
            As `simcore.cka_grid`; also for other layers than those of the first batch, and for
            features so large (about 1e77) that float64 does not hold their HSIC. The state
            stays unchanged.
        """
        if not torch.compiler.is_compiling():
            named = (("X_batch", X_batch), ("Y_batch", Y_batch))
            refuse_derivatives("MinibatchCKA.update", named_tensors(named))
        with torch.no_grad():
            sides, names = self._read(X_batch, Y_batch)
            self._add((*self._terms(sides.x.layers, sides.y.layers), 1, sides.n), names)

    def forward(self, X_batch: Layers, Y_batch: Layers | None = None) -> Tensor:
        """Add one batch and return the CKA ``[Lx, Ly]`` of that batch alone.

        The result is differentiable as in `simcore.cka_grid`; the state is not. ``nan`` in the
        row and column of a layer without variance, with a warning.
        """
        sides, names = self._read(X_batch, Y_batch)
        terms = self._terms(sides.x.layers, sides.y.layers)
        self._add((*terms, 1, sides.n), names)
        function = "MinibatchCKA.forward"

        def compute(x: list[Tensor], y: list[Tensor], max_memory: int) -> Tensor:
            return normalise(*self._terms(x, y, max_memory))

        grid = HsicTerms(*terms, function, sides.same).normalised()
        return exact_near_one(function, sides, grid, compute)

    def compute(self) -> Tensor:
        """Return the CKA ``[Lx, Ly]``, float64, of all batches added so far.

        Raises
        ------
        RuntimeError
            No batch was added yet.
        """
        message = "MinibatchCKA.compute: wanted at least one update, got none"
        if torch.compiler.is_compiling():
            torch._assert_async(self.batches > 0, message)
        elif self.batches == 0:
            raise RuntimeError(message)
        same = self._names is not None and self._names[1] is None
        return HsicTerms(self.xy, self.xx, self.yy, "MinibatchCKA", same).normalised()

    def comparison(self) -> Comparison:
        """Return `compute` with the names of the layers: "0", "1" and so on for layers without."""
        values = self.compute()
        rows, columns = self._names or ((), ())
        n = int(self.examples)
        return Comparison(values, rows, rows if columns is None else columns, "cka (minibatch)", n)

    def reset(self) -> None:
        """Set the sums and the counts to zero; the layers stay the same."""
        for state in self._sums():
            state.zero_()

    def merge(self, other: "MinibatchCKA") -> None:
        """Add all batches that ``other``, the module of another worker, has seen."""
        if not isinstance(other, MinibatchCKA):
            raise TypeError(f"other: wanted a MinibatchCKA, got {type(other).__name__}")
        if other._names is None:
            return
        _check_names("other", [self._names, other._names])
        self._add(tuple(term.to(self.xy.device) for term in other._sums()), other._names)

    def all_reduce(self, group: torch.distributed.ProcessGroup | None = None) -> Self:
        """Return the module of the batches that all processes have seen.

        This module stays as it is, so that no batch counts twice in a second call.

        Parameters
        ----------
        group : torch.distributed.ProcessGroup, optional
            Of processes that all call this; default: all. Their backend must take the device on
            which the state is.

        Raises
        ------
        ValueError
            The processes have seen other layers.
        """
        every: list[Names | None] = [None] * torch.distributed.get_world_size(group)
        torch.distributed.all_gather_object(every, self._names, group)
        _check_names("all_reduce", every)
        total = copy.deepcopy(self)
        seen = [names for names in every if names is not None]
        if seen and total._names is None:
            total._learn(seen[0])
        for state in total._sums():
            torch.distributed.all_reduce(state, group=group)
        return total


def _names(batch: Layers, side: Side) -> tuple[str, ...]:
    """Return the names of the layers of a batch, or their places."""
    return tuple(map(str, batch if isinstance(batch, Mapping) else range(len(side))))


def _check_names(argument: str, every: list[Names | None]) -> None:
    """Raise a ValueError unless all modules that have seen a batch have seen the same layers."""
    known = [names for names in every if names is not None]
    for names in known:
        if names != known[0]:
            raise ValueError(
                f"{argument}: wanted the same layers in every module, got {known[0]} and {names}"
            )
