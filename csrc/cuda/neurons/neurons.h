// Neuron-level similarity of all layer pairs on a CUDA device: what the torch adapter and the host
// run call.
//
// Only enqueues kernels on the given stream. Errors of launches throw std::runtime_error.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "core/views/layers_problem.h"
#include "cuda/base/device.h"

namespace simcore::cuda {

struct NeuronPlan {
  bool float64 = false;       // compute type
  int64_t column_chunks = 1;  // shares of the rows in which columns are summed
  int64_t packed_bytes = 0;   // of one buffer of packed layers
  bool together = false;      // all layers are packed at once, in one buffer; else in turns in two
  bool pairs = false;         // partners from one product a pair of layers, on tensor cores
  int64_t workspace_bytes = 0;
};

// Throws std::invalid_argument when max_memory has no room for two layers packed. Tensor cores are
// for best_partners alone.
NeuronPlan make_plan(const LayersProblem& problem, const Device& device, int64_t max_memory,
                     Variant variant);

// Device pointers. In best and partner, row p_0 + ... + p_(i-1) + k is neuron k of layer x_i,
// column j is layer y_j.
struct NeuronOutput {
  double* grid;        // [Lx, Ly]
  double* best;        // [neurons of x, Ly], or null: not kept
  int64_t* partner;    // likewise
  int64_t* nonfinite;  // [layers] NaN or infinite entries
};

// best_partners as in simcore::cpu; the results of layers that hold NaN are undefined.
void best_partners(const LayersProblem& problem, const NeuronPlan& plan, void* workspace,
                   const NeuronOutput& output, cudaStream_t stream);

// multiple_correlations as in simcore::cpu, written to output.grid.
void multiple_correlations(const LayersProblem& problem, const NeuronPlan& plan, void* workspace,
                           const NeuronOutput& output, cudaStream_t stream);

}  // namespace simcore::cuda
