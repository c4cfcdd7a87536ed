// simcore::best_partners and simcore::multiple_correlations on the CPU: checks and the calls into
// csrc/cpu/neurons.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <stdexcept>
#include <tuple>

#include "cpu/neurons/neurons.h"
#include "torch/checks.h"
#include "torch/convert.h"
#include "torch/runtime.h"

namespace simcore {
namespace {

std::tuple<at::Tensor, at::Tensor, at::Tensor> best_partners_cpu(at::TensorList x, at::TensorList y,
                                                                 bool keep, int64_t max_memory) {
  const LayersProblem problem = layers_problem(x, y);
  const cpu::Runtime runtime = torch_runtime();
  const int64_t rows = problem.rows(), columns = problem.columns();
  const int64_t neurons = keep ? total_width(problem.x) : 0;
  try {
    const cpu::TilePlan plan = cpu::neuron_plan(problem, max_memory, runtime.threads);
    const cpu::Partners found = cpu::best_partners(problem, keep, plan, runtime);
    at::Tensor partner = at::empty({neurons, columns}, at::kLong);
    std::copy(found.partner.begin(), found.partner.end(), partner.mutable_data_ptr<int64_t>());
    return {to_tensor(found.grid, {rows, columns}), to_tensor(found.best, {neurons, columns}),
            partner};
  } catch (const std::invalid_argument& error) {
    TORCH_CHECK_VALUE(false, error.what());
  }
}

at::Tensor multiple_correlations_cpu(at::TensorList x, at::TensorList y, int64_t max_memory) {
  TORCH_CHECK_VALUE(!y.empty(), "Y: wanted at least one layer, got none");
  const LayersProblem problem = layers_problem(x, y);
  const cpu::Runtime runtime = torch_runtime();
  try {
    const cpu::TilePlan plan = cpu::neuron_plan(problem, max_memory, runtime.threads);
    return to_tensor(cpu::multiple_correlations(problem, plan, runtime),
                     {problem.rows(), problem.columns()});
  } catch (const std::invalid_argument& error) {
    TORCH_CHECK_VALUE(false, error.what());
  }
}

}  // namespace

TORCH_LIBRARY_IMPL(simcore, CPU, m) {
  m.impl("best_partners", best_partners_cpu);
  m.impl("multiple_correlations", multiple_correlations_cpu);
}

}  // namespace simcore
