// best_partners and multiple_correlations of csrc/cuda on the host against plain double loops, also
// under the address and thread sanitizers.
//
// Mutations of a scratch copy that these tests were seen to catch
//   by wrong values     the first barrier of match_neurons' strips, the barrier of pack_neurons,
//                       the check of constant neurons, that of the layer's width in seek_best
//   ThreadSanitizer     the second barrier of the strips
//   AddressSanitizer    the width check of pack_neurons' stores
#include "cuda/neurons/neurons.h"

#include <cstdlib>
#include <cstring>
#include <limits>

#include "../check.h"
#include "../naive_neurons.h"
#include "cuda_runtime.h"
#include "mma_host.h"

using naive::DType;
using simcore::LayersProblem;
using simcore::cuda::Device;
using simcore::cuda::make_plan;
using simcore::cuda::NeuronPlan;
using simcore::cuda::Variant;

namespace {

using Layers = std::vector<naive::Layer>;

constexpr int64_t kPlenty = int64_t(1) << 40;

struct Result {
  std::vector<double> grid, best;
  std::vector<int64_t> partner, nonfinite;
  NeuronPlan plan;
};

struct Options {
  bool partners = true;
  int64_t max_memory = kPlenty;
  Variant variant = Variant::plain;
};

// Output that the kernels leave untouched is nan, which no comparison passes.
Result compute(const Layers& x, const Layers& y, Options options = {}) {
  const LayersProblem problem{x[0].n, naive::views(x), naive::views(y)};
  Result r{
      {}, {}, {}, {}, make_plan(problem, Device{3, 1 << 20}, options.max_memory, options.variant)};
  const size_t count_y = y.empty() ? x.size() : y.size();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  size_t neurons = 0;
  for (const naive::Layer& layer : x) neurons += size_t(layer.view.width);
  r.grid.assign(x.size() * count_y, nan);
  r.best.assign(neurons * count_y, nan);
  r.partner.assign(neurons * count_y, -7);
  r.nonfinite.assign(x.size() + y.size(), -1);
  void* workspace = std::aligned_alloc(256, size_t(r.plan.workspace_bytes));
  std::memset(workspace, 0xff, size_t(r.plan.workspace_bytes));  // nan, too
  const auto run =
      options.partners ? simcore::cuda::best_partners : simcore::cuda::multiple_correlations;
  run(problem, r.plan, workspace,
      {r.grid.data(), r.best.data(), r.partner.data(), r.nonfinite.data()}, nullptr);
  std::free(workspace);
  for (const int64_t count : r.nonfinite) CHECK(count == 0);
  return r;
}

void check_partners(const Layers& x, const Layers& y, Options options = {}) {
  const Result got = compute(x, y, options);
  const double tolerance = got.plan.float64 ? 1e-12 : 2e-6;
  naive::check_partners(x, y.empty() ? x : y, got.grid, got.best, got.partner, tolerance);
}

}  // namespace

TEST(best_partners_match_plain_loops) {
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
    const double offset = dtype == DType::f32 ? 1000 : 3;
    for (const naive::Order order : {naive::Order::rows, naive::Order::columns}) {
      check::context = "dtype " + std::to_string(int(dtype));
      const naive::Shape shape{dtype, offset, 30, order};
      const Layers x = naive::make_layers(37, {1, 33, 70}, 1, shape);
      check_partners(x, {});
      check_partners(x, naive::make_layers(37, {65, 2}, 50, shape));
    }
  }
}

constexpr Options kTensor{true, kPlenty, Variant::tensor};

// Two tiles of neurons in one layer, both directions of a pair from one product.
TEST(best_partners_by_tensor_cores) {
  simcore::cuda::arrival_of_copies = simcore::cuda::Arrival::mixed;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    check::context = "tensor, dtype " + std::to_string(int(dtype));
    const naive::Shape shape{dtype, dtype == DType::f32 ? 1000.0 : 3.0, 30, naive::Order::rows};
    const Layers x = naive::make_layers(37, {1, 33, 130}, 1, shape);
    CHECK(compute(x, {}, kTensor).plan.pairs);
    check_partners(x, {}, kTensor);
    if (!check::kOneCase) check_partners(x, naive::make_layers(37, {65, 2}, 50, shape), kTensor);
    check_partners({x[1]}, {}, kTensor);  // no pair at all
  }
}

TEST(tensor_cores_where_memory_allows_and_in_any_order) {
  const Layers x = naive::make_layers(33, {20, 130, 5}, 1, {DType::f32, 3});
  const Result want = compute(x, {}, kTensor);
  CHECK(want.plan.pairs);
  cuda_host::order_of_blocks = cuda_host::Order::random;
  const Result again = compute(x, {}, kTensor);
  cuda_host::order_of_blocks = cuda_host::Order::forwards;
  CHECK(again.grid == want.grid && again.best == want.best && again.partner == want.partner);
  const Result less = compute(x, {}, {true, want.plan.workspace_bytes - 1, Variant::tensor});
  CHECK(!less.plan.pairs);
  for (size_t i = 0; i < want.grid.size(); i++) CHECK_NEAR(less.grid[i], want.grid[i], 2e-6);
  const Layers wide = naive::make_layers(33, {3}, 1, {DType::f64, 3});
  CHECK(!compute(wide, {}, kTensor).plan.pairs);
}

