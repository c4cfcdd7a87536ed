#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>
#include <vector>

namespace simcore::composed {

// Computes simcore::principal_components of checked layers.
std::tuple<std::vector<at::Tensor>, std::vector<at::Tensor>, std::vector<at::Tensor>>
principal_components(at::TensorList layers, bool standardize);

}  // namespace simcore::composed
