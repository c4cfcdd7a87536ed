"""A stand-in for a CUDA device: tensors that say they are on it and keep their values on the host.

torch's fake tensors carry no values, so that a program on them ends at the first decision; and in a
build of torch without CUDA even an index of a fake CUDA tensor fails. Tensors of the stand-in carry
values: whole grids run as on a device, and every time that the program waits for the device is
counted with its place. Nothing of a driver or of a GPU is needed.

The table of operators and devices (simcore/_ops/devices.py) is in force: an operator of the host is
refused, and every other operator runs the function that is registered for CUDA devices: operations
of torch, or the choice between a kernel and its composed form. A kernel is replaced by that of the
CPU.
"""

from __future__ import annotations

import functools
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from simcore._kernels import choice, verdicts
from simcore._ops.devices import HOST

CUDA = torch.device("cuda", 0)
aten = torch.ops.aten
# What the values decide: the host reads them, or their number is the shape of the result.
READS = {
    aten._local_scalar_dense.default,
    aten.equal.default,
    aten.is_nonzero.default,
    aten.nonzero.default,
    aten.masked_select.default,
    aten._linalg_eigh.default,  # these read whether they succeeded
    aten._linalg_svd.default,
}
# torch's derivative of an index makes zeros where C++ sees the tensor: on the host (`OnStandIn`).
DERIVATIVES = {aten.index_add.default}
FREE_BYTES = 2**34


class OnStandIn(Tensor):
    """A tensor that says it is on a CUDA device; ``values`` has its values, on the host.

    Python sees the device. torch's own C++ sees a tensor on the host, because it would look for a
    driver otherwise; what it would do to such a tensor without a dispatch is overridden here.
    """

    values: Tensor
    mode: StandIn

    @staticmethod
    def __new__(cls, values: Tensor, mode: StandIn) -> OnStandIn:
        """Wrap ``values``; views share memory as their values do."""
        made: OnStandIn = Tensor._make_wrapper_subclass(
            cls,
            values.shape,
            strides=values.stride(),
            storage_offset=values.storage_offset(),
            dtype=values.dtype,
            device=values.device,
        )
        made.values, made.mode = values, mode
        return made

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Let a tensor of the host follow one of the device there; run quantiles as one operation.

        Quantiles make tensors of their own where C++ sees the given ones: on the host.
        """
        if func is torch.nanquantile:
            values = tree_map(_values, (args, kwargs))
            return OnStandIn(func(*values[0], **values[1]), args[0].mode)
        if func is Tensor.to and not isinstance(args[0], OnStandIn):
            args = (args[0], args[1].device, args[1].dtype)
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Refuse: only the mode knows the device."""
        raise RuntimeError(f"{func}: wanted the stand-in's mode, found none")

    def __repr__(self, **_: Any) -> str:
        """Return the values; torch's own would read them as a program does."""
        return f"OnStandIn({self.values!r})"

    @property
    def device(self) -> torch.device:
        """The device."""
        return CUDA

    @property
    def is_cuda(self) -> bool:
        """True."""
        return True

    def cpu(self, *_: Any) -> Tensor:
        """Read the values."""
        return self.to("cpu")

    def numpy(self, **_: Any) -> Any:
        """Refuse, as torch does for a tensor on a device."""
        raise TypeError("can't convert cuda:0 device type tensor to numpy")

    def new_tensor(self, data: Any, dtype: torch.dtype | None = None) -> Tensor:
        """Copy numbers to the device."""
        return torch.tensor(data, dtype=dtype or self.dtype, device=CUDA)

    def tolist(self) -> Any:
        """Read the values."""
        self.mode.wait()
        return self.values.tolist()

    def to(self, *args: Any, **kwargs: Any) -> Tensor:
        """Convert, or read the values if the device is the host."""
        device, dtype, *_ = torch._C._nn._parse_to(*args, **kwargs)
        if device is not None and device.type == "cpu":
            self.mode.wait()
            return self.values.to(dtype or self.dtype, copy=True)
        return self if dtype is None else super().to(dtype)


