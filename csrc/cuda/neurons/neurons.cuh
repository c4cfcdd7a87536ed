// Products of neurons with neurons, reduced as they are formed: no [p, q] matrix is ever written.
//
// Shapes    packed: a row per neuron, its centred answers to the n examples and zeros to a whole
//           pitch; neurons of x at unit length, those of y too where partners are sought.
// Plan      column_factors   1 / ||x_k|| from the sums of centring
//           pack_neurons     centred, scaled, transposed; 32 x 32 entries at a time
//           match_neurons    a block per (tile of neurons of x_i, layer y_j) goes through all
//                            neurons of y_j, kStrip columns of a product at a time in shared memory
//           finish_matches   a thread per pair of layers
// Cost      2 n p_i p_j flops a pair; x with itself costs both directions of a pair.
// Numerics  products in T over all n (make_plan takes float64 for large n), everything after in
//           float64 and in a fixed order. The first of equal partners wins.
#pragma once

#include <type_traits>

#include "cuda/products/contract.cuh"
#include "cuda/products/layers.cuh"

namespace simcore::cuda {

constexpr int kFactorThreads = 128;

// factors [columns] 1 / ||x_k|| of the centred and scaled columns, 0 for a constant one. Blocks:
// columns of a layer, layers.
static __global__ void column_factors(const DeviceLayer* layers, int64_t n, int64_t chunks,
                                      int64_t columns, const ColumnSums* sums, const int* exponents,
                                      double* factors) {
  const DeviceLayer layer = layers[blockIdx.y];
  const int64_t k = int64_t(blockIdx.x) * kFactorThreads + threadIdx.x;
  if (k >= layer.view.width) return;
  double shift = 0, square = 0;
  for (int64_t c = 0; c < chunks; c++) {
    shift += sums[c * columns + layer.column + k].shift;
    square += sums[c * columns + layer.column + k].square;
  }
  const double centred = square - shift * (shift / double(n));
  factors[layer.column + k] = centred > 0 ? scalbn(1 / sqrt(centred), exponents[blockIdx.y]) : 0;
}

constexpr int kSquare = 32, kPackNeuronThreads = 256;

// The packed layers [first, first + gridDim.y) in a buffer of their own.
template <typename Rows>
struct PackedLayers {
  typename Rows::Stored* neurons;  // neuron k of a layer: row layer.column - origin + k
  int64_t origin;                  // layer.column of the first
  int64_t pitch;

