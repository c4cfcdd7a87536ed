#pragma once

#include <ATen/core/Tensor.h>

namespace simcore::composed {

// Computes simcore::aligned_cosines of checked layers.
at::Tensor aligned_cosines(at::TensorList x, at::TensorList y, int64_t max_memory);

}  // namespace simcore::composed
