// Tiles of products of features (cpu/hsic/feature.cpp) within a bound of memory, and the parts that
// every plan of a grid has: sizes, and the bytes that are held whatever the tiles.
#pragma once

#include <cstdint>
#include <vector>

#include "core/views/layers_problem.h"

namespace simcore::cpu {

struct GridRequest {
  int64_t n = 0;
  std::vector<int64_t> widths_x;
  std::vector<int64_t> widths_y;  // empty: the grid of x with itself
  bool float64 = false;           // compute type; half precisions and float32 compute in float32
  int threads = 1;
  int64_t max_memory = 0;  // bytes beyond the inputs; 0: a quarter of the free memory
};

GridRequest grid_request(const LayersProblem& problem, int64_t max_memory, int threads);

struct TilePlan {
  bool float64 = false;  // compute type
  // Sides of a tile of products: columns of the left layer and of the right layer.
  int64_t tile_rows = 0;
  int64_t tile_cols = 0;
  int64_t depth = 0;            // how far one product runs before its sum goes to float64
  int64_t workspace_bytes = 0;  // the most that is allocated beyond the inputs
  int64_t max_memory = 0;       // the bound that was applied
};

// Sizes that determine the cost of every candidate plan.
struct GridSizes {
  int64_t n, layers, result, total_width, widest, element, width, unit, threads;
  GridSizes(const GridRequest& request, bool float64);
};

// Bytes of means, sums and results on any path; row_arrays is the number of float64 [L, n] arrays.
constexpr int64_t kRowArrays = 3;  // at least
int64_t common_bytes(const GridSizes& sizes, int64_t row_arrays);

// Sets the tiles, depth and workspace of `plan` for its bound; `common` is the result of
// common_bytes. Throws std::invalid_argument when not even the smallest tiles fit.
void plan_column_tiles(TilePlan& plan, const GridSizes& sizes, int64_t common);

// Throws std::invalid_argument: the workspace_bytes of the smallest tiles exceed max_memory.
[[noreturn]] void refuse_memory(const TilePlan& plan);

}  // namespace simcore::cpu
