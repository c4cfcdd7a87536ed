// Checks of affine couplings and views of their arrays, shared by the adapters.
#pragma once

#include "core/views/coupling_view.h"
#include "torch/tensor.h"

namespace simcore {

// Returns a view of an array; [n, k] counts as [1, n, k].
RowsView rows_view(const Tensor& array);

// Throws ValueError for shapes that do not fit or a clamp out of range.
Coupling coupling_of(const Tensor& x, const Tensor& params, double clamp, bool inverse);
void check_coupling_gradients(const Tensor& grad, const Tensor& grad_log_det, const Tensor& kept);

ScalarType coupling_type(const Tensor& x, const Tensor& params);

}  // namespace simcore
