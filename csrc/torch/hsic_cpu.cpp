// The operators of HSIC on the CPU: checks, the plan, and the calls into csrc/cpu/hsic.
#include <optional>
#include <string>
#include <tuple>

#include "cpu/hsic/hsic.h"
#include "cpu/hsic/mean_rows.h"
#include "cpu/hsic/permutation.h"
#include "cpu/hsic/row_pairs.h"
#include "torch/checks.h"
#include "torch/convert.h"
#include "torch/hsic_checks.h"
#include "torch/torch_runtime.h"

namespace simcore {
namespace {

cpu::HsicRequest plan_request(const HsicProblem& problem, cpu::Method method, int64_t max_memory,
                              int threads) {
  cpu::HsicRequest request{cpu::grid_request(problem, max_memory, threads)};
  request.kernel = problem.kernel;
  request.bandwidth = problem.bandwidth;
  request.method = method;
  return request;
}

std::tuple<Tensor, Tensor, Tensor> hsic_terms_cpu(
    const Tensors& x, const Tensors& y, const std::string& kernel, const std::string& estimator,
    double bandwidth, const std::string& method, int64_t max_memory,
    const std::string& /*precision: always the highest*/) {
  const HsicProblem problem = hsic_problem(x, y, parse_kernel(kernel), estimator, bandwidth);
  const cpu::Runtime runtime = torch_runtime();
  const cpu::HsicPlan plan =
      cpu::make_plan(plan_request(problem, parse_method(method), max_memory, runtime.threads));
  const cpu::HsicResult result = cpu::hsic_terms(problem, plan, runtime);
  const int64_t rows = problem.rows(), columns = problem.columns();
  return {to_tensor(result.xy, {rows, columns}), to_tensor(result.xx, {rows}),
          to_tensor(result.yy, {columns})};
}

// Returns the result of hsic_terms, and squares [L, n], cubes [L] and exponents [L] of x, then of
// y.
std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor> gram_power_sums_cpu(
    const Tensors& x, const Tensors& y, const std::string& estimator, int64_t max_memory) {
  const HsicProblem problem = hsic_problem(x, y, KernelKind::linear, estimator);
  const cpu::Runtime runtime = torch_runtime();
  cpu::HsicRequest request = plan_request(problem, cpu::Method::gram, max_memory, runtime.threads);
  request.power_sums = true;
  const cpu::HsicResult r = cpu::hsic_terms(problem, cpu::make_plan(request), runtime);
  const int64_t rows = problem.rows(), columns = problem.columns(), layers = problem.layers();
  return {to_tensor(r.xy, {rows, columns}), to_tensor(r.xx, {rows}),
          to_tensor(r.yy, {columns}),       to_tensor(r.squares, {layers, problem.n}),
          to_tensor(r.cubes, {layers}),     to_tensor(r.exponents, {layers})};
}

Tensor median_squared_distances_cpu(const Tensors& x, const Tensors& y) {
  const HsicProblem problem = hsic_problem(x, y, KernelKind::rbf, "biased");
  return to_tensor(cpu::median_squared_distances(problem, torch_runtime()), {problem.layers()});
}

Tensor uniformity_cpu(const Tensors& x, int64_t max_memory) {
  const HsicProblem problem = hsic_problem(x, {}, KernelKind::rbf, "biased");
  const cpu::Runtime runtime = torch_runtime();
  cpu::HsicRequest request = plan_request(problem, cpu::Method::gram, max_memory, runtime.threads);
  request.rows_alone = true;
  return to_tensor(cpu::uniformity(problem, cpu::make_plan(request), runtime), {problem.rows()});
}

std::tuple<Tensor, Tensor, Tensor> mean_rows_cpu(const Tensors& x, bool with_cosines,
                                                 int64_t max_memory, const std::string& name) {
  rows_of(x);
  check_layers(x, "X");
  cpu::MeanRowsProblem problem{layer_views(x), {}, with_cosines, name};
  for (const Tensor& layer : x) problem.rows.push_back(layer.size(0));
  const cpu::MeanRows found = cpu::mean_rows(problem, max_memory, torch_runtime());
  const int64_t count = int64_t(x.size());
  return {to_tensor(found.length, {count}), to_tensor(found.cosine, {with_cosines ? count : 0}),
          to_tensor(found.zeros)};
}

cpu::RowMeasure parse_row_measure(const std::string& name) {
  if (name == "cosine") return cpu::RowMeasure::cosine;
  if (name == "angle") return cpu::RowMeasure::angle;
  if (name == "labels") return cpu::RowMeasure::labels;
  SIMCORE_CHECK(name == "divergence",
                "measure: wanted 'cosine', 'angle', 'labels' or 'divergence', got '", name, "'");
  return cpu::RowMeasure::divergence;
}

std::tuple<Tensor, Tensor, Tensor> row_pairs_cpu(const Tensors& x, const Tensors& y,
                                                 const std::string& measure, int64_t max_memory) {
  const LayersProblem problem = layers_problem(x, y);
  for (const auto* side : {&problem.x, &problem.y})
    for (const LayerView& layer : *side)
      SIMCORE_CHECK(layer.width == problem.x[0].width, "layers: wanted ", problem.x[0].width,
                    " columns as in X[0], got ", layer.width);
  const cpu::RowPairs found =
      cpu::row_pairs(problem, parse_row_measure(measure), max_memory, torch_runtime());
  return {to_tensor(found.sums, {problem.rows(), problem.columns()}),
          to_tensor(found.counts, {problem.rows(), problem.columns()}), to_tensor(found.zeros)};
}

void check_grams(const Tensor& grams, const char* name, int64_t n, ScalarType dtype) {
  SIMCORE_CHECK(
      grams.dim() == 3 && grams.size(0) == n && grams.size(1) == n && n > 0 && grams.size(2) > 0,
      name, ": wanted shape [n, n, L], got ", grams.sizes());
  SIMCORE_CHECK_TYPE(
      grams.scalar_type() == dtype && (dtype == ScalarType::Float || dtype == ScalarType::Double),
      name, ": wanted float32 or float64, x and y alike, got ", grams.scalar_type());
  SIMCORE_CHECK(grams.is_contiguous(), name, ": wanted a contiguous tensor, got strides ",
                grams.strides());
}

void check_rows(const Tensor& rows, int64_t n) {
  SIMCORE_CHECK_TYPE(rows.scalar_type() == ScalarType::Int, "rows: wanted int32, got ",
                     rows.scalar_type());
  SIMCORE_CHECK(rows.dim() == 2 && rows.size(1) == n, "rows: wanted shape [draws, ", n, "], got ",
                rows.sizes());
  const int32_t* const row = const_data<int32_t>(rows);
  const int64_t count = rows.numel();
  for (int64_t i = 0; i < count; i++)
    SIMCORE_CHECK(row[i] >= 0 && row[i] < n, "rows: wanted entries in [0, ", n, "), got ", row[i]);
}

template <typename T>
void run(const Tensor& x, const Tensor& y, const Tensor& rows, const std::optional<Tensor>& weights,
         Tensor& out) {
  cpu::PermutedGrams<T> grams;
  grams.n = x.size(0);
  grams.count_x = x.size(2);
  grams.count_y = y.size(2);
  grams.draws = rows.size(0);
  grams.x = const_data<T>(x);
  grams.y = const_data<T>(y);
  grams.rows = const_data<int32_t>(rows);
  if (weights) grams.weights = const_data<T>(*weights);
  cpu::permuted_gram_products(grams, mutable_data<double>(out), torch_runtime());
}

Tensor permuted_gram_products_cpu(const Tensor& x, const Tensor& y, const Tensor& rows_,
                                  const std::optional<Tensor>& weights_) {
  const int64_t n = x.dim() > 0 ? x.size(0) : 0;
  check_grams(x, "x", n, x.scalar_type());
  check_grams(y, "y", n, x.scalar_type());
  const Tensor rows = contiguous(rows_);
  check_rows(rows, n);
  std::optional<Tensor> weights;
  if (weights_) {
    SIMCORE_CHECK(weights_->sizes() == rows.sizes(), "weights: wanted the shape of rows, ",
                  rows.sizes(), ", got ", weights_->sizes());
    weights = contiguous(to(*weights_, x.scalar_type()));
  }
  Tensor out = empty({rows.size(0), x.size(2), y.size(2)}, ScalarType::Double);
  if (x.scalar_type() == ScalarType::Float)
    run<float>(x, y, rows, weights, out);
  else
    run<double>(x, y, rows, weights, out);
  return out;
}

}  // namespace

const Library hsic_functions("CPU", [](const Library& m) {
  m.impl("hsic_terms", boxed<hsic_terms_cpu>);
  m.impl("permuted_gram_products", boxed<permuted_gram_products_cpu>);
  m.impl("gram_power_sums", boxed<gram_power_sums_cpu>);
  m.impl("median_squared_distances", boxed<median_squared_distances_cpu>);
  m.impl("uniformity", boxed<uniformity_cpu>);
  m.impl("mean_rows", boxed<mean_rows_cpu>);
  m.impl("row_pairs", boxed<row_pairs_cpu>);
});

}  // namespace simcore
