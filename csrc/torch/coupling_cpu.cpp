// simcore::affine_coupling and its backward on the CPU: checks, and the calls into csrc/cpu.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include "cpu/coupling.h"
#include "torch/options.h"

namespace simcore {
namespace {

// [n, k] counts as [1, n, k].
cpu::RowsView rows_view(const at::Tensor& array) {
  return {array.const_data_ptr(), dtype_of(array), array.dim() == 3 ? array.stride(0) : 0,
          array.stride(-2), array.stride(-1)};
}

// simcore/nn words these for users; here they keep a direct call of the operator safe.
cpu::Coupling coupling_of(const at::Tensor& x, const at::Tensor& params, double clamp,
                          bool inverse) {
  TORCH_CHECK_VALUE(x.dim() == 2 || x.dim() == 3, "x: wanted shape [n, k] or [B, n, k], got ",
                    x.sizes());
  std::vector<int64_t> wanted = x.sizes().vec();
  wanted.back() *= 2;
  TORCH_CHECK_VALUE(params.sizes() == at::IntArrayRef(wanted), "params: wanted shape ", wanted,
                    " (s_raw, then t), got ", params.sizes());
  TORCH_CHECK_VALUE(clamp > 0 && clamp <= cpu::kMaxClamp, "clamp: wanted a number in (0, ",
                    cpu::kMaxClamp, "], got ", clamp);
  cpu::Coupling coupling{x.dim() == 3 ? x.size(0) : 1, x.size(-2), x.size(-1), rows_view(x),
                         rows_view(params)};
  coupling.clamp = clamp;
  coupling.inverse = inverse;
  return coupling;
}

at::ScalarType compute_type(const at::Tensor& x, const at::Tensor& params) {
  const bool wide = x.scalar_type() == at::kDouble || params.scalar_type() == at::kDouble;
  return wide ? at::kDouble : at::kFloat;
}

std::tuple<at::Tensor, at::Tensor> affine_coupling_cpu(const at::Tensor& x,
                                                       const at::Tensor& params, double clamp,
                                                       bool inverse) {
  const cpu::Coupling coupling = coupling_of(x, params, clamp, inverse);
  const at::ScalarType dtype = compute_type(x, params);
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
void run_backward(const cpu::Coupling& coupling, const at::Tensor& grad,
                  const at::Tensor& grad_log_det, at::Tensor& grad_x, at::Tensor& grad_params) {
  cpu::couple_gradients(coupling, rows_view(grad), rows_view(grad_log_det),
                        grad_x.mutable_data_ptr<T>(), grad_params.mutable_data_ptr<T>(),
                        torch_runtime());
}

std::tuple<at::Tensor, at::Tensor> affine_coupling_backward_cpu(const at::Tensor& grad,
                                                                const at::Tensor& grad_log_det,
                                                                const at::Tensor& kept,
                                                                const at::Tensor& params,
                                                                double clamp, bool inverse) {
  const cpu::Coupling coupling = coupling_of(kept, params, clamp, inverse);
  TORCH_CHECK_VALUE(grad.sizes() == kept.sizes(), "grad: wanted shape ", kept.sizes(), ", got ",
                    grad.sizes());
  TORCH_CHECK_VALUE(grad_log_det.sizes() == kept.sizes().slice(0, kept.dim() - 1),
                    "grad_log_det: wanted shape ", kept.sizes().slice(0, kept.dim() - 1), ", got ",
                    grad_log_det.sizes());
  const at::ScalarType dtype = compute_type(kept, params);
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
