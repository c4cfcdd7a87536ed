"""
Two seeds of a small ResNet
===========================

Two networks that differ in their seed alone are trained on scikit-learn's 8 x 8 digits, and
compared block by block on images that neither has seen. Does CKA find the blocks that correspond?
"""

# %%
# The network: a stem, three blocks and a linear classifier. Its layers need no preparation, because
# `compare` finds modules by their names.
import torch
from matplotlib import pyplot as plt
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from simcore import compare

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


# %%
# Train both on the same images.

digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16
labels = torch.tensor(digits.target)
order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
heldout, training = (TensorDataset(images[r], labels[r]) for r in order.tensor_split([500]))


def trained(seed: int) -> ResNet:
    """Train a network from a seed."""
    torch.manual_seed(seed)
    model = ResNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(8):
        for some, answers in DataLoader(training, batch_size=64, shuffle=True):
            optimizer.zero_grad()
            functional.cross_entropy(model(some), answers).backward()
            optimizer.step()
    return model.eval()


def accuracy(model: nn.Module) -> float:
    """Return the share of held-out images whose label the network gives."""
    some, answers = heldout.tensors
    with torch.inference_mode():
        return float((model(some).argmax(1) == answers).double().mean())


first, second = trained(1), trained(2)
print(f"accuracy: {accuracy(first):.3f}, {accuracy(second):.3f}")

# %%
# One call runs both networks on the held-out images, records the blocks, and compares them all.

loader = DataLoader(heldout, batch_size=100)
modules = ["stem", "block.*"]
result = compare(first, second, loader, modules, pool="flatten", estimator="unbiased")
print(result)

# %%
# The largest value of each row is the block at the same place.

for name, values in zip(result.rows, result.values, strict=True):
    print(f"{name} of seed 1 is most like {result.columns[int(values.argmax())]} of seed 2")

figure, axes = plt.subplots(figsize=(4, 3.4), layout="constrained")
picture = axes.imshow(result.values, vmin=0, vmax=1, origin="lower")
axes.set_xticks(range(len(result.columns)), result.columns)
axes.set_yticks(range(len(result.rows)), result.rows)
axes.set(xlabel="seed 2", ylabel="seed 1", title="CKA of blocks")
figure.colorbar(picture)
plt.show()
