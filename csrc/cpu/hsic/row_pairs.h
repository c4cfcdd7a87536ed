// Layers of one width compared row by row, all pairs, on the CPU.
#pragma once

#include <cstdint>
#include <vector>

#include "core/views/layers_problem.h"
#include "cpu/base/runtime.h"

namespace simcore::cpu {

enum class RowMeasure { cosine, angle, labels, divergence };

struct RowPairs {
  std::vector<double> sums;    // [Lx, Ly] over the rows that count
  std::vector<double> counts;  // [Lx, Ly] rows that count
  std::vector<int64_t> zeros;  // of each layer of x, then of y: rows of zeros (cosine, angle)
};

// Throws std::invalid_argument naming the layer that holds NaN or infinity, and for a max_memory
// (0: a quarter of the free memory) below what one row (labels: the label of every row) of all
// layers takes.
RowPairs row_pairs(const LayersProblem& problem, RowMeasure measure, int64_t max_memory,
                   const Runtime& rt);

}  // namespace simcore::cpu
