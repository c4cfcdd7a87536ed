"""Record, during training, the CKA of every layer with its state before training."""

from __future__ import annotations

import dataclasses
import inspect
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import TrainerCallback

from simlab.models.hidden import HiddenStates
from simlab.store.files import hash_json
from simlab.store.results import FT, TRAINING_CKA, ResultRow, Side, to_frame, write_results

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
    so the weights are bit for bit those of a run without the callback. The Trainer's
    ``log_history`` holds the record too, and is part of its checkpoints, so a resumed run has the
    whole record. The initial state is the state of the model when the Trainer is constructed.

    Parameters
    ----------
    probe
        The examples on which layers are compared, the same at every step: tokenised examples as
        the Trainer takes them (dicts with ``input_ids`` and so on; labels are not used), or one
        batch of tensors.
    every, steps
        Record after every `every` steps, or after the steps listed in `steps`; give exactly one.
    pooling
        One row per example, or per choice of multiple choice: ``cls``, the token that the head
        reads (first or last, by architecture), or ``mean`` over the tokens that are not padding.
    estimator
        ``biased`` or ``unbiased``, as in `simcore.cka_grid`.
    batch_size
        Probe examples per forward pass. They are padded together: with a model that reads padding
        as text (FNet, ConvBERT, Nyströmformer), give 1, or examples of equally many tokens.
    max_memory
        Bytes that the pooled states of all layers may take, before training and now together.
    collate
        Function that makes a batch of probe examples; by default the Trainer's tokenizer (its
        `processing_class`) pads them. Needed if the Trainer has no tokenizer, unless `probe` is a
        batch of tensors.

    Raises
    ------
    ValueError
        Both or neither of `every` and `steps` are given, the pooling is unknown, or there are too
        few examples. When the Trainer is constructed: the states do not fit into `max_memory`, the
        model returns no hidden states, or there is neither a tokenizer nor `collate` for examples.

    Examples
    --------
    >>> import torch
    >>> from transformers import BertConfig, BertForSequenceClassification
    >>> from transformers import Trainer, TrainingArguments
    >>> from simlab import CKACallback
    >>> config = BertConfig(hidden_size=16, num_hidden_layers=2, num_attention_heads=2)
    >>> rows = [{"input_ids": torch.randint(1, 50, (8,)), "labels": i % 2} for i in range(32)]
    >>> callback = CKACallback({"input_ids": torch.randint(1, 50, (16, 8))}, steps=[2, 4])
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
        every: int | None = None,
        steps: Sequence[int] | None = None,
        pooling: str = "cls",
        estimator: str = "biased",
        batch_size: int = 64,
        max_memory: int = 1 << 30,
        collate: Callable[[list[Any]], Mapping[str, torch.Tensor]] | None = None,
    ) -> None:
        from simcore._grid.inputs import LEAST_ROWS

        both_or_neither = (every is None) == (steps is None)
        never = (every is not None and every < 1) or (steps is not None and len(steps) == 0)
        if both_or_neither or never:
            raise ValueError(
                f"wanted either every=K (K >= 1) or steps=[...], found {every=} and {steps=}"
            )
        if pooling not in POOLINGS:
            raise ValueError(f"pooling: wanted one of {', '.join(POOLINGS)}, found {pooling!r}")
        self.probe, self.every, self.pooling, self.estimator = probe, every, pooling, estimator
        self.steps = None if steps is None else frozenset(steps)
        wanted = LEAST_ROWS["unbiased" if estimator == "unbiased" else "biased"]
        if self.examples < wanted:
            raise ValueError(f"probe: wanted at least {wanted} examples, found {self.examples}")
        self.batch_size, self.max_memory, self.collate = batch_size, max_memory, collate
        self.records: list[dict[str, Any]] = []
        self._initial: list[torch.Tensor] | None = None
        self._batches: list[dict[str, torch.Tensor]] = []  # made once: `collate` may be random

    @property
    def examples(self) -> int:
        """Return the number of examples in the probe."""
        if isinstance(self.probe, Mapping):
            return _count(self.probe)
        return len(self.probe)

    def on_init_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: Any = None,
        processing_class: Any = None,
        **kwargs: Any,
    ) -> None:
        """Store the initial states, before the Trainer loads a checkpoint."""
        self._initial = self._states(model, processing_class)

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: Any = None,
        processing_class: Any = None,
        **kwargs: Any,
    ) -> None:
        """Load the record of a resumed run."""
        self.take_up(state.log_history)
        if self._initial is None:  # the callback was added to an existing Trainer
            if state.global_step > 0:
                raise ValueError(
                    "CKACallback: wanted to see the model before the checkpoint was loaded; pass "
                    "it to Trainer(callbacks=[...])"
                )
            self._initial = self._states(model, processing_class)

    def on_step_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: Any = None,
        processing_class: Any = None,
        **kwargs: Any,
    ) -> None:
        """Record the CKA of every layer, if this step is one to record."""
        step = state.global_step
        if step % self.every if self.every is not None else step not in (self.steps or ()):
            return
        now = self._states(model, processing_class)
        assert self._initial is not None
        values = [_cka(*pair, self.estimator) for pair in zip(now, self._initial, strict=True)]
        entry: dict[str, Any] = {"epoch": state.epoch, "step": step, _LOG_KEY: values}
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

        Parameters
        ----------
        label, seed, base
            Name of the model in tables and figures, its seed, and the model that is fine-tuned.
        """
        model = Side(label, seed, base, FT)
        initial = Side("initial", base=base, step=0)
        run = hash_json([vars(model), task, self.records])  # two runs may have one label
        return [
            ResultRow(
                experiment=TRAINING_CKA,
                grid=run,
                measure="cka",
                kind=self.pooling,
                estimator=self.estimator,
                kernel="linear",
                **dataclasses.replace(model, step=row.step).columns("x"),
                **initial.columns("y"),
                layer_x=row.layer,
                value=row.cka,
                n=self.examples,
                task=task,
            )
            for row in self.frame().itertuples()
        ]

    def write(self, path: str | Path, **about: Any) -> None:
        """Write `result_rows`, which takes `about`, to results file `path` (.parquet)."""
        write_results(to_frame(self.result_rows(**about)), Path(path))

    def _states(self, model: PreTrainedModel, tokenizer: Any) -> list[torch.Tensor]:
        """Return the pooled states of every layer on the CPU, [n, p] float32 each."""
        with _undisturbed(model):
            if not self._batches:
                self._batches = [dict(batch) for batch in self._make_batches(tokenizer)]
            layers: list[torch.Tensor] = []
            states_of, start = HiddenStates(model), 0
            for whole in self._batches:
                batch = {name: whole[name].to(model.device) for name in _accepted(model, whole)}
                hidden = states_of(batch)
                weights = self._weights(model, batch)
                layers = layers or self._allocate(hidden, len(weights) // _count(batch))
                for layer, states in zip(layers, hidden, strict=True):
                    pooled = torch.einsum("bt,btp->bp", weights, states.float())
                    layer[start : start + len(pooled)] = pooled
                start += len(weights)
        return layers

    def _make_batches(self, tokenizer: Any) -> Iterator[Mapping[str, torch.Tensor]]:
        collate = self.collate or (tokenizer and partial(_pad, tokenizer))
        for start in range(0, self.examples, self.batch_size):
            part = slice(start, start + self.batch_size)
            if isinstance(self.probe, Mapping):
                yield {name: values[part] for name, values in self.probe.items()}
            elif collate:
                rows = range(*part.indices(self.examples))
                yield collate([self.probe[row] for row in rows])
            else:
                raise ValueError(
                    "CKACallback: wanted a Trainer with a tokenizer (processing_class), collate= "
                    "or a probe that is one batch of tensors, found none of them"
                )

    def _allocate(self, hidden: Sequence[torch.Tensor], choices: int) -> list[torch.Tensor]:
        rows = self.examples * choices
        needed = 2 * rows * sum(states.shape[-1] for states in hidden) * 4
        if needed > self.max_memory:
            raise ValueError(
                f"CKACallback: wanted states of {self.examples} examples in max_memory = "
                f"{self.max_memory:,} bytes, found {needed:,}; give fewer examples"
            )
        return [torch.empty(rows, states.shape[-1]) for states in hidden]

    def _weights(self, model: PreTrainedModel, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Return the weight of each token, [b, t]: 1 at the classifier token, or equal weights.

        For multiple choice, b counts all choices of all examples.
        """
        from simlab.models.recognise import architecture_of

        mask = batch.get("attention_mask")
        if mask is None:
            ids = batch[model.main_input_name]
            mask = torch.ones(ids.shape, dtype=torch.long, device=ids.device)
        mask = mask.flatten(0, -2)
        if self.pooling == "mean":
            return mask.float() / mask.sum(-1, keepdim=True).clamp(min=1)
        position = architecture_of(model).token_index(mask)
        return torch.nn.functional.one_hot(position, mask.shape[-1]).float()


