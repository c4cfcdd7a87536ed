// simcore::gram_terms, on CUDA devices alone: checks, the plan, the workspace, and the call into
// csrc/cuda on the current stream.
//
// NaN and infinity are counted by the kernels and refused once all of them have run, which is the
// one synchronisation of a call; while a graph is captured they only make the results nan. Layers
// whose distances float16 pairs do not resolve are a NotImplementedError, after which
// simcore/_kernels/choice.py takes the composed form.

#include <tuple>

#include "cuda/hsic/hsic.h"
#include "torch/hsic_checks.h"
#include "torch/runtime_cuda.h"

namespace simcore {
namespace {

cuda::Precision parse_precision(const std::string& name) {
  if (name == "highest" || name == "high") return cuda::Precision::pairs;
  SIMCORE_CHECK(name == "medium", "precision: wanted 'highest', 'high' or 'medium', got '", name,
                "'");
  return cuda::Precision::single;
}

std::tuple<Tensor, Tensor, Tensor> gram_terms_cuda(const Tensors& x, const Tensors& y,
                                                   const std::string& kernel,
                                                   const std::string& estimator, double bandwidth,
                                                   int64_t max_memory,
                                                   const std::string& precision) {
  const HsicProblem wanted = hsic_problem(x, y, parse_kernel(kernel), estimator, bandwidth);
  const Device device = x[0].device();
  check_same_device(x, "X", device);
  check_same_device(y, "Y", device);
  const DeviceGuard guard(device.index());
  const cuda::DeviceHsicProblem problem{wanted, parse_precision(precision)};
  const int64_t rows = problem.rows(), columns = problem.columns();
  const Tensor xy = empty_on(device, {rows, columns}, ScalarType::Double);
  const Tensor xx = empty_on(device, {rows}, ScalarType::Double);
  const Tensor yy = empty_on(device, {columns}, ScalarType::Double);
  const Tensor bad = empty_on(device, {problem.layers()}, ScalarType::Long);
  const cuda::HsicPlan plan = plan_within(max_memory, device, [&](int64_t bound) {
    return cuda::make_plan(problem, properties_of(device), bound);
  });
  const Tensor workspace = empty_on(device, {plan.workspace_bytes}, ScalarType::Byte);
  const cuda::HsicOutput output{mutable_data<double>(xy), mutable_data<double>(xx),
                                mutable_data<double>(yy), mutable_data<int64_t>(bad)};
  cuda::hsic_terms(problem, plan, workspace.mutable_data_ptr(), output, current_stream(device));
  if (!capturing(device)) refuse_nonfinite(bad, rows, x, y);
  return {xy, xx, yy};
}

}  // namespace

const Library functions("CUDA",
                        [](const Library& m) { m.impl("gram_terms", boxed<gram_terms_cuda>); });

}  // namespace simcore
