// The layers of a grid in device memory, centred and packed.
//
// Plan      column_sums      sums of every column over chunks of rows, in float64
//           finish_centring  a block per layer: scale, then means
//           pack_rows        a warp per row: centred, converted, padded with zeros to whole tiles
// Cost      two passes over the inputs and one store: bound by memory. In groups of layers that
//           stay in L2, the second pass would leave memory alone, but each group would wait for
//           finish_centring on a block a layer: 55 groups of 325 layers, and no gain predicted.
// Twin      csrc/cpu/base/centring.cpp on the CPU; core/math/centring_math.h serves both.
#pragma once

#include <cmath>

#include "core/math/centring_math.h"
#include "core/math/index_math.h"
#include "cuda/products/rows.cuh"

namespace simcore::cuda {

constexpr int64_t kPitchUnit = 32;  // packed rows are multiples of this many entries

struct DeviceLayer {
  LayerView view;
  int64_t column;         // columns of the layers before it
  int64_t packed_column;  // the same of packed rows
  int64_t pitch;          // entries of a packed row: the width, and zeros
};

// Layers travel as kernel parameters: nothing on the host has to outlive the call, so that the
// launch sequence can be captured into a graph.
constexpr int kLayersPerLaunch = 48;
struct LayerBatch {
  DeviceLayer layers[kLayersPerLaunch];
};

static __global__ void store_layers(const __grid_constant__ LayerBatch batch, int count,
                                    DeviceLayer* table) {
  const int i = int(threadIdx.x);
  if (i < count) table[i] = batch.layers[i];
}

struct ColumnSums {
  double shift, square;  // sums of x - x_0 and of its square
  double largest;        // finite |x - x_0|
  int64_t nonfinite;
};

constexpr int kColumnThreads = 128;

// sums [chunks][columns]; blocks: columns of a layer, layers, chunks of rows.
static __global__ void column_sums(const DeviceLayer* layers, int64_t n, int64_t chunk_rows,
                                   int64_t columns, ColumnSums* sums) {
  const DeviceLayer layer = layers[blockIdx.y];
  const int64_t k = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (k >= layer.view.width) return;
  const int64_t begin = int64_t(blockIdx.z) * chunk_rows;
  const int64_t end = begin + chunk_rows < n ? begin + chunk_rows : n;
  const double first = load<double>(layer.view, 0, k);
  ColumnSums sum{0, 0, 0, 0};
  for (int64_t i = begin; i < end; i++) {
    const double x = load<double>(layer.view, i, k);
    const double d = x - first;
    sum.shift += d;
    sum.square += d * d;
    if (!isfinite(x)) sum.nonfinite++;
    if (isfinite(d)) sum.largest = fmax(sum.largest, fabs(d));
  }
  sums[blockIdx.z * columns + layer.column + k] = sum;
}

struct Centring {
  float* mean_hi;             // [columns]
  float* mean_lo;             // [columns]
  int* exponent;              // [L] scale = 2^-exponent
  int64_t* nonfinite;         // [L]
  double* squares = nullptr;  // [L] of the centred entries times scale, summed; not always wanted
};

constexpr int kCentringThreads = 256;

static __global__ void finish_centring(const DeviceLayer* layers, int64_t n, int64_t chunks,
                                       int64_t columns, const ColumnSums* sums, Centring centring) {
  __shared__ LayerSums partial[kCentringThreads];
  __shared__ int64_t nonfinite[kCentringThreads];
  const DeviceLayer layer = layers[blockIdx.x];
  const int thread = int(threadIdx.x);
  LayerSums total;
  int64_t bad = 0;
  for (int64_t k = thread; k < layer.view.width; k += kCentringThreads) {
    double shift = 0;
    for (int64_t c = 0; c < chunks; c++) {
      const ColumnSums sum = sums[c * columns + layer.column + k];
      shift += sum.shift;
      total.square += sum.square;
      total.largest = fmax(total.largest, sum.largest);
      bad += sum.nonfinite;
    }
    total.correction += shift * (shift / double(n));
  }
  partial[thread] = total;
  nonfinite[thread] = bad;
  for (int step = kCentringThreads / 2; step > 0; step /= 2) {
    __syncthreads();
    if (thread >= step) continue;
    partial[thread].square += partial[thread + step].square;
    partial[thread].correction += partial[thread + step].correction;
    partial[thread].largest = fmax(partial[thread].largest, partial[thread + step].largest);
    nonfinite[thread] += nonfinite[thread + step];
  }
  __syncthreads();
  const int exponent = half_exponent(partial[0], double(n) * double(layer.view.width));
  if (thread == 0) {
    centring.exponent[blockIdx.x] = exponent;
    centring.nonfinite[blockIdx.x] = nonfinite[0];
  }
  const double scale = scalbn(1.0, -exponent);
  if (thread == 0 && centring.squares != nullptr)
    centring.squares[blockIdx.x] = (partial[0].square - partial[0].correction) * scale * scale;
  for (int64_t k = thread; k < layer.view.width; k += kCentringThreads) {
    double shift = 0;
    for (int64_t c = 0; c < chunks; c++) shift += sums[c * columns + layer.column + k].shift;
    const int64_t at = layer.column + k;
    split_mean(load<double>(layer.view, 0, k), shift / double(n), scale, &centring.mean_hi[at],
               &centring.mean_lo[at]);
  }
}

constexpr int kPackThreads = 256;

// Rows first, first + step, ... of the examples, `rows` of them (whole tiles, which whole blocks of
// pack_rows make); those from `valid` on are zeros.
struct PackedRows {
  int64_t first, step, valid, rows;
};

// packed: layer l from packed_column * rows on, [rows][planes][pitch]. norms: squared lengths of
// the rows, [layers][norm_pitch], from `first` on (with a step: from 0 on). Blocks: rows, layers.
template <typename Rows>
__global__ void pack_rows(const DeviceLayer* layers, Centring centring, PackedRows which,
                          int64_t packed_origin, typename Rows::Stored* packed, double* norms,
                          int64_t norm_pitch) {
  const DeviceLayer layer = layers[blockIdx.y];
  const int64_t r = int64_t(blockIdx.x) * (kPackThreads / kWarp) + warp_of_thread();
  const float scale = scalbnf(1.0f, -centring.exponent[blockIdx.y]);
  const float* hi = centring.mean_hi + layer.column;
  const float* lo = centring.mean_lo + layer.column;
  auto* row = packed + Rows::kPlanes *
                           ((layer.packed_column - packed_origin) * which.rows + r * layer.pitch);
  double square = 0;
  for (int64_t k = lane_of_thread(); k < layer.pitch; k += kWarp) {
    float value[1] = {0};
    if (r < which.valid && k < layer.view.width)
      value[0] = (load<float>(layer.view, which.first + r * which.step, k) * scale - hi[k]) - lo[k];
    Rows::put(row, layer.pitch, k, value);
    square += double(value[0]) * double(value[0]);
  }
  square = warp_sum(square);
  if (lane_of_thread() == 0 && r < which.valid)
    norms[blockIdx.y * norm_pitch + (which.step == 1 ? which.first : 0) + r] = square;
}

}  // namespace simcore::cuda
