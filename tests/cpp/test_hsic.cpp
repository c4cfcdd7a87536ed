// hsic_terms against plain double loops (ctest runs this file once per instruction set).
#include "cpu/hsic/hsic.h"

#include <limits>

#include "check.h"
#include "naive.h"

using naive::DType;
using simcore::Estimator;
using simcore::HsicProblem;
using simcore::KernelKind;
using simcore::cpu::HsicPlan;
using simcore::cpu::HsicRequest;
using simcore::cpu::HsicResult;
using simcore::cpu::make_plan;
using simcore::cpu::Method;
using simcore::cpu::Runtime;

namespace {

const std::vector<int64_t> kRagged = {1, 2, 3, 31, 33, 129};

struct Options {
  KernelKind kernel = KernelKind::linear;
  Estimator estimator = Estimator::biased;
  Method method = Method::gram;
  int64_t max_memory = 0;
  int threads = 1;
};

HsicResult compute(const std::vector<naive::Layer>& x, const std::vector<naive::Layer>& y,
                   const Options& options) {
  HsicProblem problem;
  problem.n = x[0].n;
  problem.x = naive::views(x);
  problem.y = naive::views(y);
  problem.kernel = options.kernel;
  problem.estimator = options.estimator;
  HsicRequest request;
  request.n = problem.n;
  for (const naive::Layer& layer : x) request.widths_x.push_back(layer.view.width);
  for (const naive::Layer& layer : y) request.widths_y.push_back(layer.view.width);
  request.kernel = options.kernel;
  request.method = options.method;
  request.float64 = x[0].dtype == DType::f64;
  request.threads = options.threads;
  request.max_memory = options.max_memory;
  return hsic_terms(problem, make_plan(request), naive::threads(options.threads));
}

using Grams = std::vector<std::vector<double>>;

Grams grams_of(const std::vector<naive::Layer>& layers, KernelKind kernel) {
  Grams grams;
  for (const naive::Layer& layer : layers) grams.push_back(naive::gram(layer, kernel, 1.0));
  return grams;
}

// Compares every value of `result` with the definition.
void compare(const HsicResult& result, const std::vector<naive::Layer>& x,
             const std::vector<naive::Layer>& y, const Options& options) {
  const int64_t n = x[0].n;
  const auto hsic = naive::estimator<double>(options.estimator);
  const auto scale =
      options.estimator == Estimator::product ? hsic : naive::estimator<double>(Estimator::biased);
  const Grams k = grams_of(x, options.kernel), l = y.empty() ? k : grams_of(y, options.kernel);
  std::vector<double> self_k, self_l;
  for (const auto& g : k) self_k.push_back(scale(g, g, n));
  for (const auto& g : l) self_l.push_back(scale(g, g, n));
  const DType dtype = x[0].dtype;
  CHECK(result.xy.size() == k.size() * l.size());
  CHECK(result.xx.size() == k.size() && result.yy.size() == l.size());
  if (check::failures > 0) return;
  for (size_t i = 0; i < k.size(); i++) {
    CHECK_NEAR(result.xx[i], hsic(k[i], k[i], n), naive::tolerance(dtype, self_k[i], self_k[i]));
    for (size_t j = 0; j < l.size(); j++)
      CHECK_NEAR(result.xy[i * l.size() + j], hsic(k[i], l[j], n),
                 naive::tolerance(dtype, self_k[i], self_l[j]));
  }
  for (size_t j = 0; j < l.size(); j++)
    CHECK_NEAR(result.yy[j], hsic(l[j], l[j], n), naive::tolerance(dtype, self_l[j], self_l[j]));
}

std::string describe(int64_t n, const naive::Shape& shape, const Options& options) {
  return "n " + std::to_string(n) + ", dtype " + std::to_string(int(shape.dtype)) + ", offset " +
         std::to_string(int(shape.offset)) + ", kernel " + std::to_string(int(options.kernel)) +
         ", estimator " + std::to_string(int(options.estimator)) + ", method " +
         std::to_string(int(options.method)) + ", threads " + std::to_string(options.threads);
}

constexpr Estimator kEstimators[] = {Estimator::biased, Estimator::unbiased, Estimator::product};

// The four computations: both linear paths, RBF, and distances.
const std::vector<Options> kPaths = {
    {KernelKind::linear, Estimator::biased, Method::gram, 0, 1},
    {KernelKind::linear, Estimator::biased, Method::feature, 0, 1},
    {KernelKind::rbf, Estimator::biased, Method::gram, 0, 1},
    {KernelKind::distance, Estimator::biased, Method::gram, 0, 1},
};

bool same_bits(const HsicResult& a, const HsicResult& b) {
  const auto same = [](const std::vector<double>& u, const std::vector<double>& v) {
    return u.size() == v.size() && std::memcmp(u.data(), v.data(), u.size() * sizeof(double)) == 0;
  };
  return same(a.xy, b.xy) && same(a.xx, b.xx) && same(a.yy, b.yy);
}

}  // namespace

