"""The jobs of bench.gpu beside CKA: SVCCA, PWCCA, matching, couplings, attention, training.

Every job is data of a size, contestants on it, and the bytes or flops of its floor. The same code
runs on the CPU at the sizes of `tiny`, which is how it is tested without a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from unittest import mock

import torch
from torch import Tensor

from bench import attention_formulas, coupling_formulas, measure_formulas, torch_grids

Function = Callable[[], object]


@dataclass(frozen=True)
class Job:
    """Contestants by name, and the bytes that even the fastest of them needs.

    ``operators`` are those with kernels that the contestants of ours call.
    """

    name: str
    contestants: dict[str, Function]
    operators: tuple[str, ...] = ()
    floor_bytes: float = 0
    notes: dict[str, object] = field(default_factory=dict)


COUPLINGS = ("affine_coupling", "affine_coupling_backward")


def _decaying(device: str, layers: int, n: int, p: int, kept: int) -> Tensor:
    """Return layers of which 99 % of the variance lies in about ``kept`` directions."""
    torch.manual_seed(0)
    decay = torch.exp(-torch.arange(p, device=device) * (2.3 / kept))
    shared, noise = torch.randn(n, p, device=device), torch.randn(layers, n, p, device=device)
    return (shared + 0.5 * noise) * decay


def svcca(device: str, layers: int = 325, n: int = 1600, p: int = 768, kept: int = 200) -> Job:
    """Bases and all pairs of layers whose variance decays; no kernel of ours takes part.

    torch's loop gets the bases of a few layers and as many pairs: all pairs would take minutes.
    """
    from simcore import bases, svcca_grid

    x = _decaying(device, layers, n, p, kept)
    sample = min(layers, 64)

    def loop() -> Tensor:
        held = [measure_formulas.basis(c, 0.99)[0] for c in measure_formulas.centred(x[:sample])]
        width = min(basis.shape[1] for basis in held)
        products = torch.stack([held[0][:, :width].T @ basis[:, :width] for basis in held])
        return torch.linalg.svdvals(products).sum(-1)

    count = [len(basis.vectors[0]) for basis in bases(x[:2], truncation=0.99)]
    pairs = layers * (layers + 1) // 2
    return Job(
        f"svcca{layers}",
        {
            f"ours, {pairs} pairs": lambda: svcca_grid(x),
            f"torch bases and svdvals, {sample} pairs": loop,
        },
        floor_bytes=x.nbytes,
        notes={"components": count},
    )


def pwcca(device: str, layers: int = 24, n: int = 1600, p: int = 768, kept: int = 100) -> Job:
    """Pairs of bases of ``kept`` components, which are there: a singular system for each pair."""
    from simcore import bases, pwcca_grid

    found = bases(_decaying(device, layers, n, p, kept), truncation=kept)
    vectors = [basis.vectors for basis in found]
    weighted = [basis.singular_values.float()[:, None] * basis.components for basis in found]

    def loop() -> Tensor:
        grid = vectors[0].new_ones(layers, layers)
        for i in range(layers):
            for j in range(i + 1, layers):
                u, rho, vt = torch.linalg.svd(vectors[i].T @ vectors[j], full_matrices=False)
                of_i, of_j = (u.T @ weighted[i]).abs().sum(1), (vt @ weighted[j]).abs().sum(1)
                grid[i, j], grid[j, i] = of_i @ rho / of_i.sum(), of_j @ rho / of_j.sum()
        return grid

    contestants = {"ours": lambda: pwcca_grid(found), "torch svd of each pair": loop}
    return Job(f"pwcca{layers}", contestants, ("small_svd",), notes={"components": kept})


def matching(device: str, layers: int = 5, n: int = 1600, p: int = 768) -> Job:
    """Neurons matched one to one, and each with its best partner; no kernel of ours takes part.

    The host assigns neurons in either form; the contestant in plain torch has products of the
    device, and assignments by scipy.
    """
    from simcore import matching_grid

    torch.manual_seed(0)
    x = torch.randn(layers, n, p, device=device)
    x[1:] *= 0.5
    x = x.cumsum(0)
    return Job(
        "matching",
        {
            "ours, one-to-one": lambda: matching_grid(x),
            "ours, best": lambda: matching_grid(x, matching="best"),
            "torch products, one-to-one": lambda: torch_grids.match_hard(x),
        },
    )


def coupling(device: str, shape: tuple[int, int, int] = (64, 1600, 768)) -> Job:
    """Forward and backward; whole rows of torch's formula, the changing half of ours."""
    from simcore._ops.coupling import affine_coupling

    batch, n, d = shape
    half = torch.randn(batch, n, d // 2, device=device)
    rows, params = (torch.randn(shape, device=device) for _ in range(2))
    grad_log_det = torch.randn(batch, n, device=device)

    def both(function: Callable[..., tuple[Tensor, Tensor]], x: Tensor) -> Function:
        ones = torch.ones_like(x)  # beforehand: the floor does not count that they are made

        def run() -> object:
            inputs = [t.detach().requires_grad_() for t in (x, params)]
            y, log_det = function(*inputs)
            return torch.autograd.grad((y, log_det), inputs, (ones, grad_log_det))

        return run

    contestants = {
        "ours": both(lambda x, p: affine_coupling(x, p, 1.0, False), half),
        "torch half": both(coupling_formulas.on_half, half),
        "torch rows": both(coupling_formulas.on_rows, rows),
        "compiled half": both(torch.compile(coupling_formulas.on_half, dynamic=False), half),
    }
    # Forward reads 3 halves and writes 1; backward reads 3, writes 3.
    return Job("coupling", contestants, COUPLINGS, floor_bytes=10 * half.nbytes)


def attention(device: str, layers: int = 12, sentences: int = 1000, words: int = 64) -> Job:
    """Heads of all layers by their Jensen-Shannon divergence."""
    from simcore import attention_grid

    x = torch.randn(layers, sentences, 12, words, words, device=device).softmax(-1)
    return Job(
        "js",
        {
            "ours": lambda: attention_grid(x),
            "torch entropies": lambda: attention_formulas.js_entropies(x),
            "torch broadcast": lambda: attention_formulas.js_broadcast(x),
        },
        ("attention_similarity",),
        floor_bytes=x.nbytes,
    )


def _training_step(
    device: str, pairs: int, n: int, d: int, blocks: int, reversible: bool = True
) -> Function:
    """One optimiser step of as many invertible networks as there are pairs, in one batch."""
    from simcore.nn import CouplingINN

    torch.manual_seed(0)
    network = CouplingINN(d, blocks, d, batch=pairs, reversible=reversible).to(device)
    optimizer = torch.optim.Adam(network.parameters())
    x, y = (torch.randn(pairs, n, d, device=device) for _ in range(2))

    def step() -> object:
        optimizer.zero_grad()
        loss = (network(x)[0] - y).square().mean((1, 2)).sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def training(device: str, pairs: int = 300, n: int = 1600, d: int = 768, blocks: int = 4) -> Job:
    """One step of training many pairs' networks."""
    step = _training_step(device, pairs, n, d, blocks)
    return Job("inn", {"ours": step}, COUPLINGS, notes={"pairs": pairs, "blocks": blocks})


def together(device: str, pairs: int = 16, n: int = 1600, d: int = 384, blocks: int = 4) -> Job:
    """One step of a few pairs' networks, in one batch and one after another.

    Plain torch keeps what the derivatives need, where ours computes it again.
    """
    alone = [_training_step(device, 1, n, d, blocks) for _ in range(pairs)]
    kept = _training_step(device, pairs, n, d, blocks, reversible=False)

    def plain() -> object:
        def coupled(
            x: Tensor, params: Tensor, clamp: float, inverse: bool
        ) -> tuple[Tensor, Tensor]:
            assert not inverse  # nothing in a step of training is inverted
            return coupling_formulas.on_half(x, params, clamp)

        with mock.patch("simcore.nn.coupling.affine_coupling", coupled):
            return kept()

    contestants = {
        "ours, one batch": _training_step(device, pairs, n, d, blocks),
        "ours, one after another": lambda: [step() for step in alone],
        "torch, one batch": plain,
    }
    return Job(f"inn{pairs}", contestants, COUPLINGS, notes={"pairs": pairs, "blocks": blocks})


JOBS: dict[str, Callable[[str], Job]] = {
    "svcca": svcca,
    "pwcca": pwcca,
    "matching": matching,
    "coupling": coupling,
    "attention": attention,
    "training": training,
    "together": together,
}
TINY: dict[str, Callable[[str], Job]] = {
    "svcca": lambda device: svcca(device, 66, 60, 12, 4),
    "pwcca": lambda device: pwcca(device, 3, 60, 12, 4),
    "matching": lambda device: matching(device, 3, 60, 12),
    "coupling": lambda device: coupling(device, (2, 9, 8)),
    "attention": lambda device: attention(device, 2, 3, 5),
    "training": lambda device: training(device, 3, 20, 6),
    "together": lambda device: together(device, 2, 20, 6),
}
