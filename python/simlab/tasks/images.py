"""Tasks of images: scikit-learn's digits, folders of image files, columns of data sets.

In the tables of `frames` a picture stands in column ``image``, and the hash of its content in
column ``text``. So ids and texts tell examples apart whether they are texts or images, and a
picture that comes twice is not both trained on and held out.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable
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


def as_picture(value: Any) -> Picture | None:
    """Return the picture that a cell of a data set holds; None if it holds none."""
    if isinstance(value, dict) and {"bytes", "path"} <= value.keys():
        return Picture(value["bytes"] if value["bytes"] is not None else Path(value["path"]))
    return None


def picture_columns(values: Iterable[Any]) -> dict[str, list[Any]] | None:
    """Return columns of pictures and of their hashes; None if the cells hold no pictures."""
    pictures = [as_picture(value) for value in values]
    known = [picture for picture in pictures if picture is not None]
    if not known or len(known) < len(pictures):
        return None
    return {"text": [picture.digest for picture in known], IMAGE: known}


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
    inner = sorted(path for path in folder.iterdir() if path.is_dir())
    if any(path.name == TRAIN for path in inner):
        return {path.name: _folder(path, folder) for path in inner}
    return {"all": _folder(folder, folder)}


def _digits() -> pd.DataFrame:
    import pandas as pd
    from sklearn.datasets import load_digits

    digits = load_digits()
    pictures = [Picture((image / _GREY).astype(np.float32)) for image in digits.images]
    columns = {"text": [picture.digest for picture in pictures], IMAGE: pictures}
    ids = [f"{DIGITS}-{row}" for row in range(len(pictures))]
    return pd.DataFrame({"id": ids, **columns, "label": [str(one) for one in digits.target]})


def _folder(folder: Path, root: Path) -> pd.DataFrame:
    """Return the images in a folder, or those in its folders, each a class."""
    import pandas as pd

    classes = sorted(path for path in folder.iterdir() if path.is_dir())
    labelled = [(path, one.name) for one in classes for path in sorted(one.rglob("*"))]
    files = labelled or [(path, "") for path in sorted(folder.iterdir())]
    files = [(path, label) for path, label in files if path.suffix.lower() in SUFFIXES]
    if not files:
        raise UserError(f"{folder}: wanted images ({' '.join(SUFFIXES)}), found none")
    pictures = [Picture(path) for path, _ in files]
    ids = [path.relative_to(root).as_posix() for path, _ in files]
    columns = {"text": [picture.digest for picture in pictures], IMAGE: pictures}
    return pd.DataFrame({"id": ids, **columns, "label": [label for _, label in files]})
