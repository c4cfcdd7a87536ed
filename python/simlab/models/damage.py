"""Name the fault of weights that cannot be used: which file, what is in it, and the way out."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from simlab.errors import UserError, argument, first_line
from simlab.models.files import weight_files
from simlab.models.hub import in_hub_cache
from simlab.models.sources import ModelSource

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedConfig, PreTrainedModel

_HEAD_BYTES = 1 << 20
_NO_MEMORY = re.compile(r"can(?:no|')t allocate memory", re.IGNORECASE)
_CALLED = re.compile(r"GLOBAL ([\w.]+)")  # how torch names what a pickle would call


@contextmanager
def weight_errors(source: ModelSource) -> Iterator[None]:
    """Turn errors about damaged weights into a UserError of one line that names the file."""
    try:
        yield
    except FileNotFoundError as error:  # its message names the file
        found = first_line(error)
        raise UserError(f"model {source.name}: wanted whole weights, found: {found}") from error
    except Exception as error:
        if isinstance(error, MemoryError) or _NO_MEMORY.search(str(error)):
            raise UserError(
                f"model {source.name}: wanted memory for its weights, found too little: "
                f"{first_line(error)}; {argument('device', 'offload')} reads one block at a time"
            ) from error
        # Readers raise errors of any type for damaged files, so check whether a file is damaged.
        damaged = _damaged_file(source.path)
        if damaged is None:
            raise
        file, found = damaged
        blob = in_hub_cache(file)
        heal = "" if blob is None else f"; delete {blob}, and the same command downloads it again"
        raise UserError(
            f"model {source.name}: wanted whole weights, found: damaged weights in {file}: {found}"
            f"{heal}"
        ) from error


def _damaged_file(folder: Path) -> tuple[Path, str] | None:
    """Return the first file of weights that cannot be opened, and the reason."""
    for file in [*weight_files(folder), *sorted(folder.glob("*.index.json"))]:
        try:
            _open_weights(file)
        except Exception as error:
            return file, _content(file) or _forbidden_call(error) or first_line(error)
    return None


def _open_weights(file: Path) -> None:
    import torch
    from safetensors import safe_open

    if file.suffix == ".json":
        json.loads(file.read_text())
    elif file.suffix == ".bin":
        torch.load(file, map_location="meta", weights_only=True)
    else:
        with safe_open(file, "pt"):
            pass


def _content(file: Path) -> str | None:
    """Return what a file holds in place of weights; None if its beginning does not say."""
    with file.open("rb") as stream:
        head = stream.read(_HEAD_BYTES)
    if not head:
        return "an empty file"
    if not any(head):
        return "zeros in place of weights"
    if head.startswith(b"version https://git-lfs"):
        return "a pointer of git-lfs in place of weights; `git lfs pull` fetches them"
    if head.lstrip()[:1] == b"<":
        return "a page of HTML in place of weights"
    return None


def _forbidden_call(error: Exception) -> str | None:
    """Return what a pickle holds besides weights, if torch refused it for that."""
    text = str(error)
    if (called := _CALLED.search(text)) is not None:
        return f"a pickle that runs {called[1]} when it is read; weights need no such call"
    if "weights_only" in text or "Weights only" in text:
        return "a pickle of something else than weights, which may run any program when it is read"
    return None


def refuse_quantised(config: PreTrainedConfig, source: ModelSource) -> None:
    """Raise UserError for weights that are stored as codes of few bits."""
    settings = getattr(config, "quantization_config", None)
    if settings is not None:
        method = (
            settings.get("quant_method") if isinstance(settings, dict) else settings.quant_method
        )
        raise UserError(
            f"model {source.name}: wanted weights in floating point, found weights quantised by "
            f"{method}; take the model that they were made from, or load them in a function of "
            f"your own ({argument('modules', of='extract')} takes module:function)"
        )


def require_finite(named_weights: Iterable[tuple[str, torch.Tensor]], source: ModelSource) -> None:
    """Raise UserError if a weight is NaN or infinite."""
    for name, weights in named_weights:
        if not weights.isfinite().all():
            found = "NaN" if weights.isnan().any() else "infinity"
            raise UserError(f"model {source.name}: wanted finite weights, found {found} in {name}")


def require_encoder(model: PreTrainedModel, fresh: dict[str, str], source: ModelSource) -> None:
    """Raise UserError if weights of the encoder are in `fresh`; a pooler belongs to the head."""
    prefix = "" if model.base_model is model else f"{model.base_model_prefix}."
    lost = [name for name in fresh if name.startswith(prefix) and "pooler." not in name]
    if lost:
        more = f" and {len(lost) - 1} more" if len(lost) > 1 else ""
        raise UserError(
            f"model {source.name}: wanted weights for the whole encoder as {source.path} "
            f"describes it, found no weights, or weights of another shape, for "
            f"{lost[0]}{fresh[lost[0]]}{more}"
        )
