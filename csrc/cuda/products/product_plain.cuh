// C = A B' of one tile, rows of A and B contiguous: the plain variant, in float or double.
//
// Every variant of a product has the same members: Rows, Value, Stored, kTile, kThreads, kDepth,
// kRun, kBlocks (that a multiprocessor holds while they contract), kChunk (entries that are added
// in Value before their sum goes to float64), kSharedBytes (dynamic shared memory of a kernel that
// uses the product), add() and visit(). Narrow is the variant for few rows. Grams contract
// features, the grid of sums contracts Gram entries; both are this product.
#pragma once

#include "core/math/index_math.h"
#include "cuda/products/rows.cuh"

namespace simcore::cuda {

// Rows of a matrix, stored as Rows stores them; rows from `rows` on count as zeros. Rows start at
// multiples of 16 bytes. In units, kUnit entries of all rows lie together, as blocks of threads
// read them: [entries / kUnit][rows of the matrix][planes][kUnit].
constexpr int64_t kUnit = 32;
template <typename Rows, bool units = false>
struct Panel {
  const typename Rows::Stored* data;
  int64_t pitch;  // entries of a row; in units: rows of the matrix
  int64_t rows = 0;

  // Entry k of a row lies at offset(row, plane) + entry(k).
  SIMCORE_HD int64_t offset(int64_t row, int plane) const {
    return (row * Rows::kPlanes + plane) * (units ? kUnit : pitch);
  }
  SIMCORE_HD int64_t entry(int64_t k) const {
    return units ? k / kUnit * pitch * Rows::kPlanes * kUnit + k % kUnit : k;
  }
};
template <typename Rows>
using UnitPanel = Panel<Rows, true>;

// The term that a pair of entries adds to the sum of a product.
struct Multiply {
  template <typename T>
  __device__ static __forceinline__ T add(T sum, T x, T y) {
    return sum + x * y;
  }
};

// tile: rows and columns of C.
template <typename T, typename Term = Multiply, int tile = 64>
class PlainProduct {
 public:
  using Rows = PlainRows<T>;
  using Value = T;
  using Stored = T;
  using Narrow = PlainProduct;
  static constexpr int kTile = tile;
  static constexpr int kThreads = 128;
  static constexpr int kDepth = 32;  // entries of a row that are staged at once
  static constexpr int kRun = 1;     // neighbours in a row of C that visit() gives at once
  static constexpr int kBlocks = sizeof(T) == 4 ? 4 : 3;
  static constexpr int64_t kChunk = 1024;
  static constexpr int64_t kSharedBytes = int64_t(tile) * tile * sizeof(T);  // for gram_tiles

  // C += the product over entries [begin, end) of the rows, whole multiples of kDepth.
  template <typename P>
  __device__ void add(const P& a, const P& b, int64_t begin, int64_t end) {
    // Padded by one, so that the transposing stores and the loads of a row both spread over banks.
    __shared__ T left[kDepth][kTile + 1], right[kDepth][kTile + 1];
    const int row = int(threadIdx.x) / kAcross, column = int(threadIdx.x) % kAcross;
    for (int64_t k = begin; k < end; k += kDepth) {
      stage(a, k, left);
      stage(b, k, right);
      __syncthreads();
      for (int d = 0; d < kDepth; d++) {
        T x[kRows], y[kColumns];
#pragma unroll
        for (int i = 0; i < kRows; i++) x[i] = left[d][row + i * kDown];
#pragma unroll
        for (int j = 0; j < kColumns; j++) y[j] = right[d][column + j * kAcross];
#pragma unroll
        for (int i = 0; i < kRows; i++)
#pragma unroll
          for (int j = 0; j < kColumns; j++) sum_[i][j] = Term::add(sum_[i][j], x[i], y[j]);
      }
      __syncthreads();
    }
  }

  // Calls f(row, column, values[kRun]) for all entries that this thread holds.
  template <typename F>
  __device__ void visit(F f) const {
    const int row = int(threadIdx.x) / kAcross, column = int(threadIdx.x) % kAcross;
#pragma unroll
    for (int i = 0; i < kRows; i++)
#pragma unroll
      for (int j = 0; j < kColumns; j++) {
        const T run[kRun] = {sum_[i][j]};
        f(row + i * kDown, column + j * kAcross, run);
      }
  }

 private:
  // Threads along a row and along a column of the tile, and the entries that each thread holds.
  static constexpr int kAcross = 8, kDown = kThreads / kAcross;
  static constexpr int kRows = kTile / kDown, kColumns = kTile / kAcross;

  template <typename P>
  __device__ static void stage(const P& panel, int64_t k, T (&shared)[kDepth][kTile + 1]) {
    for (int r = warp_of_thread(); r < kTile; r += kThreads / kWarp)
      shared[lane_of_thread()][r] =
          r < panel.rows ? panel.data[panel.offset(r, 0) + panel.entry(k + lane_of_thread())]
                         : T(0);
  }

  T sum_[kRows][kColumns] = {};
};

}  // namespace simcore::cuda
