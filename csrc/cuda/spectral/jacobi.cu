// Batched one-sided Jacobi in shared memory.
//
// Math      core/math/jacobi_math.h: rotations from the right make the columns of M orthogonal,
//           M V = U S. Columns of zeros are never rotated.
// Shapes    one matrix [rows, columns], both at most kMostJacobi, a block; column by column in
//           shared memory, V below M.
// Plan      sweeps of a tournament of the columns, a warp a pair, until a sweep rotates nothing, at
//           most kMostSweeps sweeps. Then the columns are ranked by length.
// Cost      18 rows columns^2 flops a sweep and half as many for V.
// Numerics  float32, lengths in float64. Where t is small, 1 + t^2 rounds to 1 and a rotation
//           lengthens both columns of M V and of V by the same factor, some 1e-5 in all; singular
//           values are therefore |M v_k| / |v_k|, and v_k gets unit length at the end. The factors
//           multiply to M within 3e-6 of the largest singular value (tests).
// Twin      torch.linalg.svd in float64 (tests)
#include "cuda/spectral/jacobi.h"

#include "core/math/jacobi_math.h"
#include "cuda/base/device_math.cuh"

namespace simcore::cuda {
namespace {

constexpr int kJacobiThreads = 256;
constexpr int kJacobiWarps = kJacobiThreads / kWarp;
constexpr int kMostSweeps = 16;
constexpr float kOrthogonal = 1e-7f;  // cosine of columns that count as orthogonal

// A lane's rows are its own in every loop over a pair's columns: no barrier is needed within.
__device__ __forceinline__ void rotate(float* u, float* v, int64_t rows, const Rotation<float>& r) {
  for (int64_t i = lane_of_thread(); i < rows; i += kWarp) {
    const float a = u[i], b = v[i];
    u[i] = r.cosine * a - r.sine * b;
    v[i] = r.sine * a + r.cosine * b;
  }
}

// Rotates a pair of columns if they are not orthogonal; returns, in every lane, whether it did.
__device__ __forceinline__ bool rotate_pair(float* m, float* v, int64_t rows, int64_t columns,
                                            ColumnPair pair) {
  float* first = m + pair.first * rows;
  float* second = m + pair.second * rows;
  float a = 0, b = 0, c = 0;
  for (int64_t i = lane_of_thread(); i < rows; i += kWarp) {
    a += first[i] * first[i];
    b += second[i] * second[i];
    c += first[i] * second[i];
  }
  const Rotation<float> r = jacobi_rotation(warp_sum(a), warp_sum(b), warp_sum(c), kOrthogonal);
  if (!r.needed) return false;
  rotate(first, second, rows, r);
  rotate(v + pair.first * columns, v + pair.second * columns, columns, r);
  return true;
}

__device__ __forceinline__ void load_matrix(const SmallSvd& p, float* m, float* v) {
  const float* source = p.m + int64_t(blockIdx.x) * p.rows * p.columns;
  for (int64_t e = threadIdx.x; e < p.rows * p.columns; e += kJacobiThreads)
    m[e % p.columns * p.rows + e / p.columns] = source[e];
  for (int64_t e = threadIdx.x; e < p.columns * p.columns; e += kJacobiThreads)
    v[e] = e / p.columns == e % p.columns ? 1.0f : 0.0f;
}

// The Euclidean length of a column, in every lane of the warp.
__device__ __forceinline__ double column_length(const float* column, int64_t rows) {
  double square = 0;
  for (int64_t i = lane_of_thread(); i < rows; i += kWarp)
    square += double(column[i]) * double(column[i]);
  return sqrt(warp_sum(square));
}

// Stores the columns in the order of `rank`, those of u and v at unit length. lengths, v_lengths:
// of the columns of m and v.
__device__ __forceinline__ void store_matrix(const SmallSvd& p, const float* m, const float* v,
                                             const float* lengths, const float* v_lengths,
                                             const int* rank) {
  float* u_out = p.u + int64_t(blockIdx.x) * p.rows * p.columns;
  float* v_out = p.v + int64_t(blockIdx.x) * p.columns * p.columns;
  for (int64_t e = threadIdx.x; e < p.rows * p.columns; e += kJacobiThreads) {
    const int64_t k = e / p.rows, i = e % p.rows;
    u_out[i * p.columns + rank[k]] = lengths[k] > 0 ? m[e] / lengths[k] : 0.0f;
  }
  for (int64_t e = threadIdx.x; e < p.columns * p.columns; e += kJacobiThreads)
    v_out[e % p.columns * p.columns + rank[e / p.columns]] = v[e] / v_lengths[e / p.columns];
  for (int64_t k = threadIdx.x; k < p.columns; k += kJacobiThreads)
    p.s[int64_t(blockIdx.x) * p.columns + rank[k]] = lengths[k] / v_lengths[k];
}

// Blocks: matrices.
static __global__ void __launch_bounds__(kJacobiThreads) small_svd_kernel(SmallSvd p) {
  SIMCORE_DYNAMIC_SHARED(float, shared);
  __shared__ float lengths[kMostJacobi], v_lengths[kMostJacobi];
  __shared__ int rank[kMostJacobi];
  __shared__ int rotated;
  float* m = shared;
  float* v = shared + p.rows * p.columns;
  load_matrix(p, m, v);
  const int columns = int(p.columns), players = columns + columns % 2;
  for (int sweep = 0; sweep < kMostSweeps; sweep++) {
    __syncthreads();
    if (threadIdx.x == 0) rotated = 0;  // read after a round: there is at least one
    bool any = false;
    for (int round = 0; round < players - 1; round++) {
      for (int k = warp_of_thread(); k < players / 2; k += kJacobiWarps) {
        const ColumnPair pair = tournament_pair(players, round, k);
        if (pair.second < columns) any |= rotate_pair(m, v, p.rows, p.columns, pair);
      }
      __syncthreads();
    }
    if (any && lane_of_thread() == 0) atomicAdd(&rotated, 1);
    __syncthreads();
    if (rotated == 0) break;
  }
  for (int k = warp_of_thread(); k < columns; k += kJacobiWarps) {
    const double length = column_length(m + k * p.rows, p.rows);
    const double v_length = column_length(v + k * p.columns, p.columns);
    if (lane_of_thread() != 0) continue;
    lengths[k] = float(length);
    v_lengths[k] = float(v_length);
  }
  __syncthreads();
  for (int k = int(threadIdx.x); k < columns; k += kJacobiThreads) {
    int before = 0;
    for (int other = 0; other < columns; other++)
      before += lengths[other] > lengths[k] || (lengths[other] == lengths[k] && other < k);
    rank[k] = before;
  }
  __syncthreads();
  store_matrix(p, m, v, lengths, v_lengths, rank);
}

}  // namespace

void small_svd(const SmallSvd& p, cudaStream_t stream) {
  const int64_t entries = p.rows * p.columns + p.columns * p.columns;
  launch("small_svd_kernel", small_svd_kernel, {p.count}, kJacobiThreads, stream,
         DynamicShared{entries * int64_t(sizeof(float))}, p);
}

}  // namespace simcore::cuda
