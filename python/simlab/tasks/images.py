"""Tasks of images: scikit-learn's digits, folders of image files, columns of data sets.

In the tables of `frames` a picture stands in column ``image``, and the hash of its content in
column ``text``. So ids and texts tell examples apart whether they are texts or images, and a
picture that comes twice is not both trained on and held out.
"""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from simlab.errors import UserError

if TYPE_CHECKING:
    import pandas as pd
    from PIL.Image import Image

IMAGE = "image"  # the column of pictures
DIGITS, FOLDER = "digits", "images:"
SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp")
TRAIN = "train"
_MOST = 255.0
_GREY = 16.0  # the lightest value of scikit-learn's digits


@dataclass(frozen=True)
class Picture:
    """An image: values in [0, 1], [H, W] or [H, W, 3], the bytes of a file, or a file."""

    content: np.ndarray | bytes | Path

    @cached_property
    def digest(self) -> str:
        """Return the SHA-256 of the content."""
        if isinstance(self.content, np.ndarray):
            shape = str((self.content.dtype.str, self.content.shape)).encode()
            return hashlib.sha256(shape + self.content.tobytes()).hexdigest()
        return hashlib.sha256(self._bytes()).hexdigest()

    def image(self) -> Image:
        """Return the image in 8 bits a colour, as transforms for pretrained models take it."""
        from PIL import Image

        if not isinstance(self.content, np.ndarray):
            return self._opened().convert("RGB")
        return Image.fromarray(np.round(self.content * _MOST).astype(np.uint8)).convert("RGB")

    def array(self) -> np.ndarray:
        """Return values in [0, 1], float32 [C, H, W]; C is 1 for an image without colours."""
        if isinstance(self.content, np.ndarray):
            values = self.content.astype(np.float32)
        else:
            image = self._opened()
            image = image if image.mode == "L" else image.convert("RGB")
            values = np.asarray(image, np.float32) / np.float32(_MOST)
        return values[None] if values.ndim == 2 else np.ascontiguousarray(values.transpose(2, 0, 1))

    def _bytes(self) -> bytes:
        if isinstance(self.content, bytes):
            return self.content
        assert isinstance(self.content, Path)  # arrays have no bytes to decode
        try:
            return self.content.read_bytes()
        except OSError as error:
            raise UserError(f"{self.content}: wanted an image, found: {error.strerror}") from error

    def _opened(self) -> Image:
        from PIL import Image

        where = self.content if isinstance(self.content, Path) else "image of the data set"
        try:
            image = Image.open(io.BytesIO(self._bytes()))
            image.load()
        except (OSError, ValueError, SyntaxError) as error:
            raise UserError(f"{where}: wanted an image, found a damaged file: {error}") from error
        return image


def picture_columns(values: np.ndarray) -> dict[str, list[Any]] | None:
    """Return columns of pictures and of their hashes; None if a cell holds no picture."""
    if not len(values) or not all(
        isinstance(v, dict) and {"bytes", "path"} <= {*v} for v in values
    ):
        return None
    contents = [Path(v["path"]) if v["bytes"] is None else v["bytes"] for v in values]
    return _columns_of([Picture(content) for content in contents])


def _columns_of(pictures: list[Picture]) -> dict[str, list[Any]]:
    return {"text": [picture.digest for picture in pictures], IMAGE: pictures}


def is_images(name: str) -> bool:
    """Return whether `name` is a task of images which needs no data set of the hub."""
    return name == DIGITS or name.startswith(FOLDER)


def read_images(name: str) -> dict[str, pd.DataFrame]:
    """Read task ``digits`` or ``images:FOLDER`` as a table for each split, or one under ``all``.

    The folder has a folder of files for each class; or folders of this kind for each split, of
    which one is ``train``; or files alone. The columns are ``id``, ``text``, ``image`` and
    ``label``, the name of the class, which is empty in a folder of files alone.
    """
    if name == DIGITS:
        return {"all": _digits()}
    folder = Path(name.removeprefix(FOLDER)).expanduser()
    if not folder.is_dir():
        raise UserError(f"task {name}: wanted a folder of images, found no such folder")
    has_splits = (folder / TRAIN).is_dir()
    rows: dict[str, list[tuple[Path, str]]] = {}
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        split, *place = parts if has_splits else ("all", *parts)
        if place and path.suffix.lower() in SUFFIXES:
            rows.setdefault(split, []).append((path, place[0] if len(place) > 1 else ""))
    if not rows:
        raise UserError(f"{folder}: wanted images ({' '.join(SUFFIXES)}), found none")
    return {split: _folder(folder, found) for split, found in rows.items()}


def _digits() -> pd.DataFrame:
    import pandas as pd
    from sklearn.datasets import load_digits

    digits = load_digits()
    pictures = [Picture((image / _GREY).astype(np.float32)) for image in digits.images]
    ids = [f"{DIGITS}-{row}" for row in range(len(pictures))]
    labels = [str(digit) for digit in digits.target]
    return pd.DataFrame({"id": ids, **_columns_of(pictures), "label": labels})


def _folder(folder: Path, files: list[tuple[Path, str]]) -> pd.DataFrame:
    """Return the images of a split with their classes; files outside classes count if alone."""
    import pandas as pd

    files = [(path, label) for path, label in files if label] or files
    ids = [path.relative_to(folder).as_posix() for path, _ in files]
    columns = _columns_of([Picture(path) for path, _ in files])
    return pd.DataFrame({"id": ids, **columns, "label": [label for _, label in files]})