def _pad(tokenizer: Any, rows: list[Mapping[str, Any]]) -> Mapping[str, torch.Tensor]:
    from simlab.models.batches import pad

    names = [name for name in tokenizer.model_input_names if name in rows[0]]
    return pad(tokenizer, [{name: row[name] for name in names} for row in rows])


def _count(batch: Mapping[str, torch.Tensor]) -> int:
    return len(next(iter(batch.values())))


def _accepted(model: PreTrainedModel, names: Iterable[str]) -> list[str]:
    """Return the `names` that `model` takes, without labels; all if `model` is a wrapper."""
    names = [name for name in names if name not in _LABELS]
    takes = inspect.signature(model.forward).parameters
    return [name for name in names if name in takes or model.main_input_name not in takes]


@contextmanager
def _undisturbed(model: PreTrainedModel) -> Iterator[None]:
    """Set evaluation mode without gradients inside the block; restore modes and random state."""
    modes = {module: module.training for module in model.modules()}
    # Not inference mode, because training must be able to use tensors that a module caches here.
    with torch.random.fork_rng(), torch.no_grad():
        model.eval()
        try:
            yield
        finally:
            for module, training in modes.items():
                module.training = training


def _cka(now: torch.Tensor, initial: torch.Tensor, estimator: str) -> float:
    from simcore import cka_grid

    with warnings.catch_warnings():
        # Expected: at the embedding output CLS is the same vector for every example.
        warnings.filterwarnings("ignore", message=".*self-HSIC is not positive")
        return float(cka_grid([now], [initial], estimator=estimator))
