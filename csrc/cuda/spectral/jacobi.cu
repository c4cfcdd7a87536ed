// Batched one-sided Jacobi in shared memory.
//
// Math      core/math/jacobi_math.h: rotations from the right make the columns of M orthogonal,
//           M V = U S. Columns of zeros are never rotated.
// Shapes    one matrix [rows, columns], both at most kMostJacobi, a block; in shared memory column
//           by column, V after M, every column with zeros up to a multiple of four rows
// Plan      sweeps of a tournament of the columns, a warp a pair and four rows a lane, which holds
//           them in registers from the products to the rotation, until a sweep rotates nothing, at
//           most kMostSweeps sweeps. Then the columns are ranked by length.
// Cost      18 rows columns^2 flops per sweep and half as many for V. PWCCA of 300 pairs of 100
//           components took an H100 24 ms with half the warps and entries read one by one, and
//           12 ms by eigenproblems in float64 (bench/results): this form has not been timed, and
//           is taken where a machine's own times are in favour of it.
// Numerics  float32, lengths in float64. Where t is small, 1 + t^2 rounds to 1 and a rotation
//           lengthens both columns of M V and of V by the same factor, some 1e-5 in all; singular
//           values are therefore |M v_k| / |v_k|, and v_k gets unit length at the end. The factors
//           multiply to M within 3e-6 of the largest singular value (tests).
// Twin      torch.linalg.svd in float64 (tests)
#include "cuda/spectral/jacobi.h"

#include <algorithm>

#include "core/math/index_math.h"
#include "core/math/jacobi_math.h"
#include "cuda/base/device_math.cuh"

