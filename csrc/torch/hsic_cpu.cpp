// simcore::hsic_terms and what else comes of Gram tiles, on the CPU: checks, the plan, and the call
// into csrc/cpu.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <stdexcept>
#include <tuple>

#include "cpu/hsic/hsic.h"
#include "torch/options.h"

namespace simcore {
namespace {

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

// Layers and estimator, checked.
cpu::HsicProblem make_problem(at::TensorList x, at::TensorList y, KernelKind kernel,
                              const std::string& estimator) {
  cpu::HsicProblem problem;
  problem.n = check_hsic_layers(x, y, estimator);
  problem.kernel = kernel;
  problem.estimator = parse_estimator(estimator);
  problem.x = layer_views(x);
  problem.y = layer_views(y);
  return problem;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> hsic_terms_cpu(
    at::TensorList x, at::TensorList y, c10::string_view kernel, c10::string_view estimator,
    double bandwidth, c10::string_view method, int64_t max_memory,
    c10::string_view /*precision: always the highest*/) {
  TORCH_CHECK_VALUE(bandwidth > 0, "bandwidth: wanted a positive number, got ", bandwidth);
  cpu::HsicProblem problem =
      make_problem(x, y, parse_kernel(std::string(kernel)), std::string(estimator));
  problem.bandwidth = bandwidth;
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

// x then y, [L], [L, n], ... : what hsic_terms gives, and sums of powers of the Gram entries.
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>
gram_power_sums_cpu(at::TensorList x, at::TensorList y, c10::string_view estimator,
                    int64_t max_memory) {
  cpu::HsicProblem problem = make_problem(x, y, KernelKind::linear, std::string(estimator));
  problem.power_sums = true;
  const cpu::Runtime runtime = torch_runtime();
  try {
    cpu::PlanRequest request =
        plan_request(problem, cpu::Method::gram, max_memory, runtime.threads);
    request.power_sums = true;
    const cpu::HsicResult r = cpu::hsic_terms(problem, cpu::make_plan(request), runtime);
    const int64_t rows = int64_t(r.xx.size()), columns = int64_t(r.yy.size());
    const int64_t layers = int64_t(r.cubes.size());
    return {to_tensor(r.xy, {rows, columns}), to_tensor(r.xx, {rows}),
            to_tensor(r.yy, {columns}),       to_tensor(r.squares, {layers, problem.n}),
            to_tensor(r.cubes, {layers}),     to_tensor(r.exponents, {layers})};
  } catch (const std::invalid_argument& error) {
    TORCH_CHECK_VALUE(false, error.what());
  }
}

at::Tensor median_squared_distances_cpu(at::TensorList x, at::TensorList y) {
  const cpu::HsicProblem problem = make_problem(x, y, KernelKind::rbf, "biased");
  bool float64 = false;
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
  m.impl("gram_power_sums", gram_power_sums_cpu);
  m.impl("median_squared_distances", median_squared_distances_cpu);
}

}  // namespace simcore
