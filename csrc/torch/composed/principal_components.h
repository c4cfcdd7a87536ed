#pragma once

#include <tuple>

#include "torch/tensor.h"

namespace simcore::composed {

// Computes simcore::principal_components of checked layers.
std::tuple<Tensors, Tensors, Tensors> principal_components(const Tensors& layers, bool standardize);

}  // namespace simcore::composed