TEST(every_path_matches_the_definition) {
  for (Options options : kPaths)
    for (const Estimator estimator : kEstimators)
      for (const int64_t n : {2, 3, 4, 31, 33, 129})
        for (const DType dtype : {DType::f32, DType::f64}) {
          options.estimator = estimator;
          if (n < simcore::min_examples(estimator)) continue;
          if (check::kOneCase && n != 33) continue;
          const naive::Shape shape{dtype, 0, 1, naive::Order::rows};
          check::context = describe(n, shape, options);
          const auto x = naive::make_layers(n, kRagged, 1, shape);
          const auto y = naive::make_layers(n, {33, 2}, 50, shape);
          compare(compute(x, {}, options), x, {}, options);
          compare(compute(x, y, options), x, y, options);
        }
}

TEST(offsets_and_outlier_dimensions_cost_no_accuracy) {
  for (Options options : kPaths)
    for (const Estimator estimator : kEstimators)
      for (const double offset : {10.0, 1000.0}) {
        options.estimator = estimator;
        const naive::Shape shape{DType::f32, offset, 30, naive::Order::rows};
        check::context = describe(129, shape, options);
        const auto x = naive::make_layers(129, {31, 129}, 1, shape);
        compare(compute(x, {}, options), x, {}, options);
      }
}

TEST(half_precisions_and_any_strides_are_read_in_place) {
  for (const Options& options : kPaths)
    for (const DType dtype : {DType::f16, DType::bf16, DType::f32, DType::f64})
      for (const naive::Order order : {naive::Order::columns, naive::Order::reversed}) {
        const naive::Shape shape{dtype, 3, 1, order};
        check::context = describe(33, shape, options);
        const auto x = naive::make_layers(33, {3, 65}, 1, shape);
        compare(compute(x, {}, options), x, {}, options);
      }
}

TEST(threads_and_repetition_change_no_bit) {
  for (Options options : kPaths) {
    const naive::Shape shape{DType::f32, 10, 1, naive::Order::rows};
    const auto x = naive::make_layers(129, kRagged, 1, shape);
    options.threads = 3;
    check::context = describe(129, shape, options);
    const HsicResult first = compute(x, {}, options);
    compare(first, x, {}, options);
    CHECK(same_bits(first, compute(x, {}, options)));
  }
}

TEST(small_workspaces_change_only_rounding) {
  for (Options options : kPaths) {
    HsicRequest request;
    request.n = 300;
    request.widths_x = {33, 129, 5};
    request.kernel = options.kernel;
    request.method = options.method;
    request.float64 = true;
    // The smallest bound that the planner accepts, found by halving.
    request.max_memory = int64_t(1) << 30;
    while (check::message_of([&] { make_plan(request); }).empty()) request.max_memory /= 2;
    options.max_memory = request.max_memory * 2;
    check::context = describe(300, {}, options) + ", bytes " + std::to_string(options.max_memory);
    const auto x = naive::make_layers(300, request.widths_x, 1);
    compare(compute(x, {}, options), x, {}, options);
  }
}

