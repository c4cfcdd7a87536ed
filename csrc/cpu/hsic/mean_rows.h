// The mean row of every layer, and the direction of its rows from the origin, on the CPU.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/views/layer_view.h"
#include "cpu/base/runtime.h"

namespace simcore::cpu {

struct MeanRowsProblem {
  std::vector<LayerView> layers;
  std::vector<int64_t> rows;  // of each layer
  bool with_cosines = true;
  std::string name;  // of the layers, in messages
};

// Of each layer.
struct MeanRows {
  std::vector<double> length;  // of the mean row
  std::vector<double> cosine;  // mean of the rows to the mean row; nan where that has no direction
  std::vector<int64_t> zeros;  // rows of zeros, which have no cosine
};

// Throws std::invalid_argument naming the layer that holds NaN or infinity, and for a max_memory
// (0: a quarter of the free memory) below what the widest layer takes. Without with_cosines
// there are lengths alone.
MeanRows mean_rows(const MeanRowsProblem& problem, int64_t max_memory, const Runtime& rt);

}  // namespace simcore::cpu
