// The operators of single neurons on the CPU: checks and the calls into csrc/cpu/neurons.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <stdexcept>
#include <tuple>

#include "cpu/neurons/matching.h"
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

cpu::Matching parse_matching(c10::string_view name) {
  if (name == "best") return cpu::Matching::best;
  TORCH_CHECK_VALUE(name == "one-to-one", "matching: wanted 'best' or 'one-to-one', got '", name,
                    "'");
  return cpu::Matching::one_to_one;
}

cpu::MatchScore parse_score(c10::string_view name) {
  if (name == "correlation") return cpu::MatchScore::correlation;
  if (name == "distance") return cpu::MatchScore::distance;
  TORCH_CHECK_VALUE(name == "angular",
                    "score: wanted 'correlation', 'distance' or 'angular', got '", name, "'");
  return cpu::MatchScore::angular;
}

at::Tensor match_neurons_cpu(at::TensorList x, at::TensorList y, c10::string_view matching,
                             c10::string_view score, int64_t max_memory) {
  const LayersProblem problem = layers_problem(x, y);
  const cpu::Matching how = parse_matching(matching);
  const cpu::MatchScore what = parse_score(score);
  TORCH_CHECK_VALUE(how == cpu::Matching::one_to_one || what == cpu::MatchScore::correlation,
                    "score: wanted 'correlation' for matching 'best', got '", score, "'");
  try {
    return to_tensor(cpu::match_neurons(problem, how, what, max_memory, torch_runtime()),
                     {problem.rows(), problem.columns()});
  } catch (const std::invalid_argument& error) {
    TORCH_CHECK_VALUE(false, error.what());
  }
}

}  // namespace

TORCH_LIBRARY_IMPL(simcore, CPU, m) {
  m.impl("best_partners", best_partners_cpu);
  m.impl("multiple_correlations", multiple_correlations_cpu);
  m.impl("match_neurons", match_neurons_cpu);
}

}  // namespace simcore
