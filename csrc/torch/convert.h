// From tensors to the torch-free types of csrc/core, and back.
#pragma once

#include <vector>

#include "core/views/layer_view.h"
#include "torch/tensor.h"

namespace simcore {

DType dtype_of(const Tensor& layer);
LayerView layer_view(const Tensor& layer);
std::vector<LayerView> layer_views(const Tensors& layers);

Tensor to_tensor(const std::vector<double>& values, Shape shape);
Tensor to_tensor(const std::vector<int64_t>& values);

}  // namespace simcore
