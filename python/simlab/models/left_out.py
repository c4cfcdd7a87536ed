"""Say what of a model's files is not used: code of their own, and weights without a place.

transformers leaves both out without an error, so that the rows are another model's: of an encoder
whose own code lets every token attend to all, and transformers' does not, or of the model beneath
an adapter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from simlab.errors import UserError, argument
from simlab.models.files import CONFIG, TOKENIZER_SETTINGS
from simlab.models.sources import ModelSource
from simlab.store.console import note_once
from simlab.store.files import read_json

if TYPE_CHECKING:
    from collections.abc import Iterable

    from transformers import PreTrainedModel

_MAP = "auto_map"  # in a configuration: which class of which file takes the place of an Auto class
_MODELS = ("AutoModel", "AutoModelForSequenceClassification", "AutoModelForMultipleChoice")
_TOKENIZER = "AutoTokenizer"
# Ends of names of constants that older versions of transformers stored: positions, causal masks.
_CONSTANTS = ("position_ids", "inv_freq", "masked_bias", "attn.bias", "attention.bias")
_FUNCTION = (
    f"{argument('modules', of='extract')} takes a model that a function of yours loads "
    "(module:function)"
)


def require_known_code(source: ModelSource) -> None:
    """Check that transformers has the architecture of a model that comes with code of its own.

    The code of files is never run.
    """
    config = _settings(source, CONFIG)
    if _MAP not in config:
        return
    from transformers import CONFIG_MAPPING

    kind = config.get("model_type")
    if kind not in CONFIG_MAPPING:
        raise UserError(
            f"model {source.name}: wanted an architecture of transformers, found {kind!r} in code "
            f"of its own ({_named(config)}), which is not run; {_FUNCTION}"
        )


def note_own_code(source: ModelSource, *, tokenizer: bool = False) -> None:
    """Note code of a model or of its tokenizer that is not run; transformers' own is."""
    settings = _settings(source, TOKENIZER_SETTINGS if tokenizer else CONFIG)
    mapped = settings.get(_MAP)
    names = {*mapped} if isinstance(mapped, dict) else {_TOKENIZER} if mapped else set()
    if names & {*((_TOKENIZER,) if tokenizer else _MODELS)}:
        what = "tokenizer" if tokenizer else f"architecture {settings.get('model_type')!r}"
        note_once(
            f"model {source.name}: code of its own ({_named(settings)}) is not run; "
            f"transformers' {what} is in its place"
        )


def note_left_weights(model: PreTrainedModel, names: Iterable[str], source: ModelSource) -> None:
    """Note weights of the encoder that the files have and the model has no place for.

    Weights of other heads are left out in any encoder.
    """
    parts = {name for name, _ in model.base_model.named_children()} - {"pooler"}
    prefix = f"{model.base_model_prefix}."
    mine = [n for n in names if n.removeprefix(prefix).partition(".")[0] in parts]
    left = sorted(name for name in mine if not name.endswith(_CONSTANTS))
    if left:
        more = f" and {len(left) - 1} more" if len(left) > 1 else ""
        note_once(
            f"model {source.name}: weights of its files are left out, because {CONFIG} describes a "
            f"model without them: {left[0]}{more}"
        )


def _settings(source: ModelSource, name: str) -> dict[str, Any]:
    file = source.path / name
    content = read_json(file) if file.is_file() else None
    return content if isinstance(content, dict) else {}


def _named(settings: dict[str, Any]) -> str:
    """Return the files of the code, as ``modeling_x.py``, or ``owner/name: modeling_x.py``."""
    mapped = settings[_MAP]
    classes = mapped.values() if isinstance(mapped, dict) else [mapped]
    flat = [one for value in classes for one in (value if isinstance(value, list) else [value])]
    files = {f"{one.rpartition('.')[0]}.py".replace("--", ": ") for one in flat if one}
    return ", ".join(sorted(files))
