// Similarity of attention heads of all layer pairs on the CPU: the entry point that the torch
// adapter and the C++ tests call.
#pragma once

#include <cstdint>
#include <vector>

#include "core/attention_math.h"
#include "cpu/layer.h"
#include "cpu/runtime.h"

namespace simcore::cpu {

// The attention of one layer to one sentence as the caller holds it, never copied.
struct AttentionView {
  const void* data;  // [heads, words, words]
  DType dtype;
  int64_t heads, words;
  int64_t head_stride, row_stride, col_stride;  // in elements; may be 0 or negative
};

using AttentionLayer = std::vector<AttentionView>;  // a view per sentence, all with the same heads

struct AttentionProblem {
  std::vector<AttentionLayer> x;
  std::vector<AttentionLayer> y;  // empty: x with itself
  AttentionMeasure measure = AttentionMeasure::js;
  bool causal = false;     // only columns j <= i of row i count, and rows are made to sum to 1
  int64_t max_memory = 0;  // bytes beyond the inputs; 0: a quarter of what is free
};

// [Lx, Ly] row-major: the mean over the heads of x of the max over the heads of y. All layers hold
// the same sentences. Throws std::invalid_argument naming the layer that holds NaN, infinity or
// (js) negative weights, or max_memory if not even the smallest buffers fit.
std::vector<double> attention_similarity(const AttentionProblem& problem, const Runtime& rt);

}  // namespace simcore::cpu
