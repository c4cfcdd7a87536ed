"""MiniLM beside a random twin, module by module.

    python examples/record_minilm.py

The model and the sentences are those that ``make assets`` fetches. The twin has the architecture of
MiniLM and random weights.
"""

from __future__ import annotations

from simcore import compare
from simlab.models.batches import batches, encode
from simlab.models.load import load_encoder, load_tokenizer
from simlab.models.sources import resolve
from simlab.tasks import load_task

SENTENCES, MAX_LENGTH, BATCH = 400, 64, 50


def main() -> None:
    """Compare and print."""
    source = resolve("minilm")
    tokenizer = load_tokenizer(source)
    trained, twin = load_encoder(source), load_encoder(source, random_init_seed=0)
    encoded = encode(tokenizer, load_task("rt").split("train"), MAX_LENGTH)[:SENTENCES]
    loader = [batch for _, batch in batches(tokenizer, encoded, BATCH, "cpu")]
    modules = ["embeddings", "encoder.layer.*"]
    for name, other in (("itself", None), ("a random twin", twin)):
        print(f"MiniLM and {name}")
        print(compare(trained, other, loader, modules, pool="mean"))
    print("attention and feed-forward outputs of MiniLM, streamed")
    inner = ["encoder.layer.*.attention", "encoder.layer.*.output"]
    print(compare(trained, None, loader, inner, pool="mean", streaming=True))


if __name__ == "__main__":
    main()
