"""`plan_cka` and `build_info`: what would be done, and what was built."""

import numpy as np
import pytest
import torch

from simcore import build_info, cka_grid, free_memory, plan_cka
from support.cases import KERNELS

MB = 2**20


def shapes(count, n, width, dtype=torch.float32):
    """Layers of which only the shape matters: one column in memory, whatever they claim."""
    return [torch.zeros(1, 1, dtype=dtype).expand(n, width)] * count


def gram_flops(n, widths):
    """Half of the products of n x n Grams, half of the pairs' inner products, two flops each."""
    pairs = len(widths) * (len(widths) + 1) // 2
    return n * n * sum(widths) + n * n * pairs


def feature_flops(n, widths):
    """All p_i x p_j blocks with i < j, and half of those with i = j, two flops each."""
    return n * sum(widths) ** 2


@pytest.mark.parametrize(("count", "n", "width"), [(13, 1600, 768), (1, 100, 3), (325, 1600, 768)])
def test_flops_of_x_with_itself(count, n, width):
    x = shapes(count, n, width)
    assert plan_cka(x, method="gram").flops == gram_flops(n, [width] * count)
    assert plan_cka(x, method="feature").flops == feature_flops(n, [width] * count)


def test_flops_of_ragged_widths():
    x = [layer for width in (7, 1, 30) for layer in shapes(1, 500, width)]
    assert plan_cka(x, method="gram").flops == gram_flops(500, [7, 1, 30])
    assert plan_cka(x, method="feature").flops == feature_flops(500, [7, 1, 30])


def test_flops_of_x_with_y():
    x, y, n = shapes(4, 900, 32), shapes(3, 900, 20), 900
    widths = 4 * 32 + 3 * 20
    assert plan_cka(x, y, method="gram").flops == n * n * (widths + 4 * 3 + 4 + 3)
    want = n * (2 * (4 * 32) * (3 * 20) + 4 * 32**2 + 3 * 20**2)
    assert plan_cka(x, y, method="feature").flops == want


@pytest.mark.parametrize(("count", "width"), [(13, 768), (52, 768), (4, 16), (1, 64)])
def test_the_path_changes_where_the_costs_cross(count, width):
    crossing = count * width / (1 + (count + 1) / (2 * width))
    below, above = int(0.98 * crossing), int(1.02 * crossing) + 1
    assert plan_cka(shapes(count, below, width)).method == "gram"
    assert plan_cka(shapes(count, above, width)).method == "feature"


def test_auto_takes_the_cheaper_of_both():
    for n in (50, 500, 5000, 50_000):
        x = shapes(5, n, 100)
        flops = {m: plan_cka(x, method=m).flops for m in ("auto", "gram", "feature")}
        assert flops["auto"] == min(flops["gram"], flops["feature"])


@pytest.mark.parametrize("n", [10, 100_000])
def test_rbf_has_no_feature_form(n):
    assert plan_cka(shapes(3, n, 4), kernel="rbf", max_memory=512 * MB).method == "gram"


@pytest.mark.parametrize("method", ["gram", "feature"])
def test_a_method_that_was_asked_for_is_taken(method):
    for n in (10, 10_000):
        assert plan_cka(shapes(3, n, 64), method=method).method == method


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("limit", [64 * MB, 512 * MB, 2048 * MB])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize(("count", "n"), [(13, 1600), (13, 20_000), (325, 1600)])
def test_workspace_stays_below_max_memory(count, n, dtype, limit, kernel):
    try:
        plan = plan_cka(shapes(count, n, 768, dtype), kernel=kernel, max_memory=limit)
    except ValueError as refusal:
        # What does not fit is refused with the least that would, and that least is enough.
        least = int(str(refusal).split("at least ")[1].split()[0])
        assert limit < least
        plan = plan_cka(shapes(count, n, 768, dtype), kernel=kernel, max_memory=least)
        limit = least
    assert 0 < plan.workspace_bytes <= limit
    assert plan.max_memory == limit


def test_the_jobs_that_were_promised_fit():
    for count, n, limit in [(325, 1600, 512 * MB), (325, 4000, 1024 * MB), (13, 20_000, 1024 * MB)]:
        assert plan_cka(shapes(count, n, 768), max_memory=limit).workspace_bytes <= limit


def test_default_limit_is_a_quarter_of_what_is_free():
    limit, free = plan_cka(shapes(2, 10, 3)).max_memory, free_memory()
    assert free / 8 < limit < free / 2  # other processes come and go


def test_no_more_memory_is_free_than_the_machine_has():
    """What control groups leave of it is tested in tests/cpp/test_memory.cpp."""
    with open("/proc/meminfo") as lines:
        total = next(int(line.split()[1]) * 1024 for line in lines if "MemTotal" in line)
    assert 0 < free_memory() < total
    assert 0 < free_memory(torch.device("cpu")) < total


def test_a_plan_can_be_printed():
    plan = plan_cka(shapes(3, 100, 16), max_memory=64 * MB)
    text = str(plan)
    for part in (plan.method, f"workspace_bytes={plan.workspace_bytes}", "flops=", "tile="):
        assert part in text


def test_a_plan_reads_shapes_only():
    """It takes no time whatever the size, and sees no NaN."""
    x = [np.broadcast_to(np.float32("nan"), (50_000, 4096))] * 40
    assert plan_cka(x, max_memory=4096 * MB).flops > 0


def test_a_plan_of_halves_counts_float32_tiles():
    half, single = (plan_cka(shapes(4, 500, 64, d)) for d in (torch.float16, torch.float32))
    assert half.workspace_bytes == single.workspace_bytes
    assert plan_cka(shapes(4, 500, 64, torch.float64)).workspace_bytes > single.workspace_bytes


def test_build_info_says_what_was_built():
    info = build_info()
    assert info["torch"] == torch.__version__
    assert isinstance(info["cuda"], bool)
    assert info["flags"]
    assert info["version"]
    if not info["cuda"]:
        assert not info["cuda_architectures"]
        with pytest.raises(ValueError, match="cpu"):
            cka_grid([torch.empty(4, 3, device="meta")])


def least_memory(layers, method):
    """The smallest `max_memory` that the method can work in; it depends on the processor."""
    low, high = 1, 2**40
    while low < high:
        middle = (low + high) // 2
        try:
            plan_cka(layers, method=method, max_memory=middle)
        except ValueError:
            low = middle + 1
        else:
            high = middle
    return low


def test_auto_takes_the_method_that_fits():
    many = np.zeros((100, 2000, 768), np.float32)
    gram, feature = (least_memory(many, method) for method in ("gram", "feature"))
    assert feature < gram
    assert plan_cka(many).method == plan_cka(many, max_memory=gram).method == "gram"
    for tight in (feature, gram - 1):
        plan = plan_cka(many, max_memory=tight)
        assert plan.method == "feature"
        assert plan.workspace_bytes <= tight
