// hsic_terms of csrc/cuda on the host against plain double loops: cuda_host/ runs the kernels and
// the launch sequence as they are, also under the address and thread sanitizers.
//
// Mutations of a scratch copy that these tests were seen to catch
//   by wrong values     either barrier of histogram, the barriers in finish_centring's loop and in
//                       add_self_sums, `i < j` and `j < n` in gram_tiles, the edges of contract, a
//                       step of warp_sum, the column half of add_row_sums
//   ThreadSanitizer     finish_centring's barrier after the loop, the barrier of pick_bin
//   AddressSanitizer    the width check of column_sums, the check of valid rows in pack_rows, the
//                       last warps of finish_pairs and finish_selves
// test_product.cpp lists the mutations of the products.
#include "cuda/hsic/hsic.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <memory>

#include "../check.h"
#include "../naive.h"
#include "cuda_runtime.h"
#include "mma_host.h"

using naive::DType;
using simcore::Estimator;
using simcore::KernelKind;
using simcore::cuda::Device;
using simcore::cuda::DeviceHsicProblem;
using simcore::cuda::HsicPlan;
using simcore::cuda::kUnresolved;
using simcore::cuda::make_plan;
using simcore::cuda::Precision;
using simcore::cuda::Variant;

namespace {

const std::vector<int64_t> kRagged = {1, 33, 129};
constexpr int64_t kPlenty = int64_t(1) << 40;
const naive::Shape kFloat32{DType::f32, 0, 1, naive::Order::rows};

struct Result {
  std::vector<double> xy, xx, yy;
  std::vector<int64_t> nonfinite;
};

using Layers = std::vector<naive::Layer>;

DeviceHsicProblem make_problem(const Layers& x, const Layers& y, KernelKind kernel,
                               Estimator estimator) {
  DeviceHsicProblem problem;
  problem.n = x[0].n;
  problem.x = naive::views(x);
  problem.y = naive::views(y);
  problem.kernel = kernel;
  problem.estimator = estimator;
  problem.variant = Variant::plain;
  return problem;
}

// Output that the kernels leave untouched is nan, which no comparison passes.
Result compute(const DeviceHsicProblem& problem, const HsicPlan& plan) {
  const size_t x = problem.x.size(), y = problem.y.empty() ? x : problem.y.size();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  Result r{std::vector<double>(x * y, nan), std::vector<double>(x, nan),
           std::vector<double>(y, nan), std::vector<int64_t>(x + problem.y.size(), -1)};
  const size_t bytes = size_t(plan.workspace_bytes);
  const std::unique_ptr<void, void (*)(void*)> workspace(
      std::aligned_alloc(256, (bytes + 255) / 256 * 256), std::free);
  std::memset(workspace.get(), 0xff, bytes);  // nan, too
  hsic_terms(problem, plan, workspace.get(),
             {r.xy.data(), r.xx.data(), r.yy.data(), r.nonfinite.data()}, nullptr);
  return r;
}

Result compute(const DeviceHsicProblem& problem, int64_t l2_bytes = 1 << 20) {
  return compute(problem, make_plan(problem, Device{3, l2_bytes}, kPlenty));
}

// The self- and cross-HSIC of all layers, by plain loops in T.
template <typename T>
Result plain_loops(const Layers& x, const Layers& y, const DeviceHsicProblem& problem) {
  const int64_t n = problem.n;
  const auto hsic = naive::estimator<T>(problem.estimator);
  std::vector<std::vector<T>> k, l;
  for (const auto& layer : x) k.push_back(naive::gram<T>(layer, problem.kernel, problem.bandwidth));
  for (const auto& layer : y) l.push_back(naive::gram<T>(layer, problem.kernel, problem.bandwidth));
  if (y.empty()) l = k;
  Result r;
  for (const auto& a : k) {
    r.xx.push_back(hsic(a, a, n));
    for (const auto& b : l) r.xy.push_back(hsic(a, b, n));
  }
  for (const auto& b : l) r.yy.push_back(hsic(b, b, n));
  return r;
}

// The bound of the tests on a device (`allowed` in tests/support/tolerance.py).
void compare_values(const std::vector<double>& got, const std::vector<double>& want,
                    const std::vector<double>& in_float) {
  double largest = 0, naive_error = 0;
  for (size_t i = 0; i < want.size(); i++) {
    largest = std::max(largest, std::fabs(want[i]));
    naive_error = std::max(naive_error, std::fabs(in_float[i] - want[i]));
  }
  const double bound = 2 * naive_error + 16 * 0x1p-23 * largest;
  for (size_t i = 0; i < want.size(); i++) CHECK_NEAR(got[i], want[i], bound);
}

void compare(const Result& result, const Layers& x, const Layers& y,
             const DeviceHsicProblem& problem) {
  const Result want = plain_loops<double>(x, y, problem), naive = plain_loops<float>(x, y, problem);
  compare_values(result.xy, want.xy, naive.xy);
  compare_values(result.xx, want.xx, naive.xx);
  compare_values(result.yy, want.yy, naive.yy);
  for (const int64_t count : result.nonfinite) CHECK(count == 0);
}

void check_grid(const Layers& x, const Layers& y, KernelKind kernel, Estimator estimator) {
  check::context = "n " + std::to_string(x[0].n) + ", dtype " + std::to_string(int(x[0].dtype)) +
                   ", kernel " + std::to_string(int(kernel)) + ", estimator " +
                   std::to_string(int(estimator)) + (y.empty() ? "" : ", cross");
  const DeviceHsicProblem problem = make_problem(x, y, kernel, estimator);
  compare(compute(problem), x, y, problem);
}

constexpr KernelKind kKernels[] = {KernelKind::linear, KernelKind::rbf, KernelKind::distance};
constexpr Estimator kEstimators[] = {Estimator::biased, Estimator::unbiased, Estimator::product};

bool same_bits(const std::vector<double>& a, const std::vector<double>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0;
}

}  // namespace

