"""Record, during training, the CKA of every layer with its state before training."""

from __future__ import annotations

import dataclasses
import inspect
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import TrainerCallback

from simcore import Track
from simcore.recording.storage import MemoryStore
from simcore.recording.track_arguments import START
from simlab.models.batches import pad
from simlab.models.states import HiddenStates
from simlab.results.results import FT, TRAINING, ResultRow, Side, to_frame, write_results
from simlab.store.files import hash_json

if TYPE_CHECKING:
    import pandas as pd
    from transformers import PreTrainedModel, TrainerControl, TrainerState, TrainingArguments

POOLINGS = ("cls", "mean")
_LOG_KEY = "cka_to_initial"
_LABELS = ("labels", "label")


class CKACallback(TrainerCallback):
    """Record, during training, the linear CKA of every layer with the same layer before training.

    Give the callback to any `transformers.Trainer` of a model that returns ``hidden_states``::

        callback = CKACallback(validation_rows, every=100)
        trainer = Trainer(..., processing_class=tokenizer, callbacks=[callback])
        trainer.train()
        callback.frame()  # columns step, layer, cka
        callback.write("cka.parquet", task="rt")  # `simcore plot` draws this file

    Training is not disturbed: the global random state and the mode of every module are restored,
    so the weights are bit for bit as in a run without the callback. The Trainer's
    ``log_history`` holds the record too, and is part of its checkpoints, so a resumed run has the
    whole record. The initial state is the state of the model when the Trainer is constructed.

    Parameters
    ----------
    probe
        The examples on which layers are compared, the same at every step: tokenised examples as
        the Trainer takes them (dicts with ``input_ids`` and so on; labels are not used), which the
        Trainer's tokenizer (its `processing_class`) pads, or one batch of tensors.
    every
        Record each step that is a multiple of this number, or the steps that are listed.
    pooling
        One row per example, or per choice of multiple choice: ``cls``, the token that the head
        reads (first or last, by architecture), or ``mean`` over the tokens that are not padding.
    estimator
        ``biased`` or ``unbiased``, as in `simcore.cka_grid`.
    batch_size
        Probe examples per forward pass. They are padded together: with a model whose
        rows depend on padding (FNet, MobileBERT), give 1, or examples of equally many tokens.
    max_memory
        Bytes that the pooled states of all layers may take, before training and now together, with
        a copy of one layer.

    Raises
    ------
    ValueError
        The pooling is unknown, or there are too few examples. When the Trainer is constructed: the
        steps are bad, the states do not fit into `max_memory`, the model returns no hidden states,
        or there is no tokenizer for examples.

    Examples
    --------
    >>> import torch
    >>> from transformers import BertConfig, BertForSequenceClassification
    >>> from transformers import Trainer, TrainingArguments
    >>> from simlab import CKACallback
    >>> config = BertConfig(hidden_size=16, num_hidden_layers=2, num_attention_heads=2)
    >>> rows = [{"input_ids": torch.randint(1, 50, (8,)), "labels": i % 2} for i in range(32)]
    >>> callback = CKACallback({"input_ids": torch.randint(1, 50, (16, 8))}, every=[2, 4])
    >>> trainer = Trainer(
    ...     BertForSequenceClassification(config),
    ...     TrainingArguments("runs/trainer", max_steps=4, report_to="none"),
    ...     train_dataset=rows,
    ...     callbacks=[callback],
    ... )
    >>> output = trainer.train()  # doctest: +ELLIPSIS
    {...
    >>> frame = callback.frame()  # the embedding output and two layers, at two steps
    >>> len(frame)
    6
    """

    def __init__(
        self,
        probe: Sequence[Mapping[str, Any]] | Mapping[str, torch.Tensor],
        *,
        every: int | Collection[int],
        pooling: str = "cls",
        estimator: str = "biased",
        batch_size: int = 64,
        max_memory: int = 1 << 30,
    ) -> None:
        from simcore._grid.inputs import LEAST_ROWS

        if pooling not in POOLINGS:
            raise ValueError(f"pooling: wanted one of {', '.join(POOLINGS)}, found {pooling!r}")
        self.probe, self.every, self.pooling, self.estimator = probe, every, pooling, estimator
        wanted = LEAST_ROWS["unbiased" if estimator == "unbiased" else "biased"]
        if self.examples < wanted:
            raise ValueError(f"probe: wanted at least {wanted} examples, found {self.examples}")
        self.batch_size, self.max_memory = batch_size, max_memory
        self.records: list[dict[str, Any]] = []
        self._track: _HiddenTrack | None = None

    @property
    def examples(self) -> int:
        """Return the number of examples in the probe."""
        probe = self.probe
        return len(next(iter(probe.values())) if isinstance(probe, Mapping) else probe)

    def on_init_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **parts: Any
    ) -> None:
        """Store the initial states, before the Trainer loads a checkpoint."""
        self._track = self._start(**parts)

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **parts: Any
    ) -> None:
        """Load the record of a resumed run."""
        self.take_up(state.log_history)
        if self._track is None:  # the callback was added to an existing Trainer
            if state.global_step > 0:
                raise ValueError(
                    "CKACallback: wanted to see the model before the checkpoint was loaded; pass "
                    "it to Trainer(callbacks=[...])"
                )
            self._track = self._start(**parts)

    def on_step_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: Any = None,
        **kwargs: Any,
    ) -> None:
        """Record the CKA of every layer, if this step is one to record."""
        assert self._track is not None
        self._track.model = model  # `model_init` makes another one than the Trainer began with
        with warnings.catch_warnings():
            # Expected: at the embedding output CLS is the same vector for every example.
            warnings.filterwarnings("ignore", message=".*self-HSIC is not positive")
            similarities = self._track.step(state.global_step)
        if similarities is None:
            return
        values = similarities[START].tolist()
        entry: dict[str, Any] = {"epoch": state.epoch, "step": state.global_step, _LOG_KEY: values}
        state.log_history.append(entry)
        self.records.append(entry)

    def take_up(self, log_history: Sequence[Mapping[str, Any]]) -> None:
        """Load the record from a Trainer's ``log_history``."""
        self.records = [dict(entry) for entry in log_history if _LOG_KEY in entry]

    def frame(self) -> pd.DataFrame:
        """Return the record: columns ``step``, ``layer`` (0 is the embedding output), ``cka``.

        ``cka`` is nan if a layer does not vary over the probe, as CLS at the embedding output.
        """
        import pandas as pd

        rows = [
            (entry["step"], layer, value)
            for entry in self.records
            for layer, value in enumerate(entry[_LOG_KEY])
        ]
        return pd.DataFrame(rows, columns=["step", "layer", "cka"])

    def result_rows(
        self, *, task: str, label: str = "FT", seed: int | None = None, base: str | None = None
    ) -> list[ResultRow]:
        """Return the record as rows of the results table.

        `label` names the model in tables and figures, and `base` the model that is fine-tuned.
        """
        model = Side(label, seed, base, FT)
        initial = Side("initial", base=base, step=0)
        run = hash_json([vars(model), task, self.records])  # two runs may have one label
        return [
            ResultRow(
                experiment=TRAINING,
                comparison=START,
                grid=run,
                measure="cka",
                kind=self.pooling,
                estimator=self.estimator,
                kernel="linear",
                **dataclasses.replace(model, step=entry["step"]).columns("x"),
                **initial.columns("y"),
                layer_x=layer,
                layer_y=layer,
                value=value,
                n=self.examples,
                task=task,
            )
            for entry in self.records
            for layer, value in enumerate(entry[_LOG_KEY])
        ]

    def write(self, path: str | Path, **about: Any) -> None:
        """Write `result_rows`, which takes `about`, to results file `path` (.parquet)."""
        write_results(to_frame(self.result_rows(**about)), Path(path))

    def _start(
        self, model: PreTrainedModel, processing_class: Any = None, **others: Any
    ) -> _HiddenTrack:
        batches = list(self._make_batches(processing_class))
        how: dict[str, Any] = {"every": self.every, "estimator": self.estimator}
        how |= {"against": START, "max_memory": self.max_memory}
        return _HiddenTrack(self.pooling, model, "", batches, **how)

    def _make_batches(self, tokenizer: Any) -> Iterator[dict[str, torch.Tensor]]:
        if not (tokenizer or isinstance(self.probe, Mapping)):
            raise ValueError(
                "CKACallback: wanted a Trainer with a tokenizer (processing_class), or a probe "
                "that is one batch of tensors, found neither"
            )
        probe = self.probe
        for start in range(0, self.examples, self.batch_size):
            part = slice(start, start + self.batch_size)
            if isinstance(probe, Mapping):
                yield {name: probe[name][part] for name in probe if name not in _LABELS}
                continue
            rows = [probe[row] for row in range(*part.indices(self.examples))]
            names = [name for name in tokenizer.model_input_names if name in rows[0]]
            yield pad(tokenizer, [{name: row[name] for name in names} for row in rows])


