// Checks of affine couplings and views of their arrays, shared by the adapters.
#pragma once

#include <ATen/core/Tensor.h>

#include "core/views/coupling_view.h"

namespace simcore {

// Returns a view of an array; [n, k] counts as [1, n, k].
RowsView rows_view(const at::Tensor& array);

// Throws ValueError for shapes that do not fit or a clamp out of range.
Coupling coupling_of(const at::Tensor& x, const at::Tensor& params, double clamp, bool inverse);
void check_coupling_gradients(const at::Tensor& grad, const at::Tensor& grad_log_det,
                              const at::Tensor& kept);

at::ScalarType coupling_type(const at::Tensor& x, const at::Tensor& params);

}  // namespace simcore
