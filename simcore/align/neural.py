"""Aligners that are trained: an invertible network, and a plain one for comparison."""

from __future__ import annotations

from typing import Any, Literal, NoReturn

import torch
from torch import Tensor, nn

from simcore._grid.inputs import Array
from simcore._grid.options import check_choice, check_count
from simcore.align._neural import NeuralAligner
from simcore.align._training import Training
from simcore.nn import BatchedMLP, CouplingINN
from simcore.nn.inn import Mixing
from simcore.nn.mlp import Activation

Block = Literal["coupling", "pair"]


class PairedCouplings(nn.Module):
    r"""One block, or ``batch`` independent ones: couplings of the even and of the odd columns.

    With m the mask of the even columns (1 there, 0 elsewhere), the first coupling is

    .. math:: y = m x + (1 - m) (x \exp(s) + t), \quad
              s = \tanh(S(m x)), \quad t = T(m x)

    and the second is the same with 1 - m for m, and with the same two networks S and T. Each is a
    perceptron from all ``dim`` columns to all ``dim`` columns.

    This is the block ``Nonlinear(dim, "RealNVP")`` of the package INN (INNLab), which Ren et al.
    use. The package adds 1e-8 to the factor exp(s); this module does not. ``dim`` is at least 2,
    and S and T have ``depth`` hidden layers of width ``hidden``.
    """

    mask: Tensor

    def __init__(
        self, dim: int, hidden: int, *, depth: int, activation: Activation, batch: int
    ) -> None:
        super().__init__()
        self.register_buffer("mask", (torch.arange(dim) + 1) % 2)
        # A network S that gives 0 makes the factor exp(s) one.
        self.log_scale, self.shift = (
            BatchedMLP(
                dim, hidden, dim, depth=depth, activation=activation, batch=batch, output_gain=0.0
            )
            for _ in range(2)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[batch, n, dim]``."""
        for mask in (self.mask, 1 - self.mask):
            kept = mask * x
            factor = self.log_scale(kept).tanh().exp()
            x = kept + (1 - mask) * (x * factor + self.shift(kept))
        return x

    def inverse(self, y: Tensor) -> Tensor:
        """Return the x that `forward` maps to y."""
        for mask in (1 - self.mask, self.mask):
            kept = mask * y
            factor = self.log_scale(kept).tanh().exp()
            y = kept + (1 - mask) * (y - self.shift(kept)) / factor
        return y


class PairedFlow(nn.Sequential):
    """Blocks of `PairedCouplings`, one after the other."""

    def inverse(self, y: Tensor) -> Tensor:
        """Return the x that `forward` maps to y."""
        for block in reversed(list(self)):
            assert isinstance(block, PairedCouplings)
            y = block.inverse(y)
        return y


class INNAligner(NeuralAligner):
    """An invertible network of affine couplings (BERT-INN): a bijection by construction.

    ``g = scale_y . INN . scale_x``: ``scale_x`` brings the columns of X to mean 0 and variance 1,
    ``scale_y`` brings such columns back to the means and variances of Y. The INN is a
    `simcore.nn.CouplingINN`, initially the identity, trained on the mean squared error in the units
    of Y. Both sides must have the same number of columns.

    ``INNAligner(**REN2023["inn"])`` is the flow of Ren et al.'s published code with their training,
    which differs from the defaults in every choice; see `simcore.align.REN2023`.

    Parameters
    ----------
    n_blocks : int
        Number of blocks.
    block : {"coupling", "pair"}
        "coupling" is an affine coupling; the halves of successive couplings alternate. "pair" is
        two couplings, of the even and of the odd columns, that share one network for the factor and
        one for the shift, as in Ren et al.'s code.
    hidden : int or None
        Width of the hidden layers of the perceptrons; None is four times the columns of X.
    depth : int
        Number of hidden layers of the perceptrons.
    activation : {"gelu", "relu", "selu", "silu", "tanh"}
        Function behind each hidden layer.
    mixing : {"none", "permutation"}
        Whether every coupling draws anew which columns form its halves; see `CouplingINN`. Only
        "none" with block "pair".
    training : Training, optional
        How the network is trained; default: ``Training()``.
    progress : bool
        Show a progress bar on stderr.

    Attributes
    ----------
    network_ : Module
        The trained network, a `CouplingINN` for block "coupling".
    log_ : Log
        Losses of every epoch, the epoch whose state was kept, and why training stopped.

    Raises
    ------
    ValueError
        In `fit`: different numbers of columns, fewer than 2 columns, fewer than 4 rows, a parameter
        out of range.

    Warns
    -----
    UserWarning
        The loss became NaN or infinite: training stopped, and the best state so far is kept.

    References
    ----------
    Ren et al. 2023, section 3.4; Dinh et al. 2017.

    Examples
    --------
    >>> import torch
    >>> from simcore.align import INNAligner, Training
    >>> x = torch.randn(64, 6)
    >>> aligner = INNAligner(hidden=16, training=Training(max_epochs=2)).fit(x, x.sinh())
    >>> bool((aligner.inverse_transform(aligner.transform(x)) - x).abs().max() < 1e-4)
    True
    """

    LEARNING_RATE = 2e-3
    network_: CouplingINN | PairedFlow

    n_blocks: int
    block: Block
    hidden: int | None
    depth: int
    activation: Activation
    mixing: Mixing

    def __init__(
        self,
        *,
        n_blocks: int = 4,
        block: Block = "coupling",
        hidden: int | None = 256,
        depth: int = 1,
        activation: Activation = "gelu",
        mixing: Mixing = "none",
        training: Training | None = None,
        progress: bool = False,
    ) -> None:
        self._keep(locals())

    def _network(self, p: int, q: int, batch: int, seed: int) -> nn.Module:
        if p != q or p < 2:
            raise ValueError(f"Y: wanted as many columns as X, 2 or more, got {q} for X's {p}")
        check_choice(self.block, "block", Block)
        hidden = 4 * p if self.hidden is None else self.hidden
        made: dict[str, Any] = {"depth": self.depth, "activation": self.activation, "batch": batch}
        if self.block == "coupling":
            return CouplingINN(p, self.n_blocks, hidden, mixing=self.mixing, seed=seed, **made)
        if self.mixing != "none":
            raise ValueError(f"mixing: wanted 'none' with block 'pair', got {self.mixing!r}")
        blocks = range(check_count(self.n_blocks, "n_blocks"))
        return PairedFlow(*(PairedCouplings(p, hidden, **made) for _ in blocks))

    def inverse_transform(self, Y: Array) -> Array:
        """Return the exact inverse of `transform` at Y.

        Raises
        ------
        NotFittedError, TypeError, ValueError
            As `transform`.
        """
        return self._apply(self._inverse, Y, "n_features_out_")

    def _inverse(self, y: Tensor) -> Tensor:
        scaling = self._scaling
        with torch.no_grad():
            rows = scaling.y(y.to(scaling.mean_y)[None])
            return scaling.from_x(self.network_.inverse(rows))[0].to(y)


class MLPAligner(NeuralAligner):
    """A plain network of four linear layers with GELU between them, which is no bijection.

    The comparison with `INNAligner` shows the price of invertibility (Ren et al., table 4,
    "Non-Bij. NN"). There is no ``inverse_transform``.

    Parameters are as for `INNAligner` except ``n_blocks``, ``block``, ``depth`` and ``mixing``,
    and:

    Parameters
    ----------
    hidden : int or None
        Width of the three hidden layers; None is the number of columns of X.

    References
    ----------
    Ren et al. 2023, section 4.4.

    Examples
    --------
    >>> import torch
    >>> from simcore.align import MLPAligner, Training
    >>> x = torch.randn(64, 6)
    >>> aligner = MLPAligner(hidden=16, training=Training(max_epochs=2)).fit(x, x[:, :2])
    >>> aligner.transform(x).shape
    torch.Size([64, 2])
    """

    LEARNING_RATE = 1e-3
    hidden: int | None
    activation: Activation

    def __init__(
        self,
        *,
        hidden: int | None = 512,
        activation: Activation = "gelu",
        training: Training | None = None,
        progress: bool = False,
    ) -> None:
        self._keep(locals())

    def _network(self, p: int, q: int, batch: int, seed: int) -> nn.Module:
        hidden = p if self.hidden is None else self.hidden
        return BatchedMLP(p, hidden, q, depth=3, activation=self.activation, batch=batch)

    @property
    def inverse_transform(self) -> NoReturn:
        """Raise an AttributeError, because a plain network has no inverse.

        Raises
        ------
        AttributeError
            Always, so that ``hasattr`` is False, as scikit-learn expects.
        """
        raise AttributeError(
            "MLPAligner: has no inverse_transform, it is no bijection; INNAligner has one"
        )
