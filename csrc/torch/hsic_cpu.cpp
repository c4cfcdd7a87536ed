// simcore::hsic_terms on the CPU: checks, the plan, and the call into csrc/cpu.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <stdexcept>
#include <tuple>

#include "cpu/hsic.h"
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

std::tuple<at::Tensor, at::Tensor, at::Tensor> hsic_terms_cpu(
    at::TensorList x, at::TensorList y, c10::string_view kernel, c10::string_view estimator,
    double bandwidth, c10::string_view method, int64_t max_memory) {
  cpu::HsicProblem problem;
  problem.n = rows_of(x);
  check_layers(x, "X", problem.n);
  check_layers(y, "Y", problem.n);
  problem.kernel = parse_kernel(std::string(kernel));
  problem.estimator = parse_estimator(std::string(estimator));
  problem.bandwidth = bandwidth;
  TORCH_CHECK_VALUE(problem.n >= min_examples(problem.estimator), "X[0]: wanted at least ",
                    min_examples(problem.estimator), " rows for the ", std::string(estimator),
                    " estimator, got ", problem.n);
  TORCH_CHECK_VALUE(bandwidth > 0, "bandwidth: wanted a positive number, got ", bandwidth);
  problem.x = layer_views(x);
  problem.y = layer_views(y);

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

}  // namespace

TORCH_LIBRARY_IMPL(simcore, CPU, m) { m.impl("hsic_terms", hsic_terms_cpu); }

}  // namespace simcore
