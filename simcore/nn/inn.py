"""Stacks of affine coupling layers."""

from __future__ import annotations

import copy
from itertools import pairwise

import torch
from torch import Tensor, nn

from simcore._grid.one_operator import is_followed
from simcore._grid.options import check_choice, check_count
from simcore.nn._checks import on_rows
from simcore.nn._reversible import run_reversibly
from simcore.nn.coupling import AffineCoupling, Halves

MIXING = ("none", "permutation")


class Permutation(nn.Module):
    """Columns in another order, fixed; the log-determinant is 0.

    Parameters
    ----------
    order : ``[dim]``
        Column ``order[j]`` goes to place j.
    """

    order: Tensor

    def __init__(self, order: Tensor) -> None:
        super().__init__()
        self.register_buffer("order", order)

    def couple(self, halves: Halves, *, inverse: bool = False) -> tuple[Halves, None]:
        """What `AffineCoupling.couple` does for a coupling."""
        order = self.order.argsort() if inverse else self.order
        columns = torch.cat(halves, dim=-1).index_select(-1, order)
        split = halves[0].shape[-1]
        return (columns[..., :split], columns[..., split:]), None


def _permutations(count: int, dim: int, seed: int) -> list[Permutation]:
    """One before each of ``count`` blocks, and one that puts all columns back."""
    generator = torch.Generator().manual_seed(seed)
    places = [torch.randperm(dim, generator=generator) for _ in range(count)]
    places = [torch.arange(dim), *places, torch.arange(dim)]
    return [Permutation(before.argsort()[after]) for before, after in pairwise(places)]


class CouplingINN(nn.Module):
    """An invertible network: affine coupling layers whose halves alternate, BERT-INN.

    Block i is an `AffineCoupling` with ``flip = i % 2``. The exact inverse costs as much as the
    network; the log-determinant is the sum of the blocks'. Freshly made it is the identity map.

    Parameters
    ----------
    dim : int
        Columns of a row, at least 2; may be odd.
    n_blocks : int
        Coupling layers; two of them change every column once.
    hidden, depth, activation, clamp, output_gain : as in `AffineCoupling`
        ``output_gain=1`` starts at a random map instead of the identity.
    batch : int
        Train so many independent maps at once, on rows ``[batch, n, dim]``.
    mixing : {"none", "permutation"}
        Without mixing, entries of one half only ever meet as inputs of a perceptron. "permutation"
        draws, for each block, which columns form its halves, and puts them back behind the
        last block, so that the map still starts at the identity. The orders are buffers: they are
        saved with the state.
    seed : int
        Of the permutations.
    reversible : bool
        Keep no activations for the backward pass, but recompute them from the output: memory
        then does not grow with the number of blocks, for one more pass through each. Second
        derivatives need ``reversible=False``; forward-mode differentiation and the transforms of
        `torch.func` keep activations all the same.

    Raises
    ------
    TypeError, ValueError
        Naming the argument, what was wanted and what came.

    Notes
    -----
    ``inverse(forward(x))`` is x up to the rounding of the rows in between, times how far the map
    squeezes them: below 1e-5 in float32 and 1e-10 in float64 when trained towards a map that hardly
    does, another such network. Training towards noise flattens directions, and costs more.
    ``clamp`` bounds that factor.

    References
    ----------
    Ren et al. 2023, section 3.4; Dinh et al. 2017, section 3; Gomez et al. 2017 (reversible).
    """

    def __init__(
        self,
        dim: int,
        n_blocks: int,
        hidden: int,
        batch: int = 1,
        *,
        depth: int = 2,
        activation: str = "gelu",
        clamp: float = 1.0,
        output_gain: float = 0.0,
        mixing: str = "none",
        seed: int = 0,
        reversible: bool = False,
    ) -> None:
        super().__init__()
        self.dim, self.batch = check_count(dim, "dim", 2), check_count(batch, "batch")
        n_blocks = check_count(n_blocks, "n_blocks")
        self.mixing = check_choice(mixing, "mixing", MIXING)
        self.reversible = reversible
        blocks = [
            AffineCoupling(
                dim,
                hidden,
                depth=depth,
                activation=activation,
                clamp=clamp,
                flip=i % 2 == 1,
                batch=batch,
                output_gain=output_gain,
            )
            for i in range(n_blocks)
        ]
        layers: list[nn.Module] = list(blocks)
        if mixing == "permutation":
            first, *others = _permutations(n_blocks, dim, seed)
            layers = [first]
            for block, permutation in zip(blocks, others, strict=True):
                layers += [block, permutation]
        self.layers = nn.ModuleList(layers)

    @on_rows
    def forward(self, x: Tensor) -> Tensor:
        """y, of the shape of x.

        Parameters
        ----------
        x : ``[n, dim]``, or ``[batch, n, dim]``
            Of the parameters' dtype.
        """
        return self._run(x, inverse=False)[0]

    @on_rows
    def inverse(self, y: Tensor) -> Tensor:
        """The x that `forward` maps to y."""
        return self._run(y, inverse=True)[0]

    @on_rows
    def log_abs_det(self, x: Tensor) -> Tensor:
        """Logarithm of the absolute determinant of the Jacobian at every row, ``[n]``."""
        return self._run(x, inverse=False)[1]

    @on_rows
    def forward_and_log_abs_det(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """`forward` and `log_abs_det` for the price of one."""
        return self._run(x, inverse=False)

    @on_rows
    def inverse_and_log_abs_det(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """`inverse`, and the log-determinant of the inverse at ``y``: `log_abs_det` negated."""
        return self._run(y, inverse=True)

    def unbatch(self) -> list[CouplingINN]:
        """The maps one by one, as copies with ``batch=1``."""
        maps = []
        for i in range(self.batch):
            one = copy.deepcopy(self)
            for module in one.modules():
                if isinstance(module, AffineCoupling | CouplingINN):
                    module.batch = 1
            for parameter in one.parameters():
                parameter.data = parameter.data[i : i + 1].clone()
                parameter.grad = None
            maps.append(one)
        return maps

    def ordered(self, inverse: bool) -> list[AffineCoupling | Permutation]:
        """The layers in the order in which rows meet them."""
        layers = list(self.layers)
        return layers[::-1] if inverse else layers  # type: ignore[return-value]

    def _run(self, x: Tensor, *, inverse: bool) -> tuple[Tensor, Tensor]:
        reversible = self.reversible and torch.is_grad_enabled()
        if reversible and not torch.compiler.is_compiling():
            reversible = not is_followed([x, *self.parameters()])
        if reversible:
            return run_reversibly(self, x, inverse)
        return self.run(x, inverse=inverse)

    def run(self, x: Tensor, *, inverse: bool) -> tuple[Tensor, Tensor]:
        """All layers in turn on ``[batch, n, dim]``: the rows, and the log-determinant of each."""
        split = self.dim - self.dim // 2
        halves: Halves = (x[..., :split], x[..., split:])
        total: Tensor | None = None
        for layer in self.ordered(inverse):
            halves, log_det = layer.couple(halves, inverse=inverse)
            if log_det is not None:
                total = log_det if total is None else total + log_det
        assert total is not None  # there is at least one block
        return torch.cat(halves, dim=-1), total
