// Affine couplings on a CUDA device: what the torch adapter and the host run call.
//
// Only enqueues kernels on the given stream. Errors of launches throw std::runtime_error.
#pragma once

#include <cuda_runtime_api.h>

#include "core/views/coupling_view.h"

namespace simcore::cuda {

// couple and couple_gradients as in simcore::cpu; all pointers are device pointers. T is float or
// double.
template <typename T>
void couple(const Coupling& coupling, T* out, T* log_det, cudaStream_t stream);

template <typename T>
void couple_gradients(const Coupling& coupling, const RowsView& grad, const RowsView& grad_log_det,
                      T* grad_x, T* grad_params, cudaStream_t stream);

}  // namespace simcore::cuda
