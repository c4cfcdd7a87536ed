// HSIC of all layer pairs on the CPU: the entry point that the torch adapter and the C++ tests
// call.
#pragma once

#include <cstdint>
#include <vector>

#include "core/views/hsic_problem.h"
#include "cpu/base/runtime.h"
#include "cpu/hsic/plan.h"

namespace simcore::cpu {

struct HsicResult {
  std::vector<double> xy;  // [Lx, Ly] row-major
  std::vector<double> xx;  // [Lx] HSIC(x_i, x_i)
  std::vector<double> yy;  // [Ly]
  // Power sums of K scaled by 2^(-2 exponent), for the layers of x, then of y; only if the plan has
  // power_sums.
  std::vector<double> squares;    // [L, n] sum_{j != i} K_ij^2
  std::vector<double> cubes;      // [L] sum_{i != j} K_ij^3
  std::vector<double> exponents;  // [L], always
};

// Throws std::invalid_argument naming the layer that holds NaN or infinity.
HsicResult hsic_terms(const HsicProblem& problem, const HsicPlan& plan, const Runtime& rt);

// [x] log mean exp(-2 |x_i - x_j|^2) over all ordered pairs of rows, the diagonal included; y is
// empty and the plan has rows_alone. Throws as hsic_terms does.
std::vector<double> uniformity(const LayersProblem& problem, const HsicPlan& plan,
                               const Runtime& rt);

// [x, then y] median of the squared distances over all ordered pairs of rows; the rule and its
// sampling are median.cpp's. Throws as hsic_terms does.
std::vector<double> median_squared_distances(const LayersProblem& problem, const Runtime& rt);

}  // namespace simcore::cpu
