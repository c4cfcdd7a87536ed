"""Batches of images, as a model takes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from simlab.errors import UserError, first_line

if TYPE_CHECKING:
    import torch

    from simlab.models.sources import ModelSource
    from simlab.tasks.images import Picture

_PROCESSOR = "preprocessor_config.json"


def processor_of(source: ModelSource) -> Callable[[Any], torch.Tensor] | None:
    """Return the function that prepares an image for a model of transformers; None without one."""
    if not (source.path / _PROCESSOR).is_file():
        return None
    from transformers import AutoImageProcessor

    try:
        # The other backend rounds otherwise, and is there on some machines alone.
        processor = AutoImageProcessor.from_pretrained(
            source.path, backend="pil", local_files_only=True
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = first_line(error)
        raise UserError(
            f"model {source.name}: wanted an image processor in {_PROCESSOR}, found: {reason}"
        ) from error

    def prepare(image: Any) -> torch.Tensor:
        return processor(image, return_tensors="pt")["pixel_values"][0]

    return prepare


def image_batches(
    pictures: Sequence[Picture],
    prepare: Callable[[Any], torch.Tensor] | None,
    batch_size: int,
    device: str,
) -> Iterator[tuple[np.ndarray, torch.Tensor]]:
    """Yield images in their order: row numbers [b] and values [b, C, H, W].

    `prepare` makes a tensor [C, H, W] of an image of PIL; None takes the values in [0, 1] as they
    are, with one channel if the images have no colours.
    """
    import torch

    for start in range(0, len(pictures), batch_size):
        part = pictures[start : start + batch_size]
        if prepare is None:
            tensors = [torch.from_numpy(picture.array()) for picture in part]
        else:
            tensors = [torch.as_tensor(prepare(picture.image())) for picture in part]
        shapes = {tuple(one.shape): None for one in tensors}
        if len(shapes) > 1:
            found = " and ".join(str(list(shape)) for shape in list(shapes)[:2])
            raise UserError(
                "task: wanted images of one size, or a model that says how to prepare images, "
                f"found {found}"
            )
        yield np.arange(start, start + len(part)), torch.stack(tensors).to(device)
