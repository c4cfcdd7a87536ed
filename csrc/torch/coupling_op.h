// simcore::affine_coupling and its backward, whatever the device.
//
// Backend   Tensor empty(shape, dtype)
//           void couple(coupling, y, log_det)
//           void couple_gradients(coupling, grad, grad_log_det, grad_x, grad_params)
//           the last two as coupling/coupling.h of csrc/cpu and of csrc/cuda have them
#pragma once

#include "torch/coupling_checks.h"
#include "torch/tensor.h"

namespace simcore {

template <typename Backend>
std::tuple<Tensor, Tensor> couple_on(const Backend& backend, const Tensor& x, const Tensor& params,
                                     double clamp, bool inverse) {
  const Coupling coupling = coupling_of(x, params, clamp, inverse);
  const ScalarType dtype = coupling_type(x, params);
  Tensor y = backend.empty(x.sizes(), dtype);
  Tensor log_det = backend.empty(x.sizes().prefix(x.dim() - 1), dtype);
  if (dtype == ScalarType::Double)
    backend.couple(coupling, mutable_data<double>(y), mutable_data<double>(log_det));
  else
    backend.couple(coupling, mutable_data<float>(y), mutable_data<float>(log_det));
  return {y, log_det};
}

template <typename Backend>
std::tuple<Tensor, Tensor> couple_gradients_on(const Backend& backend, const Tensor& grad,
                                               const Tensor& grad_log_det, const Tensor& kept,
                                               const Tensor& params, double clamp, bool inverse) {
  const Coupling coupling = coupling_of(kept, params, clamp, inverse);
  check_coupling_gradients(grad, grad_log_det, kept);
  const ScalarType dtype = coupling_type(kept, params);
  Tensor grad_x = backend.empty(kept.sizes(), dtype);
  Tensor grad_params = backend.empty(params.sizes(), dtype);
  const RowsView of_entries = rows_view(grad),
                 of_rows = rows_view(call("aten::unsqueeze", "", grad_log_det, int64_t(-1)));
  if (dtype == ScalarType::Double)
    backend.couple_gradients(coupling, of_entries, of_rows, mutable_data<double>(grad_x),
                             mutable_data<double>(grad_params));
  else
    backend.couple_gradients(coupling, of_entries, of_rows, mutable_data<float>(grad_x),
                             mutable_data<float>(grad_params));
  return {grad_x, grad_params};
}

}  // namespace simcore
