"""Recovery of a known map by every aligner: a random invertible network on MiniLM's tokens.

    python examples/studies/known_map.py

Ren et al. 2023, section 4.3: X are tokens of MiniLM's last layer, Y = f(X) with f a random
`CouplingINN`; every method learns on some sentences and is judged on others. The rows of three maps
land in ``examples/studies/results/known-map.csv``.
"""

from __future__ import annotations

import subprocess
from dataclasses import asdict, dataclass

import pandas as pd
import torch
from torch import Tensor

from publish import MODEL, RESULTS, ROOT, SEEDS
from simcore.align import Training

THREADS = 2
MAX_LENGTH = 128
SENTENCES, TRAINING_SENTENCES, ROWS = 4000, 3400, 30_000
TEACHER = {"n_blocks": 2, "hidden": 16, "depth": 1, "output_gain": 1.6}
LINEAR = {"linear": {}, "linear, ridge 10": {"ridge": 10.0}, "cca": {}, "svcca": {}, "pwcca": {}}
TRAINED = {
    "inn": {"n_blocks": 2, "hidden": 128, "training": Training(learning_rate=5e-3, max_epochs=12)},
    "mlp": {"hidden": 512, "training": Training(learning_rate=1e-3, max_epochs=12)},
}


@dataclass(frozen=True)
class Row:
    """One method on one random map."""

    method: str
    seed: int
    train_mse: float
    train_relative: float
    heldout_mse: float
    heldout_relative: float
    heldout_component_mse: float | None  # per kept component; the paper's number for SVCCA
    times_best_linear: float  # best linear method's held-out mse / this one's
    n: int


def last_tokens(sentences: int) -> tuple[Tensor, Tensor]:
    """Tokens of the last layer of the pretrained model, ``[tokens, 384]``, and their sentence.

    Computed once (a minute) and kept beside the model in the user's cache.
    """
    from simlab.store.assets import cache_folder

    path = cache_folder() / f"study-minilm-tokens-{sentences}.pt"
    if not path.exists():
        partial = path.with_suffix(".partial")
        torch.save(_run_model(sentences), partial)
        partial.rename(path)
    rows, sentence = torch.load(path)
    return rows, sentence


def _run_model(sentences: int) -> tuple[Tensor, Tensor]:
    from simlab.models.batches import batches
    from simlab.models.load import load_encoder, load_tokenizer
    from simlab.models.sources import resolve
    from simlab.models.tokens import encode
    from simlab.tasks import load_task

    source = resolve(MODEL)
    tokenizer, encoder = load_tokenizer(source), load_encoder(source)
    encoded = encode(tokenizer, load_task("rt").split("train"), MAX_LENGTH)[:sentences]
    states, numbers = [], []
    with torch.inference_mode():
        for rows, batch in batches(tokenizer, encoded, 64, "cpu"):
            mask = batch["attention_mask"].bool()
            states.append(encoder(**batch).last_hidden_state[mask])
            numbers.append(torch.from_numpy(rows)[:, None].expand(mask.shape)[mask])
    return torch.cat(states), torch.cat(numbers)


def random_map(x: Tensor, seed: int) -> Tensor:
    """``f(x)``: a random invertible network on columns of variance 1."""
    from simcore.nn import CouplingINN

    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        f = CouplingINN(x.shape[1], **TEACHER)
        std = x.std(0)
        return f((x - x.mean(0)) / std.clamp(min=1e-3 * float(std.max())))


def split_rows(sentence: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """Tokens to learn from and tokens to judge on, of different sentences."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(sentence), generator=generator)
    learning = (sentence < TRAINING_SENTENCES)[order]
    return order[learning][:ROWS], order[~learning]


def run(seed: int) -> list[Row]:
    """Every method on the random map of `seed`."""
    from simcore.align import align_pairs

    tokens, sentence = last_tokens(SENTENCES)
    learnt, judged = split_rows(sentence, seed)
    y = random_map(tokens, seed)
    sides = ([tokens[learnt]], [y[learnt]])
    heldout = {"X_heldout": [tokens[judged]], "Y_heldout": [y[judged]]}
    found = {}
    for name, params in {**LINEAR, **TRAINED}.items():
        (found[name],) = align_pairs(*sides, name.partition(",")[0], **heldout, **params)
    best = min(found[name].heldout.mse for name in LINEAR)
    return [
        Row(
            method=name,
            seed=seed,
            train_mse=result.train.mse,
            train_relative=result.train.relative,
            heldout_mse=result.heldout.mse,
            heldout_relative=result.heldout.relative,
            heldout_component_mse=result.heldout.component_mse,
            times_best_linear=best / result.heldout.mse,
            n=len(learnt),
        )
        for name, result in found.items()
    ]


def main() -> None:
    """Run all seeds, print the rows and write them."""
    torch.set_num_threads(THREADS)
    commit = subprocess.run(
        ["git", "rev-parse", "--short=12", "HEAD"], cwd=ROOT, capture_output=True, text=True
    ).stdout.strip()
    frames = []
    for seed in SEEDS:
        frames.append(pd.DataFrame([asdict(row) for row in run(seed)]))
        print(frames[-1].to_string(index=False, float_format="%.4g"), flush=True)
    rows = pd.concat(frames).assign(torch=torch.__version__, commit=commit)
    RESULTS.mkdir(exist_ok=True)
    rows.to_csv(RESULTS / "known-map.csv", index=False, float_format="%.4g")


if __name__ == "__main__":
    main()
