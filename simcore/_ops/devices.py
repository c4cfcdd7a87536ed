"""The table of what runs on a CUDA device; tests compare it with the registrations.

`docs/measures/devices.md` shows it, and a test compares the page with this table too.
"""

# Operators with kernels of their own (csrc/torch/<family>_cuda.cpp).
CUDA_KERNELS = (
    "gram_terms",
    "small_svd",
    "best_partners",
    "multiple_correlations",
    "attention_similarity",
    "affine_coupling",
    "affine_coupling_backward",
)
# Operators that are operations of torch there (this folder).
CUDA_COMPOSED = (
    "hsic_terms",
    "permuted_gram_products",
    "gram_power_sums",
    "median_squared_distances",
    "uniformity",
    "mean_rows",
    "principal_components",
    "nuclear_norms",
    "pwcca",
    "standardised_rows",
    "rank_moments",
    "nearest_rows",
    "list_similarity",
    "second_order_similarity",
    "cknna_terms",
    "match_neurons",
    "aligned_cosines",
)
# Operators of the host: assignments of neurons, from products that the device has computed.
HOST = ("best_assignments",)
# Public functions, and the operators that each of them calls.
CALLS = {
    "cka_grid, hsic_grid": (
        "hsic_terms",
        "gram_terms",
    ),
    "cca_grid, svcca_grid": ("principal_components", "nuclear_norms"),
    "pwcca_grid": ("principal_components", "pwcca", "small_svd"),
    "linreg_grid": ("principal_components", "hsic_terms", "gram_terms"),
    "procrustes_grid": ("principal_components", "nuclear_norms"),
    "neuronsim_grid": ("best_partners",),
    "mixedsim_grid": ("principal_components", "multiple_correlations"),
    "rsa_grid, Pearson": ("standardised_rows", "hsic_terms", "gram_terms"),
    "rsa_grid, Spearman": ("rank_moments",),
    "neighbours, knn_grid": ("nearest_rows", "list_similarity", "second_order_similarity"),
    "cknna_grid": ("nearest_rows", "cknna_terms"),
    "matching_grid": ("match_neurons",),
    "aligned_cosine_grid": ("aligned_cosines",),
    "imd_grid": ("nearest_rows",),
    "distance_correlation_grid, rsm_difference_grid": (
        "hsic_terms",
        "gram_terms",
    ),
    "rsm_difference_grid, spectral": (),
    "gulp_grid, eigenspace_overlap_grid": ("principal_components", "hsic_terms", "gram_terms"),
    "descriptors, descriptor_grid": ("uniformity", "mean_rows"),
    "cosine_grid, disagreement_grid, output_divergence_grid": (),
    "attention_grid": ("attention_similarity",),
    "nn.CouplingINN, align.INNAligner": ("affine_coupling", "affine_coupling_backward"),
    "stats.permutation_test, CKA": (
        "permuted_gram_products",
        "gram_power_sums",
        "median_squared_distances",
        "hsic_terms",
        "gram_terms",
    ),
    "stats.bootstrap_ci, CKA": ("permuted_gram_products", "median_squared_distances"),
}
# Functions of which `hsic_terms` hands every call on to `gram_terms`: its kernels are of distances.
KERNELS_ALONE = ("distance_correlation_grid, rsm_difference_grid",)


def markdown() -> str:
    """Return the table of public functions and what computes them on each device."""
    lines = ["| function | CPU | CUDA |", "|---|---|---|"]
    for function, operators in CALLS.items():
        composed = any(name in CUDA_COMPOSED for name in operators)
        if composed and function not in KERNELS_ALONE:
            kernels = any(name in CUDA_KERNELS for name in operators)
            on_cuda = "torch's operations" + (" and kernels" if kernels else "")
        else:
            on_cuda = "kernels" if operators else "torch's operations"
        on_cpu = "kernels" if operators else "torch's operations"
        lines.append(f"| {_named(function)} | {on_cpu} | {on_cuda} |")
    return "\n".join(lines) + "\n"


def _named(function: str) -> str:
    return ", ".join(
        f"`{name}`" if "_" in name or "." in name or name in ("descriptors", "neighbours") else name
        for name in function.split(", ")
    )
