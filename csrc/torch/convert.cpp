#include "torch/convert.h"

#include <algorithm>

namespace simcore {

DType dtype_of(const Tensor& layer) {
  switch (layer.scalar_type()) {
    case ScalarType::Half: return DType::f16;
    case ScalarType::BFloat16: return DType::bf16;
    case ScalarType::Float: return DType::f32;
    case ScalarType::Double: return DType::f64;
    default: refuse_type(text("wanted a floating-point layer, got ", layer.scalar_type()));
  }
}

LayerView layer_view(const Tensor& layer) {
  return {layer.const_data_ptr(), dtype_of(layer), layer.size(1), layer.stride(0), layer.stride(1)};
}

std::vector<LayerView> layer_views(const Tensors& layers) {
  std::vector<LayerView> views;
  for (const Tensor& layer : layers) views.push_back(layer_view(layer));
  return views;
}

Tensor to_tensor(const std::vector<double>& values, Shape shape) {
  Tensor result = empty(shape, ScalarType::Double);
  std::copy(values.begin(), values.end(), mutable_data<double>(result));
  return result;
}

Tensor to_tensor(const std::vector<int64_t>& values) {
  Tensor result = empty({int64_t(values.size())}, ScalarType::Long);
  std::copy(values.begin(), values.end(), mutable_data<int64_t>(result));
  return result;
}

}  // namespace simcore
