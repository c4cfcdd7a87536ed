// best_partners by one product for each pair of layers, on tensor cores: what neurons.cu calls.
#pragma once

#include <limits>

#include "cuda/neurons/neurons.h"
#include "cuda/products/layers_run.cuh"

namespace simcore::cuda {

inline int64_t packed_pitch(const LayersProblem& problem) {
  return round_to(problem.n, kPitchUnit);
}

// Bytes of workspace, or kMoreThanAGrid for more tiles than a launch has blocks.
constexpr int64_t kMoreThanAGrid = std::numeric_limits<int64_t>::max();
int64_t bytes_by_pairs(const LayersProblem& problem, const Extent& extent, const NeuronPlan& plan);

void best_partners_by_pairs(const LayersProblem& problem, const NeuronPlan& plan, void* workspace,
                            const NeuronOutput& output, cudaStream_t stream);

}  // namespace simcore::cuda
