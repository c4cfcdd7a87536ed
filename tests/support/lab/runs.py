"""Training runs on disk: small models of several seeds, each at several steps."""

import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file


def save_step(model: Path, place: Path, seed: int, step: int) -> Path:
    """Write a copy of a model folder to `place`, with weights that belong to a seed and a step."""
    shutil.copytree(model, place)
    file = place / "model.safetensors"
    generator = torch.Generator().manual_seed(1_000 * seed + step)
    moved = {
        name: value + 0.3 * torch.randn(value.shape, generator=generator)
        if value.is_floating_point()
        else value
        for name, value in load_file(file).items()
    }
    save_file(moved, file, metadata={"format": "pt"})
    return place


def save_runs(model: Path, root: Path, seeds=(0, 1), steps=(1, 10, 100)) -> str:
    """Write ``mini-seed_S/checkpoint-N`` for all seeds and steps; return the pattern of seeds."""
    for seed in seeds:
        for step in steps:
            save_step(model, root / f"mini-seed_{seed}" / f"checkpoint-{step}", seed, step)
    return f"{root}/mini-seed_{{{seeds[0]}..{seeds[-1]}}}"
