// Two sets of layers that answered the same examples: the input of every grid over layers.
#pragma once

#include <cstdint>
#include <vector>

#include "core/views/layer_view.h"

namespace simcore {

struct LayersProblem {
  int64_t n = 0;  // examples: rows of every layer
  std::vector<LayerView> x;
  std::vector<LayerView> y;  // empty: x with itself

  int64_t rows() const { return int64_t(x.size()); }  // of the grid
  int64_t columns() const { return int64_t(y.empty() ? x.size() : y.size()); }
  int64_t layers() const { return int64_t(x.size() + y.size()); }
  bool has_float64() const {
    for (const auto* side : {&x, &y})
      for (const LayerView& layer : *side)
        if (layer.dtype == DType::f64) return true;
    return false;
  }
};

}  // namespace simcore
