"""Models larger than memory: peak memory against their size, time against the disk's rate.

A Llama of random weights is written in shards. A process of its own extracts the means over tokens
of all layers, with the blocks in memory or on the disk, from files that are not in the memory of
the system, all texts in one batch. The resident set counts pages of mapped files as well. With
blocks on the disk, the process has to give the rows of the whole model. The floor of the time is
that in which the same files are read from the disk before.

    python -m bench.offload
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.harness import MB, RESULTS, append_row, machine
from bench.peak import ROOT, in_subprocess

TEXTS, WORDS = 32, 48
SHARD = "200MB"
_CODE = """
import time, torch
from bench.peak import peak_during
from simlab import extract
torch.set_num_threads({threads})
how = {{"kind": "mean", "split": "all", "device": {device!r}, "batch_size": 32}}
extract({tiny!r}, {texts!r}, {out!r} + "-tiny", **how)
started = time.perf_counter()
peak = peak_during(lambda: extract({model!r}, {texts!r}, {out!r}, **how))
print(peak, time.perf_counter() - started)
"""


@dataclass(frozen=True)
class Job:
    """A Llama of `layers` blocks of `width` numbers."""

    layers: int
    width: int


JOBS = {
    "0.1 GB": Job(layers=8, width=512),
    "1 GB": Job(layers=16, width=1024),
    "4 GB": Job(layers=16, width=2048),
}


@dataclass(frozen=True)
class Row:
    """Medians of `repeats` processes: the rise of the resident set, and the time.

    `read_s` is the time in which the weight files are read from the disk, and `times_floor` is
    `seconds` over it.
    """

    job: str
    weights_mb: float
    peak_mb: float
    seconds: float
    read_s: float
    times_floor: float
    repeats: int


@contextmanager
def written(job: Job) -> Iterator[tuple[Path, Path, Path]]:
    """Write a model, a tiny one of its kind, and texts; delete them at the end."""
    with tempfile.TemporaryDirectory(
        dir=ROOT / "build" if (ROOT / "build").is_dir() else None
    ) as at:
        texts = Path(at, "texts.txt")
        words = [f"word{number}" for number in range(200)]
        lines = [" ".join(words[(row * 7 + i) % 200] for i in range(WORDS)) for row in range(TEXTS)]
        texts.write_text("\n".join(lines) + "\n")
        for name, size in (("model", job), ("tiny", Job(2, 64))):
            write_model(Path(at, name), size, words)
        yield Path(at, "model"), Path(at, "tiny"), texts


def write_model(folder: Path, job: Job, words: list[str]) -> None:
    """Write a Llama of random weights in shards, and a tokenizer of `words`."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import AutoModel, LlamaConfig, PreTrainedTokenizerFast

    special = ["[PAD]", "[UNK]"]
    vocabulary = {word: number for number, word in enumerate([*special, *words])}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="[PAD]", unk_token="[UNK]", model_max_length=64
    )
    tokenizer.save_pretrained(folder)
    config = LlamaConfig(
        vocab_size=len(vocabulary),
        hidden_size=job.width,
        intermediate_size=4 * job.width,
        num_hidden_layers=job.layers,
        num_attention_heads=job.width // 64,
        num_key_value_heads=job.width // 64,
        pad_token_id=0,
    )
    torch.manual_seed(0)
    AutoModel.from_config(config).save_pretrained(folder, max_shard_size=SHARD)


def forget(folder: Path) -> None:
    """Have the system drop the pages of the files of a folder, so that they are read anew."""
    for file in folder.glob("*.safetensors"):
        with file.open("rb") as stream:
            os.fsync(stream.fileno())
            os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read_seconds(folder: Path) -> float:
    """Return the time in which the weight files of a folder are read from the disk."""
    forget(folder)
    started = time.perf_counter()
    for file in folder.glob("*.safetensors"):
        with file.open("rb", buffering=0) as stream:
            while stream.read(8 << 20):
                pass
    return time.perf_counter() - started


def run(label: str, job: Job, device: str, repeats: int, threads: int) -> tuple[Row, str]:
    """Return the row of one job on one device, and the hash of the extracted rows."""
    with written(job) as (model, tiny, texts), tempfile.TemporaryDirectory() as out:
        size = sum(file.stat().st_size for file in model.glob("*.safetensors"))
        read = statistics.median(read_seconds(model) for _ in range(repeats))
        measured = []
        for number in range(repeats):
            forget(model)
            names = {"model": model, "tiny": tiny, "texts": texts, "out": Path(out, str(number))}
            code = _CODE.format(
                device=device,
                threads=threads,
                **{name: str(at) for name, at in names.items()},
            )
            peak, seconds = in_subprocess(code, timeout=3600).split()[-2:]
            measured.append((int(peak), float(seconds)))
        manifest = json.loads((names["out"] / "manifest.json").read_text())
    seconds = statistics.median(found for _, found in measured)
    row = Row(
        job=f"{label}, {'on the disk' if device == 'offload' else 'whole'}",
        weights_mb=size / MB,
        peak_mb=statistics.median(found for found, _ in measured) / MB,
        seconds=seconds,
        read_s=read,
        times_floor=seconds / read,
        repeats=repeats,
    )
    return row, manifest["data_sha256"]


def main() -> None:
    """Measure the jobs, print their rows, and add them to ``bench/results/offload.csv``."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--job", action="extend", nargs="+", choices=list(JOBS), help="one or more; default all"
    )
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dry-run", action="store_true", help="print, but write no rows")
    options = parser.parse_args()
    for label, job in JOBS.items():
        found = set()
        for device in ("cpu", "offload") if label in (options.job or JOBS) else ():
            row, rows = run(label, job, device, options.repeats, options.threads)
            found.add(rows)
            if len(found) > 1:
                raise SystemExit(f"{label}: wanted the rows of the whole model, found others")
            facts = {**asdict(row), **machine(), "load": os.getloadavg()[0]}
            append_row(None if options.dry_run else RESULTS / "offload.csv", facts)


if __name__ == "__main__":
    main()
