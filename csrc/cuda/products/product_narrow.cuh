// C = A B' of few long rows on tensor cores: the warps of a block share the entries of the rows.
//
// Math      as product_tensor.cuh
// Shapes    rows as SplitRows<parts> has them
// Plan      8 warps, each of which has the sums of the whole 32 x 32 tile over an eighth of the
//           entries: a grid of 13 layers fills a sixth of this tile, 1 % of product_tensor.cuh's.
//           kDepth entries of all rows and planes are a stage in shared memory, 16 for each warp;
//           kStages - 1 of them are on their way (cp.async) while one is multiplied. Rows of a
//           stage are 256 bytes; their pieces of 16 are exchanged so that eight rows that ldmatrix
//           reads lie in all 32 banks. visit() adds up the warps' sums through shared memory.
// Numerics  as product_tensor.cuh; a warp adds up an eighth of the depth, and the eight sums are
//           added in float64
#pragma once

#include "cuda/products/mma.cuh"
#include "cuda/products/product_plain.cuh"

namespace simcore::cuda {

template <int parts>
class NarrowProduct {
 public:
  using Rows = SplitRows<parts>;
  using Value = float;
  using Stored = uint16_t;
  static constexpr int kTile = 32;
  static constexpr int kThreads = 256;
  static constexpr int kDepth = 128;
  static constexpr int kRun = 1;
  static constexpr int kBlocks = 1;
  static constexpr int64_t kChunk = 8192;
  static constexpr int kStages = parts == 2 ? 3 : 4;
  static constexpr int64_t kSharedBytes = int64_t(kStages) * 2 * parts * kTile * kDepth * 2;
  static_assert(kSharedBytes <= 99 << 10);

  // Adds C += A B' over entries [begin, end), as PlainProduct::add does.
  template <typename P>
  __device__ void add(const P& a, const P& b, int64_t begin, int64_t end) {
    SIMCORE_DYNAMIC_SHARED(Stage, stages);
    const auto fetch = [&](int64_t step) {
      const int64_t k = begin + step * kDepth;
      if (k < end) {
        Stage& stage = stages[step % kStages];
        copy(a, k, stage.left);
        copy(b, k, stage.right);
      }
      commit_copies();  // an empty group, too: waiting counts groups
    };
    for (int step = 0; step < kStages - 1; step++) fetch(step);
    for (int64_t step = 0; begin + step * kDepth < end; step++) {
      wait_for_copies<kStages - 2>();
      __syncthreads();  // everybody's copies are here, and the stage before this is read
      fetch(step + kStages - 1);
      multiply(stages[step % kStages]);
      if ((step + 1) % kFresh == 0) add_fresh();
    }
    add_fresh();
    __syncthreads();  // the stages may be filled again
  }

  // Calls f(row, column, values[kRun]) for this thread's share of the entries. All threads call it.
  template <typename F>
  __device__ void visit(F f) const {
    using Tile = float[kTile][kTile];
    static_assert(sizeof(Tile) * kWarps <= kSharedBytes);
    SIMCORE_DYNAMIC_SHARED(Tile, of_warps);
    const int group = lane_of_thread() / 4, pair = lane_of_thread() % 4 * 2;
#pragma unroll
    for (int i = 0; i < kRowsOf; i++)
#pragma unroll
      for (int j = 0; j < kColumnsOf; j++)
#pragma unroll
        for (int e = 0; e < 4; e++)
          of_warps[warp_of_thread()][i * 16 + group + e / 2 * 8][j * 8 + pair + e % 2] =
              sum_[i][j][e];
    __syncthreads();
    for (int at = int(threadIdx.x); at < kTile * kTile; at += kThreads) {
      double total = 0;
      for (int w = 0; w < kWarps; w++) total += double(of_warps[w][at / kTile][at % kTile]);
      const float run[kRun] = {float(total)};
      f(at / kTile, at % kTile, run);
    }
    __syncthreads();  // the next add() overwrites the sums
  }

 private:
  static constexpr int kWarps = kThreads / kWarp;
  static constexpr int kStep = 16;  // depth of one instruction, and of a warp's share of a stage
  static_assert(kWarps * kStep == kDepth);
  static constexpr int kRowsOf = kTile / 16, kColumnsOf = kTile / 8;
  static constexpr int kPiece = 8;  // entries that are copied at once, 16 bytes
  static constexpr int kPieces = kDepth / kPiece;
  static constexpr int kFresh = parts == 2 ? 2 : 16;  // stages between two add_fresh()
  using Planes = Stored[parts][kTile][kDepth];
  struct Stage {
    Planes left, right;
  };
  static_assert(kSharedBytes == int64_t(kStages * sizeof(Stage)));

  // Returns the place of a piece of a row in its stage.
  __device__ static int place_of(int row, int piece) { return (piece ^ (row % 8)) * kPiece; }

  // Copies this thread's pieces of a panel.
  template <typename P>
  __device__ static void copy(const P& panel, int64_t k, Planes& planes) {
    const int piece = int(threadIdx.x) % kPieces;
    const Stored* first = panel.data + panel.entry(k + piece * kPiece);
#pragma unroll
    for (int i = 0; i < kTile * kPieces / kThreads; i++) {
      const int row = int(threadIdx.x) / kPieces + i * (kThreads / kPieces);
      const bool exists = row < panel.rows;
#pragma unroll
      for (int p = 0; p < parts; p++)
        copy_or_clear(&planes[p][row][place_of(row, piece)],
                      exists ? first + panel.offset(row, p) : panel.data, exists);
    }
  }

  __device__ static const Stored* piece_at(const Planes& planes, int plane, int row, int depth) {
    return &planes[plane][row][place_of(row, depth / kPiece)];
  }

  __device__ void multiply(const Stage& stage) {
    const int lane = lane_of_thread(), d = warp_of_thread() * kStep;
    // B: matrices of rows 0-7 and 8-15, each at depths 0-7 and 8-15.
    uint32_t b[parts][kColumnsOf / 2][4];
#pragma unroll
    for (int p = 0; p < parts; p++)
#pragma unroll
      for (int j = 0; j < kColumnsOf / 2; j++)
        load_matrices(b[p][j], piece_at(stage.right, p, j * 16 + lane / 16 * 8 + lane % 8,
                                        d + lane / 8 % 2 * 8));
    // Products are added from the smallest to the largest.
#pragma unroll
    for (int p = parts - 1; p >= 0; p--)
#pragma unroll
      for (int i = 0; i < kRowsOf; i++) {
        uint32_t a[4];
        load_matrices(a, piece_at(stage.left, p, i * 16 + lane % 16, d + lane / 16 * 8));
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
