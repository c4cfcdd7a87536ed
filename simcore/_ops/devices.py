"""The table of what runs on a CUDA device; tests compare it with the registrations.

`docs/measures/devices.md` shows it.
"""

from collections.abc import Sequence

from simcore._measures import MEASURES, MODULES

# Operators with kernels of their own (csrc/torch/<family>_cuda.cpp); others are operations of torch
# there (this folder).
CUDA_KERNELS = (
    "gram_terms",
    "small_svd",
    "attention_similarity",
    "affine_coupling",
    "affine_coupling_backward",
)
# Operators that are operations of torch on every device.
COMPOSED = ("best_partners", "multiple_correlations", "match_neurons")
# Operators of the host: assignments of neurons, from products that the device has computed.
HOST = ("best_assignments",)
# Operators of public names beside the grids, which are in the records of the measures.
CKA_TEST, CKA_INTERVAL = "stats.permutation_test", "stats.bootstrap_ci"
OTHERS: dict[str, tuple[str, ...]] = {
    "bases": ("principal_components",),
    "neighbours": ("nearest_rows",),
    "descriptors": ("uniformity", "mean_rows"),
    "nn.CouplingINN": ("affine_coupling", "affine_coupling_backward"),
    "align.INNAligner": ("affine_coupling", "affine_coupling_backward"),
    CKA_TEST: (
        "permuted_gram_products",
        "gram_power_sums",
        "median_squared_distances",
        "hsic_terms",
        "gram_terms",
    ),
    CKA_INTERVAL: (
        "permuted_gram_products",
        "median_squared_distances",
        "hsic_terms",
        "gram_terms",
    ),
}


def markdown() -> str:
    """Return the table of public functions and what computes them on each device."""
    lines = ["| function | CPU | CUDA |", "|---|---|---|"]
    for (function, option), operators in _grids().items():
        # `hsic_terms` of distances hands every call on to `gram_terms`, which has kernels for them.
        kernels_alone = MODULES[function] == "distances"
        lines.append(_line(function, option, operators, kernels_alone))
    for name, operators in OTHERS.items():
        lines.append(_line(name, "CKA" if name in (CKA_TEST, CKA_INTERVAL) else "", operators))
    return "\n".join(lines) + "\n"


def _grids() -> dict[tuple[str, str], list[str]]:
    """Return the operators by grid function, and by option where one calls other operators."""
    grids: dict[tuple[str, str], list[str]] = {}
    for measure in MEASURES.values():
        operators = grids.setdefault((measure.function, ""), [])
        operators += [name for name in measure.operators if name not in operators]
        for variant in measure.variants:
            own = variant.operators
            if own is not None and (not own or not set(own) <= set(operators)):
                (option,) = variant.options.values()
                grids[measure.function, str(option)] = list(own)
    return grids


def _line(name: str, option: str, operators: Sequence[str], kernels_alone: bool = False) -> str:
    composed = any(name not in (*CUDA_KERNELS, *HOST) for name in operators)
    on_cpu = on_cuda = "kernels" if {*operators} - {*COMPOSED} else "torch's operations"
    if composed and not kernels_alone:
        kernels = any(name in CUDA_KERNELS for name in operators)
        on_cuda = "torch's operations" + (" and kernels" if kernels else "")
    return f"| `{name}`{', ' if option else ''}{option} | {on_cpu} | {on_cuda} |"
