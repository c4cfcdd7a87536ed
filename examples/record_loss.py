"""A loss between inner layers: CKA pulls a layer of a student to one of its teacher's.

    python examples/record_loss.py

The student is narrower than the teacher, so that their layers have no distance; CKA needs none.
"""

from __future__ import annotations

import torch
from torch import nn

from simcore import cka_grid, record

STEPS, BATCH, WIDTH = 200, 128, 20


def network(hidden: int, seed: int) -> nn.Sequential:
    """Return a perceptron with two hidden layers."""
    torch.manual_seed(seed)
    layers = nn.Linear(WIDTH, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh()
    return nn.Sequential(*layers, nn.Linear(hidden, 5))


def main() -> None:
    """Train the student's second hidden layer, and print the CKA on the way."""
    teacher, student = network(64, 0).eval(), network(16, 1)
    optimizer = torch.optim.Adam(student.parameters(), lr=3e-3)
    generator = torch.Generator().manual_seed(2)
    for step in range(STEPS + 1):
        x = torch.randn(BATCH, WIDTH, generator=generator)
        with record(student, "3", detach=False) as ours, record(teacher, "3") as theirs:
            student(x), teacher(x)
        cka = cka_grid([ours.layers()["3"]], [theirs.layers()["3"]]).squeeze()
        if step % (STEPS // 5) == 0:
            print(f"step {step}: CKA {float(cka.detach()):.3f}")
        optimizer.zero_grad()
        (1 - cka).backward()
        optimizer.step()


if __name__ == "__main__":
    main()
