"""The float32 precision of products, chosen through each of torch's interfaces."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

PRODUCTS = (torch.backends.cuda.matmul, torch.backends.mkldnn.matmul)


def _of_products() -> None:
    for product in PRODUCTS:
        product.fp32_precision = "tf32"


def _of_everything() -> None:
    torch.backends.fp32_precision = "tf32"


def _of_cuda_devices() -> None:
    torch.backends.cuda.matmul.allow_tf32 = True


LOWER = {
    "set_float32_matmul_precision": lambda: torch.set_float32_matmul_precision("medium"),
    "matmul.fp32_precision": _of_products,
    "backends.fp32_precision": _of_everything,
}
ON_CUDA = {"allow_tf32": _of_cuda_devices}  # products of the CPU stay in full float32


@contextmanager
def lower_precision(interface: str) -> Iterator[None]:
    """Choose low precision through one of `LOWER` or `ON_CUDA`, then that of a fresh program."""
    (LOWER | ON_CUDA)[interface]()
    try:
        yield
    finally:
        torch.backends.fp32_precision = "none"
        torch.set_float32_matmul_precision("highest")
        for product in PRODUCTS:
            product.fp32_precision = "none"


def precisions() -> list[str]:
    """Return what every product is computed with."""
    return [product.fp32_precision for product in PRODUCTS]
