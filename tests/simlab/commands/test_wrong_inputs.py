"""Folders that are no models of texts, files that are no tables: one line from every command."""

import json
import shutil

import pytest
import torch
from transformers import AutoConfig, AutoModel

from support.lab.commandline import check_refused
from support.lab.tinyclassifiers import save_classifier
from support.lab.tinymodels import COLUMNS, GOOD, save_tiny_model, tiny_tokenizer, write_reviews
from support.model_families import ENCODER_DECODERS, PICTURES, SOUNDS

STEPS = ("extract", "finetune", "truncate", "skip", "influence", "inject")
_SIZE = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}
_SIZE |= {"intermediate_size": 32}
_CLIP = {"text_config": {**_SIZE, "vocab_size": 99, "max_position_embeddings": 64}}
_CLIP |= {"vision_config": {**_SIZE, "image_size": 16, "patch_size": 4}, "projection_dim": 8}
# Models that take no texts, or no texts alone.
OTHERS = {
    "clip": _CLIP,
    **{f.model_type: f.size for f in (*PICTURES, *SOUNDS, *ENCODER_DECODERS)},
}
OTHERS = {kind: OTHERS[kind] for kind in ("clip", "vit", "resnet", "wav2vec2", "whisper", "t5")}


def without(name):
    return lambda folder: (folder / name).unlink()


def written(name, content):
    kind = "write_bytes" if isinstance(content, bytes) else "write_text"
    return lambda folder: getattr(folder / name, kind)(content)


def setting(**settings):
    def change(folder):
        file = folder / "config.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | settings))

    return change


def within(name):
    """Put the files of a folder into a folder within it."""

    def move(folder):
        files = list(folder.iterdir())
        (folder / name).mkdir()
        for file in files:
            file.rename(folder / name / file.name)

    return move


FOLDERS = {
    "missing": shutil.rmtree,
    "empty": lambda folder: [file.unlink() for file in folder.iterdir()],
    "no configuration": without("config.json"),
    "no JSON": written("config.json", "{"),
    "a list": written("config.json", "[]"),
    "no type": written("config.json", "{}"),
    "unknown type": setting(model_type="of-my-own"),
    "odd heads": setting(num_attention_heads=5),
    "text for a number": setting(num_hidden_layers="three"),
    "more layers": setting(num_hidden_layers=5),
    "other width": setting(hidden_size=48, num_attention_heads=2),
    "fewer words": setting(vocab_size=7),
    "no weights": without("model.safetensors"),
    "empty weights": written("model.safetensors", ""),
    "a page": written("model.safetensors", "<html>404</html>"),
    "zeros": written("model.safetensors", bytes(4096)),
    "no tokenizer": without("tokenizer.json"),
    "damaged tokenizer": written("tokenizer.json", '{"model": 3}'),
    "of a Trainer": within("checkpoint-500"),
    "old sentence-transformers": within("0_Transformer"),
}
TABLE = "body,verdict\n" + "".join(f"{word} café,{label}\n" for word in GOOD for label in "ab")
ROWS = [{"body": f"{word} film", "verdict": label} for word in GOOD for label in "ab"]
LINES = "\n".join(map(json.dumps, ROWS))
FILES = {
    "latin.csv": TABLE.encode("latin-1"),
    "wide.csv": TABLE.encode("utf-16"),
    "latin.tsv": TABLE.replace(",", "\t").encode("latin-1"),
    "latin.jsonl": '{"body": "café", "verdict": "a"}\n'.encode("latin-1"),
    "lines.json": LINES.encode(),
    "key.json": json.dumps({"version": "1", "data": ROWS}).encode(),
    "number.json": b"3",
    "damaged.json": b'[{"body": "film"',
    "damaged.jsonl": b'{"body": "film"\n{"body": 3',
    "empty.csv": b"",
    "header.csv": b"body,verdict\n",
    "bytes.csv": bytes(range(256)) * 4,
    "other.csv": b"text_a;label_a\nfilm;a\n",
    "damaged.parquet": b"PAR1" + bytes(64),
    "packed.csv.gz": b"\x1f\x8b" + bytes(32),
    "sentences.txt": TABLE.encode("utf-16"),
    "missing.csv": None,
}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A folder with an encoder, a classifier of the reviews, and the reviews."""
    from simlab.tasks import TaskOptions, load_task

    place = tmp_path_factory.mktemp("right")
    reviews = write_reviews(place / "reviews.csv")
    task = load_task(reviews, TaskOptions(text_column="body", label_column="verdict"))
    save_tiny_model(place / "encoder")
    save_classifier(place / "ft", "bert", task)
    return place


def every_step(simcore, model, other, task, out):
    """Run every step on a model and a task, and return what came of each."""
    for step in STEPS:
        models = (model, other) if step == "inject" else (model,)
        yield step, simcore(step, *models, task, *COLUMNS, "--out", out / step)


def check(outcomes, out, *words):
    for step, outcome in outcomes:
        check_refused(outcome, *words)
        assert not (out / step).exists()


@pytest.mark.parametrize("fault", FOLDERS)
def test_folders_that_are_no_models(fault, models, tmp_path, simcore, offline):
    folder = shutil.copytree(models / "ft", tmp_path / "wrong")
    FOLDERS[fault](folder)
    outcomes = every_step(simcore, folder, models / "ft", models / "reviews.csv", tmp_path)
    if fault == "of a Trainer":
        check_refused(next(outcomes)[1], "wrong/checkpoint-500 has one")
    check(outcomes, tmp_path)


@pytest.mark.parametrize("model_type", OTHERS)
def test_models_that_take_no_texts(model_type, models, tmp_path, simcore):
    folder = tmp_path / "wrong"
    tiny_tokenizer().save_pretrained(folder)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = AutoConfig.for_model(model_type, **OTHERS[model_type])
        AutoModel.from_config(config).save_pretrained(folder)
    check(every_step(simcore, folder, models / "ft", models / "reviews.csv", tmp_path), tmp_path)


@pytest.mark.parametrize("name", FILES)
def test_files_that_are_no_tables(name, models, tmp_path, simcore):
    if FILES[name] is not None:
        (tmp_path / name).write_bytes(FILES[name])
    folder = models / "ft"
    words = {"lines.json": (".jsonl",), "latin.csv": ("UTF-8",), "wide.csv": ("UTF-8",)}
    outcomes = every_step(simcore, folder, folder, tmp_path / name, tmp_path)
    check(outcomes, tmp_path, *words.get(name, ()))
