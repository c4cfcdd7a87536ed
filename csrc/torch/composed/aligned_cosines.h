#pragma once

#include "torch/tensor.h"

namespace simcore::composed {

// Computes simcore::aligned_cosines of checked layers.
Tensor aligned_cosines(const Tensors& x, const Tensors& y, int64_t max_memory);

}  // namespace simcore::composed
