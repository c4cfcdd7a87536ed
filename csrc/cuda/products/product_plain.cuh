// C = A B' of one tile, rows of A and B contiguous: the plain variant, in float or double.
//
// Every variant of a product has the same members: Rows, Value, Stored, kTile, kThreads, kDepth,
// kRun, kBlocks (that a multiprocessor holds while they contract), kChunk (entries that are added
// in Value before their sum goes to float64), kSharedBytes (dynamic shared memory of a kernel that
// uses the product), add() and visit(). Narrow is the variant for few rows. Grams contract
// features, the grid of sums contracts Gram entries; both are this product.
#pragma once

#include "cuda/products/rows.cuh"

namespace simcore::cuda {

// Rows of a matrix, stored as the product's Rows store them; rows from `rows` on count as zeros.
// Rows start at multiples of 16 bytes.
template <typename Stored>
struct Panel {
  const Stored* data;
  int64_t pitch;
  int64_t rows;
};

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
  static constexpr int64_t kSharedBytes = 0;

  // C += the product over entries [begin, end) of the rows, whole multiples of kDepth.
  __device__ void add(const Panel<T>& a, const Panel<T>& b, int64_t begin, int64_t end) {
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

  __device__ static void stage(const Panel<T>& panel, int64_t k, T (&shared)[kDepth][kTile + 1]) {
    for (int r = warp_of_thread(); r < kTile; r += kThreads / kWarp)
      shared[lane_of_thread()][r] =
          r < panel.rows ? panel.data[r * panel.pitch + k + lane_of_thread()] : T(0);
  }

  T sum_[kRows][kColumns] = {};
};

}  // namespace simcore::cuda
