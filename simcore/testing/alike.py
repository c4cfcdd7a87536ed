"""`check_alike` and `assert_alike`: are two models the same, layer by layer?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torch import nn

from simcore.recording.batches import Forward, call
from simcore.recording.masks import PADDING_IS_TRUE, Given
from simcore.recording.pools import Pool
from simcore.recording.selection import Chooser, named_modules
from simcore.recording.wrappers import wrapped_in
from simcore.testing.judge import LIMIT, States, judge_alike
from simcore.testing.noise import Runs, dtype_of, measure_noise
from simcore.testing.verdicts import AlikeResult, Allow, check_allow

How = tuple[Pool, Given, Forward]
LISTS = (nn.ModuleList, nn.Sequential)  # of layers


def check_alike(
    a: nn.Module | States,
    b: nn.Module | States,
    batch: Any = None,
    *,
    modules: Chooser | None = None,
    modules_b: Chooser | None = None,
    pool: Pool = None,
    mask: Given = None,
    forward: Forward | None = None,
    noise: Mapping[str, States] | None = None,
    limit: float = LIMIT,
    labels: Sequence[str] = (),
) -> AlikeResult:
    """Judge whether two models are the same, by the states of their layers for one batch.

    Parameters
    ----------
    a : nn.Module, or dict of str to array ``[n, p]``
        The reference, in eval mode. It runs again under circumstances that should make no
        difference, and its differences are the noise: the same batch again, batch size 1, rows in
        reverse, 3 tokens of padding on the right (of a dictionary with ``input_ids`` and
        ``attention_mask``, without ``position_ids``), another number of threads (on a CPU), a copy
        in the next more precise dtype, and a copy in the dtype of `b` where that is less precise.
    b : nn.Module, or dict of str to array ``[n, p]``
        The model in question, in eval mode; or its layers, as another program recorded them.
    batch : optional
        One batch, as in `simcore.compare`. Not for two dictionaries.
    modules, modules_b : str, list of str, or function, optional
        As in `simcore.record`; `modules_b` is `modules` by default. Default: the output, and the
        modules around and in lists such as ``encoder.layer``, without their parts. ``"**"`` is
        every module: it names the part of a block that diverges first.
    pool : str or function, optional
        As in `simcore.record`. Default: a row for each token that is no padding where the batch has
        a mask by name, else for each position.
    mask : optional
        As in `simcore.record`.
    forward : function, optional
        Called as ``forward(model, batch)``, with batches of one example too.
    noise : dict of str to dicts, optional
        States of `a` under more circumstances, or of two dictionaries: see `judge_alike`.
    limit, labels
        As in `judge_alike`. Default of `labels`: the example and the row within it.

    Returns
    -------
    AlikeResult
        ``print(result)`` has a line for each layer, and on top the first that diverges.

    Raises
    ------
    TypeError, ValueError
        As `simcore.record` and `judge_alike`; a model in training mode; a model without a batch; a
        dictionary as `a` and a model as `b`, since the noise is measured on `a`.

    Examples
    --------
    >>> import torch
    >>> from simcore.testing import check_alike
    >>> a = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    >>> b = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 2))
    >>> _ = b.load_state_dict(a.state_dict())
    >>> result = check_alike(a.eval(), b.eval(), torch.randn(10, 4))
    >>> result.first().name
    '1'
    """
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return judge_alike(a, b, noise, limit=limit, labels=labels)
    if not isinstance(a, nn.Module):
        kind = "a dictionary" if isinstance(a, Mapping) else type(a).__name__
        raise TypeError(f"a: wanted an nn.Module, whose noise can be measured, got {kind}")
    if batch is None:
        raise TypeError("batch: wanted one batch, which the models are called with, got none")
    how = (_pool(pool, mask, batch), _mask(mask, batch), forward or call)
    runs = _runs("a", a, modules, how)
    states = runs.of(batch)
    if isinstance(b, nn.Module):
        chosen = modules if modules_b is None else modules_b
        states_b: States = _runs("b", b, chosen, how).of(batch)
        dtype = dtype_of(b)
    else:
        states_b, dtype = b, None
    measured, rows = measure_noise(runs, batch, dtype)
    every = {**measured, **(noise or {})}
    return judge_alike(states, states_b, every, limit=limit, labels=labels or rows)


def assert_alike(
    a: nn.Module | States,
    b: nn.Module | States,
    batch: Any = None,
    *,
    allow: Allow | None = None,
    **options: Any,
) -> None:
    """Raise an AssertionError with the report unless two models are the same, layer by layer.

    Parameters
    ----------
    a, b, batch
        As in `check_alike`.
    allow : {"scaled", "permuted", "rotated"}, optional
        What layers may be besides equal within noise; each contains those before it.
    **options
        Of `check_alike`.

    Raises
    ------
    AssertionError
        A layer differs, or only one model has it.
    TypeError, ValueError
        As `check_alike`; an unknown `allow`.

    Examples
    --------
    >>> import torch
    >>> from simcore.testing import assert_alike
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU()).eval()
    >>> assert_alike(model, model, torch.randn(10, 4))
    """
    check_allow(allow)
    result = check_alike(a, b, batch, **options)
    if not result.is_alike(allow):
        raise AssertionError(result.report(allow))


def _runs(side: str, model: nn.Module, modules: Chooser | None, how: How) -> Runs:
    if any(module.training for module in model.modules()):
        raise ValueError(
            f"{side}: wanted a model in eval mode, as model.eval() sets it, got others"
        )
    if modules is not None:
        return Runs(model, modules, *how)
    *_, core = wrapped_in(model)
    stages = {"", *_stages(core, "")}
    return Runs(model, lambda name, _: name in stages, *how, told=set(named_modules(core)))


def _stages(module: nn.Module, prefix: str) -> Iterable[str]:
    """Return the names of the modules in lists, and of those beside lists and around them."""
    for name, child in module.named_children():
        if isinstance(module, LISTS) or not _holds_list(child):
            yield prefix + name
        else:
            yield from _stages(child, f"{prefix}{name}.")


def _holds_list(module: nn.Module) -> bool:
    return any(isinstance(part, LISTS) and len(part) for part in module.modules())


def _has_mask(batch: Any) -> bool:
    return isinstance(batch, Mapping) and any(
        batch.get(name) is not None for name in PADDING_IS_TRUE
    )


def _mask(mask: Given, batch: Any) -> Given:
    return False if mask is None and not _has_mask(batch) else mask


def _pool(pool: Pool, mask: Given, batch: Any) -> Pool:
    if pool is not None:
        return pool
    return "tokens" if _mask(mask, batch) is not False else _positions


def _positions(states: Any) -> Any:
    """Return a row for each position of states ``[B, p]``, ``[B, T, p]`` or ``[B, C, ...]``."""
    if states.ndim > 3:
        states = states.flatten(2).transpose(1, 2)
    return states.flatten(0, -2)
