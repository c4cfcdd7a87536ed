#pragma once

#include <tuple>

#include "torch/tensor.h"

namespace simcore::composed {

// Computes simcore::aligned_cosines of checked layers.
std::tuple<Tensor, Tensor> aligned_cosines(const Tensors& x, const Tensors& y, int64_t max_memory);

}  // namespace simcore::composed
