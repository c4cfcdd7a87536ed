"""Leave a span of layers out of a decoder, and write the rest as a model."""

from __future__ import annotations

import math
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simlab.bounds import Count, Length, bounded
from simlab.errors import UserError, argument
from simlab.experiments.shorten import keep_layers, require_buildable
from simlab.models.checkpoint import Checkpoint, length_of, load_examples
from simlab.models.evaluate import load_decoder, perplexity
from simlab.models.load import load_tokenizer
from simlab.models.place import AUTO, CPU, check_device, place
from simlab.models.recognise import architecture_of
from simlab.models.sources import ModelSource
from simlab.store.console import note
from simlab.store.files import write_json
from simlab.store.jobs import Outcome, run_job

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from simlab.tasks import Task, TaskOptions

RECORD = "left-out.json"
_ROUNDING = 1e-4  # of a perplexity, or of the largest output; the two models do the same sums
_TOKENS = 5  # of a text that shows whether layers compute alike in other places


@bounded
def leave_out(
    model: str | Path | ModelSource,
    task: str | Path | Task,
    out: str | Path,
    *,
    start: int,
    end: int,
    split: str = "heldout",
    limit: Count | None = None,
    max_length: Length | None = None,
    batch_size: Count = 32,
    device: str = AUTO,
    task_options: TaskOptions | None = None,
    overwrite: bool = False,
) -> Outcome:
    """Write a decoder without layers `start` + 1 to `end`, and the perplexity of both.

    Parameters
    ----------
    model
        A local folder or a model of the hub: a decoder with its head for words.
    task, split, limit, max_length, batch_size, task_options
        The texts of the perplexity, as for `influence`.
    out
        The model folder to make, in the precision of the model's files; plain ``from_pretrained``
        loads it. Its ``left-out.json`` has the perplexities.
    start, end
        The span: the output of layer `start` (0 is the embedding output) takes the place of the
        output of layer `end`.
    device
        Where the model runs: ``cpu``, ``cuda``, ``cuda:1``; ``auto`` is a GPU if there is one.
    overwrite
        As for `truncate`.

    Returns
    -------
    Outcome
        As for `shorten`.

    Raises
    ------
    UserError
        The model is no decoder with a head for words, the span is none of its layers or all of
        them, layers compute otherwise in other places, or `out` has other content and
        `overwrite` is False.

    Examples
    --------
    >>> from simlab import TaskOptions, leave_out, pretrain
    >>> few = TaskOptions(train_size=64, heldout_size=32)
    >>> size = {"layers": 2, "hidden": 16, "heads": 2, "vocabulary": 500, "objective": "causal"}
    >>> step = pretrain("rt", "runs/decoder", seed=1, max_steps=2, task_options=few, **size)
    >>> leave_out(step.path, "rt", "runs/shorter", start=1, end=2, task_options=few).path
    PosixPath('runs/shorter')
    """
    check_device(device)
    source = Checkpoint.open(model)
    name, examples = load_examples([source], task, split, task_options, limit)
    length = length_of([source], max_length)
    inputs: dict[str, Any] = {
        "step": "leave-out",
        "model": source.fingerprint,
        "span": [start, end],
        "examples": examples.text_fingerprint,
        "task": name,
        "max_length": length,
    }

    def make(partial: Path) -> None:
        computes = place(source, "auto", device, in_blocks=False)
        tokenizer = load_tokenizer(source)

        def score(one: PreTrainedModel, which: str) -> tuple[float, int]:
            title = f"perplexity of the {which} model"
            return perplexity(one, tokenizer, examples, length, batch_size, title)

        whole = load_decoder(source)
        layers = len(architecture_of(whole).layers(whole))
        if not 0 <= start < end <= layers or end - start == layers:
            raise UserError(
                f"{argument('start', start)}: wanted a span within the {layers} layers, and not "
                f"all of them, found layers {start + 1} to {end}"
            )
        whole.to(computes)  # type: ignore[arg-type]
        kept = [layer for layer in range(layers) if not start <= layer < end]
        shorter = keep_layers(whole, kept, share=True)
        require_buildable(shorter)
        perplexities = {"whole": score(whole, "whole")[0]}
        perplexities["without"], tokens = score(shorter, "shorter")
        shorter.config.use_cache = getattr(whole.config, "use_cache", True)
        shorter.save_pretrained(partial)
        tokenizer.save_pretrained(partial)
        kind = whole.config.model_type
        del whole, shorter  # memory has room for one model
        written = load_decoder(ModelSource(str(partial), partial))
        written.to(computes)  # type: ignore[arg-type]
        # A configuration may decide by a layer's number how the layer computes (every fourth layer
        # without rotary positions, a scale by depth), and layers after the span get other numbers.
        again = score(written, "written")[0]
        if not math.isclose(again, perplexities["without"], rel_tol=_ROUNDING):
            raise UserError(
                f"model of type {kind!r}: wanted layers that compute alike at every position, "
                f"found a perplexity of {again:.6g} of the written model, and of "
                f"{perplexities['without']:.6g} of the same layers in their old places"
            )
        about = {"model": source.name, "span": [start, end], "task": name, "texts": len(examples)}
        made = {"layers": layers, "perplexity": perplexities, "tokens": tokens}
        write_json(partial / RECORD, {**about, **made})

    return run_job(Path(out), inputs, make, replace=overwrite)


def spans_to_leave_out(model: str | Path | ModelSource, layers: int) -> list[tuple[int, int]]:
    """Return the spans of `layers` layers without which a decoder can be made; refuse if none is.

    A note says which cannot be left out.
    """
    source = Checkpoint.open(model)
    place(source, "auto", CPU, in_blocks=False)
    whole = load_decoder(source)
    count = len(architecture_of(whole).layers(whole))
    if not 1 <= layers < count:
        raise UserError(
            f"{argument('layers', layers)}: wanted 1 to {count - 1} layers to leave out"
        )
    able, unable = [], {}
    for start in range(count - layers + 1):
        kept = [layer for layer in range(count) if not start <= layer < start + layers]
        try:
            cut = keep_layers(whole, kept, share=True)
            require_buildable(cut)
            _require_same_sums(cut)
            able.append((start, start + layers))
        except UserError as error:
            unable[f"{start + 1} to {start + layers}"] = error
    if unable and not able:
        raise next(iter(unable.values()))
    if unable:
        note(f"layers {', '.join(unable)} cannot be left out: {next(iter(unable.values()))}")
    return able


def _require_same_sums(shorter: PreTrainedModel) -> None:
    """Raise UserError unless the configuration makes a model that computes as `shorter` does.

    The made model has the tensors of `shorter` itself, and both read one text of a few tokens.
    """
    import torch

    with torch.device("meta"):
        rebuilt = type(shorter)(deepcopy(shorter.config)).eval()
    rebuilt.load_state_dict(shorter.state_dict(), assign=True)
    kept = dict(shorter.named_buffers())  # those that no file has
    for name, buffer in [*rebuilt.named_buffers()]:
        if buffer.is_meta:
            holder, _, last = name.rpartition(".")
            setattr(rebuilt.get_submodule(holder), last, kept[name])
    tokens = torch.arange(_TOKENS, device=shorter.device)[None]
    with torch.inference_mode():
        cut, new = (model(input_ids=tokens, use_cache=False).logits for model in (shorter, rebuilt))
    apart = (new - cut).abs().max()
    if not apart <= _ROUNDING * cut.abs().max():
        raise UserError(
            f"model of type {shorter.config.model_type!r}: wanted layers that compute alike at "
            f"every position, found outputs that differ by {apart:.3g} from those of the same "
            "layers in their old places"
        )
