// simcore::best_partners and simcore::multiple_correlations on the CPU: checks and the calls into
// csrc/cpu.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <stdexcept>
#include <tuple>

#include "cpu/neurons/neurons.h"
#include "torch/neuron_checks.h"
#include "torch/options.h"

namespace simcore {
namespace {

std::tuple<at::Tensor, at::Tensor, at::Tensor> best_partners_cpu(at::TensorList x, at::TensorList y,
                                                                 bool keep, int64_t max_memory) {
  const NeuronProblem problem = neuron_problem(x, y);
  const cpu::Runtime runtime = torch_runtime();
  const int64_t rows = int64_t(x.size()), columns = int64_t(y.empty() ? x.size() : y.size());
  const int64_t neurons = keep ? total_width(x) : 0;
  try {
    const cpu::Plan plan = cpu::neuron_plan(problem, max_memory, runtime.threads);
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
  const NeuronProblem problem = neuron_problem(x, y);
  const cpu::Runtime runtime = torch_runtime();
  try {
    const cpu::Plan plan = cpu::neuron_plan(problem, max_memory, runtime.threads);
    return to_tensor(cpu::multiple_correlations(problem, plan, runtime),
                     {int64_t(x.size()), int64_t(y.size())});
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
