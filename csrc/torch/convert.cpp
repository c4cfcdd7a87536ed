#include "torch/convert.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <algorithm>

namespace simcore {

DType dtype_of(const at::Tensor& layer) {
  switch (layer.scalar_type()) {
    case at::kHalf: return DType::f16;
    case at::kBFloat16: return DType::bf16;
    case at::kFloat: return DType::f32;
    case at::kDouble: return DType::f64;
    default: TORCH_CHECK_TYPE(false, "wanted a floating-point layer, got ", layer.scalar_type());
  }
}

LayerView layer_view(const at::Tensor& layer) {
  return {layer.const_data_ptr(), dtype_of(layer), layer.size(1), layer.stride(0), layer.stride(1)};
}

std::vector<LayerView> layer_views(at::TensorList layers) {
  std::vector<LayerView> views;
  for (const at::Tensor& layer : layers) views.push_back(layer_view(layer));
  return views;
}

at::Tensor to_tensor(const std::vector<double>& values, at::IntArrayRef shape) {
  at::Tensor result = at::empty(shape, at::kDouble);
  std::copy(values.begin(), values.end(), result.mutable_data_ptr<double>());
  return result;
}

at::Tensor to_tensor(const std::vector<int64_t>& values) {
  at::Tensor result = at::empty({int64_t(values.size())}, at::kLong);
  std::copy(values.begin(), values.end(), result.mutable_data_ptr<int64_t>());
  return result;
}

}  // namespace simcore