  __device__ typename Rows::Stored* row(const DeviceLayer& layer, int64_t k) const {
    return neurons + Rows::kPlanes * (layer.column - origin + k) * pitch;
  }
};

// Blocks: squares of all neurons against `across` squares of examples, row by row, in one axis,
// because the others end at kMaxGridY; layers. Layers from `unscaled` on keep their length.
template <typename Rows>
__global__ void __launch_bounds__(kPackNeuronThreads)
    pack_neurons(const DeviceLayer* layers, int64_t first, int64_t unscaled, int64_t n,
                 int64_t across, Centring<typename Rows::Value> centring, const double* factors,
                 PackedLayers<Rows> packed) {
  using T = typename Rows::Value;
  __shared__ T square[kSquare][kSquare + 1];
  const int64_t l = first + blockIdx.y;
  const DeviceLayer layer = layers[l];
  const int64_t i0 = blockIdx.x % across * kSquare, k0 = blockIdx.x / across * kSquare;
  if (k0 >= layer.view.width) return;
  const T scale = T(scalbn(1.0, -centring.exponent[l]));
  const int lane = lane_of_thread();
  for (int r = warp_of_thread(); r < kSquare; r += kPackNeuronThreads / kWarp) {
    const int64_t i = i0 + r, k = k0 + lane, at = layer.column + k;
    T value = 0;
    if (i < n && k < layer.view.width) {
      value = (load<T>(layer.view, i, k) * scale - centring.mean_hi[at]) - centring.mean_lo[at];
      if (l < unscaled) value = T(double(value) * factors[at]);
    }
    square[r][lane] = value;
  }
  __syncthreads();
  for (int r = warp_of_thread(); r < kSquare; r += kPackNeuronThreads / kWarp) {
    const T value[1] = {square[lane][r]};
    if (k0 + r < layer.view.width)
      Rows::put(packed.row(layer, k0 + r), packed.pitch, i0 + lane, value);
  }
}

// One neuron's best partner so far, or the sum of its squared products.
template <typename V>
struct Match {
  V value = 0;
  int partner = -1;
};

constexpr int kStrip = 16;  // columns of a product that are looked at together

// Result of a block of match_neurons for its tile of neurons.
struct TileSum {
  double sum = 0;
  int64_t known = 0;
};

template <typename T>
struct MatchArguments {
  const DeviceLayer* layers;
  int64_t first_a, first_b;  // first layers of the launch; blockIdx adds the rest
  int64_t first_y, count_y;
  PackedLayers<PlainRows<T>> a, b;
  const double* factors;
  const int* exponents;
  TileSum* sums;  // [Lx][tiles][Ly]
  int64_t tiles;
  double* best;  // null: not kept
  int64_t* partner;
};

// Adds columns [c, c + kStrip) of a product to the match of one row.
template <typename T>
__device__ __forceinline__ void seek_best(const T* row, const double* factors, int c, int width,
                                          Match<T>& match) {
#pragma unroll 1
  for (int e = 0; e < kStrip && c + e < width; e++) {
    if (factors[c + e] == 0) continue;
    const T r = fmin(fabs(row[e]), T(1));
    if (match.partner < 0 || r > match.value) match = {r, c + e};
  }
}

template <typename T>
__device__ __forceinline__ void add_squares(const T* row, int c, int width, Match<double>& match) {
#pragma unroll 1
  for (int e = 0; e < kStrip && c + e < width; e++) match.value += double(row[e]) * double(row[e]);
}

// Blocks: tiles of neurons of a layer, layers of b, layers of a.
// registers: match_neurons: 192: 2 blocks of 128 threads
template <typename Product, bool best>
__global__ void __launch_bounds__(Product::kThreads, 1)
    match_neurons(const __grid_constant__ MatchArguments<typename Product::Value> m) {
  using T = typename Product::Value;
  constexpr int side = Product::kTile;
  static_assert(Product::kThreads >= side);
  __shared__ T strip[side][kStrip + 1];
  __shared__ TileSum partial[side];
  const int64_t la = m.first_a + blockIdx.z, lb = m.first_b + blockIdx.y;
  const DeviceLayer a = m.layers[la], b = m.layers[lb];
  const int64_t k0 = int64_t(blockIdx.x) * side;
  if (k0 >= a.view.width) return;
  const int me = int(threadIdx.x);
  const int64_t k = k0 + me;
  const bool mine = me < side && k < a.view.width && m.factors[a.column + k] > 0;
  const Panel<T> left{m.a.row(a, k0), m.a.pitch, at_most(side, a.view.width - k0)};
  Match<std::conditional_t<best, T, double>> match;
  if (best && la == lb) {
    match = {1, int(k)};  // nothing is closer to a neuron than itself
  } else {
    const int width = int(b.view.width);
#pragma unroll 1
    for (int c0 = 0; c0 < width; c0 += side) {
      Product product;
      product.add(left, {m.b.row(b, c0), m.b.pitch, at_most(side, width - c0)}, 0, m.a.pitch);
#pragma unroll 1
      for (int s = 0; s < side; s += kStrip) {
        product.visit([&](int r, int c, const T(&values)[1]) {
          if (c >= s && c < s + kStrip) strip[r][c - s] = values[0];
        });
        __syncthreads();
        if (mine) {
          if constexpr (best)
            seek_best(strip[me], m.factors + b.column, c0 + s, width, match);
          else
            add_squares(strip[me], c0 + s, width, match);
        }
        __syncthreads();
      }
    }
  }
  // A layer without variance has no partners, and its squares are 0.
  if constexpr (!best) match = {fmin(scalbn(sqrt(match.value), m.exponents[lb]), 1.0), 0};
  const bool known = mine && match.partner >= 0;
  if (best && m.best != nullptr && me < side && k < a.view.width) {
    const int64_t at = (a.column + k) * m.count_y + lb - m.first_y;
    m.best[at] = known ? double(match.value) : NAN;
    m.partner[at] = known ? match.partner : -1;
  }
  if (me < side) partial[me] = known ? TileSum{double(match.value), 1} : TileSum{};
  __syncthreads();
  if (me != 0) return;
  TileSum total;
  for (int r = 0; r < side; r++) {
    total.sum += partial[r].sum;
    total.known += partial[r].known;
  }
  m.sums[(la * m.tiles + blockIdx.x) * m.count_y + lb - m.first_y] = total;
}

constexpr int kFinishMatchThreads = 128;

// A thread per pair of layers, row by row; undefined where no neuron of x_i varies or, for squares,
// none of y_j does.
template <bool best>
__global__ void finish_matches(const DeviceLayer* layers, int64_t count_x, int64_t first_y,
                               int64_t count_y, const TileSum* sums, int64_t tiles, int64_t side,
                               const double* factors, double* grid) {
  const int64_t pair = int64_t(blockIdx.x) * kFinishMatchThreads + threadIdx.x;
  if (pair >= count_x * count_y) return;
  const Place place = rectangle_place(pair, count_y);
  TileSum total;
  for (int64_t t = 0; t < ceil_div(layers[place.row].view.width, side); t++) {
    const TileSum part = sums[(place.row * tiles + t) * count_y + place.column];
    total.sum += part.sum;
    total.known += part.known;
  }
  bool defined = total.known > 0;
  if (!best) {
    const DeviceLayer y = layers[first_y + place.column];
    bool varies = false;
    for (int64_t k = 0; k < y.view.width; k++) varies |= factors[y.column + k] > 0;
    defined &= varies;
  }
  grid[pair] = defined ? total.sum / double(total.known) : NAN;
}

}  // namespace simcore::cuda
