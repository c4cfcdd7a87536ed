// Which path a grid takes, in which tiles, and what it will cost: decided before any work.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/math/hsic_math.h"
#include "core/math/rbf_math.h"

namespace simcore::cpu {

enum class Method : int { automatic = 0, gram = 1, feature = 2 };

struct PlanRequest {
  int64_t n = 0;
  std::vector<int64_t> widths_x;
  std::vector<int64_t> widths_y;  // empty: the grid of x with itself
  KernelKind kernel = KernelKind::linear;
  Method method = Method::automatic;
  double bandwidth = 1.0;   // of the RBF kernel
  bool power_sums = false;  // as HsicProblem's
  bool float64 = false;     // compute type; half precisions and float32 compute in float32
  int threads = 1;
  int64_t max_memory = 0;  // bytes beyond the inputs; 0: a quarter of the free memory
};

struct Plan {
  Method method = Method::gram;
  bool float64 = false;  // compute type
  // gram: rows [tile_rows, tile_cols] of a Gram tile. feature: columns of a product tile.
  int64_t tile_rows = 0;
  int64_t tile_cols = 0;
  int64_t depth = 0;  // how far one product runs before its sum goes to float64
  double flops = 0;   // of the chosen method
  double flops_gram = 0;
  double flops_feature = 0;     // infinite for the RBF kernel, which has no feature form
  int64_t workspace_bytes = 0;  // the most that is allocated beyond the inputs
  int64_t max_memory = 0;       // the bound that was applied
};

// Throws std::invalid_argument when not even the smallest tiles fit into max_memory, or when the
// feature method is asked of the RBF kernel.
Plan make_plan(const PlanRequest& request);

int64_t round_up(int64_t value, int64_t multiple);

// What a Buffer of so many bytes takes: large ones come in whole huge pages.
constexpr int64_t kHugePage = 2 << 20;
int64_t buffer_bytes(int64_t bytes);

}  // namespace simcore::cpu