TEST(groups_of_layers_and_the_order_of_blocks_leave_the_result_alone) {
  check::context = "groups";
  const Layers x = naive::make_layers(33, {20, 31, 5, 30}, 1, {DType::f32, 3});
  const Result want = compute(x, {});
  const std::string message = check::message_of([&] { compute(x, {}, {true, 1}); });
  CHECK(message.find("max_memory: wanted at least ") == 0);
  const int64_t least = std::stoll(message.substr(message.find("least ") + 6));
  const Result narrow = compute(x, {}, {true, least});
  CHECK(want.plan.together && !narrow.plan.together);
  CHECK(narrow.grid == want.grid && narrow.best == want.best && narrow.partner == want.partner);
  cuda_host::order_of_blocks = cuda_host::Order::random;
  CHECK(compute(x, {}).grid == want.grid);
  cuda_host::order_of_blocks = cuda_host::Order::forwards;
}

// Of equal columns the first wins; constant columns are nobody's partner and have none.
void check_ties(DType dtype, Options options) {
  const naive::Shape shape{dtype, 0, 1, naive::Order::rows};
  Layers x = naive::make_layers(20, {3}, 1, shape), y = naive::make_layers(20, {140}, 2, shape);
  for (int64_t i = 0; i < 20; i++) {
    x[0].values[size_t(i * 3 + 2)] = 2.5;
    for (int64_t k = 0; k < 140; k++) {
      double& value = y[0].values[size_t(i * 140 + k)];
      value = k == 0 ? 1.5 : k % 2 == 1 ? x[0].at(i, 0) : -3 * x[0].at(i, 1);
    }
  }
  naive::lay_out(x[0], naive::Order::rows);
  naive::lay_out(y[0], naive::Order::rows);
  const Result r = compute(x, y, options);
  CHECK(r.partner == (std::vector<int64_t>{1, 2, -1}));
  CHECK_NEAR(r.grid[0], 1, dtype == DType::f64 ? 1e-12 : 2e-6);
  CHECK(std::isnan(r.best[2]));
  CHECK(std::isnan(compute(y, x, options).best[0]));
  // The same, as columns of a product: layer 1 of x with itself looks among those of layer 0.
  const Result both = compute({y[0], x[0]}, {}, options);
  CHECK(both.partner[140 * 2] == 1 && both.partner[141 * 2] == 2 && both.partner[142 * 2] == -1);
  CHECK(both.partner[1] == -1 && both.partner[3] == 0 && both.partner[5] == 1);
  // A constant neuron and the entries beyond the layer are nobody's partner.
  std::fill(y[0].values.begin(), y[0].values.end(), 1.5);
  naive::lay_out(y[0], naive::Order::rows);
  const Result none = compute(x, y, options);
  CHECK(none.partner == (std::vector<int64_t>{-1, -1, -1}) && std::isnan(none.grid[0]));
}

TEST(ties_and_constant_neurons) {
  check::context = "ties";
  check_ties(DType::f64, {});
  check::context = "ties, tensor";
  check_ties(DType::f32, kTensor);
}

TEST(multiple_correlations_match_plain_loops) {
  check::context = "squares";
  const int64_t n = 40, q = 5;
  const Layers x = naive::make_layers(n, {1, 70}, 0, {DType::f64, 3});
  // Orthonormal columns, scaled: the kernels must undo the power of two of centring.
  Layers y = naive::make_layers(n, {q}, 9);
  std::vector<double> u = naive::centred(y[0]);
  for (int64_t k = 0; k < q; k++) {
    for (int64_t l = 0; l < k; l++) {
      const double along = naive::product(u, q, k, u, q, l, n);
      for (int64_t i = 0; i < n; i++) u[size_t(i * q + k)] -= along * u[size_t(i * q + l)];
    }
    const double length = naive::norm(u, q, k, n);
    for (int64_t i = 0; i < n; i++) u[size_t(i * q + k)] /= length;
  }
  y[0].values = u;
  naive::lay_out(y[0], naive::Order::rows);
  const Result got = compute(x, y, {false, kPlenty});
  for (size_t a = 0; a < x.size(); a++) {
    const int64_t p = x[a].view.width;
    const std::vector<double> c = naive::centred(x[a]);
    double mean = 0;
    for (int64_t k = 0; k < p; k++) {
      double sum = 0;
      for (int64_t l = 0; l < q; l++) {
        const double along = naive::product(c, p, k, u, q, l, n);
        sum += along * along;
      }
      mean += std::sqrt(sum) / naive::norm(c, p, k, n) / double(p);
    }
    CHECK_NEAR(got.grid[a], mean, 1e-12);
  }
}

int main(int count, char** arguments) { return check::main(count, arguments); }
