"""Folders that are no models of texts, files that are no tables: one line from every command."""

import gzip
import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModel

from support.lab.commandline import check_refused
from support.lab.tinyclassifiers import save_classifier
from support.lab.tinymodels import COLUMNS, GOOD, save_tiny_model, tiny_tokenizer, write_reviews
from support.model_families import ENCODER_DECODERS, PICTURES, SOUNDS

STEPS = {  # and their outputs
    **{step: step for step in ("extract", "finetune")},
    **{step: f"{step}.parquet" for step in ("truncate", "skip", "influence", "inject")},
}
MORE = {"finetune": ("--max-steps", 1), "inject": ("--method", "identity", "--layer", 1)}
_SIZE = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}
_SIZE |= {"intermediate_size": 32}
_CLIP = {"text_config": {**_SIZE, "vocab_size": 99, "max_position_embeddings": 64}}
_CLIP |= {"vision_config": {**_SIZE, "image_size": 16, "patch_size": 4}, "projection_dim": 8}
# Models that take no texts, or no texts alone.
OTHERS = {"clip": _CLIP, **{f.model_type: f.size for f in (*PICTURES, *SOUNDS, *ENCODER_DECODERS)}}
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


def other_weights(change):
    """Write what `change` makes of the name and values of each weight."""

    def write(folder):
        file = folder / "model.safetensors"
        weights = load_file(file)
        save_file(dict(change(*one) for one in weights.items()), file, {"format": "pt"})

    return write


def without_words(folder):
    """Leave the special tokens to a tokenizer, but not the unknown one."""
    file = folder / "tokenizer.json"
    content = json.loads(file.read_text())
    words = [token["content"] for token in content["added_tokens"] if token["content"] != "[UNK]"]
    content["model"]["vocab"] = {word: number for number, word in enumerate(words)}
    file.write_text(json.dumps(content))


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
    "no layers": setting(num_hidden_layers=0),
    "unknown activation": setting(hidden_act="geluu"),
    "quantised": setting(quantization_config={"load_in_4bit": True, "quant_method": "awq-9"}),
    "more layers": setting(num_hidden_layers=5),
    "other width": setting(hidden_size=48, num_attention_heads=2),
    "fewer words": setting(vocab_size=7),
    "no weights": without("model.safetensors"),
    "empty weights": written("model.safetensors", ""),
    "a page": written("model.safetensors", "<html>404</html>"),
    "zeros": written("model.safetensors", bytes(4096)),
    "not a number": other_weights(lambda name, weight: (name, weight * float("nan"))),
    "of Lightning": other_weights(lambda name, weight: (f"model.{name}", weight)),
    "no tokenizer": without("tokenizer.json"),
    "damaged tokenizer": written("tokenizer.json", '{"model": 3}'),
    "empty tokenizer": written("tokenizer.json", ""),
    "no words": without_words,
    "of a Trainer": within("checkpoint-500"),
    "old sentence-transformers": within("0_Transformer"),
}
SAID = {
    "no layers": "found num_hidden_layers 0",
    "unknown activation": "found: KeyError: 'geluu'",
    "not a number": "found NaN in ",
    "of Lightning": "; left over in its files: model.bert.embeddings.",
    "empty tokenizer": "tokenizer.json: wanted JSON, found a damaged file",
    "no words": "wanted a tokenizer that takes these texts, found: WordPiece error",
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
    "gzip.csv": gzip.compress(TABLE.encode()),
    "book.xlsx": b"PK\3\4",
    "more cells.csv": f"{TABLE}a,b,c\n".encode(),
    "nested.jsonl": b'{"body": {"en": "film"}, "verdict": "a"}\n' * 2,
    "null.jsonl": b'{"body": null, "verdict": "a"}\n{"body": "film", "verdict": "b"}\n',
    "missing.csv": None,
}
SAID |= {
    "lines.json": "Trailing data",
    "latin.csv": "UTF-8",
    "wide.csv": "UTF-8",
    "gzip.csv": "UTF-8",
    "book.xlsx": "wanted a file that ends in .csv, .tsv, .json, .jsonl, .parquet, found another",
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


# One of a kind: of configurations, weights, tokenizers, folders, and of each reader of files.
QUICK = {
    *("missing", "no JSON", "unknown type", "no layers", "more layers", "empty weights"),
    *("not a number", "of Lightning", "damaged tokenizer", "of a Trainer", "vit", "t5"),
    *("wide.csv", "lines.json", "damaged.jsonl", "header.csv", "damaged.parquet", "gzip.csv"),
    *("book.xlsx", "nested.jsonl", "null.jsonl", "missing.csv"),
}


def faults(names):
    """Return the parameters of a test: what is not of `QUICK` is deep."""
    return [n if n in QUICK else pytest.param(n, marks=pytest.mark.deep) for n in names]


def every_step(simcore, model, other, task, out):
    """Run every step on a model and a task, and return what came of each."""
    for step in STEPS:
        models = (model, other) if step == "inject" else (model,)
        given = (*models, task, *COLUMNS, *MORE.get(step, ()), "--out", out / STEPS[step])
        yield step, simcore(step, *given)


def check(outcomes, out, fault):
    for step, outcome in outcomes:
        check_refused(outcome, SAID.get(fault, ""))
        assert not (out / STEPS[step]).exists()


def test_the_right_folder_and_file_are_taken(models, tmp_path, simcore):
    """So that a refusal is of the fault, and not of the command."""
    folder = models / "ft"
    for step, (code, _, errors) in every_step(
        simcore, folder, folder, models / "reviews.csv", tmp_path
    ):
        assert code == 0, errors
        assert (tmp_path / STEPS[step]).exists()


@pytest.mark.parametrize("fault", faults(FOLDERS))
def test_folders_that_are_no_models(fault, models, tmp_path, simcore, offline):
    folder = shutil.copytree(models / "ft", tmp_path / "wrong")
    FOLDERS[fault](folder)
    outcomes = every_step(simcore, folder, models / "ft", models / "reviews.csv", tmp_path)
    if fault == "of a Trainer":
        check_refused(next(outcomes)[1], "wrong/checkpoint-500 has one")
    check(outcomes, tmp_path, fault)


@pytest.mark.parametrize("model_type", faults(OTHERS))
def test_models_that_take_no_texts(model_type, models, tmp_path, simcore):
    folder = tmp_path / "wrong"
    tiny_tokenizer().save_pretrained(folder)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = AutoConfig.for_model(model_type, **OTHERS[model_type])
        AutoModel.from_config(config).save_pretrained(folder)
    outcomes = every_step(simcore, folder, models / "ft", models / "reviews.csv", tmp_path)
    check(outcomes, tmp_path, model_type)


@pytest.mark.parametrize("name", faults(FILES))
def test_files_that_are_no_tables(name, models, tmp_path, simcore):
    if FILES[name] is not None:
        (tmp_path / name).write_bytes(FILES[name])
    folder = models / "ft"
    check(every_step(simcore, folder, folder, tmp_path / name, tmp_path), tmp_path, name)
