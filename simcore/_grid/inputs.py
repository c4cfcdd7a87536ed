"""Arrays as torch tensors, the checks of their shapes, devices and entries, and groups of rows."""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

Array = np.ndarray | Tensor
Layers = Sequence[Array] | Mapping[str, Array] | Array
Record = TypeVar("Record")
BLOCK_ENTRIES = 2**16  # entries of a layer that are read or copied at a time
DEVICE_BLOCK_ENTRIES = 2**22  # the same on a CUDA device, where every block is a kernel launch
# The least number of rows for each purpose.
LEAST_ROWS = {
    "variance": 2,  # a single row has no variance
    "biased": 2,  # the biased estimator of HSIC divides by (n - 1)^2
    "unbiased": 4,  # the unbiased estimator divides by n (n - 3)
    "dissimilarities": 3,  # two rows have one dissimilarity, which has no variance
    "fit and holdout": 4,  # two rows to fit to, and two rows to judge the fit on
}
KNOWN_DEVICES = ("cpu", "cuda")
Groups = Sequence[int] | np.ndarray | Tensor


def listed(layers: Any) -> Any:
    """Return the values of a dictionary, or of any other iterable that is no array, as a list."""
    if layers is None or isinstance(layers, int | float | str):
        return layers
    if isinstance(layers, Mapping):
        return list(layers.values())
    if isinstance(layers, Tensor | Sequence) or hasattr(layers, "__array__"):
        return layers
    return list(layers) if isinstance(layers, Iterable) else layers


def records_among(layers: object, name: str, kind: type[Record]) -> list[Record] | None:
    """Return the layers if all are of this kind, None if none is; a mixture is a TypeError."""
    if not isinstance(layers, Sequence):
        return None
    records = [layer for layer in layers if isinstance(layer, kind)]
    if records and len(records) < len(layers):
        i = next(i for i, layer in enumerate(layers) if not isinstance(layer, kind))
        raise TypeError(
            f"{name}[{i}]: wanted {kind.__name__} like the other layers, got "
            f"{type(layers[i]).__name__}"
        )
    return records or None


class NoLayersError(ValueError):
    """An argument of a grid holds no layers; its options were found good before."""


def as_tensor(layer: object, name: str) -> Tensor:
    """Return an array as a dense floating-point tensor that shares its memory."""
    tensor = _view_as_tensor(layer, name)
    _refuse_nested(tensor, name)
    if not tensor.is_floating_point():
        remedy = ".dequantize" if tensor.is_quantized else ".float"
        remedy = "" if tensor.is_complex() else f", as `{remedy}()` gives it"
        raise TypeError(f"{name}: wanted a floating-point dtype{remedy}, got {tensor.dtype}")
    if tensor.dtype not in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        raise TypeError(f"{name}: wanted float16, bfloat16, float32 or float64, got {tensor.dtype}")
    if tensor.layout != torch.strided:
        raise TypeError(f"{name}: wanted a dense tensor, got layout {tensor.layout}")
    return tensor


def _view_as_tensor(layer: object, name: str) -> Tensor:
    if isinstance(layer, Tensor):
        return layer
    if not isinstance(layer, np.ndarray):
        if not hasattr(layer, "__array__"):
            if hasattr(layer, "__dlpack__"):
                return torch.utils.dlpack.from_dlpack(layer)
            kind = type(layer).__name__
            raise TypeError(f"{name}: wanted a torch tensor or numpy array, got {kind}")
        layer = np.asarray(layer)
    if isinstance(layer, np.ma.MaskedArray):
        raise TypeError(f"{name}: wanted a plain numpy array, got a masked one")
    if layer.dtype not in (np.float16, np.float32, np.float64):
        remedy = ", as `.astype('float32')` gives it" if layer.dtype.kind in "biu" else ""
        raise TypeError(
            f"{name}: wanted a floating-point dtype of 16, 32 or 64 bits{remedy}, got {layer.dtype}"
        )
    if not layer.dtype.isnative:
        raise TypeError(f"{name}: wanted native byte order, got {layer.dtype.str}")
    if any(stride % layer.itemsize or stride < 0 for stride in layer.strides):
        layer = layer.copy()  # torch has no strides that are negative or no multiples of an entry
    if layer.flags.writeable:
        return torch.from_numpy(layer)
    with warnings.catch_warnings():  # torch warns that read-only memory could be written
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(layer)


def _refuse_nested(tensor: Tensor, name: str) -> None:
    if tensor.is_nested and tensor.layout == torch.strided:
        raise TypeError(
            f"{name}: wanted a dense tensor, got a nested one; `.unbind()` gives its parts"
        )


def as_layers(layers: Layers, name: str) -> tuple[list[Tensor], bool]:
    """Return layers as a list of 2-D tensors, and whether none of them was a torch tensor."""
    # The tensors share the memory of the arrays. ``layers`` is a sequence of ``[n, p_i]`` arrays,
    # or one ``[L, n, p]`` array; if there are none, the error is a NoLayersError.
    if isinstance(layers, Tensor):
        _refuse_nested(layers, name)
    elif hasattr(layers, "__array__"):
        layers = np.asarray(layers)
    if isinstance(layers, Tensor | np.ndarray):
        if layers.ndim != 3:
            shape = tuple(layers.shape)
            hint = f" of one layer; [{name.lower()}] is a list of it" if layers.ndim == 2 else ""
            raise ValueError(
                f"{name}: wanted one [L, n, p] array or a list of layers, got shape {shape}{hint}"
            )
    elif not isinstance(layers, Sequence):
        raise TypeError(
            f"{name}: wanted a list or a dictionary of arrays, got {type(layers).__name__}"
        )
    if len(layers) == 0:
        raise NoLayersError(f"{name}: wanted at least one layer, got none")
    if isinstance(layers, Tensor | np.ndarray):  # looked at once, and not layer by layer
        tensors = list(as_tensor(layers, f"{name}[0]").unbind())
        _check_layer(tensors[0], f"{name}[0]")
        return tensors, not isinstance(layers, Tensor)
    tensors = [as_layer(layer, f"{name}[{i}]") for i, layer in enumerate(layers)]
    return tensors, not any(isinstance(layer, Tensor) for layer in layers)


