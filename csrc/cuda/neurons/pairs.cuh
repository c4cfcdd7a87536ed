// Products of neurons with neurons on tensor cores, each of them once: x with itself takes both
// directions of a pair of layers from one product.
//
// Shapes    packed: as in neurons.cuh, stored as the product's Rows store them
//           keys [count_y][neurons of x]: the best partner so far of every neuron of x among those
//           of a layer y_j
// Plan      match_pairs      a block per (pair of layers, tile of neurons of each): the product,
//                            its magnitudes in shared memory, then a thread per row and, for x
//                            with itself, a thread per column, which looks for the largest
//           finish_partners  a block per pair (x_i, y_j): keys to values, partners and their mean
// Cost      2 n p_i p_j flops an unordered pair, six-fold in three bfloat16 parts. Keys take 8
//           bytes a neuron and layer, which blocks of a launch update atomically.
// Numerics  as product_tensor.cuh over all n. A key orders by value, then by the lower partner, so
//           that the order of blocks changes nothing: bit-equal on repetition, the first of equal
//           partners wins.
// Twin      simcore/reference/neurons.py
#pragma once

#include "cuda/neurons/neurons.cuh"
#include "cuda/products/product_tensor.cuh"

namespace simcore::cuda {

// A value that is not negative, above the complement of its neuron's number: the larger key is the
// better partner. 0: none.
using PartnerKey = unsigned long long;

__device__ __forceinline__ PartnerKey key_of(float value, int64_t partner) {
  return PartnerKey(__float_as_uint(value)) << 32 | (0xffffffffu - unsigned(partner));
}
__device__ __forceinline__ double value_of(PartnerKey key) {
  return double(__uint_as_float(unsigned(key >> 32)));
}
__device__ __forceinline__ int64_t partner_of(PartnerKey key) {
  return int64_t(0xffffffffu - unsigned(key));
}

// The pairs of layers (x_i, y_j), `columns` layers y; of x with itself those with i < j alone.
struct LayerPairs {
  int64_t rows, columns, first_y;
  bool triangle;

  SIMCORE_HD int64_t count() const { return triangle ? triangle_size(rows - 1) : rows * columns; }
  SIMCORE_HD Place place(int64_t index) const {
    if (!triangle) return rectangle_place(index, columns);
    const Place place = triangle_place(index, rows - 1);  // i <= j - 1
    return {place.row, place.column + 1};
  }
};

template <typename Product>
struct PairArguments {
  const DeviceLayer* layers;
  LayerPairs pairs;
  PackedLayers<typename Product::Rows> packed;
  const double* factors;
  PartnerKey* keys;
  int64_t neurons;  // of all layers of x
  int64_t tiles;    // of the widest layer
};

// Blocks: tiles of both layers, one pair of layers after another.
// registers: match_pairs: 248: a block of 256 threads
template <typename Product>
__global__ void __launch_bounds__(Product::kThreads, 1)
    match_pairs(const __grid_constant__ PairArguments<Product> m) {
  constexpr int side = Product::kTile;
  static_assert(Product::kThreads == 2 * side);
  using Row = float[side + 1];
  static_assert(sizeof(Row) * side <= Product::kSharedBytes);
  __shared__ bool varies[2][side];
  const int64_t of_pair = m.tiles * m.tiles;
  const Place pair = m.pairs.place(blockIdx.x / of_pair);
  const int64_t tile = blockIdx.x % of_pair;
  const DeviceLayer a = m.layers[pair.row], b = m.layers[m.pairs.first_y + pair.column];
  const int64_t k0 = tile / m.tiles * side, l0 = tile % m.tiles * side;
  if (k0 >= a.view.width || l0 >= b.view.width) return;
  const int64_t rows = at_most(side, a.view.width - k0), columns = at_most(side, b.view.width - l0);
  const int me = int(threadIdx.x) % side;
  const bool of_column = int(threadIdx.x) >= side;
  varies[of_column][me] = of_column ? me < columns && m.factors[b.column + l0 + me] > 0
                                    : me < rows && m.factors[a.column + k0 + me] > 0;
  Product product;
  product.add({m.packed.row(a, k0), m.packed.pitch, rows},
              {m.packed.row(b, l0), m.packed.pitch, columns}, 0, m.packed.pitch);
  SIMCORE_DYNAMIC_SHARED(Row, magnitudes);  // add() has read all that it put there
  product.visit([&](int r, int c, const float (&values)[Product::kRun]) {
#pragma unroll
    for (int e = 0; e < Product::kRun; e++) magnitudes[r][c + e] = fmin(fabs(values[e]), 1.0f);
  });
  __syncthreads();
  if (!varies[of_column][me] || (of_column && !m.pairs.triangle)) return;
  float best = -1;
  int at = 0;
#pragma unroll 4
  for (int other = 0; other < side; other++) {
    const float value = of_column ? magnitudes[other][me] : magnitudes[me][other];
    if (varies[!of_column][other] && value > best) best = value, at = other;
  }
  if (best < 0) return;
  const int64_t mine = of_column ? b.column + l0 + me : a.column + k0 + me;
  const int64_t with = of_column ? pair.row : pair.column;
  atomicMax(&m.keys[with * m.neurons + mine], key_of(best, (of_column ? k0 : l0) + at));
}

constexpr int kFinishPairThreads = 128;

// Blocks: pairs of layers (x_i, y_j), row by row. A layer with itself: every neuron is its own
// partner.
static __global__ void __launch_bounds__(kFinishPairThreads)
    finish_partners(const DeviceLayer* layers, LayerPairs pairs, const double* factors,
                    const PartnerKey* keys, int64_t neurons, double* grid, double* best,
                    int64_t* partner) {
  __shared__ TileSum partial[kFinishPairThreads];
  const Place pair = rectangle_place(blockIdx.x, pairs.columns);
  const DeviceLayer layer = layers[pair.row];
  const bool itself = pairs.triangle && pair.row == pair.column;
  TileSum own;
  for (int64_t k = threadIdx.x; k < layer.view.width; k += kFinishPairThreads) {
    const int64_t neuron = layer.column + k;
    const PartnerKey key = keys[pair.column * neurons + neuron];
    const bool known = itself ? factors[neuron] > 0 : key != 0;
    const double value = itself ? 1 : value_of(key);
    if (known) own = {own.sum + value, own.known + 1};
    if (best == nullptr) continue;
    best[neuron * pairs.columns + pair.column] = known ? value : NAN;
    partner[neuron * pairs.columns + pair.column] = known ? (itself ? k : partner_of(key)) : -1;
  }
  partial[threadIdx.x] = own;
  __syncthreads();
  if (threadIdx.x != 0) return;
  TileSum total;
  for (int t = 0; t < kFinishPairThreads; t++) {
    total.sum += partial[t].sum;
    total.known += partial[t].known;
  }
  grid[blockIdx.x] = total.known > 0 ? total.sum / double(total.known) : NAN;
}

}  // namespace simcore::cuda
