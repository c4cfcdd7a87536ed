"""Leave a span of layers out of a decoder, and write the rest as a model."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simlab.bounds import Count, Length, bounded
from simlab.errors import UserError, argument, first_line
from simlab.experiments.shorten import keep_layers
from simlab.models.checkpoint import Checkpoint, length_of, load_examples
from simlab.models.decoder import load_decoder, perplexity
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
_ROUNDING = 1e-4  # of the largest output; the two models do the same sums
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

        def score(decoder: PreTrainedModel, which: str) -> tuple[float, int]:
            title = f"perplexity of the {which} model"
            return perplexity(decoder, tokenizer, examples, length, batch_size, title)

        whole = load_decoder(source)
        layers = len(architecture_of(whole).layers(whole))
        if not 0 <= start < end <= layers or end - start == layers:
            raise UserError(
                f"{argument('start', start)}: wanted a span within the {layers} layers, and not "
                f"all of them, found layers {start + 1} to {end}"
            )
        whole.to(computes)  # type: ignore[arg-type]
        shorter = _without(whole, start, end)
        perplexities = {"whole": score(whole, "whole")[0]}
        perplexities["without"], tokens = score(shorter, "shorter")
        shorter.config.use_cache = getattr(whole.config, "use_cache", True)
        shorter.save_pretrained(partial)
        tokenizer.save_pretrained(partial)
        about = {"model": source.name, "span": [start, end], "task": name, "texts": len(examples)}
        results = {"layers": layers, "perplexity": perplexities, "tokens": tokens}
        write_json(partial / RECORD, {**about, **results})

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
        try:
            _without(whole, start, start + layers)
            able.append((start, start + layers))
        except UserError as error:
            unable[f"{start + 1} to {start + layers}"] = error
    if unable and not able:
        raise next(iter(unable.values()))
    if unable:
        note(f"layers {', '.join(unable)} cannot be left out: {next(iter(unable.values()))}")
    return able


def _without(whole: PreTrainedModel, start: int, end: int) -> PreTrainedModel:
    """Return a decoder without a span of layers, which shares the tensors of the whole one.

    Raise UserError unless its configuration makes a model that computes as it does. A configuration
    may decide by a layer's number how the layer computes (every fourth layer without rotary
    positions, a scale by depth), and layers after the span get other numbers.
    """
    import torch

    layers = range(len(architecture_of(whole).layers(whole)))
    shorter = keep_layers(whole, [k for k in layers if not start <= k < end], share=True)
    wanted = f"model of type {shorter.config.model_type!r}: wanted layers that"
    try:
        with torch.device("meta"):
            rebuilt = type(shorter)(deepcopy(shorter.config)).eval()
        rebuilt.load_state_dict(shorter.state_dict(), assign=True)
    except Exception as error:  # configurations and models check their settings in many ways
        raise UserError(
            f"{wanted} do not depend on their number in the model, found that fewer cannot be "
            f"made: {first_line(error)}"
        ) from error
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
            f"{wanted} compute alike at every position, found outputs that differ by {apart:.3g} "
            "from those of the same layers in their old places"
        )
    return shorter
