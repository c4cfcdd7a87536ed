// The operators of HSIC on the CPU: checks, the plan, and the calls into csrc/cpu/hsic.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>

#include "cpu/hsic/hsic.h"
#include "cpu/hsic/mean_rows.h"
#include "cpu/hsic/permutation.h"
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

std::tuple<at::Tensor, at::Tensor, at::Tensor> hsic_terms_cpu(
    at::TensorList x, at::TensorList y, c10::string_view kernel, c10::string_view estimator,
    double bandwidth, c10::string_view method, int64_t max_memory,
    c10::string_view /*precision: always the highest*/) {
  const HsicProblem problem =
      hsic_problem(x, y, parse_kernel(std::string(kernel)), std::string(estimator), bandwidth);
  const cpu::Runtime runtime = torch_runtime();
  try {
    const cpu::HsicPlan plan = cpu::make_plan(
        plan_request(problem, parse_method(std::string(method)), max_memory, runtime.threads));
    const cpu::HsicResult result = cpu::hsic_terms(problem, plan, runtime);
    const int64_t rows = problem.rows(), columns = problem.columns();
    return {to_tensor(result.xy, {rows, columns}), to_tensor(result.xx, {rows}),
            to_tensor(result.yy, {columns})};
  } catch (const std::invalid_argument& error) {
    TORCH_CHECK_VALUE(false, error.what());
  }
}

// Returns the result of hsic_terms, and squares [L, n], cubes [L] and exponents [L] of x, then of
// y.
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>
gram_power_sums_cpu(at::TensorList x, at::TensorList y, c10::string_view estimator,
                    int64_t max_memory) {
  const HsicProblem problem = hsic_problem(x, y, KernelKind::linear, std::string(estimator));
  const cpu::Runtime runtime = torch_runtime();
  try {
    cpu::HsicRequest request =
        plan_request(problem, cpu::Method::gram, max_memory, runtime.threads);
    request.power_sums = true;
    const cpu::HsicResult r = cpu::hsic_terms(problem, cpu::make_plan(request), runtime);
    const int64_t rows = problem.rows(), columns = problem.columns(), layers = problem.layers();
    return {to_tensor(r.xy, {rows, columns}), to_tensor(r.xx, {rows}),
            to_tensor(r.yy, {columns}),       to_tensor(r.squares, {layers, problem.n}),
            to_tensor(r.cubes, {layers}),     to_tensor(r.exponents, {layers})};
  } catch (const std::invalid_argument& error) {
    TORCH_CHECK_VALUE(false, error.what());
  }
}

at::Tensor median_squared_distances_cpu(at::TensorList x, at::TensorList y) {
  const HsicProblem problem = hsic_problem(x, y, KernelKind::rbf, "biased");
  try {
    return to_tensor(cpu::median_squared_distances(problem, torch_runtime()), {problem.layers()});
  } catch (const std::invalid_argument& error) {
    TORCH_CHECK_VALUE(false, error.what());
  }
}

