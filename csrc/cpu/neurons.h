// Neuron-level similarity of all layer pairs on the CPU.
#pragma once

#include <cstdint>
#include <vector>

#include "cpu/layer.h"
#include "cpu/plan.h"
#include "cpu/runtime.h"

namespace simcore::cpu {

struct NeuronProblem {
  int64_t n = 0;
  std::vector<LayerView> x;
  std::vector<LayerView> y;  // empty: x with itself
};

// The tiles and the memory of a grid; results are beyond it.
Plan neuron_plan(const NeuronProblem& problem, int64_t max_memory, int threads);

// For neuron k of layer x_i, row (p_0 + ... + p_(i-1) + k), and layer y_j, column j:
struct Partners {
  std::vector<double> best;      // max over k' of |pearson(x_k, y_k')|; nan where undefined
  std::vector<int64_t> partner;  // the first k' that reaches it; -1 where undefined
};
Partners best_partners(const NeuronProblem& problem, const Plan& plan, const Runtime& rt);

// In the same rows and columns: ||y_j^T x_k||^2 / ||x_k||^2 over centred columns, which for
// orthonormal y_j is the share of x_k that y_j explains; nan for a constant x_k.
std::vector<double> explained_shares(const NeuronProblem& problem, const Plan& plan,
                                     const Runtime& rt);

}  // namespace simcore::cpu
