// The similarity of layers whose neurons are matched with each other, on the CPU.
#pragma once

#include <cstdint>
#include <vector>

#include "core/views/layers_problem.h"
#include "cpu/base/runtime.h"

namespace simcore::cpu {

enum class Matching : int { best = 0, one_to_one = 1 };
enum class MatchScore : int { correlation = 0, distance = 1, angular = 2 };

// Returns [Lx, Ly]; y empty: x with itself.
//   best, correlation        mean of both layers' mean over neurons of the largest correlation
//   one_to_one, correlation  mean correlation over the assignment that has the largest
//   one_to_one, distance     min over P of ||X - Y P||_F, uncentred, the narrower layer padded with
//                            columns of zeros
//   one_to_one, angular      the least angle between X and Y P
// Neurons without variance are left out of correlations. nan for layers that have no others, and
// for angles of layers of zeros. Throws std::invalid_argument naming the layer that holds NaN or
// infinity, and for a max_memory that is too small.
std::vector<double> match_neurons(const LayersProblem& problem, Matching matching, MatchScore score,
                                  int64_t max_memory, const Runtime& rt);

}  // namespace simcore::cpu
