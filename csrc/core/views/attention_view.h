// The attention of several layers to the same sentences, as the caller holds it.
#pragma once

#include <cstdint>
#include <vector>

#include "core/math/attention_math.h"
#include "core/views/layer_view.h"

namespace simcore {

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
  int64_t max_memory = 0;  // bytes beyond the inputs; 0: a quarter of the free memory
};

}  // namespace simcore