TEST(identical_layers_give_identical_entries) {
  for (const Options& options : kPaths) {
    check::context = describe(33, {}, options);
    std::vector<naive::Layer> x = naive::make_layers(33, {31, 31, 31}, 1);
    x[2] = naive::make_layer(33, 31, 1);  // the same numbers as x[0], elsewhere
    const HsicResult result = compute(x, {}, options);
    CHECK(result.xy[0 * 3 + 0] == result.xy[0 * 3 + 2]);
    // A pair in the other order may be summed in another order.
    CHECK_NEAR(result.xy[0 * 3 + 1], result.xy[2 * 3 + 1], 1e-14 * result.xx[0]);
    CHECK(result.xx[0] == result.xx[2]);
  }
}

// The difference of two equal layers is exactly 0, whichever side of the grid they stand on.
TEST(products_of_equal_layers_cancel_exactly) {
  const naive::Shape shape{DType::f32, 10, 1, naive::Order::rows};
  const auto x = naive::make_layers(129, {31, 5}, 1, shape),
             y = naive::make_layers(129, {31}, 1, shape);
  const Options options{KernelKind::distance, Estimator::product, Method::gram, 0, 2};
  const HsicResult result = compute(x, y, options);
  CHECK(result.xx[0] + result.yy[0] - 2 * result.xy[0] == 0);
  CHECK(result.xx[1] + result.yy[0] - 2 * result.xy[1] > 0);
}

TEST(uniformity_matches_the_definition) {
  for (const DType dtype : {DType::f32, DType::f64})
    for (const double scale : {1e-3, 0.2, 1e3})
      for (const int64_t n : {1, 2, 33, 129}) {
        check::context = "n " + std::to_string(n) + ", scale " + std::to_string(scale);
        auto x = naive::make_layers(n, {3, 65}, 1, {dtype, 3, 1, naive::Order::rows});
        for (naive::Layer& layer : x) {
          for (double& value : layer.values) value *= scale;
          naive::lay_out(layer, naive::Order::rows);
        }
        HsicRequest request;
        request.n = n;
        request.widths_x = {3, 65};
        request.kernel = KernelKind::rbf;
        request.rows_alone = true;
        request.float64 = dtype == DType::f64;
        request.threads = 2;
        simcore::LayersProblem problem;
        problem.n = n;
        problem.x = naive::views(x);
        const std::vector<double> got =
            simcore::cpu::uniformity(problem, make_plan(request), naive::threads(2));
        for (size_t l = 0; l < x.size(); l++) {
          double sum = 0;
          for (const double d : naive::squared_distances(x[l])) sum += std::exp(-2 * d);
          CHECK_NEAR(got[l], std::log(sum / double(n * n)), dtype == DType::f64 ? 1e-10 : 1e-5);
        }
      }
}

TEST(progress_goes_up_and_may_stop_the_work) {
  for (const Options& options : kPaths) {
    const auto x = naive::make_layers(300, {33, 129}, 1);
    HsicProblem problem;
    problem.n = 300;
    problem.x = naive::views(x);
    problem.kernel = options.kernel;
    HsicRequest request;
    request.n = 300;
    request.widths_x = {33, 129};
    request.kernel = options.kernel;
    request.method = options.method;
    request.float64 = true;
    const HsicPlan plan = make_plan(request);
    Runtime rt = naive::threads(1);
    double last = 0;
    rt.progress = [&](double share) {
      CHECK(share >= last && share <= 1);
      last = share;
    };
    hsic_terms(problem, plan, rt);
    CHECK(last > 0);
    rt.progress = [](double) { throw std::invalid_argument("stopped"); };
    CHECK(check::message_of([&] { hsic_terms(problem, plan, rt); }) == "stopped");
  }
}

int main() { return check::main(); }
