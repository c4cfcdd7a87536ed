// Nuclear norms of the cross-products of all layer pairs on the CPU.
#pragma once

#include <cstdint>
#include <vector>

#include "core/views/layers_problem.h"
#include "cpu/base/runtime.h"

namespace simcore::cpu {

struct NuclearResult {
  std::vector<double> xy;      // [Lx, Ly] ||Xc_i^T Yc_j||_*
  std::vector<double> norm_x;  // [Lx] ||Xc_i||_F
  std::vector<double> norm_y;  // [Ly]
};

// Return the bytes of all layers packed, and the bytes of one thread's workspace with or without
// them.
int64_t packed_bytes(const LayersProblem& problem);
int64_t nuclear_workspace(const LayersProblem& problem, bool keep_packed);

// Computes the norms. keep_packed: every layer is packed once rather than for each pair. `threads`:
// the number of the runtime's threads that may work at once. Throws std::invalid_argument naming
// the layer that holds NaN or infinity.
NuclearResult nuclear_norms(const LayersProblem& problem, bool keep_packed, int threads,
                            const Runtime& rt);

// sqrt(x) = sum_j weight[j] * x / (x + shift[j]) for x in [lowest, 1], lowest = 1e-11, to a
// relative 2e-7; below it the absolute error is 3e-7 at most.
struct RationalRoot {
  std::vector<double> shift, weight;  // [kPoles]
};
RationalRoot rational_root();

}  // namespace simcore::cpu
