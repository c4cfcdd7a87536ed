// C = A B' of one tile, rows of A and B contiguous: the plain variant, in float or double.
//
// Every variant of a product has the same face: Value, kTile, kThreads, kDepth, add() and visit().
// Grams contract features, the grid of sums contracts Gram entries; both are this product.
#pragma once

#include "cuda/device_math.cuh"

namespace simcore::cuda {

// Rows of a matrix, row r from data + r * pitch on; those from `rows` on count as zeros. Rows start
// at multiples of 16 bytes.
template <typename T>
struct Panel {
  const T* data;
  int64_t pitch;
  int64_t rows;
};

template <typename T>
class PlainProduct {
 public:
  using Value = T;
  static constexpr int kTile = 64;  // rows and columns of C
  static constexpr int kThreads = 64;
  static constexpr int kDepth = 32;  // entries of a row that are staged at once

  // C += the product over entries [begin, end) of the rows, whole multiples of kDepth.
  __device__ void add(const Panel<T>& a, const Panel<T>& b, int64_t begin, int64_t end) {
    // Padded by one, so that the transposing stores and the loads of a row both spread over banks.
    __shared__ T left[kDepth][kTile + 1], right[kDepth][kTile + 1];
    const int row = int(threadIdx.x) / kSide, column = int(threadIdx.x) % kSide;
    for (int64_t k = begin; k < end; k += kDepth) {
      stage(a, k, left);
      stage(b, k, right);
      __syncthreads();
      for (int d = 0; d < kDepth; d++) {
        T x[kPerThread], y[kPerThread];
#pragma unroll
        for (int i = 0; i < kPerThread; i++) {
          x[i] = left[d][row + i * kSide];
          y[i] = right[d][column + i * kSide];
        }
#pragma unroll
        for (int i = 0; i < kPerThread; i++)
#pragma unroll
          for (int j = 0; j < kPerThread; j++) sum_[i][j] += x[i] * y[j];
      }
      __syncthreads();
    }
  }

  // f(row, column, value) of every entry that this thread holds.
  template <typename F>
  __device__ void visit(F f) const {
    const int row = int(threadIdx.x) / kSide, column = int(threadIdx.x) % kSide;
#pragma unroll
    for (int i = 0; i < kPerThread; i++)
#pragma unroll
      for (int j = 0; j < kPerThread; j++) f(row + i * kSide, column + j * kSide, sum_[i][j]);
  }

 private:
  static constexpr int kSide = 8;  // threads along a side of the tile
  static constexpr int kPerThread = kTile / kSide;

  __device__ static void stage(const Panel<T>& panel, int64_t k, T (&shared)[kDepth][kTile + 1]) {
    for (int r = warp_of_thread(); r < kTile; r += kThreads / kWarp)
      shared[lane_of_thread()][r] =
          r < panel.rows ? panel.data[r * panel.pitch + k + lane_of_thread()] : T(0);
  }

  T sum_[kPerThread][kPerThread] = {};
};

}  // namespace simcore::cuda
