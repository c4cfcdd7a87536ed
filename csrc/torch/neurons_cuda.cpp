// simcore::best_partners and simcore::multiple_correlations on a CUDA device: checks, the plan, the
// workspace, and the calls into csrc/cuda on the current stream. NaN and infinity are counted by
// the kernels and refused once all of them have run.
#include <torch/library.h>

#include <tuple>

#include "cuda/neurons/neurons.h"
#include "torch/checks.h"
#include "torch/runtime_cuda.h"

namespace simcore {
namespace {

using Compute = void (*)(const LayersProblem&, const cuda::NeuronPlan&, void*,
                         const cuda::NeuronOutput&, cudaStream_t);

// Computes the grid, and the best values and partners if `output` has room for them.
at::Tensor compute(Compute function, cuda::Variant variant, const LayersProblem& problem,
                   at::TensorList x, at::TensorList y, cuda::NeuronOutput output,
                   int64_t max_memory) {
  const at::Device device = x[0].device();
  check_same_device(x, "X", device);
  check_same_device(y, "Y", device);
  const at::Tensor grid = empty_on(device, {problem.rows(), problem.columns()}, at::kDouble);
  const at::Tensor bad = empty_on(device, {problem.layers()}, at::kLong);
  output.grid = grid.mutable_data_ptr<double>();
  output.nonfinite = bad.mutable_data_ptr<int64_t>();
  try {
    const cuda::NeuronPlan plan = plan_within(max_memory, [&](int64_t bound) {
      return cuda::make_plan(problem, current_device(), bound, variant);
    });
    const at::Tensor workspace = empty_on(device, {plan.workspace_bytes}, at::kByte);
    function(problem, plan, workspace.mutable_data_ptr(), output,
             c10::cuda::getCurrentCUDAStream());
  } catch (const std::invalid_argument& error) {
    TORCH_CHECK_VALUE(false, error.what());
  }
  if (!capturing()) refuse_nonfinite(bad, problem.rows(), x, y);
  return grid;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> best_partners_cuda(at::TensorList x,
                                                                  at::TensorList y, bool keep,
                                                                  int64_t max_memory) {
  const LayersProblem problem = layers_problem(x, y);
  const c10::cuda::CUDAGuard guard(x[0].device());
  const int64_t neurons = keep ? total_width(problem.x) : 0, columns = problem.columns();
  const at::Tensor best = empty_on(x[0].device(), {neurons, columns}, at::kDouble);
  const at::Tensor partner = empty_on(x[0].device(), {neurons, columns}, at::kLong);
  cuda::NeuronOutput output{};
  if (keep) {
    output.best = best.mutable_data_ptr<double>();
    output.partner = partner.mutable_data_ptr<int64_t>();
  }
  return {compute(cuda::best_partners, cuda::Variant::tensor, problem, x, y, output, max_memory),
          best, partner};
}

at::Tensor multiple_correlations_cuda(at::TensorList x, at::TensorList y, int64_t max_memory) {
  TORCH_CHECK_VALUE(!y.empty(), "Y: wanted at least one layer, got none");
  const LayersProblem problem = layers_problem(x, y);
  const c10::cuda::CUDAGuard guard(x[0].device());
  return compute(cuda::multiple_correlations, cuda::Variant::plain, problem, x, y, {}, max_memory);
}

}  // namespace

TORCH_LIBRARY_IMPL(simcore, CUDA, m) {
  m.impl("best_partners", best_partners_cuda);
  m.impl("multiple_correlations", multiple_correlations_cuda);
}

}  // namespace simcore
