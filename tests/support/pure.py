"""Tests that cannot pass where operations of torch compute on the CPU, with the reason."""

CHECKED_IN_CPP = "arguments of operators that are called directly are checked in C++"

# By the beginning of a test's id below tests/.
NEEDS_KERNELS = {
    "grid/test_operators.py::test_direct_calls": CHECKED_IN_CPP,
    "grid/test_operators.py::test_the_other_side_and_the_memory_are_checked": CHECKED_IN_CPP,
    "grid/test_operators.py::test_multiple_correlations_need_layers": CHECKED_IN_CPP,
    "neurons/test_composed.py::test_direct_calls": CHECKED_IN_CPP,
    "hsic/test_plan.py::test_build_info_says": "nothing was compiled, and so no flags are known",
    "hsic/test_plan.py::test_auto_takes_the_method_that_fits": (
        "Gram matrices need less memory than products of features, because rows are read again"
    ),
}
