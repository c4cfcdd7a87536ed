// The layers of a grid, centred once, and the pairs of layers that its result needs.
#pragma once

#include <cstdint>
#include <vector>

#include "core/views/layers_problem.h"
#include "cpu/base/layer.h"
#include "cpu/base/runtime.h"

namespace simcore::cpu {

template <typename T>
struct Grid {
  int64_t n = 0;
  int64_t count_x = 0;            // layers [0, count_x) are x, the rest y
  bool symmetric = true;          // x with itself
  std::vector<LayerView> layers;  // x, then y
  std::vector<Centring<T>> centring;

  int64_t count() const { return int64_t(layers.size()); }
  // Returns true for pairs (a, b), b >= a, that the result needs: every pair of x with itself, or
  // every (x, y) and each layer with itself.
  bool wanted(int64_t a, int64_t b) const {
    return symmetric || a == b || (a < count_x && b >= count_x);
  }
};

// Centres all layers. Throws std::invalid_argument naming the layer that holds NaN or infinity.
template <typename T>
Grid<T> make_grid(const LayersProblem& problem, const Runtime& rt);

}  // namespace simcore::cpu
