// C = A B' of one tile on tensor cores: float32 operands as sums of float16 numbers.
//
// Math      a b = sum_{p + q <= parts + 1} a_p b_q up to 2^(-11 parts): 1 product, or 3 (Ootomo &
//           Yokota 2022, doi:10.1177/10943420221090256).
// Shapes    rows as SplitRows<parts> has them
// Plan      8 warps of 64 x 32 entries. kDepth entries of all rows and planes are a stage in shared
//           memory; kStages - 1 of them are on their way (cp.async) while one is multiplied. Rows
//           of a stage are 64 bytes; their four pieces of 16 are exchanged so that eight rows that
//           ldmatrix reads lie in all 32 banks.
// Numerics  tensor cores cut sums towards zero when they add to an accumulator (Fasi et al. 2021,
//           PeerJ CS 330), which is a bias that grows with the depth. Accumulators therefore start
//           again from zero every kFresh entries and are added to float32 sums as usual, to
//           nearest. The caller bounds the depth.
#pragma once

#include "cuda/products/mma.cuh"
#include "cuda/products/product_narrow.cuh"

namespace simcore::cuda {

template <int parts>
class TensorProduct {
 public:
  using Rows = SplitRows<parts>;
  using Value = float;
  using Stored = uint16_t;
  using Narrow = NarrowProduct<parts>;
  static constexpr int kTile = 128;
  static constexpr int kThreads = 256;
  static constexpr int kDepth = 32;
  static constexpr int kRun = 2;
  static constexpr int kBlocks = 1;
  // A tile goes to memory, in 64 atomic float64 additions a thread, after so many entries. Of 325
  // layers on an H100, predicted: a contraction of 3.7 ms, where 1,024 entries took 4.3. Products
  // of one sign err by 4e-7 of their sum, and of 8,192 entries by 7e-7.
  static constexpr int64_t kChunk = 4096;
  // 96 and 64 kB; a block may have 99 kB on every device from 8.0 on.
  static constexpr int kStages = parts == 2 ? 3 : 4;
  static constexpr int64_t kSharedBytes = int64_t(kStages) * 2 * parts * kTile * kDepth * 2;
  static_assert(kSharedBytes <= 99 << 10);

  // Adds C += A B' over entries [begin, end), as PlainProduct::add does.
  template <typename P>
  __device__ void add(const P& a, const P& b, int64_t begin, int64_t end) {
    SIMCORE_DYNAMIC_SHARED(Stage, stages);
    const Source<P> left(a), right(b);
    const auto fetch = [&](int64_t step) {
      const int64_t k = begin + step * kDepth;
      if (k < end) {
        Stage& stage = stages[step % kStages];
        left.copy(k, stage.left);
        right.copy(k, stage.right);
      }
      commit_copies();  // an empty group, too: waiting counts groups
    };
    for (int step = 0; step < kStages - 1; step++) fetch(step);
    for (int64_t step = 0; begin + step * kDepth < end; step++) {
      wait_for_copies<kStages - 2>();
      __syncthreads();  // everybody's copies are here, and the stage before this is read
      fetch(step + kStages - 1);
      const Stage& stage = stages[step % kStages];
#pragma unroll
      for (int d = 0; d < kDepth; d += kStep) multiply(stage, d);
      if ((step + 1) % (kFresh / kDepth) == 0) add_fresh();
    }
    add_fresh();
    __syncthreads();  // the stages may be filled again
  }

  template <typename F>
  __device__ void visit(F f) const {
    const int group = lane_of_thread() / 4, pair = lane_of_thread() % 4 * 2;
#pragma unroll
    for (int i = 0; i < kRowsOf; i++)
#pragma unroll
      for (int j = 0; j < kColumnsOf; j++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
          const float run[kRun] = {sum_[i][j][2 * e], sum_[i][j][2 * e + 1]};
          f(row0() + i * 16 + group + e * 8, column0() + j * 8 + pair, run);
        }
  }

