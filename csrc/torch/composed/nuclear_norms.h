#pragma once

#include <tuple>

#include "torch/tensor.h"

namespace simcore::composed {

// Computes simcore::nuclear_norms of checked layers, in float64.
std::tuple<Tensor, Tensor, Tensor> nuclear_norms(const Tensors& x, const Tensors& y,
                                                 int64_t max_memory);

}  // namespace simcore::composed
