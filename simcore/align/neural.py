"""Aligners that are trained: an invertible network, and a plain one for comparison."""

from __future__ import annotations

from typing import Any, Literal, NoReturn

import torch
from torch import Tensor, nn

from simcore._grid.inputs import Array
from simcore._grid.options import check_choice, check_count
from simcore.align._neural import Init, NeuralAligner
from simcore.align._paired import PairedCouplings, PairedFlow
from simcore.align._training import Optimizer, Schedule
from simcore.nn import BatchedMLP, CouplingINN
from simcore.nn.inn import Mixing
from simcore.nn.mlp import Activation

Block = Literal["coupling", "pair"]


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
    optimizer : {"adamw", "adam"}
        `torch.optim.AdamW` or `torch.optim.Adam`.
    learning_rate : float
        Largest learning rate.
    weight_decay : float
        Weight decay of the optimiser, at least 0.
    schedule : {"cosine", "exponential"}
        "cosine": the rate rises linearly and then falls to 0 as half a cosine. "exponential": the
        rate is multiplied by `decay` after every group of steps.
    warmup : float
        Share of all steps over which the rate of "cosine" rises, in [0, 1).
    decay : float
        Factor of "exponential", in (0, 1].
    max_epochs : int
        Largest number of epochs.
    max_steps : int or None
        Number of steps after which training ends, in place of `max_epochs`.
    batch_size : int
        Rows of a step. Rows that do not fill a last batch are left out of the epoch.
    group : int
        Number of successive steps whose gradients add up: they are set to zero once per group. In
        Ren et al.'s code a group is the steps of all layers on the same examples.
    shuffle : bool
        Whether every epoch draws a new order of the rows.
    patience : int
        Number of epochs without a smaller loss on the held-out rows after which training stops.
    validation_share : float
        Share of the rows of `fit` that are held out to decide when to stop, in [0, 1); the state of
        their smallest loss is kept. With 0, training does not stop early, and the last state is
        kept.
    normalize : bool
        Whether ``scale_x`` and ``scale_y`` are applied.
    init : {"default", "xavier"}
        "xavier" draws all weights and biases from normal distributions of variance
        ``2 / (inputs + outputs)`` instead; the initial map then is not the identity.
    seed : int
        Seed of initial weights, held-out rows and row order. The same seed gives the same bits on
        the same machine.
    device : str, optional
        Device of the training; default: the device of X. Results are returned on the device of X.
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
    >>> from simcore.align import INNAligner
    >>> x = torch.randn(64, 6)
    >>> aligner = INNAligner(hidden=16, max_epochs=2).fit(x, x.sinh())
    >>> bool((aligner.inverse_transform(aligner.transform(x)) - x).abs().max() < 1e-4)
    True
    """

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
        optimizer: Optimizer = "adamw",
        learning_rate: float = 2e-3,
        weight_decay: float = 1e-2,
        schedule: Schedule = "cosine",
        warmup: float = 0.1,
        decay: float = 0.99,
        max_epochs: int = 100,
        max_steps: int | None = None,
        batch_size: int = 128,
        group: int = 1,
        shuffle: bool = True,
        patience: int = 20,
        validation_share: float = 0.1,
        normalize: bool = True,
        init: Init = "default",
        seed: int = 0,
        device: str | torch.device | None = None,
        progress: bool = False,
    ) -> None:
        self._keep(locals())

    def _network(self, p: int, q: int, batch: int) -> nn.Module:
        if p != q or p < 2:
            raise ValueError(f"Y: wanted as many columns as X, 2 or more, got {q} for X's {p}")
        check_choice(self.block, "block", Block)
        hidden = 4 * p if self.hidden is None else self.hidden
        made: dict[str, Any] = {"depth": self.depth, "activation": self.activation, "batch": batch}
        if self.block == "coupling":
            return CouplingINN(p, self.n_blocks, hidden, mixing=self.mixing, seed=self.seed, **made)
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
    >>> from simcore.align import MLPAligner
    >>> x = torch.randn(64, 6)
    >>> MLPAligner(hidden=16, max_epochs=2).fit(x, x[:, :2]).transform(x).shape
    torch.Size([64, 2])
    """

    hidden: int | None
    activation: Activation

    def __init__(
        self,
        *,
        hidden: int | None = 512,
        activation: Activation = "gelu",
        optimizer: Optimizer = "adamw",
        learning_rate: float = 1e-3,
        weight_decay: float = 1e-2,
        schedule: Schedule = "cosine",
        warmup: float = 0.1,
        decay: float = 0.99,
        max_epochs: int = 100,
        max_steps: int | None = None,
        batch_size: int = 128,
        group: int = 1,
        shuffle: bool = True,
        patience: int = 20,
        validation_share: float = 0.1,
        normalize: bool = True,
        init: Init = "default",
        seed: int = 0,
        device: str | torch.device | None = None,
        progress: bool = False,
    ) -> None:
        self._keep(locals())

    def _network(self, p: int, q: int, batch: int) -> nn.Module:
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