 private:
  static constexpr int kStep = 16;  // depth of one instruction
  // Where operands have fewer bits, the bias matters less than their rounding. For pairs, 128 would
  // save some 8 % of the Gram matrices (predicted), and products of one sign would err by 1.1e-6.
  static constexpr int kFresh = parts == 2 ? kDepth : 256;
  static constexpr int kWarpRows = 64, kWarpColumns = 32;
  static constexpr int kRowsOf = kWarpRows / 16, kColumnsOf = kWarpColumns / 8;
  static constexpr int kPiece = 8;  // entries that are copied at once, 16 bytes
  static constexpr int kPieces = kDepth / kPiece;
  static constexpr int kRowsAtOnce = kThreads / kPieces;  // rows that are copied from at once
  using Planes = Stored[parts][kTile][kDepth];
  struct Stage {
    Planes left, right;
  };
  static_assert(kSharedBytes == int64_t(kStages * sizeof(Stage)));

  __device__ static int row0() { return warp_of_thread() % (kTile / kWarpRows) * kWarpRows; }
  __device__ static int column0() { return warp_of_thread() / (kTile / kWarpRows) * kWarpColumns; }

  // Returns the place of a piece of a row in its stage.
  __device__ static int place_of(int row, int piece) { return (piece ^ (row / 2 % 4)) * kPiece; }

  // The part of a panel that this thread copies: a piece of every kRowsAtOnce-th row, of every
  // plane.
  template <typename P>
  class Source {
   public:
    __device__ explicit Source(const P& panel)
        : panel_(panel),
          row_(int(threadIdx.x) / kPieces),
          piece_(int(threadIdx.x) % kPieces),
          first_(panel.data + panel.offset(row_, 0) + piece_ * kPiece) {}

    __device__ void copy(int64_t k, Planes& planes) const {
#pragma unroll
      for (int i = 0; i < kTile / kRowsAtOnce; i++) {
        const int row = row_ + i * kRowsAtOnce;
        const bool exists = row < panel_.rows;
#pragma unroll
        for (int p = 0; p < parts; p++) {
          const Stored* from = first_ + panel_.offset(i * kRowsAtOnce, p) + panel_.entry(k);
          copy_or_clear(&planes[p][row][place_of(row, piece_)], exists ? from : panel_.data,
                        exists);
        }
      }
    }

   private:
    const P& panel_;
    int row_, piece_;
    const Stored* first_;
  };

  __device__ static const Stored* piece_at(const Planes& planes, int plane, int row, int depth) {
    return &planes[plane][row][place_of(row, depth / kPiece)];
  }

  __device__ void multiply(const Stage& stage, int d) {
    const int lane = lane_of_thread();
    // B: matrices of rows 0-7 and 8-15, each at depths 0-7 and 8-15.
    uint32_t b[parts][kColumnsOf / 2][4];
#pragma unroll
    for (int p = 0; p < parts; p++)
#pragma unroll
      for (int j = 0; j < kColumnsOf / 2; j++)
        load_matrices(b[p][j],
                      piece_at(stage.right, p, column0() + j * 16 + lane / 16 * 8 + lane % 8,
                               d + lane / 8 % 2 * 8));
    // Products are added from the smallest to the largest.
#pragma unroll
    for (int p = parts - 1; p >= 0; p--)
#pragma unroll
      for (int i = 0; i < kRowsOf; i++) {
        uint32_t a[4];
        load_matrices(a, piece_at(stage.left, p, row0() + i * 16 + lane % 16, d + lane / 16 * 8));
#pragma unroll
        for (int q = parts - 1 - p; q >= 0; q--)
#pragma unroll
          for (int j = 0; j < kColumnsOf; j++)
            multiply_add(fresh_[i][j], a, b[q][j / 2][j % 2 * 2], b[q][j / 2][j % 2 * 2 + 1]);
      }
  }

  __device__ void add_fresh() {
#pragma unroll
    for (int i = 0; i < kRowsOf; i++)
#pragma unroll
      for (int j = 0; j < kColumnsOf; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
          sum_[i][j][e] += fresh_[i][j][e];
          fresh_[i][j][e] = 0;
        }
  }

  float sum_[kRowsOf][kColumnsOf][4] = {};
  float fresh_[kRowsOf][kColumnsOf][4] = {};  // of the entries since the last add_fresh()
};

}  // namespace simcore::cuda
