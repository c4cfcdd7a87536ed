"""The files that the sweep file of Wu et al. reads and the project does not have, small."""

from __future__ import annotations

from pathlib import Path

from support.lab.elmofiles import SMALL, changed, write_elmo


def write_wu_files(folder: Path) -> None:
    """Write both corpora, two ELMos, and the rows of the third, of which planning reads bytes."""
    (folder / "ptb-dev.txt").write_text("Pierre joined the board .\nHe is old .\n")
    (folder / "en_ewt-ud-dev.conllu").write_text("1\tFrom\t_\n2\there\t_\n\n")
    write_elmo(folder / "elmo-original", SMALL)
    write_elmo(folder / "elmo-4-layer", changed(lstm_n_layers=4))
    for corpus in ("ptb", "ewt"):
        (folder / f"elmo-transformer-{corpus}-dev.hdf5").write_bytes(b"layers")