namespace simcore::cuda {
namespace {

constexpr int kMostThreads = 512;  // a warp for every two columns, up to these
constexpr int kQuad = 4;           // rows of a lane
static_assert(kMostJacobi <= kQuad * kWarp);
constexpr int kMostSweeps = 16;
constexpr float kOrthogonal = 1e-7f;  // cosine of columns that count as orthogonal

SIMCORE_HD constexpr int64_t padded(int64_t rows) { return round_to(rows, kQuad); }

// This lane's rows of a column, or zeros beyond its end.
__device__ __forceinline__ float4 quad_of(const float* column, int64_t rows) {
  if (lane_of_thread() * kQuad >= rows) return make_float4(0, 0, 0, 0);
  return reinterpret_cast<const float4*>(column)[lane_of_thread()];
}

__device__ __forceinline__ float dot(const float4& a, const float4& b) {
  return a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w;
}

__device__ __forceinline__ float4 mixed(const float4& a, const float4& b, float of_a, float of_b) {
  return make_float4(of_a * a.x + of_b * b.x, of_a * a.y + of_b * b.y, of_a * a.z + of_b * b.z,
                     of_a * a.w + of_b * b.w);
}

// Stores this lane's rows a and b of two columns, rotated.
__device__ __forceinline__ void store_rotated(float* first, float* second, int64_t rows,
                                              const float4& a, const float4& b,
                                              const Rotation<float>& r) {
  if (lane_of_thread() * kQuad >= rows) return;
  reinterpret_cast<float4*>(first)[lane_of_thread()] = mixed(a, b, r.cosine, -r.sine);
  reinterpret_cast<float4*>(second)[lane_of_thread()] = mixed(a, b, r.sine, r.cosine);
}

// Rotates a pair of columns if they are not orthogonal; returns, in every lane, whether it did.
__device__ __forceinline__ bool rotate_pair(float* m, float* v, int64_t rows, int64_t columns,
                                            ColumnPair pair) {
  float* first = m + pair.first * rows;
  float* second = m + pair.second * rows;
  const float4 a = quad_of(first, rows), b = quad_of(second, rows);
  const Rotation<float> r =
      jacobi_rotation(warp_sum(dot(a, a)), warp_sum(dot(b, b)), warp_sum(dot(a, b)), kOrthogonal);
  if (!r.needed) return false;
  store_rotated(first, second, rows, a, b, r);
  first = v + pair.first * columns;
  second = v + pair.second * columns;
  store_rotated(first, second, columns, quad_of(first, columns), quad_of(second, columns), r);
  return true;
}

__device__ __forceinline__ void load_matrix(const SmallSvd& p, float* m, float* v) {
  const float* source = p.m + int64_t(blockIdx.x) * p.rows * p.columns;
  const int64_t rows = padded(p.rows), columns = padded(p.columns);
  for (int64_t e = threadIdx.x; e < rows * p.columns; e += blockDim.x) {
    const int64_t i = e / p.columns, k = e % p.columns;
    m[k * rows + i] = i < p.rows ? source[e] : 0.0f;
  }
  for (int64_t e = threadIdx.x; e < columns * p.columns; e += blockDim.x)
    v[e] = e / columns == e % columns ? 1.0f : 0.0f;
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
  for (int64_t e = threadIdx.x; e < p.rows * p.columns; e += blockDim.x) {
    const int64_t k = e / p.rows, i = e % p.rows;
    u_out[i * p.columns + rank[k]] = lengths[k] > 0 ? m[k * padded(p.rows) + i] / lengths[k] : 0.0f;
  }
  for (int64_t e = threadIdx.x; e < p.columns * p.columns; e += blockDim.x) {
    const int64_t k = e / p.columns, i = e % p.columns;
    v_out[i * p.columns + rank[k]] = v[k * padded(p.columns) + i] / v_lengths[k];
  }
  for (int64_t k = threadIdx.x; k < p.columns; k += blockDim.x)
    p.s[int64_t(blockIdx.x) * p.columns + rank[k]] = lengths[k] / v_lengths[k];
}

// Blocks: matrices.
static __global__ void __launch_bounds__(kMostThreads) small_svd_kernel(SmallSvd p) {
  SIMCORE_DYNAMIC_SHARED(float, shared);
  __shared__ float lengths[kMostJacobi], v_lengths[kMostJacobi];
  __shared__ int rank[kMostJacobi];
  __shared__ int rotated;
  float* m = shared;
  const int64_t rows = padded(p.rows), v_rows = padded(p.columns);
  float* v = shared + rows * p.columns;
  load_matrix(p, m, v);
  const int columns = int(p.columns), players = columns + columns % 2;
  const int warps = int(blockDim.x) / kWarp;
  for (int sweep = 0; sweep < kMostSweeps; sweep++) {
    __syncthreads();
    if (threadIdx.x == 0) rotated = 0;  // read after a round: there is at least one
    bool any = false;
    for (int round = 0; round < players - 1; round++) {
      for (int k = warp_of_thread(); k < players / 2; k += warps) {
        const ColumnPair pair = tournament_pair(players, round, k);
        if (pair.second < columns) any |= rotate_pair(m, v, rows, v_rows, pair);
      }
      __syncthreads();
    }
    if (any && lane_of_thread() == 0) atomicAdd(&rotated, 1);
    __syncthreads();
    if (rotated == 0) break;
  }
  for (int k = warp_of_thread(); k < columns; k += warps) {
    const double length = column_length(m + k * rows, rows);
    const double v_length = column_length(v + k * v_rows, v_rows);
    if (lane_of_thread() != 0) continue;
    lengths[k] = float(length);
    v_lengths[k] = float(v_length);
  }
  __syncthreads();
  for (int k = int(threadIdx.x); k < columns; k += int(blockDim.x)) {
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
  const int64_t entries = p.columns * (padded(p.rows) + padded(p.columns));
  const int threads = int(std::min<int64_t>(kMostThreads, ceil_div(p.columns, 2) * kWarp));
  launch("small_svd_kernel", small_svd_kernel, {p.count}, threads, stream,
         DynamicShared{entries * int64_t(sizeof(float))}, p);
}

}  // namespace simcore::cuda
