// simcore::affine_coupling and its backward on the CPU: checks, and the calls into csrc/cpu.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include "cpu/coupling.h"
#include "torch/coupling_checks.h"
#include "torch/options.h"

namespace simcore {
namespace {

std::tuple<at::Tensor, at::Tensor> affine_coupling_cpu(const at::Tensor& x,
                                                       const at::Tensor& params, double clamp,
                                                       bool inverse) {
  const Coupling coupling = coupling_of(x, params, clamp, inverse);
  const at::ScalarType dtype = coupling_type(x, params);
  at::Tensor y = empty_in_huge_pages(x.sizes(), dtype);
  at::Tensor log_det = at::empty(x.sizes().slice(0, x.dim() - 1), dtype);
  if (dtype == at::kDouble)
    cpu::couple(coupling, y.mutable_data_ptr<double>(), log_det.mutable_data_ptr<double>(),
                torch_runtime());
  else
    cpu::couple(coupling, y.mutable_data_ptr<float>(), log_det.mutable_data_ptr<float>(),
                torch_runtime());
  return {y, log_det};
}

template <typename T>
void run_backward(const Coupling& coupling, const at::Tensor& grad, const at::Tensor& grad_log_det,
                  at::Tensor& grad_x, at::Tensor& grad_params) {
  cpu::couple_gradients(coupling, rows_view(grad), rows_view(grad_log_det),
                        grad_x.mutable_data_ptr<T>(), grad_params.mutable_data_ptr<T>(),
                        torch_runtime());
}

std::tuple<at::Tensor, at::Tensor> affine_coupling_backward_cpu(const at::Tensor& grad,
                                                                const at::Tensor& grad_log_det,
                                                                const at::Tensor& kept,
                                                                const at::Tensor& params,
                                                                double clamp, bool inverse) {
  const Coupling coupling = coupling_of(kept, params, clamp, inverse);
  check_coupling_gradients(grad, grad_log_det, kept);
  const at::ScalarType dtype = coupling_type(kept, params);
  at::Tensor grad_x = empty_in_huge_pages(kept.sizes(), dtype);
  at::Tensor grad_params = empty_in_huge_pages(params.sizes(), dtype);
  const at::Tensor of_rows = grad_log_det.unsqueeze(-1);
  if (dtype == at::kDouble)
    run_backward<double>(coupling, grad, of_rows, grad_x, grad_params);
  else
    run_backward<float>(coupling, grad, of_rows, grad_x, grad_params);
  return {grad_x, grad_params};
}

}  // namespace

TORCH_LIBRARY_IMPL(simcore, CPU, m) {
  m.impl("affine_coupling", affine_coupling_cpu);
  m.impl("affine_coupling_backward", affine_coupling_backward_cpu);
}

}  // namespace simcore
