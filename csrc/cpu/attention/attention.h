// Similarity of attention heads of all layer pairs on the CPU: the entry point that the torch
// adapter and the C++ tests call.
#pragma once

#include <cstdint>
#include <vector>

#include "core/views/attention_view.h"
#include "cpu/base/runtime.h"

namespace simcore::cpu {

using simcore::AttentionLayer;
using simcore::AttentionProblem;
using simcore::AttentionView;

// [Lx, Ly] row-major: the mean over the heads of x of the max over the heads of y. All layers hold
// the same sentences. Throws std::invalid_argument naming the layer that holds NaN, infinity or
// (js) negative weights, or max_memory if not even the smallest buffers fit.
std::vector<double> attention_similarity(const AttentionProblem& problem, const Runtime& rt);

}  // namespace simcore::cpu
