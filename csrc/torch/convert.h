// From tensors to the torch-free types of csrc/core, and back.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "core/views/layer_view.h"

namespace simcore {

DType dtype_of(const at::Tensor& layer);
LayerView layer_view(const at::Tensor& layer);
std::vector<LayerView> layer_views(at::TensorList layers);

at::Tensor to_tensor(const std::vector<double>& values, at::IntArrayRef shape);
at::Tensor to_tensor(const std::vector<int64_t>& values);

}  // namespace simcore
