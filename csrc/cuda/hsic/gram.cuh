// Gram tiles of many layers, and what is summed over them.
//
// Shapes    the examples' pairs (i, j), j >= i, are cut into tiles; a group is a run of tiles that
//           all layers compute before it is contracted: gram [L] rows of [tiles of the group]
//           [kTile^2] entries, a UnitPanel. The prediction for 325 layers on an H100: the
//           contraction takes 0.5 ms less, because it reads 16 kB at a time and not 64 bytes of a
//           row.
// Plan      gram_tiles      a block per (tile, layer): K_ij, or 0 for j <= i and beyond n
//           contract        a block per (tile of pairs of layers, share of the entries):
//                           sums [shares][La][Lb] += sum over entries of K^a K^b, in float64
//           rbf_entries     K_ij from distances that were kept, in place of gram_tiles
//           add_self_sums   the same of a layer with itself, where x and y differ
//           add_row_sums    RBF and distances: sum_{j != i} K_ij, a block per (rows, layer)
// Numerics  at most Product::kChunk entries are added in T before their sum goes to float64. Every
//           sum has one owner and a fixed order: repetition is bit-equal.
// Twin      simcore/reference/hsic.py
//           simcore/reference/distances.py; the CPU's csrc/cpu/hsic/gram.cpp has the formulas
#pragma once

#include <cmath>
#include <type_traits>

#include "core/math/hsic_math.h"
#include "core/math/index_math.h"
#include "cuda/products/contract.cuh"
#include "cuda/products/layers.cuh"

namespace simcore::cuda {

// squared: the squared distance, or -1 where no pair is; distance: the kernel, shifted.
enum class Entry { linear, rbf, squared, distance };

// Tiles of a block of the examples' pairs: rows from row0 on against columns from column0 on.
struct TileBlock {
  int64_t row0, column0;
  int64_t rows, columns;  // packed, whole tiles
  bool diagonal;          // row0 == column0: the triangle alone

