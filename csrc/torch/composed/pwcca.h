#pragma once

#include <tuple>

#include "torch/tensor.h"

namespace simcore::composed {

// Computes simcore::pwcca of checked bases and components.
std::tuple<Tensor, Tensor> pwcca(const Tensors& u_x, const Tensors& weighted_x, const Tensors& u_y,
                                 int64_t max_memory);

}  // namespace simcore::composed
