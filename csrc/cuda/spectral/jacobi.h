// Singular value decompositions of many small matrices on a CUDA device: what the torch adapter and
// the host run call.
//
// Only enqueues kernels on the given stream. Errors of launches throw std::runtime_error.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace simcore::cuda {

constexpr int64_t kMostJacobi = 128;  // columns, and rows: what shared memory has room for

// m [count][rows][columns], rows >= columns; m = u diag(s) v'. u [count][rows][columns] and
// v [count][columns][columns] hold a singular vector a column, s [count][columns] descends. Vectors
// of singular values that are zero are zero in u.
struct SmallSvd {
  int64_t count, rows, columns;
  const float* m;
  float *u, *s, *v;
};
void small_svd(const SmallSvd& problem, cudaStream_t stream);

}  // namespace simcore::cuda
