#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>

namespace simcore::composed {

// Computes simcore::nuclear_norms of checked layers, in float64.
std::tuple<at::Tensor, at::Tensor, at::Tensor> nuclear_norms(at::TensorList x, at::TensorList y,
                                                             int64_t max_memory);

}  // namespace simcore::composed
