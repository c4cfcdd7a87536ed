"""The files that the sweep file of Wu et al. reads and the project does not have, small."""

from __future__ import annotations

from pathlib import Path


def write_wu_files(folder: Path) -> None:
    """Write both corpora, and files for the rows of three ELMos, of which planning reads bytes."""
    (folder / "ptb-dev.txt").write_text("Pierre joined the board .\nHe is old .\n")
    (folder / "en_ewt-ud-dev.conllu").write_text("1\tFrom\t_\n2\there\t_\n\n")
    for model in ("original", "4-layer", "transformer"):
        for corpus in ("ptb", "ewt"):
            (folder / f"elmo-{model}-{corpus}-dev.hdf5").write_bytes(b"layers")