class StandIn(TorchDispatchMode):
    """The mode in which tensors on ``cuda`` are `OnStandIn`.

    Attributes
    ----------
    waits : Counter of str
        How often the program waited for the device, by ``module:function`` of simcore: reads of
        values, and copies between the device and the host's pageable memory.
    operators : Counter of str
        How often each operator of simcore ran on the device.
    kernels : Counter of str
        How often an operator took its kernel.
    launches : int
        Other operations of torch on the device.
    queries : int
        How often Python asked the driver for its free memory.
    """

    def __init__(self) -> None:
        super().__init__()
        self.waits: Counter[str] = Counter()
        self.operators: Counter[str] = Counter()
        self.kernels: Counter[str] = Counter()
        self.launches = 0
        self.queries = 0

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Run an operation on the values."""
        kwargs = dict(kwargs or {})
        given = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
        on_device = any(isinstance(t, OnStandIn) for t in given)
        wanted = kwargs.get("device")
        target = on_device if wanted is None else torch.device(wanted).type == "cuda"
        if not on_device and not target:
            return func(*args, **kwargs)
        if func.namespace == "simcore":
            return self._operator(func, args, kwargs)
        if func._can_decompose():  # below autograd torch leaves this to the device
            with self:
                return func.decompose(*args, **kwargs)
        self._count(func, args, given, on_device, target)
        if wanted is not None:
            kwargs["device"] = torch.device("cpu")
        return self._run(func, args, kwargs, wrapped=target)

    def _count(
        self, func: Any, args: tuple[Any, ...], given: list[Tensor], on_device: bool, target: bool
    ) -> None:
        self.launches += 1
        on_host = [t for t in given if not isinstance(t, OnStandIn) and t.dim() > 0]
        moves = func in (aten.copy_.default, aten._to_copy.default)
        indexes = func.overloadpacket in (aten.index, aten.index_put, aten.index_put_)
        if indexes:
            indices = [i for i in args[1] if i is not None]
            by_mask = any(i.dtype in (torch.bool, torch.uint8) for i in indices)
            if by_mask or any(not isinstance(i, OnStandIn) for i in indices):
                self.wait()
        elif func in READS or (moves and (bool(on_host) or on_device != target)):
            self.wait()
        elif on_host and on_device and func not in DERIVATIVES:
            raise RuntimeError(f"{func}: wanted all tensors on one device, got cuda:0 and cpu")

    def free_memory(self, device: object = None) -> tuple[int, int]:
        """Stand in for `torch.cuda.mem_get_info`."""
        self.queries += 1
        return FREE_BYTES, FREE_BYTES

    def wait(self) -> None:
        """Count that the program waits here."""
        frame: Any = sys._getframe()
        while frame and not frame.f_globals.get("__name__", "").startswith("simcore."):
            frame = frame.f_back
        place = "the caller"
        if frame:
            function = frame.f_code.co_qualname.partition(".<locals>")[0]
            place = f"{frame.f_globals['__name__']}:{function}"
        self.waits[place.removeprefix("simcore.")] += 1

    def _operator(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        name = func.name().removeprefix("simcore::").partition(".")[0]
        if name in HOST:
            raise NotImplementedError(f"simcore::{name}: the table gives it to the host")
        self.operators[name] += 1
        with self:
            return func.redispatch(torch._C.DispatchKeySet(torch._C.DispatchKey.CUDA), *args)

    def launch(self, name: str, *args: Any) -> Any:
        """Run the kernel of the CPU in place of that of an operator."""
        self.kernels[name] += 1
        if name == "gram_terms":  # the CPU has it as a method of hsic_terms
            *given, max_memory, precision = args
            hsic = torch.ops.simcore.hsic_terms.default
            return self._run(hsic, (*given, "gram", max_memory, precision), {}, wrapped=True)
        if name == "small_svd":  # the CPU has none
            (m,) = args
            u, s, vt = torch.linalg.svd(m.values, full_matrices=False)
            return tuple(OnStandIn(t, self) for t in (u, s, vt.mT.contiguous()))
        result = self._run(getattr(torch.ops.simcore, name).default, args, {}, wrapped=True)
        if name == "attention_similarity":  # counts of rows come to the host with the errors
            return result[0], result[1].values
        return result

    def _run(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], *, wrapped: bool
    ) -> Any:
        outer = {id(t.values): t for t in tree_leaves((args, kwargs)) if isinstance(t, OnStandIn)}
        if torch.Tag.inplace_view in func.tags:
            with no_dispatch():  # the shape that C++ sees changes, too
                func(*args, **kwargs)
        args, kwargs = tree_map(_values, (args, kwargs))
        result = func(*args, **kwargs)
        # An operation in place gives the tensor that it was given.
        return tree_map(
            lambda t: (
                outer.get(id(t), OnStandIn(t, self) if wrapped else t)
                if isinstance(t, Tensor)
                else t
            ),
            result,
        )


def _values(given: Any) -> Any:
    return given.values if isinstance(given, OnStandIn) else given


@contextmanager
def stand_in_device(kernels: bool = True) -> Iterator[StandIn]:
    """Let ``cuda`` name the stand-in, whose ``kernels`` have passed their checks or failed them.

    Every kernel that passed was timed, and was the faster form.
    """
    torch._C._ensureCUDADeviceGuardSet()
    lifts = torch._C._only_lift_cpu_tensors()
    properties = SimpleNamespace(shared_memory_per_block_optin=227 << 10)
    mode = StandIn()
    verdict = verdicts.Verdict(
        {name: verdicts.Row(kernels, "", 1.0, 2.0) for name in choice.KERNELS}
    )
    launchers = {name: functools.partial(mode.launch, name) for name in choice.KERNELS}
    with ExitStack() as stack:
        for target, name, value in (
            (torch.cuda, "_lazy_init", lambda: None),
            (torch.cuda, "mem_get_info", mode.free_memory),
            (torch.cuda, "memory_reserved", lambda device=None: 0),
            (torch.cuda, "memory_allocated", lambda device=None: 0),
            (torch.cuda, "get_device_properties", lambda device=None: properties),
            (verdicts, "known", lambda family, device: verdict),
            (choice, "_LAUNCHERS", launchers),
        ):
            stack.enter_context(mock.patch.object(target, name, value))
        future = torch.__future__  # a module gets new parameters there, as tensor subclasses need
        replaces = future.get_overwrite_module_params_on_conversion()
        future.set_overwrite_module_params_on_conversion(True)
        stack.callback(future.set_overwrite_module_params_on_conversion, replaces)
        torch._C._set_only_lift_cpu_tensors(True)
        stack.callback(torch._C._set_only_lift_cpu_tensors, lifts)
        yield stack.enter_context(mode)
