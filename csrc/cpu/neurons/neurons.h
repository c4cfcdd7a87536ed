// Neuron-level similarity of all layer pairs on the CPU.
#pragma once

#include <cstdint>
#include <vector>

#include "core/views/layers_problem.h"
#include "cpu/base/runtime.h"
#include "cpu/products/column_plan.h"

namespace simcore::cpu {

// Plans the tiles and the workspace of a grid. The workspace does not include the results.
TilePlan neuron_plan(const LayersProblem& problem, int64_t max_memory, int threads);

struct Partners {
  std::vector<double> grid;  // [Lx, Ly] mean over neurons k of x_i of the best; nan if none has one
  // If kept: row p_0 + ... + p_(i-1) + k is neuron k of layer x_i, column j is layer y_j.
  std::vector<double> best;      // max over k' of |pearson(x_k, y_k')|; nan where undefined
  std::vector<int64_t> partner;  // the first k' that reaches it; -1 where undefined
};
Partners best_partners(const LayersProblem& problem, bool keep, const TilePlan& plan,
                       const Runtime& rt);

// Returns [Lx, Ly]: the mean of ||y_j^T x_k|| / ||x_k|| over the neurons x_k that vary, columns
// centred, each at most 1. For orthonormal y_j the ratio is the multiple correlation of x_k with
// y_j. nan without variance. y may not be empty.
std::vector<double> multiple_correlations(const LayersProblem& problem, const TilePlan& plan,
                                          const Runtime& rt);

}  // namespace simcore::cpu
