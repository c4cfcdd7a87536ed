#include "torch/checks.h"

#include "torch/convert.h"

namespace simcore {

void check_layers(const Tensors& layers, const char* name, std::optional<int64_t> n) {
  for (size_t i = 0; i < layers.size(); i++) {
    const Tensor& layer = layers[i];
    SIMCORE_CHECK(layer.dim() == 2, name, "[", i, "]: wanted shape [n, p], got ", layer.sizes());
    SIMCORE_CHECK(!n || layer.size(0) == *n, name, "[", i, "]: wanted ", *n, " rows, got ",
                  layer.size(0));
    SIMCORE_CHECK(layer.size(0) > 0, name, "[", i, "]: wanted at least 1 row, got 0");
    SIMCORE_CHECK(layer.size(1) > 0, name, "[", i, "]: wanted at least 1 column, got 0");
    SIMCORE_CHECK_TYPE(is_floating(layer.scalar_type()), name, "[", i,
                       "]: wanted a floating-point dtype, got ", layer.scalar_type());
  }
}

int64_t rows_of(const Tensors& x) {
  SIMCORE_CHECK(!x.empty(), "X: wanted at least one layer, got none");
  SIMCORE_CHECK(x[0].dim() == 2, "X[0]: wanted shape [n, p], got ", x[0].sizes());
  SIMCORE_CHECK(x[0].size(0) > 0, "X[0]: wanted at least 1 row, got 0");
  return x[0].size(0);
}

LayersProblem layers_problem(const Tensors& x, const Tensors& y) {
  const int64_t n = rows_of(x);
  check_layers(x, "X", n);
  check_layers(y, "Y", n);
  return {n, layer_views(x), layer_views(y)};
}

}  // namespace simcore
