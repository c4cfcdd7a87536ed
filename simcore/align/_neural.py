"""The base class of aligners that are trained: scaling, the split of rows, and training."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from simcore._grid.finish import warn_caller
from simcore._grid.inputs import LEAST_ROWS, check_rows
from simcore._grid.progress import progress_bar
from simcore.align._base import Aligner, TooFewRowsError
from simcore.align._training import Data, Log, Training, train
from simcore.nn import BatchedLinear

SMALLEST = 1e-3  # least standard deviation to divide by, as a share of the largest


class NeuralAligner(Aligner):
    """The base class of trained aligners: normalisation, the split of rows, and training."""

    network_: nn.Module
    log_: Log
    _scaling: _Scaling

    LEARNING_RATE: float  # where the training has none
    training: Training | None
    progress: bool

    def _keep(self, given: Mapping[str, Any]) -> None:
        """Store the parameters of ``__init__``, which are among its local variables `given`."""
        for name in self._parameter_names():
            setattr(self, name, given[name])

    @abstractmethod
    def _network(self, p: int, q: int, batch: int, seed: int) -> nn.Module:
        """Return an untrained network of ``batch`` maps from p to q columns."""

    def _fit(self, x: Tensor, y: Tensor) -> None:
        self.fit_many([self], [x], [y])

    @staticmethod
    def fit_many(
        aligners: Sequence[NeuralAligner], xs: Sequence[Tensor], ys: Sequence[Tensor]
    ) -> None:
        """Train aligners of equal parameters together, one for each pair; shapes are equal."""
        first = aligners[0]
        training = first._checked_training()
        device = xs[0].device if training.device is None else torch.device(training.device)
        x, y = (torch.stack(list(sides)).to(device) for sides in (xs, ys))
        scaling = _Scaling.of(x, y, training.normalize)
        network = first._initial(x.shape[2], y.shape[2], len(aligners), training).to(x)
        data, heldout = _split(scaling, x, y, training)
        with progress_bar(type(first).__name__, first.progress) as report:
            logs = train(network, data, heldout, training, report)
        for pair, (aligner, log) in enumerate(zip(aligners, logs, strict=True)):
            aligner.network_ = first._initial(x.shape[2], y.shape[2], 1, training).to(x)
            _copy_slice(network, pair, aligner.network_)
            aligner.log_, aligner._scaling = log, scaling.slice(pair)
            aligner.n_features_in_, aligner.n_features_out_ = x.shape[2], y.shape[2]
            aligner._warn_if_diverged(pair, len(aligners))

    def _checked_training(self) -> Training:
        training = Training() if self.training is None else self.training
        if not isinstance(training, Training):
            raise TypeError(f"training: wanted a Training, got {type(training).__name__}")
        return training._checked(self.LEARNING_RATE)

    def _initial(self, p: int, q: int, batch: int, training: Training) -> nn.Module:
        """Return a network whose maps all have the initial weights of a batch of one."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(training.seed)
            single = self._network(p, q, 1, training.seed)
            if training.init == "xavier":
                single.apply(_draw_xavier)
            if batch == 1:
                return single
            network = self._network(p, q, batch, training.seed)
        with torch.no_grad():
            for one, all_ in zip(single.parameters(), network.parameters(), strict=True):
                all_.copy_(one.expand_as(all_))
        return network

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


class _Scaling:
    """The scaling of columns of B pairs to mean 0 and standard deviation 1; ``[B, 1, p]`` each."""

    # The least divisor of a column is `SMALLEST` times the largest standard deviation, so that the
    # rounding errors of a constant column are not magnified.
    #
    # Errors are weighted by the variances of the columns of Y, so that the loss is the mean squared
    # error per entry in the units of Y, divided by the mean variance of Y.

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


def _split(scaling: _Scaling, x: Tensor, y: Tensor, training: Training) -> tuple[Data, Data | None]:
    """Return the rows to learn from, and the rows that decide when to stop if there are any."""
    n, share = x.shape[1], training.validation_share
    if share == 0:
        return Data(scaling.x(x), scaling.y(y), scaling.weights), None
    least = LEAST_ROWS["fit and holdout"]
    check_rows(x[0], "X", least, "training with held-out rows", TooFewRowsError)
    held = min(max(2, round(share * n)), n - 2)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(training.seed)).to(x.device)
    x, y = scaling.x(x), scaling.y(y)
    learnt, heldout = (
        Data(x[:, rows], y[:, rows], scaling.weights) for rows in (order[held:], order[:held])
    )
    return learnt, heldout


def _mean_and_std(rows: Tensor) -> tuple[Tensor, Tensor]:
    mean = rows.mean(1, keepdim=True)
    std = rows.std(1, keepdim=True)
    least = SMALLEST * std.amax(-1, keepdim=True)
    return mean, torch.where(least > 0, torch.maximum(std, least), torch.ones_like(std))


def _draw_xavier(module: nn.Module) -> None:
    """Draw weights and biases of linear layers with variance ``2 / (inputs + outputs)``."""
    # A bias is a layer of one input, as in the authors' code of Ren et al. 2023.
    if isinstance(module, BatchedLinear):
        _, inputs, outputs = module.weight.shape
        nn.init.normal_(module.weight, std=math.sqrt(2 / (inputs + outputs)))
        nn.init.normal_(module.bias, std=math.sqrt(2 / (1 + outputs)))


def _copy_slice(network: nn.Module, pair: int, single: nn.Module) -> None:
    """Copy the weights of one pair of a batched network into a network of batch 1."""
    with torch.no_grad():
        for one, all_ in zip(single.parameters(), network.parameters(), strict=True):
            one.copy_(all_[pair : pair + 1].detach())
