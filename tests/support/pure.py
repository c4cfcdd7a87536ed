"""Tests that cannot pass where operations of torch compute on the CPU, with the reason."""

CHECKED_IN_CPP = "arguments of operators that are called directly are checked in C++"
IN_ANOTHER_ORDER = "the order in which torch adds depends on strides and threads"
NO_REFUSAL = "their operations of torch cut tiles down to one pair, and refuse no bound"
LIMIT = "grid/test_inputs.py::test_memory_limit_does_not_matter"
OTHER_SIDE = "grid/test_operators.py::test_the_other_side_and_the_memory_are_checked"
THREADS = "attention/test_inputs.py::test_repetition_and_threads_are_bit_equal"

# By the beginning of a test's id below tests/.
NEEDS_KERNELS = {
    "grid/test_operators.py::test_direct_calls": CHECKED_IN_CPP,
    f"{OTHER_SIDE}[nuclear_norms]": CHECKED_IN_CPP,
    "neurons/test_matching.py::test_direct_calls": CHECKED_IN_CPP,
    "neurons/test_matching.py::test_operators": CHECKED_IN_CPP,
    "rsa/test_rsa.py::test_direct_calls_are_checked": CHECKED_IN_CPP,
    "coupling/test_errors.py::test_message_of_the_operators[integers]": CHECKED_IN_CPP,
    "coupling/test_errors.py::test_message_of_the_operators[grad": CHECKED_IN_CPP,
    "attention/test_errors.py::test_message_of_the_operator[words of a batch]": CHECKED_IN_CPP,
    "coupling/test_accuracy.py::test_strides_change_no_bit[transposed": IN_ANOTHER_ORDER,
    "coupling/test_accuracy.py::test_strides_change_no_bit[batches last": IN_ANOTHER_ORDER,
    f"{THREADS}[True-torch.float32-pearson]": IN_ANOTHER_ORDER,
    f"{THREADS}[True-torch.float64-pearson]": IN_ANOTHER_ORDER,
    f"{LIMIT}[aligned-cosine]": NO_REFUSAL,
    f"{LIMIT}[concentricity]": NO_REFUSAL,
    f"{LIMIT}[magnitude]": NO_REFUSAL,
    f"{LIMIT}[uniformity]": NO_REFUSAL,
    "hsic/test_composed.py::test_the_device_takes_the_form_of_fewer_flops": (
        "operators of the CPU are called too where it stands in for a device"
    ),
    "hsic/test_plan.py::test_build_info_says": "nothing was compiled, and so no flags are known",
    "hsic/test_plan.py::test_auto_takes_the_method_that_fits": (
        "Gram matrices need less memory than products of features, because rows are read again"
    ),
}
