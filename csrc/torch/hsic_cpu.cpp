// simcore::hsic_terms on the CPU: checks, the plan, and the call into csrc/cpu.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <stdexcept>
#include <tuple>

#include "cpu/hsic.h"
#include "torch/options.h"

namespace simcore {
namespace {

// simcore/_inputs.py words these for users; here they keep a direct call of the operator safe.
void check_layers(at::TensorList layers, const char* name, int64_t n) {
  for (size_t i = 0; i < layers.size(); i++) {
    const at::Tensor& layer = layers[i];
    TORCH_CHECK_VALUE(layer.dim() == 2, name, "[", i, "]: wanted shape [n, p], got ",
                      layer.sizes());
    TORCH_CHECK_VALUE(layer.size(0) == n, name, "[", i, "]: wanted ", n, " rows, got ",
                      layer.size(0));
    TORCH_CHECK_VALUE(layer.size(1) > 0, name, "[", i, "]: wanted at least 1 column, got 0");
    TORCH_CHECK_TYPE(at::isFloatingType(layer.scalar_type()), name, "[", i,
                     "]: wanted a floating-point dtype, got ", layer.scalar_type());
  }
}

at::Tensor to_tensor(const std::vector<double>& values, at::IntArrayRef shape) {
  at::Tensor result = at::empty(shape, at::kDouble);
  std::copy(values.begin(), values.end(), result.mutable_data_ptr<double>());
  return result;
}

cpu::PlanRequest plan_request(const cpu::HsicProblem& problem, cpu::Method method,
                              int64_t max_memory, int threads) {
  cpu::PlanRequest request;
  request.n = problem.n;
  request.kernel = problem.kernel;
  request.bandwidth = problem.bandwidth;
  request.method = method;
  request.threads = threads;
  request.max_memory = max_memory;
  for (const cpu::LayerView& layer : problem.x) request.widths_x.push_back(layer.width);
  for (const cpu::LayerView& layer : problem.y) request.widths_y.push_back(layer.width);
  for (const auto* side : {&problem.x, &problem.y})
    for (const cpu::LayerView& layer : *side) request.float64 |= layer.dtype == cpu::DType::f64;
  return request;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> hsic_terms_cpu(
    at::TensorList x, at::TensorList y, c10::string_view kernel, c10::string_view estimator,
    double bandwidth, c10::string_view method, int64_t max_memory) {
  TORCH_CHECK_VALUE(!x.empty(), "X: wanted at least one layer, got none");
  cpu::HsicProblem problem;
  problem.n = x[0].dim() == 2 ? x[0].size(0) : 0;
  check_layers(x, "X", problem.n);
  check_layers(y, "Y", problem.n);
  problem.kernel = parse_kernel(std::string(kernel));
  problem.estimator = parse_estimator(std::string(estimator));
  problem.bandwidth = bandwidth;
  TORCH_CHECK_VALUE(problem.n >= min_examples(problem.estimator), "X[0]: wanted at least ",
                    min_examples(problem.estimator), " rows for the ", std::string(estimator),
                    " estimator, got ", problem.n);
  TORCH_CHECK_VALUE(bandwidth > 0, "bandwidth: wanted a positive number, got ", bandwidth);
  for (const at::Tensor& layer : x) problem.x.push_back(layer_view(layer));
  for (const at::Tensor& layer : y) problem.y.push_back(layer_view(layer));

  const cpu::Runtime runtime = torch_runtime();
  try {
    const cpu::Plan plan = cpu::make_plan(
        plan_request(problem, parse_method(std::string(method)), max_memory, runtime.threads));
    const cpu::HsicResult result = cpu::hsic_terms(problem, plan, runtime);
    const int64_t rows = int64_t(result.xx.size()), columns = int64_t(result.yy.size());
    return {to_tensor(result.xy, {rows, columns}), to_tensor(result.xx, {rows}),
            to_tensor(result.yy, {columns})};
  } catch (const std::invalid_argument& error) {
    TORCH_CHECK_VALUE(false, error.what());
  }
}

at::Tensor median_squared_distances_cpu(at::TensorList x, at::TensorList y) {
  TORCH_CHECK_VALUE(!x.empty(), "X: wanted at least one layer, got none");
  cpu::HsicProblem problem;
  problem.n = x[0].dim() == 2 ? x[0].size(0) : 0;
  check_layers(x, "X", problem.n);
  check_layers(y, "Y", problem.n);
  bool float64 = false;
  for (const at::Tensor& layer : x) problem.x.push_back(layer_view(layer));
  for (const at::Tensor& layer : y) problem.y.push_back(layer_view(layer));
  for (const auto* side : {&problem.x, &problem.y})
    for (const cpu::LayerView& layer : *side) float64 |= layer.dtype == cpu::DType::f64;
  try {
    const std::vector<double> medians =
        cpu::median_squared_distances(problem, float64, torch_runtime());
    return to_tensor(medians, {int64_t(medians.size())});
  } catch (const std::invalid_argument& error) {
    TORCH_CHECK_VALUE(false, error.what());
  }
}

}  // namespace

TORCH_LIBRARY_IMPL(simcore, CPU, m) {
  m.impl("hsic_terms", hsic_terms_cpu);
  m.impl("median_squared_distances", median_squared_distances_cpu);
}

}  // namespace simcore
