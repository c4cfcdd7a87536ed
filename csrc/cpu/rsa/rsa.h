// Moments of the ranks of dissimilarities of all layer pairs: the entry point that the torch
// adapter and the C++ tests call.
#pragma once

#include <cstdint>
#include <vector>

#include "core/views/layers_problem.h"
#include "cpu/base/runtime.h"

namespace simcore::cpu {

struct RankMoments {
  std::vector<double> xy;      // [Lx, Ly] covariances of the ranks, which are scaled to [0, 1]
  std::vector<double> xx, yy;  // their variances; y empty: yy is xx
  // [Lx + Ly] for the dissimilarities: their variance, and the part of it that rounding contributes
  // (standard_rows.h), in units of the squared mean of |c_i|^2 / 2; nan where a row is constant or
  // all rows are alike.
  std::vector<double> spread, rounding;
};

// max_memory: bytes beyond the inputs; 0: a quarter of what is free. Throws std::invalid_argument
// if n is too large to count its pairs in 31 bits, or max_memory too small for the ranks of all
// layers.
RankMoments rank_moments(const LayersProblem& problem, int64_t max_memory, const Runtime& rt);

}  // namespace simcore::cpu