TEST(grids_match_the_definition) {
  for (const KernelKind kernel : kKernels)
    for (const Estimator estimator : kEstimators) {
      const bool cross = (kernel == KernelKind::rbf) == (estimator == Estimator::biased);
      if (check::kOneCase && !cross) continue;
      check_grid(naive::make_layers(4, kRagged, 1, kFloat32), {}, kernel, estimator);
      // Two tiles a side, the second ragged.
      const naive::Shape shape{DType::f32, 3, 1, naive::Order::rows};
      check_grid(naive::make_layers(71, kRagged, 1, shape),
                 cross ? naive::make_layers(71, {33, 2}, 50, shape) : Layers(), kernel, estimator);
    }
}

TEST(the_smallest_sizes_and_whole_tiles) {
  for (const KernelKind kernel : kKernels)
    for (const int64_t n : {2, 3, 64}) {
      if (check::kOneCase && n != 3) continue;
      const naive::Shape shape = kFloat32;
      check_grid(naive::make_layers(n, {3}, 1, shape), {}, kernel, Estimator::biased);
    }
}

TEST(half_precisions_offsets_and_any_strides) {
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32})
    for (const naive::Order order : {naive::Order::columns, naive::Order::reversed}) {
      if (check::kOneCase && dtype != DType::f16) continue;
      const naive::Shape shape{dtype, dtype == DType::f32 ? 1000.0 : 3.0, 30, order};
      check_grid(naive::make_layers(33, {3, 65}, 1, shape), {},
                 order == naive::Order::columns ? KernelKind::linear : KernelKind::rbf,
                 Estimator::unbiased);
    }
}

TEST(more_layers_than_a_tile_of_pairs_holds) {
  const naive::Shape shape{DType::f32, 1, 1, naive::Order::rows};
  const Layers x = naive::make_layers(5, std::vector<int64_t>(65, 2), 1, shape);
  if (!check::kOneCase) check_grid(x, {}, KernelKind::linear, Estimator::biased);
  check_grid(x, naive::make_layers(5, {3, 1}, 100, shape), KernelKind::linear, Estimator::biased);
}

