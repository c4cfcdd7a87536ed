// Access to the weights of attention as the caller holds them, and the refusal of bad weights.
#pragma once

#include <vector>

#include "cpu/attention/attention.h"
#include "cpu/isa/isa.h"

namespace simcore::cpu {

// out[k] = weight of word `row` on word col + k.
template <typename T>
void load_weights(const AttentionView& view, int64_t head, int64_t row, int64_t col, int64_t count,
                  T* out) {
  const int64_t offset = head * view.head_stride + row * view.row_stride + col * view.col_stride;
  isa_table<T>().load(static_cast<const char*>(view.data) + offset * bytes_of(view.dtype),
                      view.dtype, view.col_stride, count, out);
}

// Throws std::invalid_argument naming the first layer that holds NaN, infinity or (js) negative
// weights, and how many.
template <typename T>
void refuse_bad_weights(const AttentionProblem& problem, const Runtime& rt);

// The rows of every layer, of x and then of y, that are no distributions; zeros where the measure
// takes other rows too.
std::vector<int64_t> count_rows_off(const AttentionProblem& problem, const Runtime& rt);

}  // namespace simcore::cpu