def as_layer(layer: object, name: str) -> Tensor:
    tensor = as_tensor(layer, name)
    _check_layer(tensor, name)
    return tensor


def _check_layer(layer: Tensor, name: str) -> None:
    if layer.ndim != 2:
        raise ValueError(f"{name}: wanted shape [n, p], got {tuple(layer.shape)}")
    if layer.shape[1] == 0:
        raise ValueError(f"{name}: wanted at least 1 column, got shape {tuple(layer.shape)}")


def check_device(layer: Tensor, name: str) -> None:
    if layer.device.type not in KNOWN_DEVICES:
        wanted = " or ".join(KNOWN_DEVICES)
        raise ValueError(f"{name}: wanted device {wanted}, got {layer.device}")


def check_on_cpu(layer: Tensor, name: str, what: str) -> None:
    if layer.device.type != "cpu":
        raise ValueError(f"{name}: wanted device cpu for {what}, got {layer.device}")


def check_same_device(layer: Tensor, name: str, first: Tensor, first_name: str) -> None:
    if layer.device != first.device:
        raise ValueError(
            f"{name}: wanted device {first.device} as in {first_name}, got {layer.device}"
        )


def check_alike(layer: Tensor, name: str, first: Tensor, first_name: str) -> None:
    """Raise a ValueError unless ``layer`` has the n and the device of ``first``."""
    n = first.shape[0]
    if layer.shape[0] != n:
        raise ValueError(f"{name}: wanted n = {n} rows as in {first_name}, got {len(layer)}")
    check_same_device(layer, name, first, first_name)


def check_rows(
    layer: Tensor, name: str, least: int, purpose: str, error: type[ValueError] = ValueError
) -> None:
    if len(layer) < least:
        raise error(f"{name}: wanted at least {least} rows for {purpose}, got {len(layer)}")


def row_blocks(layer: Tensor) -> tuple[Tensor, ...]:
    entries = BLOCK_ENTRIES if layer.device.type == "cpu" else DEVICE_BLOCK_ENTRIES
    return layer.split(max(1, entries // layer.shape[1]))


def centred(layer: Tensor) -> Tensor:
    """Return the centred columns, float64; constant columns become exactly 0."""
    shifted = layer - layer[0].detach().double()
    return shifted.sub_(shifted.mean(0))


def on_host(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return tensors of one dtype on the CPU: one synchronisation for all; derivatives are kept."""
    if all(tensor.device.type == "cpu" for tensor in tensors):
        return list(tensors)
    flat = torch.cat([tensor.flatten() for tensor in tensors]).cpu()
    parts = flat.split([tensor.numel() for tensor in tensors])
    return [part.view(tensor.shape) for part, tensor in zip(parts, tensors, strict=True)]


def check_finite(layers: Sequence[Tensor], name: str) -> None:
    if layers and layers[0].device.type != "cpu":
        # One launch a layer: a sum is finite unless an entry is not, or it overflows.
        wide = torch.float64 if any(x.dtype == torch.float64 for x in layers) else torch.float32
        if torch.stack([x.detach().sum(dtype=wide) for x in layers]).isfinite().all():
            return
    finite_of_layers = [_finite_entries(layer) for layer in layers]
    # One synchronisation with the device for all layers.
    counts = torch.stack(finite_of_layers).tolist() if layers else []
    for i, (layer, finite) in enumerate(zip(layers, counts, strict=True)):
        if finite < layer.numel():
            raise ValueError(
                f"{name}[{i}]: wanted finite values, got {layer.numel() - finite} NaN or infinite "
                f"of {layer.numel()}"
            )


def check_finite_count(finite: Tensor, total: int, name: str) -> None:
    """Raise a ValueError unless all ``total`` entries are finite; ``finite`` is their number."""
    # Where torch traces the program, the compiled code raises a RuntimeError when it runs.
    if torch.compiler.is_compiling():
        torch._assert_async(finite == total, f"{name}: wanted finite values, got NaN or infinite")
    elif finite < total:
        raise ValueError(
            f"{name}: wanted finite values, got {total - int(finite)} NaN or infinite of {total}"
        )


def _finite_entries(layer: Tensor) -> Tensor:
    # A sum is one pass without copies; it is finite unless an entry is not, or it overflows.
    summable = layer.device.type == "cpu" and layer.dtype in (torch.float32, torch.float64)
    if summable and layer.detach().sum().isfinite():
        return torch.tensor(layer.numel(), device=layer.device)
    return torch.stack([torch.isfinite(block).sum() for block in row_blocks(layer)]).sum()


def group_numbers(groups: Groups | None, n: int, name: str = "groups") -> np.ndarray | None:
    """Return the number of the group of every row, from 0 in the order of their first rows."""
    if groups is None:
        return None
    values = groups.detach().cpu().numpy() if isinstance(groups, Tensor) else np.asarray(groups)
    if values.dtype.kind not in "iu":
        raise TypeError(f"{name}: wanted whole numbers, got {values.dtype}")
    if values.shape != (n,):
        raise ValueError(f"{name}: wanted one number for each of {n} rows, got {values.shape}")
    _, first, inverse = np.unique(values, return_index=True, return_inverse=True)
    if len(first) == n:
        return None
    rank = np.empty_like(first)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[inverse]
