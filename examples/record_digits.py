"""Two seeds of a small ResNet on the digits: CKA finds the layers that correspond.

    python examples/record_digits.py

Both networks are trained on scikit-learn's 8 x 8 digits, and compared block by block on images that
neither has seen. For every block of one network, the most similar block of the other is printed:
it is the one at the same place.
"""

from __future__ import annotations

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from simcore import compare

EPOCHS, HELD_OUT = 12, 500
WIDTHS, STRIDES = (32, 32, 64, 128), (1, 2, 2)


class Block(nn.Module):
    """Two convolutions beside a shortcut."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.one = nn.Conv2d(before, after, 3, stride, padding=1)
        self.two = nn.Conv2d(after, after, 3, padding=1)
        self.norms = nn.ModuleList(nn.BatchNorm2d(after) for _ in range(2))
        self.shortcut = nn.Conv2d(before, after, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Return [b, after, height / stride, width / stride]."""
        inner = functional.relu(self.norms[0](self.one(x)))
        return functional.relu(self.shortcut(x) + self.norms[1](self.two(inner)))


class ResNet(nn.Module):
    """A stem, three blocks, and a linear classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, WIDTHS[0], 3, padding=1)
        shapes = zip(WIDTHS[:-1], WIDTHS[1:], STRIDES, strict=True)
        self.block = nn.ModuleList(Block(*shape) for shape in shapes)
        self.head = nn.Linear(WIDTHS[-1], 10)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits [b, 10]."""
        x = self.stem(images)
        for block in self.block:
            x = block(x)
        return self.head(x.mean((2, 3)))


def trained(data: TensorDataset, seed: int) -> ResNet:
    """Train a network from a seed."""
    torch.manual_seed(seed)
    model = ResNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(EPOCHS):
        for images, labels in DataLoader(data, batch_size=64, shuffle=True):
            optimizer.zero_grad()
            functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
    return model.eval()


def accuracy(model: nn.Module, data: TensorDataset) -> float:
    """Return the share of images whose label the network gives."""
    images, labels = data.tensors
    with torch.no_grad():
        return float((model(images).argmax(1) == labels).double().mean())


def main() -> None:
    """Train, compare and print."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16
    labels = torch.tensor(digits.target)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    parts = [TensorDataset(images[rows], labels[rows]) for rows in order.tensor_split([HELD_OUT])]
    heldout, training = parts
    first, second = (trained(training, seed) for seed in (1, 2))
    print(f"accuracy: {accuracy(first, heldout):.3f}, {accuracy(second, heldout):.3f}")

    result = compare(
        first,
        second,
        DataLoader(heldout, batch_size=100),
        ["stem", "block.*"],
        pool="flatten",
        estimator="unbiased",
    )
    print(result)
    for name, values in zip(result.rows, result.values, strict=True):
        print(f"{name} of seed 1 is most like {result.columns[int(values.argmax())]} of seed 2")


if __name__ == "__main__":
    main()
