"""Results of statistics in one line."""

import torch


def described(result: object, names: tuple[str, ...]) -> str:
    """Return the class of a result, the shape of its grids, and the range of some of them."""
    grids = [torch.as_tensor(getattr(result, name)) for name in names]
    rows, columns = grids[0].shape
    ranges = [f"{name} {_range(grid.flatten())}" for name, grid in zip(names, grids, strict=True)]
    return f"{type(result).__name__}({rows} x {columns} pairs: {', '.join(ranges)})"


def _range(values: torch.Tensor) -> str:
    known = values[~values.isnan()]
    if not len(known):
        return "nan"
    low, high = known.min().item(), known.max().item()
    return f"{low:.3g}" if low == high else f"{low:.3g} to {high:.3g}"
