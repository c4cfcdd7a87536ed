// simcore::gram_terms, on CUDA devices alone: checks, the plan, the workspace, and the call into
// csrc/cuda on the current stream.
//
// NaN and infinity are counted by the kernels and refused once all of them have run, which is the
// one synchronisation of a call; while a graph is captured they only make the results nan. Layers
// whose distances float16 pairs do not resolve are a NotImplementedError, after which
// simcore/_kernels/choice.py takes the composed form.
#include <torch/library.h>

#include <tuple>

#include "cuda/hsic/hsic.h"
#include "torch/hsic_checks.h"
#include "torch/runtime_cuda.h"

namespace simcore {
namespace {

cuda::Precision parse_precision(const std::string& name) {
  if (name == "highest" || name == "high") return cuda::Precision::pairs;
  TORCH_CHECK_VALUE(name == "medium", "precision: wanted 'highest', 'high' or 'medium', got '",
                    name, "'");
  return cuda::Precision::single;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> gram_terms_cuda(at::TensorList x, at::TensorList y,
                                                               c10::string_view kernel,
                                                               c10::string_view estimator,
                                                               double bandwidth, int64_t max_memory,
                                                               c10::string_view precision) {
  const HsicProblem wanted =
      hsic_problem(x, y, parse_kernel(std::string(kernel)), std::string(estimator), bandwidth);
  const at::Device device = x[0].device();
  check_same_device(x, "X", device);
  check_same_device(y, "Y", device);
  const c10::cuda::CUDAGuard guard(device);
  const cuda::DeviceHsicProblem problem{wanted, parse_precision(std::string(precision))};
  const int64_t rows = problem.rows(), columns = problem.columns();
  const at::Tensor xy = empty_on(device, {rows, columns}, at::kDouble);
  const at::Tensor xx = empty_on(device, {rows}, at::kDouble);
  const at::Tensor yy = empty_on(device, {columns}, at::kDouble);
  const at::Tensor bad = empty_on(device, {problem.layers()}, at::kLong);
  try {
    const cuda::HsicPlan plan = plan_within(max_memory, [&](int64_t bound) {
      return cuda::make_plan(problem, current_device(), bound);
    });
    const at::Tensor workspace = empty_on(device, {plan.workspace_bytes}, at::kByte);
    const cuda::HsicOutput output{xy.mutable_data_ptr<double>(), xx.mutable_data_ptr<double>(),
                                  yy.mutable_data_ptr<double>(), bad.mutable_data_ptr<int64_t>()};
    cuda::hsic_terms(problem, plan, workspace.mutable_data_ptr(), output,
                     c10::cuda::getCurrentCUDAStream());
  } catch (const std::invalid_argument& error) {
    TORCH_CHECK_VALUE(false, error.what());
  }
  if (!capturing()) refuse_nonfinite(bad, rows, x, y);
  return {xy, xx, yy};
}

}  // namespace

TORCH_LIBRARY_IMPL(simcore, CUDA, m) { m.impl("gram_terms", gram_terms_cuda); }

}  // namespace simcore