TEST(workspace_order_of_blocks_and_repetition) {
  const naive::Shape shape{DType::f32, 10, 1, naive::Order::rows};
  const Layers x = naive::make_layers(101, {33, 5}, 1, shape);
  for (const KernelKind kernel : kKernels) {
    if (check::kOneCase && kernel == KernelKind::linear) continue;
    check::context = "kernel " + std::to_string(int(kernel));
    const DeviceHsicProblem problem = make_problem(x, {}, kernel, Estimator::unbiased);
    const HsicPlan wide = make_plan(problem, Device{3, 1 << 20}, kPlenty);
    // Nearly the smallest workspace: rows come in blocks, tiles or layers one by one.
    int64_t bytes = wide.workspace_bytes;
    while (
        check::message_of([&] { make_plan(problem, Device{3, 1 << 20}, bytes / 8 * 7); }).empty())
      bytes = bytes / 8 * 7;
    const HsicPlan narrow = make_plan(problem, Device{3, 1 << 20}, bytes);
    CHECK(narrow.block_rows < wide.block_rows && narrow.workspace_bytes < wide.workspace_bytes);
    CHECK(wide.group_tiles > 1);
    const Result first = compute(problem, wide);
    compare(first, x, {}, problem);
    compare(compute(problem, narrow), x, {}, problem);
    for (const auto order : {cuda_host::Order::backwards, cuda_host::Order::random}) {
      cuda_host::order_of_blocks = order;
      CHECK(same_bits(first.xy, compute(problem, wide).xy));
    }
    cuda_host::order_of_blocks = cuda_host::Order::forwards;
  }
}

// RBF entries from distances that were kept are those of Grams that are formed again.
TEST(kept_distances_change_no_bit) {
  const Layers x = naive::make_layers(150, {33, 5}, 1, {DType::f32, 10, 1, naive::Order::rows});
  for (const Variant variant : {Variant::plain, Variant::tensor}) {
    if (check::kOneCase && variant == Variant::tensor) continue;
    check::context = "variant " + std::to_string(int(variant));
    DeviceHsicProblem problem = make_problem(x, {}, KernelKind::rbf, Estimator::unbiased);
    problem.variant = variant;
    HsicPlan kept = make_plan(problem, Device{3, 1 << 20}, kPlenty);
    HsicPlan formed = make_plan(problem, Device{3, 1 << 20}, kept.workspace_bytes - 1);
    CHECK(kept.keep_distances && !formed.keep_distances);
    CHECK(kept.block_rows == formed.block_rows && kept.group_tiles == formed.group_tiles);
    kept.group_tiles = formed.group_tiles = 2;
    kept.median_layers = 1;
    CHECK(same_bits(compute(problem, kept).xy, compute(problem, formed).xy));
  }
}

// Several tiles and groups of them, by products of tensor cores in full precision.
void check_tensor_grid(KernelKind kernel, Estimator estimator, size_t count_y) {
  const naive::Shape shape{DType::f32, 10, 1, naive::Order::rows};
  const Layers x = naive::make_layers(150, {3, 33}, 1, shape);
  const Layers y = naive::make_layers(150, std::vector<int64_t>(count_y, 5), 9, shape);
  check::context = "tensor, kernel " + std::to_string(int(kernel)) + ", estimator " +
                   std::to_string(int(estimator)) + ", y " + std::to_string(count_y);
  DeviceHsicProblem problem = make_problem(x, y, kernel, estimator);
  problem.variant = Variant::tensor;
  HsicPlan plan = make_plan(problem, Device{3, 1 << 20}, kPlenty);
  CHECK(plan.narrow && plan.group_tiles == 3);
  plan.group_tiles = 2;
  compare(compute(problem, plan), x, y, problem);
}

// One case passes every barrier.
TEST(grids_by_tensor_cores) {
  simcore::cuda::arrival_of_copies = simcore::cuda::Arrival::mixed;
  check_tensor_grid(KernelKind::rbf, Estimator::biased, 1);
  if (check::kOneCase) return;
  check_tensor_grid(KernelKind::linear, Estimator::unbiased, 0);
  check_tensor_grid(KernelKind::distance, Estimator::product, 1);
}

