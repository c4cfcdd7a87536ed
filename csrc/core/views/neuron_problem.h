// The neurons of two sets of layers that answered the same examples.
#pragma once

#include <cstdint>
#include <vector>

#include "core/views/layer_view.h"

namespace simcore {

struct NeuronProblem {
  int64_t n = 0;
  std::vector<LayerView> x;
  std::vector<LayerView> y;  // empty: x with itself
};

}  // namespace simcore
