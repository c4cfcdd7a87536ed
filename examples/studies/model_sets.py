"""The models that `identification.py` compares: what their layers and their outputs are.

digits          small ResNets, trained here on scikit-learn's digits; rows are images, each pooled
                to 2 x 2 positions. All layers have one width, so that no measure can tell layers
                apart by it.
rt              MiniLM-L6, fine-tuned on Rotten Tomatoes; rows are classifier tokens of texts. At
                layer 0 these are one vector, so that layers count from 1.
pretrained      small BERTs, pretrained from independent seeds by the sweep of `sweeps.py ren2023`;
                rows are mean tokens of texts.
pretrained-rt   the same models, fine-tuned on Rotten Tomatoes.

Models of ``rt`` differ in the order of their training rows, in dropout and in the head, but start
from the same weights. They are independent draws given this start, so that intervals and p-values
speak of other fine-tunings of MiniLM-L6 and not of other models; and layers that hardly move stay
equal, neuron by neuron.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from publish import MODEL, simcore

if TYPE_CHECKING:
    from torch import Tensor, nn

TASK = "rt"
ROWS = 800  # of a model of the sweep; the digits have fewer that no training has seen
TRAINING_DIGITS, EPOCHS, RATE = 1000, 12, 3e-3
WIDTH, BLOCKS = 32, 8
TEXTS = 100  # whose attention is compared
SIDE = 2  # positions that an image is pooled to


@dataclass(frozen=True)
class ModelSet:
    """Models that differ in their seed alone.

    Attributes
    ----------
    layers
        The layers of every model, ``[n, p]`` float32 each.
    logits, labels
        The outputs ``[n, classes]`` of every model for the rows, and the right answers; None where
        outputs are not known.
    accuracy
        Of every model; None where models have not been trained to answer.
    attention
        The attention of every layer of every model, ``[heads, t, t]`` for each text; None for
        models that have none.
    first_block
        The first layer that is a block, and not a stem or an embedding output.
    """

    layers: list[list[np.ndarray]]
    logits: np.ndarray | None = None
    labels: np.ndarray | None = None
    accuracy: np.ndarray | None = None
    attention: list[list[list[np.ndarray]]] | None = None
    first_block: int = 0


def digits(folder: Path, models: int, epochs: int = EPOCHS, blocks: int = BLOCKS) -> ModelSet:
    """Train small ResNets on the digits and record their layers."""
    found = [_digits_rows(folder, seed, epochs, blocks) for seed in range(1, models + 1)]
    return replace(_with_outputs(found), first_block=1)


def _digits_rows(folder: Path, seed: int, epochs: int, blocks: int) -> dict[str, np.ndarray]:
    inputs = {"set": "digits", "seed": seed, "epochs": epochs, "rate": RATE, "side": SIDE}
    shape = {"width": WIDTH, "strides": _strides(blocks), "training": TRAINING_DIGITS}
    return _kept(
        folder / f"seed-{seed}", {**inputs, **shape}, lambda: _train_digits(seed, epochs, blocks)
    )


def _strides(blocks: int) -> list[int]:
    """Return 2 for the blocks that halve the image, after 3 and 6 eighths of the blocks."""
    halved = (blocks * 3 // 8, blocks * 6 // 8)
    return [2 if block in halved else 1 for block in range(blocks)]


def _train_digits(seed: int, epochs: int, blocks: int) -> dict[str, np.ndarray]:
    import torch
    from sklearn.datasets import load_digits
    from torch.nn.functional import adaptive_avg_pool2d

    from simcore import record

    data = load_digits()
    images = torch.tensor(data.images, dtype=torch.float32)[:, None] / 16
    labels = torch.tensor(data.target)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    training, heldout = order.tensor_split([TRAINING_DIGITS])
    model = _trained(images[training], labels[training], seed, epochs, _strides(blocks))
    pooled = {"pool": lambda output: adaptive_avg_pool2d(output, SIDE).flatten(1)}
    with record(model, ["stem", "block-*"], **pooled) as tape, torch.inference_mode():
        logits = model(images[heldout])
    layers = {f"layer.{i}": rows.numpy() for i, rows in enumerate(tape.layers().values())}
    return {"logits": logits.numpy(), "labels": labels[heldout].numpy(), **layers}


def _trained(
    images: Tensor, labels: Tensor, seed: int, epochs: int, strides: list[int]
) -> nn.Module:
    """Train a ResNet with a learning rate that ends at 0, so that no seed ends in a bad step."""
    import torch
    from torch import nn
    from torch.nn.functional import cross_entropy
    from torch.optim.lr_scheduler import OneCycleLR
    from torch.utils.data import DataLoader, TensorDataset

    from judging import networks

    torch.manual_seed(seed)
    model = nn.Sequential()
    model.add_module("stem", nn.Conv2d(1, WIDTH, 3, padding=1))
    for number, stride in enumerate(strides):
        model.add_module(f"block-{number}", networks.Block(WIDTH, WIDTH, stride))
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(WIDTH, 10))
    model.add_module("head", head)
    batches = DataLoader(TensorDataset(images, labels), batch_size=64, shuffle=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    schedule = OneCycleLR(optimizer, RATE, total_steps=epochs * len(batches))
    for _ in range(epochs):
        for some, answers in batches:
            optimizer.zero_grad()
            cross_entropy(model(some), answers).backward()
            optimizer.step()
            schedule.step()
    return model.eval()


def fine_tuned(folder: Path, models: int) -> ModelSet:
    """Fine-tune MiniLM-L6 from several seeds; extract its classifier tokens and its attention."""
    found, attention = [], []
    for seed in range(1, models + 1):
        checkpoint, stored = folder / f"model-{seed}", folder / f"layers-{seed}"
        simcore("finetune", MODEL, TASK, "--seed", seed, "--out", checkpoint)
        named = ("--label", f"FT[{seed}]", "--seed", seed)
        simcore("extract", checkpoint, TASK, *named, "--out", stored)
        heads = folder / f"attention-{seed}"
        pairs = ("--kind", "attention", "--limit", TEXTS)
        simcore("extract", checkpoint, TASK, *named, *pairs, "--out", heads)
        attention.append(_layers(heads))
        layers = {f"layer.{i}": layer for i, layer in enumerate(_layers(stored)[1:])}
        found.append({**_outputs(folder / f"outputs-{seed}", checkpoint), **layers})
    return replace(_with_outputs(found), attention=attention)


def _outputs(folder: Path, checkpoint: Path) -> dict[str, np.ndarray]:
    """Return logits and labels of the held-out texts."""
    from simlab.store.files import read_json
    from simlab.store.jobs import RECORD

    def predict() -> dict[str, np.ndarray]:
        from simlab.models.checkpoint import Checkpoint, length_of, load_task_of
        from simlab.models.evaluate import predict_logits
        from simlab.models.load import load_classifier, load_tokenizer
        from simlab.store.runtime import best_device

        source = Checkpoint.open(checkpoint)
        texts = load_task_of([source], TASK).heldout
        model, tokenizer = load_classifier(source).to(best_device()), load_tokenizer(source)
        logits = predict_logits(model, tokenizer, texts, length_of([source], None))
        return {"logits": logits, "labels": texts.labels}

    return _kept(
        folder, {"set": TASK, "checkpoint": read_json(checkpoint / RECORD)["key"]}, predict
    )


def pretrained(folder: Path, count: int, stage: str) -> ModelSet:
    """Read the first models of a sweep that are there.

    Parameters
    ----------
    folder
        The folder of a sweep of ``ren2023-offline.toml``, which may be running.
    count
        How many models are read, at most.
    stage
        Before (``ORIG``) or after fine-tuning (``FT``).
    """

    from simlab.store.files import read_json
    from simlab.sweeps.outputs import SweepFolder
    from simlab.sweeps.plan import EXTRACT

    sweep, planned = SweepFolder(folder), read_json(folder / "plan.json")["jobs"]
    present = set(sweep.present(EXTRACT)) & {key for _, key, _ in planned}
    stored: dict[str, dict[tuple[int, str], Path]] = {"mean-all": {}, "attention": {}}
    for place in (sweep.place(EXTRACT, key) for key in present):
        manifest = read_json(place / "manifest.json")
        kept = manifest["kind"] in stored and manifest["split"] == "heldout"
        if kept and f"-{stage}[" in manifest["label"]:
            stored[manifest["kind"]][manifest["seed"], manifest["label"]] = place
    models = sorted(stored["mean-all"].keys() & stored["attention"].keys())[:count]
    rows, attention = ([_layers(places[model]) for model in models] for places in stored.values())
    known = _accuracies(folder)
    accuracy = np.array([known.get(label, np.nan) for _, label in models])
    return ModelSet(
        [[layer[:ROWS] for layer in model] for model in rows],
        accuracy=accuracy if np.isfinite(accuracy).all() else None,
        attention=attention,
        first_block=1,
    )


def _accuracies(folder: Path) -> dict[str, float]:
    """Return the accuracy of every fine-tuned model of a sweep, by its label."""
    from simlab.results.reading import read_results
    from simlab.results.results import BASELINE

    files = [*folder.glob("results/*.parquet"), *folder.glob("objects/scores/*/*.parquet")]
    if not files:
        return {}
    rows = read_results(files)
    rows = rows[(rows["experiment"] == BASELINE) & (rows["measure"] == "accuracy")]
    return dict(zip(rows["label_x"], rows["value"], strict=True))


def _layers(folder: Path) -> list[Any]:
    from simlab.representations.folder import load_representations

    return load_representations(folder).layers


def _kept(
    folder: Path, inputs: dict, make: Callable[[], dict[str, np.ndarray]]
) -> dict[str, np.ndarray]:
    """Return arrays that ``make()`` gave once for these inputs."""
    from simlab.store.jobs import run_job

    run_job(folder, inputs, lambda partial: np.savez(partial / "arrays.npz", **make()))
    with np.load(folder / "arrays.npz") as stored:
        return dict(stored)


def _with_outputs(models: list[dict[str, np.ndarray]]) -> ModelSet:
    layers = [[rows for name, rows in model.items() if "layer." in name] for model in models]
    logits, labels = np.stack([model["logits"] for model in models]), models[0]["labels"]
    return ModelSet(layers, logits, labels, (logits.argmax(-1) == labels).mean(1))
