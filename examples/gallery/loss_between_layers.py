"""
A loss between inner layers
===========================

CKA has gradients, and compares layers of different widths: it pulls a layer of a student towards
one of a teacher four times as wide, where no distance between the two exists. So do
`simcore.procrustes_grid`, `simcore.rsa_grid` and `simcore.distance_correlation_grid`; a grid
without gradients, such as `simcore.svcca_grid`, warns that the loss would not reach the student.
"""

# %%
import torch
from matplotlib import pyplot as plt
from torch import nn

from simcore import cka_grid, record

STEPS, BATCH, WIDTH = 200, 128, 20


def network(hidden: int, seed: int) -> nn.Sequential:
    """Return a perceptron with two hidden layers."""
    torch.manual_seed(seed)
    layers = nn.Linear(WIDTH, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh()
    return nn.Sequential(*layers, nn.Linear(hidden, 5))


# %%
# ``detach=False`` keeps the graph of what is recorded, so that the loss trains the student.

teacher, student = network(64, 0).eval(), network(16, 1)
optimizer = torch.optim.Adam(student.parameters(), lr=3e-3)
generator = torch.Generator().manual_seed(2)
values = []
for _ in range(STEPS + 1):
    x = torch.randn(BATCH, WIDTH, generator=generator)
    with record(student, "3", detach=False) as ours, record(teacher, "3") as theirs:
        student(x), teacher(x)
    cka = cka_grid([ours.layers()["3"]], [theirs.layers()["3"]]).squeeze()
    values.append(float(cka.detach()))
    optimizer.zero_grad()
    (1 - cka).backward()
    optimizer.step()

# %%
for step in range(0, STEPS + 1, STEPS // 5):
    print(f"step {step}: CKA {values[step]:.3f}")

figure, axes = plt.subplots(figsize=(5, 3), layout="constrained")
axes.plot(values)
axes.set(xlabel="step", ylabel="CKA with the teacher's layer", ylim=(0, 1))
plt.show()
