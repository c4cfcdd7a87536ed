// HSIC of all layer pairs on a CUDA device: what the torch adapter and the host run call.
//
// Only enqueues kernels on the given stream: no allocation, no synchronisation, no copies from the
// host, so that the calls may be captured into a graph. Errors of launches throw
// std::runtime_error.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "core/views/hsic_problem.h"
#include "cuda/base/device.h"

namespace simcore::cuda {

// The precision of float32 products: an operand is the sum of a pair of float16 numbers (up to 22
// bits; entries that are small beside the root mean square of their layer have fewer), or one of
// them (up to 11 bits, as TensorFloat32 has).
enum class Precision : int { pairs, single };

// An HsicProblem, and the precision and the variant of its products.
struct DeviceHsicProblem : HsicProblem {
  Precision precision = Precision::pairs;
  Variant variant = Variant::tensor;
};

struct HsicPlan {
  int64_t tile = 0;             // side of a Gram tile
  int64_t column_chunks = 1;    // shares of the rows in which columns are summed
  int64_t block_rows = 0;       // examples whose rows are packed at a time
  int64_t group_tiles = 1;      // Gram tiles of every layer that are held at a time
  bool narrow = false;          // contract by the product for few layers
  int64_t shares = 1;           // of a group's entries, contracted side by side
  int64_t median_layers = 0;    // RBF: layers whose median is found at a time
  bool keep_distances = false;  // RBF: those of all layers are held, and become the Gram entries
  int64_t workspace_bytes = 0;
};

// max_memory: bytes of workspace that may be asked for. Throws std::invalid_argument when not even
// the smallest tiles fit, for more layers than a grid of blocks has room for, or for a problem that
// is to be computed in float64.
HsicPlan make_plan(const DeviceHsicProblem& problem, const Device& device, int64_t max_memory);

// In place of a layer's count, for the RBF kernel: its entries differ so much in size that float16
// pairs do not resolve the distances of its rows, and its results are nan.
constexpr int64_t kUnresolved = -1;

// Device pointers.
struct HsicOutput {
  double* xy;  // [Lx, Ly]
  double* xx;  // [Lx]
  double* yy;  // [Ly]
  // [Lx + Ly] NaN or infinite entries of a layer, whose results are nan; or kUnresolved
  int64_t* nonfinite;
};

// workspace: plan.workspace_bytes of device memory, aligned to 256 bytes; its contents do not
// matter before, and nothing of it is needed after the kernels have run.
void hsic_terms(const DeviceHsicProblem& problem, const HsicPlan& plan, void* workspace,
                const HsicOutput& output, cudaStream_t stream);

}  // namespace simcore::cuda
