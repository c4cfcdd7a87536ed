// Affine coupling layers on the CPU: the entry points that the torch adapter and the C++ tests
// call.
#pragma once

#include <cstdint>

#include "core/views/coupling_view.h"
#include "cpu/base/runtime.h"

namespace simcore::cpu {

using simcore::Coupling;
using simcore::RowsView;

// Writes out [batch, rows, width] and each row's log-determinant [batch, rows], both contiguous. T
// is double as soon as one input is.
template <typename T>
void couple(const Coupling& coupling, T* out, T* log_det, const Runtime& rt);

// Writes the gradients with respect to x and params, contiguous, given the gradients of out [batch,
// rows, width] and of log_det [batch, rows, 1]. coupling.x is x itself (forward) or the result of
// `couple` (inverse).
template <typename T>
void couple_gradients(const Coupling& coupling, const RowsView& grad, const RowsView& grad_log_det,
                      T* grad_x, T* grad_params, const Runtime& rt);

}  // namespace simcore::cpu