// More than 64 layers: Gram entries are contracted in tiles of 128 x 128 pairs.
TEST(many_layers_by_tensor_cores) {
  if (check::kOneCase) return;
  const Layers x = naive::make_layers(9, std::vector<int64_t>(66, 3), 1, kFloat32);
  DeviceHsicProblem problem = make_problem(x, {}, KernelKind::linear, Estimator::unbiased);
  problem.variant = Variant::tensor;
  simcore::cuda::arrival_of_copies = simcore::cuda::Arrival::mixed;
  const HsicPlan plan = make_plan(problem, Device{3, 1 << 20}, kPlenty);
  check::context = "tensor, 66 layers";
  CHECK(!plan.narrow);
  compare(compute(problem, plan), x, {}, problem);
}

// Products of float16 numbers alone are as far off as their 11 bits say, and no further.
TEST(medium_precision_by_tensor_cores) {
  const Layers x = naive::make_layers(20, {3, 33}, 1, {DType::f32, 3, 1, naive::Order::rows});
  check::context = "tensor";
  DeviceHsicProblem problem = make_problem(x, {}, KernelKind::rbf, Estimator::unbiased);
  problem.variant = Variant::tensor;
  problem.precision = Precision::single;
  simcore::cuda::arrival_of_copies = simcore::cuda::Arrival::mixed;
  const Result result = compute(problem);
  problem.variant = Variant::plain;
  const Result plain = compute(problem);
  // A unit of 11 bits, of what two layers could reach.
  for (size_t i = 0; i < plain.xy.size(); i++) {
    const double most = std::sqrt(plain.xx[i / 2] * plain.xx[i % 2]);
    CHECK_NEAR(result.xy[i], plain.xy[i], 0x1p-11 * most);
  }
  CHECK(!same_bits(result.xy, plain.xy));
}

// Two entries, whose mean is 0, are so large that all others sink below the least float16 number:
// their distances, which the width is made of, would be rounding.
TEST(distances_that_pairs_do_not_resolve_are_told) {
  const auto with_outliers = [](double size) {
    Layers x = naive::make_layers(40, {5, 4}, 1, kFloat32);
    x[1].values[7 * 4 + 2] = size;
    x[1].values[8 * 4 + 2] = -size;
    naive::lay_out(x[1], naive::Order::rows);
    return x;
  };
  const Layers near = with_outliers(0x1p7), far = with_outliers(0x1p30);
  for (const Variant variant : {Variant::plain, Variant::tensor}) {
    if (check::kOneCase && variant == Variant::tensor) continue;
    DeviceHsicProblem problem = make_problem(near, {}, KernelKind::rbf, Estimator::biased);
    problem.variant = variant;
    check::context = "variant " + std::to_string(int(variant));
    compare(compute(problem), near, {}, problem);
    problem.x = naive::views(far);
    const Result result = compute(problem);
    CHECK(result.nonfinite[0] == 0 && result.nonfinite[1] == kUnresolved);
    CHECK(std::isfinite(result.xy[0]) && std::isnan(result.xy[1]) && std::isnan(result.xx[1]));
  }
}

// Two rows hold all squares: their Gram entry is 180,000 at a root mean square between 1 and 2,
// beyond float16's 65,504.
TEST(rows_far_out_stay_in_the_range_of_float16) {
  if (check::kOneCase) return;
  Layers x = naive::make_layers(127, {704, 710}, 1, kFloat32);
  for (naive::Layer& layer : x) {
    const size_t width = size_t(layer.view.width);
    for (size_t k = 0; k < layer.values.size(); k++)
      layer.values[k] = k < width ? 1e4 : k < 2 * width ? -1e4 : 0;
    naive::lay_out(layer, naive::Order::rows);
  }
  for (const KernelKind kernel : {KernelKind::linear, KernelKind::distance}) {
    check::context = "tensor, kernel " + std::to_string(int(kernel));
    DeviceHsicProblem problem = make_problem(x, {}, kernel, Estimator::product);
    problem.variant = Variant::tensor;
    compare(compute(problem), x, {}, problem);
  }
}

