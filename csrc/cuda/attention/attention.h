// Similarity of attention heads of all layer pairs on a CUDA device: what the torch adapter and the
// host run call.
//
// Only enqueues kernels on the given stream. Errors of launches throw std::runtime_error.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <vector>

#include "core/views/attention_view.h"
#include "cuda/base/device.h"

namespace simcore::cuda {

// A sentence's length, its first row among those of all sentences, and the offset of that row in a
// head whose sentences lie one after the other.
struct AttentionSentence {
  int64_t words, first_row, offset;

  SIMCORE_HD int64_t offset_of(int64_t row) const { return offset + (row - first_row) * words; }
};

struct AttentionHead {
  int64_t layer, index;
};

// Tables that the kernels read besides the weights; the adapter copies them to the device.
struct AttentionTables {
  std::vector<AttentionView> views;          // [layers of x, then of y][sentences]
  std::vector<AttentionSentence> sentences;  // and one without words, which ends the last
  std::vector<AttentionHead> heads;          // of all layers, x first
  std::vector<int64_t> first_head;           // [layers + 1]

  explicit AttentionTables(const AttentionProblem& problem);
  int64_t rows() const { return sentences.back().first_row; }
};

struct DeviceTables {
  const AttentionView* views;
  const AttentionSentence* sentences;
  const AttentionHead* heads;
  const int64_t* first_head;
};

struct AttentionPlan {
  bool float64 = false;  // compute type
  int64_t tile = 0;      // heads of either side of a tile of pairs
  int64_t entries = 0;   // entries of every head that are packed at a time
  int64_t shares = 1;    // of these entries, summed side by side
  int64_t workspace_bytes = 0;
};

// Throws std::invalid_argument when problem.max_memory has no room for one row of every head, and
// for Pearson's correlation, which is a matrix product of torch.
AttentionPlan make_plan(const AttentionProblem& problem, const AttentionTables& tables,
                        const Device& device);

constexpr int64_t kBadCounts = 3;

// Device pointers.
struct AttentionOutput {
  double* grid;  // [Lx, Ly] the mean over the heads of x of the max over the heads of y
  // [layers][kBadCounts] weights of a layer that are NaN or infinite, weights that are negative,
  // rows that do not sum to 1
  unsigned long long* bad;
};

void attention_similarity(const AttentionProblem& problem, const AttentionTables& tables,
                          const DeviceTables& on_device, const AttentionPlan& plan, void* workspace,
                          const AttentionOutput& output, cudaStream_t stream);

}  // namespace simcore::cuda
