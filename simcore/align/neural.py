"""Aligners that are trained: an invertible network, and a plain one for comparison."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import NoReturn

import torch
from torch import Tensor, nn

from simcore._grid.finish import warn_caller
from simcore._grid.inputs import LEAST_ROWS, Array, check_rows
from simcore._grid.progress import progress_bar
from simcore.align._base import Aligner, TooFewRowsError
from simcore.align._training import Data, Log, Recipe, train
from simcore.nn import BatchedMLP, CouplingINN

SMALLEST = 1e-3  # least standard deviation to divide by, as a share of the largest


class NeuralAligner(Aligner):
    """The base class of trained aligners: normalisation, the split of rows, and training."""

    network_: nn.Module
    log_: Log
    _scaling: _Scaling

    optimizer: str
    learning_rate: float
    weight_decay: float
    warmup: float
    max_epochs: int
    batch_size: int
    patience: int
    validation_share: float
    normalize: bool
    seed: int
    device: str | torch.device | None
    progress: bool

    @abstractmethod
    def _network(self, p: int, q: int, batch: int) -> nn.Module:
        """Return an untrained network of ``batch`` maps from p to q columns."""

    def _fit(self, x: Tensor, y: Tensor) -> None:
        self.fit_many([self], [x], [y])

    @staticmethod
    def fit_many(
        aligners: Sequence[NeuralAligner], xs: Sequence[Tensor], ys: Sequence[Tensor]
    ) -> None:
        """Train aligners of equal parameters together, one for each pair; shapes are equal."""
        first = aligners[0]
        recipe = first._recipe()
        recipe.check()
        device = xs[0].device if first.device is None else torch.device(first.device)
        x, y = (torch.stack(list(sides)).to(device) for sides in (xs, ys))
        scaling = _Scaling.of(x, y, first.normalize)
        network = first._initial(x.shape[2], y.shape[2], len(aligners)).to(x)
        data, heldout = first._split(scaling, x, y)
        with progress_bar(type(first).__name__, first.progress) as report:
            logs = train(network, data, heldout, recipe, report)
        for pair, (aligner, log) in enumerate(zip(aligners, logs, strict=True)):
            aligner.network_ = first._initial(x.shape[2], y.shape[2], 1).to(x)
            _copy_slice(network, pair, aligner.network_)
            aligner.log_, aligner._scaling = log, scaling.slice(pair)
            aligner.n_features_in_, aligner.n_features_out_ = x.shape[2], y.shape[2]
            aligner._warn_if_diverged(pair, len(aligners))

    def _recipe(self) -> Recipe:
        names = ("optimizer", "learning_rate", "weight_decay", "warmup", "max_epochs")
        names += ("batch_size", "patience", "seed")
        return Recipe(**{name: getattr(self, name) for name in names})

    def _initial(self, p: int, q: int, batch: int) -> nn.Module:
        """Return a network whose maps all have the initial weights of a batch of one."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            single = self._network(p, q, 1)
            if batch == 1:
                return single
            network = self._network(p, q, batch)
        with torch.no_grad():
            for one, all_ in zip(single.parameters(), network.parameters(), strict=True):
                all_.copy_(one.expand_as(all_))
        return network

    def _split(self, scaling: _Scaling, x: Tensor, y: Tensor) -> tuple[Data, Data]:
        """Return the rows to learn from and the rows that decide when to stop."""
        n = x.shape[1]
        share = self.validation_share
        if not 0 < share < 1:
            raise ValueError(f"validation_share: wanted a share in (0, 1), got {share!r}")
        least = LEAST_ROWS["fit and holdout"]
        check_rows(x[0], "X", least, "training with held-out rows", TooFewRowsError)
        held = min(max(2, round(share * n)), n - 2)
        order = torch.randperm(n, generator=torch.Generator().manual_seed(self.seed)).to(x.device)
        x, y = scaling.x(x), scaling.y(y)
        learnt, heldout = (
            Data(x[:, rows], y[:, rows], scaling.weights) for rows in (order[held:], order[:held])
        )
        return learnt, heldout

    def _warn_if_diverged(self, pair: int, pairs: int) -> None:
        if self.log_.stopped == "nan":
            which = f" of pair {pair}" if pairs > 1 else ""
            warn_caller(
                f"{type(self).__name__}: the loss{which} became NaN or infinite in epoch "
                f"{len(self.log_.train)}; kept the best state, of epoch "
                f"{self.log_.best_epoch}; a smaller learning_rate may help"
            )

    def _transform(self, x: Tensor) -> Tensor:
        scaling = self._scaling
        with torch.no_grad():
            rows = scaling.x(x.to(scaling.mean_x)[None])
            return scaling.from_y(self.network_(rows))[0].to(x)


