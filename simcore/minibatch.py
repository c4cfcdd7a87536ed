"""CKA from batches: one ratio of averages that are unbiased at any batch size."""

import re
from collections.abc import Callable
from typing import Self

import torch
from torch import Tensor, nn

from simcore._cka_terms import exact_near_one, unbiased_terms
from simcore._grid.inputs import LEAST_ROWS, Layers
from simcore._grid.normalise import check_representable, defined_layers, normalise
from simcore._grid.one_operator import named_tensors, refuse_derivatives
from simcore._grid.options import check_count, checked_keywords
from simcore._grid.side import Sides, read_sides
from simcore._ops.hsic_derivatives import Terms


class MinibatchCKA(nn.Module):
    """CKA of all layer pairs, accumulated over batches of examples.

    The numerator and both factors of the denominator are averages over batches of the *unbiased*
    HSIC; one ratio is taken at the end. An average of the CKA of batches would depend on the batch
    size instead.

    Parameters
    ----------
    n_layers_x : int
        Number of layers of X.
    n_layers_y : int, optional
        Number of layers of Y; default: X is compared with itself.

    Raises
    ------
    TypeError, ValueError
        A number of layers is no integer, or below 1; another keyword.

    Notes
    -----
    The state is three float64 buffers and a count, so that ``state_dict``, ``load_state_dict`` and
    moves to another device work as for any module. The sums stay float64 under ``.half()``,
    ``.bfloat16()`` and ``.float()``. Batches count equally; a last, smaller batch needs 4 rows.
    Sums over batches need one scale: unlike in `simcore.cka_grid`, float64 layers are not scaled,
    so that features above 1e77 are refused and features below 1e-80 count as constant.

    References
    ----------
    Nguyen et al. 2021, *Do wide and deep networks learn the same things?*, section 3.

    Examples
    --------
    >>> import torch
    >>> from simcore import MinibatchCKA
    >>> metric = MinibatchCKA(3)
    >>> for _ in range(5):
    ...     metric.update(torch.randn(3, 64, 16))
    >>> metric.compute().shape
    torch.Size([3, 3])
    """

    xy: Tensor
    xx: Tensor
    yy: Tensor
    batches: Tensor

    @checked_keywords
    def __init__(self, n_layers_x: int, n_layers_y: int | None = None) -> None:
        super().__init__()
        self.symmetric = n_layers_y is None
        rows = check_count(n_layers_x, "n_layers_x")
        columns = rows if n_layers_y is None else check_count(n_layers_y, "n_layers_y")
        self.register_buffer("xy", torch.zeros(rows, columns, dtype=torch.float64))
        self.register_buffer("xx", torch.zeros(rows, dtype=torch.float64))
        self.register_buffer("yy", torch.zeros(columns, dtype=torch.float64))
        self.register_buffer("batches", torch.zeros((), dtype=torch.int64))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move the state as for any module, but keep its dtype: float32 sums would lose digits."""

        def move(state: Tensor) -> Tensor:
            moved = fn(state)
            return moved if moved.dtype == state.dtype else state.to(moved.device)

        return super()._apply(move, recurse)

    def _read(self, X_batch: Layers, Y_batch: Layers | None) -> Sides:
        if (Y_batch is None) != self.symmetric:
            expected = "no Y_batch" if self.symmetric else "a Y_batch"
            got = "none" if Y_batch is None else "one"
            raise ValueError(f"Y_batch: wanted {expected} (see n_layers_y), got {got}")
        names = ("X_batch", "Y_batch")
        sides = read_sides(
            X_batch,
            Y_batch,
            "the unbiased estimator of a batch",
            least_rows=LEAST_ROWS["unbiased"],
            differentiable=True,
            names=names,
        )
        for side, wanted in ((sides.x, len(self.xx)), (sides.y, len(self.yy))):
            if len(side) != wanted and not (side is sides.y and sides.same):
                raise ValueError(f"{side.name}: wanted {wanted} layers, got {len(side)}")
        return sides

    def _terms(self, x: list[Tensor], y: list[Tensor], max_memory: int = 0) -> Terms:
        names = ("X_batch", "Y_batch")
        try:
            terms = unbiased_terms("MinibatchCKA", x, y, max_memory=max_memory, names=names)
        except ValueError as error:  # for NaN or infinity: the operator names its arguments X and Y
            raise ValueError(re.sub(r"^([XY])\[", r"\1_batch[", str(error))) from None
        everything = torch.cat([term.flatten() for term in terms])
        check_representable(everything, terms[1], terms[2], names=names)
        xy, xx, yy = (term.to(self.xy.device) for term in terms)
        return xy, xx, yy

    def _add(self, terms: tuple[Tensor, ...], batches: Tensor | int) -> None:
        for state, term in zip((self.xy, self.xx, self.yy), terms, strict=True):
            state += term.detach()
        self.batches += batches

    def update(self, X_batch: Layers, Y_batch: Layers | None = None) -> None:
        """Add one batch.

        Parameters
        ----------
        X_batch, Y_batch : sequence of ``[b, p_i]`` arrays, or one ``[L, b, p]`` array
            The same b >= 4 examples in every layer. `Y_batch` is wanted if and only if the module
            was made with `n_layers_y`.

        Raises
        ------
        TypeError, ValueError
            As `simcore.cka_grid`; also for another number of layers than the module was made for,
            and for features so large (about 1e77) that float64 does not hold their HSIC. The state
            stays unchanged.
        """
        if not torch.compiler.is_compiling():
            named = (("X_batch", X_batch), ("Y_batch", Y_batch))
            refuse_derivatives("MinibatchCKA.update", named_tensors(named))
        with torch.no_grad():
            sides = self._read(X_batch, Y_batch)
            self._add(self._terms(sides.x.layers, sides.y.layers), 1)

    def forward(self, X_batch: Layers, Y_batch: Layers | None = None) -> Tensor:
        """Add one batch and return the CKA ``[Lx, Ly]`` of that batch alone.

        The result is differentiable as in `simcore.cka_grid`; the state is not. ``nan`` in the
        row and column of a layer without variance, with a warning.
        """
        sides = self._read(X_batch, Y_batch)
        terms = self._terms(sides.x.layers, sides.y.layers)
        self._add(terms, 1)
        xx, yy = terms[1].detach(), terms[2].detach()
        defined = defined_layers("MinibatchCKA.forward", xx, yy, self.symmetric)

        def compute(x: list[Tensor], y: list[Tensor], max_memory: int) -> Tensor:
            return normalise(*self._terms(x, y, max_memory))

        grid = normalise(*terms, defined)
        return exact_near_one("MinibatchCKA.forward", sides, grid, compute)

    def compute(self) -> Tensor:
        """Return the CKA ``[n_layers_x, n_layers_y]``, float64, of all batches added so far.

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
        defined = defined_layers("MinibatchCKA", self.xx, self.yy, self.symmetric)
        return normalise(self.xy, self.xx, self.yy, defined)

    def reset(self) -> None:
        """Set the sums and the count of batches to zero."""
        for state in (self.xy, self.xx, self.yy, self.batches):
            state.zero_()

    def merge(self, other: "MinibatchCKA") -> None:
        """Add all batches that ``other``, the module of another worker, has seen."""
        if not isinstance(other, MinibatchCKA):
            raise TypeError(f"other: wanted a MinibatchCKA, got {type(other).__name__}")
        if other.xy.shape != self.xy.shape or other.symmetric != self.symmetric:
            wanted, got = (tuple(m.xy.shape) for m in (self, other))
            raise ValueError(f"other: wanted the same numbers of layers {wanted}, got {got}")
        terms = tuple(t.to(self.xy.device) for t in (other.xy, other.xx, other.yy))
        self._add(terms, other.batches.to(self.batches.device))
