// The plan of HSIC: its path, its tiles and its cost, decided before any work.
#pragma once

#include <cstdint>

#include "core/math/hsic_math.h"
#include "cpu/products/column_plan.h"

namespace simcore::cpu {

enum class Method : int { automatic = 0, gram = 1, feature = 2 };

struct HsicRequest : GridRequest {
  KernelKind kernel = KernelKind::linear;
  Method method = Method::automatic;
  double bandwidth = 1.0;   // of the RBF kernel
  bool power_sums = false;  // linear kernel, Gram method: HsicResult's powers too
  bool rows_alone = false;  // sums of the rows of Gaussian kernels, and no products of layers
};

// Tiles of the Gram path: rows [tile_rows, tile_cols] of a Gram tile, depth over features.
struct HsicPlan : TilePlan {
  Method method = Method::gram;
  bool power_sums = false, rows_alone = false;
  double flops = 0;  // of the chosen method
  double flops_gram = 0;
  double flops_feature = 0;  // infinite for kernels but the linear one: they have no feature form
};

// Throws std::invalid_argument when not even the smallest tiles fit into max_memory, or when the
// feature method is asked of another kernel than the linear one.
HsicPlan make_plan(const HsicRequest& request);

}  // namespace simcore::cpu
