// simcore::affine_coupling and its backward, whatever the device.
//
// Backend   at::Tensor empty(shape, dtype)
//           void couple(coupling, y, log_det)
//           void couple_gradients(coupling, grad, grad_log_det, grad_x, grad_params)
//           the last two as coupling/coupling.h of csrc/cpu and of csrc/cuda have them
#pragma once

#include <ATen/core/Tensor.h>

#include "torch/coupling_checks.h"

namespace simcore {

template <typename Backend>
std::tuple<at::Tensor, at::Tensor> couple_on(const Backend& backend, const at::Tensor& x,
                                             const at::Tensor& params, double clamp, bool inverse) {
  const Coupling coupling = coupling_of(x, params, clamp, inverse);
  const at::ScalarType dtype = coupling_type(x, params);
  at::Tensor y = backend.empty(x.sizes(), dtype);
  at::Tensor log_det = backend.empty(x.sizes().slice(0, x.dim() - 1), dtype);
  if (dtype == at::kDouble)
    backend.couple(coupling, y.mutable_data_ptr<double>(), log_det.mutable_data_ptr<double>());
  else
    backend.couple(coupling, y.mutable_data_ptr<float>(), log_det.mutable_data_ptr<float>());
  return {y, log_det};
}

template <typename Backend>
std::tuple<at::Tensor, at::Tensor> couple_gradients_on(
    const Backend& backend, const at::Tensor& grad, const at::Tensor& grad_log_det,
    const at::Tensor& kept, const at::Tensor& params, double clamp, bool inverse) {
  const Coupling coupling = coupling_of(kept, params, clamp, inverse);
  check_coupling_gradients(grad, grad_log_det, kept);
  const at::ScalarType dtype = coupling_type(kept, params);
  at::Tensor grad_x = backend.empty(kept.sizes(), dtype);
  at::Tensor grad_params = backend.empty(params.sizes(), dtype);
  const RowsView of_entries = rows_view(grad), of_rows = rows_view(grad_log_det.unsqueeze(-1));
  if (dtype == at::kDouble)
    backend.couple_gradients(coupling, of_entries, of_rows, grad_x.mutable_data_ptr<double>(),
                             grad_params.mutable_data_ptr<double>());
  else
    backend.couple_gradients(coupling, of_entries, of_rows, grad_x.mutable_data_ptr<float>(),
                             grad_params.mutable_data_ptr<float>());
  return {grad_x, grad_params};
}

}  // namespace simcore