class INNAligner(NeuralAligner):
    """An invertible network of affine couplings (BERT-INN): a bijection by construction.

    ``g = scale_y . INN . scale_x``: ``scale_x`` brings the columns of X to mean 0 and variance 1,
    ``scale_y`` brings such columns back to the means and variances of Y. The INN is a
    `simcore.nn.CouplingINN`, initially the identity, trained on the mean squared error in the units
    of Y. Both sides must have the same number of columns.

    Parameters
    ----------
    n_blocks : int
        Number of affine couplings, whose halves alternate.
    hidden : int
        Width of the MLP in each coupling.
    depth : int
        Number of hidden layers of this MLP.
    mixing : {"none", "permutation"}
        Whether every coupling draws anew which columns form its halves; see `CouplingINN`.
    optimizer : {"adamw", "adam"}
        `torch.optim.AdamW` or `torch.optim.Adam`.
    learning_rate : float
        Peak of the learning rate, which rises linearly and then falls to 0 as half a cosine.
    weight_decay : float
        Weight decay of the optimiser, at least 0.
    warmup : float
        Share of all steps over which the rate rises, in [0, 1).
    max_epochs : int
        Largest number of epochs.
    batch_size : int
        Rows of a step. Rows that do not fill a last batch are left out of the epoch.
    patience : int
        Number of epochs without a smaller loss on the held-out rows after which training stops.
    validation_share : float
        Share of the rows of `fit` that are held out to decide when to stop; the state of their
        smallest loss is kept.
    normalize : bool
        Whether ``scale_x`` and ``scale_y`` are applied.
    seed : int
        Seed of initial weights, held-out rows and row order. The same seed gives the same bits on
        the same machine.
    device : str, optional
        Device of the training; default: the device of X. Results are returned on the device of X.
    progress : bool
        Show a progress bar on stderr.

    Attributes
    ----------
    network_ : CouplingINN
        The trained network.
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

    network_: CouplingINN

    def __init__(
        self,
        *,
        n_blocks: int = 4,
        hidden: int = 256,
        depth: int = 1,
        mixing: str = "none",
        optimizer: str = "adamw",
        learning_rate: float = 2e-3,
        weight_decay: float = 1e-2,
        warmup: float = 0.1,
        max_epochs: int = 100,
        batch_size: int = 128,
        patience: int = 20,
        validation_share: float = 0.1,
        normalize: bool = True,
        seed: int = 0,
        device: str | torch.device | None = None,
        progress: bool = False,
    ) -> None:
        self.n_blocks = n_blocks
        self.hidden = hidden
        self.depth = depth
        self.mixing = mixing
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.warmup = warmup
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.patience = patience
        self.validation_share = validation_share
        self.normalize = normalize
        self.seed = seed
        self.device = device
        self.progress = progress

    def _network(self, p: int, q: int, batch: int) -> nn.Module:
        if p != q or p < 2:
            raise ValueError(f"Y: wanted as many columns as X, 2 or more, got {q} for X's {p}")
        return CouplingINN(
            p,
            self.n_blocks,
            self.hidden,
            depth=self.depth,
            mixing=self.mixing,
            seed=self.seed,
            batch=batch,
        )

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

    Parameters are those of `INNAligner` except ``n_blocks``, ``depth`` and ``mixing``, and:

    Parameters
    ----------
    hidden : int
        Width of the three hidden layers.

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

    def __init__(
        self,
        *,
        hidden: int = 512,
        optimizer: str = "adamw",
        learning_rate: float = 1e-3,
        weight_decay: float = 1e-2,
        warmup: float = 0.1,
        max_epochs: int = 100,
        batch_size: int = 128,
        patience: int = 20,
        validation_share: float = 0.1,
        normalize: bool = True,
        seed: int = 0,
        device: str | torch.device | None = None,
        progress: bool = False,
    ) -> None:
        self.hidden = hidden
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.warmup = warmup
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.patience = patience
        self.validation_share = validation_share
        self.normalize = normalize
        self.seed = seed
        self.device = device
        self.progress = progress

    def _network(self, p: int, q: int, batch: int) -> nn.Module:
        return BatchedMLP(p, self.hidden, q, depth=3, batch=batch)

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


class _Scaling:
    """The scaling of columns of B pairs to mean 0 and standard deviation 1; ``[B, 1, p]`` each.

    The least divisor of a column is `SMALLEST` times the largest standard deviation, so that the
    rounding errors of a constant column are not magnified.

    Errors are weighted by the variances of the columns of Y, so that the loss is the mean squared
    error per entry in the units of Y, divided by the mean variance of Y.
    """

    def __init__(self, mean_x: Tensor, std_x: Tensor, mean_y: Tensor, std_y: Tensor) -> None:
        self.mean_x, self.std_x, self.mean_y, self.std_y = mean_x, std_x, mean_y, std_y

    @classmethod
    def of(cls, x: Tensor, y: Tensor, normalize: bool) -> _Scaling:
        if normalize:
            return cls(*_mean_and_std(x), *_mean_and_std(y))
        zeros, ones = torch.zeros_like, torch.ones_like
        return cls(zeros(x[:, :1]), ones(x[:, :1]), zeros(y[:, :1]), ones(y[:, :1]))

    @property
    def weights(self) -> Tensor:
        variances = self.std_y.square()
        return variances / variances.mean(-1, keepdim=True)

    def x(self, x: Tensor) -> Tensor:
        return (x - self.mean_x) / self.std_x

    def y(self, y: Tensor) -> Tensor:
        return (y - self.mean_y) / self.std_y

    def from_y(self, y: Tensor) -> Tensor:
        return y * self.std_y + self.mean_y

    def from_x(self, x: Tensor) -> Tensor:
        return x * self.std_x + self.mean_x

    def slice(self, pair: int) -> _Scaling:
        parts = (self.mean_x, self.std_x, self.mean_y, self.std_y)
        return _Scaling(*(part[pair : pair + 1].clone() for part in parts))


def _mean_and_std(rows: Tensor) -> tuple[Tensor, Tensor]:
    mean = rows.mean(1, keepdim=True)
    std = rows.std(1, keepdim=True)
    least = SMALLEST * std.amax(-1, keepdim=True)
    return mean, torch.where(least > 0, torch.maximum(std, least), torch.ones_like(std))


def _copy_slice(network: nn.Module, pair: int, single: nn.Module) -> None:
    """Copy the weights of one pair of a batched network into a network of batch 1."""
    with torch.no_grad():
        for one, all_ in zip(single.parameters(), network.parameters(), strict=True):
            one.copy_(all_[pair : pair + 1].detach())