at::Tensor uniformity_cpu(at::TensorList x, int64_t max_memory) {
  const HsicProblem problem = hsic_problem(x, {}, KernelKind::rbf, "biased");
  const cpu::Runtime runtime = torch_runtime();
  try {
    cpu::HsicRequest request =
        plan_request(problem, cpu::Method::gram, max_memory, runtime.threads);
    request.rows_alone = true;
    return to_tensor(cpu::uniformity(problem, cpu::make_plan(request), runtime), {problem.rows()});
  } catch (const std::invalid_argument& error) {
    TORCH_CHECK_VALUE(false, error.what());
  }
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> mean_rows_cpu(at::TensorList x, bool with_cosines,
                                                             int64_t max_memory,
                                                             c10::string_view name) {
  rows_of(x);
  check_layers(x, "X");
  cpu::MeanRowsProblem problem{layer_views(x), {}, with_cosines, std::string(name)};
  for (const at::Tensor& layer : x) problem.rows.push_back(layer.size(0));
  try {
    const cpu::MeanRows found = cpu::mean_rows(problem, max_memory, torch_runtime());
    const int64_t count = int64_t(x.size());
    return {to_tensor(found.length, {count}), to_tensor(found.cosine, {with_cosines ? count : 0}),
            to_tensor(found.zeros)};
  } catch (const std::invalid_argument& error) {
    TORCH_CHECK_VALUE(false, error.what());
  }
}

void check_grams(const at::Tensor& grams, const char* name, int64_t n, at::ScalarType dtype) {
  TORCH_CHECK_VALUE(
      grams.dim() == 3 && grams.size(0) == n && grams.size(1) == n && n > 0 && grams.size(2) > 0,
      name, ": wanted shape [n, n, L], got ", grams.sizes());
  TORCH_CHECK_TYPE(grams.scalar_type() == dtype && (dtype == at::kFloat || dtype == at::kDouble),
                   name, ": wanted float32 or float64, x and y alike, got ", grams.scalar_type());
  TORCH_CHECK_VALUE(grams.is_contiguous(), name, ": wanted a contiguous tensor, got strides ",
                    grams.strides());
}

void check_rows(const at::Tensor& rows, int64_t n) {
  TORCH_CHECK_TYPE(rows.scalar_type() == at::kInt, "rows: wanted int32, got ", rows.scalar_type());
  TORCH_CHECK_VALUE(rows.dim() == 2 && rows.size(1) == n, "rows: wanted shape [draws, ", n,
                    "], got ", rows.sizes());
  const int32_t* data = rows.const_data_ptr<int32_t>();
  for (int64_t i = 0; i < rows.numel(); i++)
    TORCH_CHECK_VALUE(data[i] >= 0 && data[i] < n, "rows: wanted entries in [0, ", n, "), got ",
                      data[i]);
}

template <typename T>
void run(const at::Tensor& x, const at::Tensor& y, const at::Tensor& rows,
         const std::optional<at::Tensor>& weights, at::Tensor& out) {
  cpu::PermutedGrams<T> grams;
  grams.n = x.size(0);
  grams.count_x = x.size(2);
  grams.count_y = y.size(2);
  grams.draws = rows.size(0);
  grams.x = x.const_data_ptr<T>();
  grams.y = y.const_data_ptr<T>();
  grams.rows = rows.const_data_ptr<int32_t>();
  if (weights) grams.weights = weights->const_data_ptr<T>();
  cpu::permuted_gram_products(grams, out.mutable_data_ptr<double>(), torch_runtime());
}

at::Tensor permuted_gram_products_cpu(const at::Tensor& x, const at::Tensor& y,
                                      const at::Tensor& rows_,
                                      const std::optional<at::Tensor>& weights_) {
  const int64_t n = x.dim() > 0 ? x.size(0) : 0;
  check_grams(x, "x", n, x.scalar_type());
  check_grams(y, "y", n, x.scalar_type());
  const at::Tensor rows = rows_.contiguous();
  check_rows(rows, n);
  std::optional<at::Tensor> weights;
  if (weights_) {
    TORCH_CHECK_VALUE(weights_->sizes() == rows.sizes(), "weights: wanted the shape of rows, ",
                      rows.sizes(), ", got ", weights_->sizes());
    weights = weights_->to(x.scalar_type()).contiguous();
  }
  at::Tensor out = at::empty({rows.size(0), x.size(2), y.size(2)}, at::kDouble);
  if (x.scalar_type() == at::kFloat)
    run<float>(x, y, rows, weights, out);
  else
    run<double>(x, y, rows, weights, out);
  return out;
}

}  // namespace

TORCH_LIBRARY_IMPL(simcore, CPU, m) {
  m.impl("hsic_terms", hsic_terms_cpu);
  m.impl("permuted_gram_products", permuted_gram_products_cpu);
  m.impl("gram_power_sums", gram_power_sums_cpu);
  m.impl("median_squared_distances", median_squared_distances_cpu);
  m.impl("uniformity", uniformity_cpu);
  m.impl("mean_rows", mean_rows_cpu);
}

}  // namespace simcore