TEST(ties_and_coinciding_rows_of_the_median) {
  Layers x = naive::make_layers(20, {2, 2, 3}, 1, kFloat32);
  for (int64_t i = 0; i < 40; i++) {
    x[0].values[size_t(i)] = double(i / 2 % 3);       // few distinct distances
    x[1].values[size_t(i)] = i < 30 ? 1 : double(i);  // more than half of the pairs coincide
  }
  for (naive::Layer& layer : x) naive::lay_out(layer, naive::Order::rows);
  check::context = "";
  const DeviceHsicProblem problem = make_problem(x, {}, KernelKind::rbf, Estimator::biased);
  const Result result = compute(problem);
  CHECK(std::isnan(result.xx[1]) && std::isnan(result.xy[1]) && std::isnan(result.xy[5]));
  const auto k = naive::gram(x[0], KernelKind::rbf, 1), l = naive::gram(x[2], KernelKind::rbf, 1);
  CHECK_NEAR(result.xy[2], naive::hsic_biased(k, l, 20), 1e-8);
}

TEST(magnitudes_constant_layers_and_bad_entries) {
  for (const double magnitude : {1e-25, 1e25}) {
    Layers x = naive::make_layers(33, {31, 5}, 1, kFloat32);
    for (naive::Layer& layer : x) {
      for (double& value : layer.values) value *= magnitude;
      naive::lay_out(layer, naive::Order::rows);
    }
    check_grid(x, {}, KernelKind::linear, Estimator::biased);
  }
  Layers x = naive::make_layers(33, {5, 5, 7}, 1, kFloat32);
  std::fill(x[1].values.begin(), x[1].values.end(), 2.5);
  x[2].values[20] = std::numeric_limits<double>::infinity();
  x[2].values[50] = std::numeric_limits<double>::quiet_NaN();
  for (naive::Layer& layer : x) naive::lay_out(layer, naive::Order::rows);
  const Result r = compute(make_problem(x, {}, KernelKind::linear, Estimator::unbiased));
  CHECK(r.xx[0] > 0 && r.xx[1] == 0 && r.xy[1] == 0);
  CHECK(r.nonfinite[0] == 0 && r.nonfinite[1] == 0 && r.nonfinite[2] == 2);
  CHECK(std::isnan(r.xx[2]) && std::isnan(r.xy[2]));
}

TEST(a_workspace_that_is_too_small_is_refused) {
  const Layers x = naive::make_layers(33, {5}, 1, kFloat32);
  const DeviceHsicProblem problem = make_problem(x, {}, KernelKind::linear, Estimator::biased);
  const std::string message = check::message_of([&] { make_plan(problem, Device{}, 100); });
  CHECK(message.find("max_memory: wanted at least") == 0);
  CHECK(message.find("got 100") != std::string::npos);
}

TEST(problems_of_float64_are_refused) {
  const auto refused = [](const DeviceHsicProblem& problem) {
    const auto plan = [&] { make_plan(problem, Device{}, kPlenty); };
    return check::message_of(plan).find("X, Y: wanted layers of at most 32 bits") == 0;
  };
  const Layers wide = naive::make_layers(9, {3}, 1, {DType::f64, 0, 1, naive::Order::rows});
  const Layers x = naive::make_layers(9, {3}, 1, kFloat32);
  CHECK(refused(make_problem(wide, {}, KernelKind::linear, Estimator::biased)));
  DeviceHsicProblem problem = make_problem(x, {}, KernelKind::rbf, Estimator::biased);
  CHECK(!refused(problem));
  problem.bandwidth = simcore::kFloat64Bandwidth;
  CHECK(refused(problem));
}

// An error that stayed would be told by the next check of another library as its own.
TEST(a_failed_launch_leaves_no_error_behind) {
  const Layers x = naive::make_layers(9, {3}, 1, kFloat32);
  DeviceHsicProblem problem = make_problem(x, {}, KernelKind::linear, Estimator::biased);
  problem.variant = Variant::tensor;
  const HsicPlan plan = make_plan(problem, Device{3, 1 << 20}, kPlenty);
  shared_limit = 1 << 10;
  std::string message;
  try {
    compute(problem, plan);
  } catch (const std::runtime_error& error) {
    message = error.what();
  }
  shared_limit = 227 << 10;
  CHECK(message.find("simcore, CUDA: gram_tiles: invalid configuration") == 0);
  CHECK(cudaGetLastError() == cudaSuccess);
}

int main(int count, char** arguments) { return check::main(count, arguments); }