  SIMCORE_HD int64_t tiles(int64_t side) const {
    return diagonal ? triangle_size(rows / side) : (rows / side) * (columns / side);
  }
  SIMCORE_HD Place place(int64_t tile, int64_t side) const {
    return diagonal ? triangle_place(tile, rows / side) : rectangle_place(tile, columns / side);
  }
};

template <typename Rows>
struct GramArguments {
  using T = typename Rows::Value;
  const DeviceLayer* layers;
  int64_t packed_origin;  // packed_column of the first layer
  int64_t n;
  TileBlock block;
  int64_t first_tile;                        // of the group
  const typename Rows::Stored* packed_rows;  // [block.rows] of every layer
  const typename Rows::Stored* packed_columns;
  const double* norms;  // [L][norm_pitch]
  int64_t norm_pitch;
  const double* gammas;            // [L]; rbf only
  T shift;                         // rbf only
  const double* shifts = nullptr;  // [L]; distance only
};

template <Entry entry, typename T>
__device__ __forceinline__ T gram_entry(T product, T norm_i, T norm_j, T gamma, T shift) {
  if (entry == Entry::linear) return product;
  const T d = norm_i + norm_j - 2 * product;
  const T squared = d > T(0) ? d : T(0);
  if (entry == Entry::squared) return squared;
  return (entry == Entry::distance ? std::sqrt(squared) : exp_of(-gamma * squared)) - shift;
}

// The storage of entries: Gram entries as the product needs them that contracts them, squared
// distances as plain numbers.
template <typename Product, Entry entry>
using EntryRows = std::conditional_t<entry == Entry::squared, PlainRows<typename Product::Value>,
                                     typename Product::Rows>;

// Blocks: tiles of the group, layers.
// registers: gram_tiles<TensorProduct: 232: a block of 256 threads
template <typename Product, Entry entry>
__global__ void __launch_bounds__(Product::kThreads, 1)
    gram_tiles(GramArguments<typename Product::Rows> g,
               typename EntryRows<Product, entry>::Stored* gram) {
  using T = typename Product::Value;
  using Out = EntryRows<Product, entry>;
  constexpr int64_t side = Product::kTile, planes = Product::Rows::kPlanes;
  static_assert(kPitchUnit % Product::kDepth == 0 && side * side % Product::Narrow::kDepth == 0);
  const DeviceLayer layer = g.layers[blockIdx.y];
  const Place place = g.block.place(g.first_tile + blockIdx.x, side);
  const int64_t before = layer.packed_column - g.packed_origin;
  const auto* a = g.packed_rows + planes * (before * g.block.rows + place.row * side * layer.pitch);
  const auto* b =
      g.packed_columns + planes * (before * g.block.columns + place.column * side * layer.pitch);
  Product product;
  using Packed = Panel<typename Product::Rows>;
  product.add(Packed{a, layer.pitch, side}, Packed{b, layer.pitch, side}, 0, layer.pitch);

  const int64_t i0 = g.block.row0 + place.row * side, j0 = g.block.column0 + place.column * side;
  const double* norms = g.norms + blockIdx.y * g.norm_pitch;
  const double gamma = entry == Entry::rbf ? g.gammas[blockIdx.y] : 0;
  // An infinite gamma belongs to an undefined layer: finish.cuh makes its results nan.
  const T finite = isfinite(gamma) ? T(gamma) : T(0);
  const T shift = entry == Entry::distance ? T(g.shifts[blockIdx.y]) : g.shift;
  const int64_t entries = gridDim.x * side * side;
  using P = std::conditional_t<entry == Entry::squared, Panel<Out>, UnitPanel<Out>>;
  const P panel{gram, entry == Entry::squared ? entries : int64_t(gridDim.y)};
  // Entries leave through shared memory, 16 bytes a lane: lanes of a product hold 4 bytes, and four
  // of them half of a sector of memory. The prediction for 325 layers on an H100: 7.2 ms of
  // Gram matrices, where halves took 7.6. Pieces of 16 bytes are exchanged so that the eight rows
  // that a warp puts lie in all 32 banks; so do two planes of a unit.
  SIMCORE_DYNAMIC_SHARED(typename Out::Stored, tile);
  constexpr int piece = 16 / sizeof(*tile), unit = kUnit, size = side * side, pitch = size + unit;
  static_assert((pitch * (Out::kPlanes - 1) + size) * sizeof(*tile) <= Product::kSharedBytes);
  const auto place_of = [](int row, int column) {
    return row * int(side) + (column / piece ^ row % 8) * piece + column % piece;
  };
  product.visit([&](int r, int c, const T(&values)[Product::kRun]) {
    T results[Product::kRun];
#pragma unroll
    for (int e = 0; e < Product::kRun; e++) {
      const int64_t i = i0 + r, j = j0 + c + e;
      const bool wanted = i < j && j < g.n;
      results[e] = entry == Entry::squared ? T(-1) : T(0);
      if (wanted && entry == Entry::linear) results[e] = values[e];
      if (wanted && entry != Entry::linear)
        results[e] = gram_entry<entry>(values[e], T(norms[i]), T(norms[j]), finite, shift);
    }
    Out::put(tile, pitch, place_of(r, c), results);
  });
  __syncthreads();
  auto* out = gram + panel.offset(blockIdx.y, 0);
#pragma unroll 4
  for (int at = int(threadIdx.x) * piece; at < size * Out::kPlanes;
       at += Product::kThreads * piece) {
    const int plane = at / unit % Out::kPlanes, k = at / unit / Out::kPlanes * unit + at % unit;
    *reinterpret_cast<uint4*>(
        &out[panel.offset(0, plane) + panel.entry(blockIdx.x * side * side + k)]) =
        *reinterpret_cast<const uint4*>(&tile[plane * pitch + place_of(k / side, k % side)]);
  }
}

// The sums of squares of the layers become the shifts of their distances, as rounded in T.
template <typename T>
__global__ void squares_to_shifts(double* squares, int64_t layers, int64_t n) {
  const int64_t l = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (l < layers) squares[l] = double(T(distance_shift(squares[l], double(n))));
}

constexpr int kRbfThreads = 256;
constexpr int64_t kRbfRuns = 8;  // of Product::kRun entries, of every thread

// gram: the RBF entries of tiles whose distances are kept, `all` of them for each layer, from entry
// `first` on. NaN stays NaN. Blocks: runs of entries, layers.
template <typename Product>
__global__ void __launch_bounds__(kRbfThreads)
    rbf_entries(const typename Product::Value* distances, int64_t all, int64_t first,
                int64_t entries, const double* gammas, typename Product::Value shift,
                typename Product::Stored* gram) {
  using T = typename Product::Value;
  using Rows = typename Product::Rows;
  const double gamma = gammas[blockIdx.y];
  const T finite = isfinite(gamma) ? T(gamma) : T(0);  // as in gram_tiles
  const T* from = distances + blockIdx.y * all + first;
  const UnitPanel<Rows> panel{gram, gridDim.y};
  auto* out = gram + panel.offset(blockIdx.y, 0);
  const int64_t stride = int64_t(gridDim.x) * kRbfThreads * Product::kRun;
  int64_t k = (int64_t(blockIdx.x) * kRbfThreads + threadIdx.x) * Product::kRun;
  for (; k < entries; k += stride) {
    T results[Product::kRun];
#pragma unroll
    for (int e = 0; e < Product::kRun; e++) {
      const T distance = from[k + e];
      results[e] = distance < T(0) ? T(0) : exp_of(-finite * distance) - shift;
    }
    Rows::put(out + panel.entry(k), kUnit, 0, results);
  }
}

constexpr int kSumThreads = 256;

// sums [shares][L] += sum of squares of a share of the entries; blocks: shares, layers.
template <typename Rows>
__global__ void add_self_sums(const typename Rows::Stored* gram, int64_t entries, double* sums) {
  __shared__ double partial[kSumThreads / kWarp];
  const UnitPanel<Rows> panel{gram, gridDim.y};
  const auto* g = gram + panel.offset(blockIdx.y, 0);
  double sum = 0;
  const int64_t stride = int64_t(gridDim.x) * kSumThreads;
  for (int64_t k = int64_t(blockIdx.x) * kSumThreads + threadIdx.x; k < entries; k += stride) {
    const double value = double(Rows::get(g + panel.entry(k), kUnit, 0));
    sum += value * value;
  }
  sum = warp_sum(sum);
  if (lane_of_thread() == 0) partial[warp_of_thread()] = sum;
  __syncthreads();
  if (threadIdx.x != 0) return;
  double total = 0;
  for (int w = 0; w < kSumThreads / kWarp; w++) total += partial[w];
  sums[int64_t(blockIdx.x) * gridDim.y + blockIdx.y] += total;
}

// row_sums [L][pitch] += the group's entries, each in row i and, by symmetry, in row j. Blocks:
// runs of `side` examples, layers; `side` threads, one per example.
template <typename Rows, int side>
__global__ void add_row_sums(const typename Rows::Stored* gram, TileBlock block, int64_t first_tile,
                             int64_t tiles, double* row_sums, int64_t pitch) {
  const int64_t example0 = int64_t(blockIdx.x) * side;
  const int me = int(threadIdx.x), lane = lane_of_thread();
  const UnitPanel<Rows> panel{gram, gridDim.y};
  const auto* g = gram + panel.offset(blockIdx.y, 0);
  double sum = 0;
  for (int64_t t = 0; t < tiles; t++) {
    const Place place = block.place(first_tile + t, side);
    const auto entry = [&](int row, int column) {
      return double(Rows::get(g + panel.entry((t * side + row) * side + column), kUnit, 0));
    };
    if (block.row0 + place.row * side == example0)
      for (int r = 0; r < kWarp; r++) {  // the rows of this warp's examples, a row at a time
        double part = 0;
        for (int c = lane; c < side; c += kWarp) part += entry(me - lane + r, c);
        part = warp_sum(part);
        if (lane == r) sum += part;
      }
    if (block.column0 + place.column * side == example0)
      for (int r = 0; r < side; r++) sum += entry(r, me);
  }
  // Examples beyond n have room, and sums of 0.
  row_sums[blockIdx.y * pitch + example0 + me] += sum;
}

}  // namespace simcore::cuda