class _HiddenTrack(Track):
    """A track of hidden states, layer 0 the embedding output, pooled to a row for each example."""

    def __init__(self, pooling: str, *given: Any, **options: Any) -> None:
        self._pooling = pooling
        self._states: HiddenStates | None = None
        super().__init__(*given, **options)

    def record(self, model: Any, store: MemoryStore) -> None:
        """Append the pooled states of every layer, ``[n, p]`` float32."""
        if self._states is None or self._states.model is not model:
            self._states = HiddenStates(model)  # which examines a model by passes of its own
        takes = inspect.signature(model.forward).parameters
        if model.main_input_name not in takes:  # a wrapper takes what the model within takes
            takes = dict.fromkeys(self.batches[0])
        for whole in self.batches:
            batch = {name: whole[name].to(model.device) for name in whole if name in takes}
            weights = self._weights(model, batch)  # [b, t]

            def pool(states: torch.Tensor, weights: torch.Tensor = weights) -> torch.Tensor:
                return torch.einsum("bt,btp->bp", weights, states.float()).cpu()

            rows = {f"{layer}": pooled for layer, pooled in enumerate(self._states(batch, pool))}
            self.budget.check(store.bytes_after(rows), torch.device("cpu"), len(weights))
            store.append(rows)

    def _weights(self, model: PreTrainedModel, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Return the weight of each token, [b, t]: 1 at the classifier token, or equal weights.

        For multiple choice, b counts all choices of all examples.
        """
        from simlab.models.recognise import architecture_of

        mask = batch.get("attention_mask")
        if mask is None:
            mask = torch.ones_like(batch[model.main_input_name], dtype=torch.long)
        mask = mask.flatten(0, -2)
        if self._pooling == "mean":
            return mask.float() / mask.sum(-1, keepdim=True).clamp(min=1)
        position = architecture_of(model).token_index(mask)
        return torch.nn.functional.one_hot(position, mask.shape[-1]).float()
