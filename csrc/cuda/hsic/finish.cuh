// From sums over pairs of examples to HSIC: core/math/hsic_math.h, a warp per pair of layers.
#pragma once

#include <cmath>

#include "core/math/hsic_math.h"
#include "cuda/hsic/gram.cuh"

namespace simcore::cuda {

struct HsicSums {
  const double* offdiag;  // [shares][La][Lb] of PairBlock: sums over i < j
  const double* self;     // [self_shares][L], or null: the diagonal of offdiag
  int64_t shares, self_shares;
  const double* norms;     // [L][pitch] diagonals of linear Grams
  const double* row_sums;  // [L][pitch], without the diagonal; null for the linear kernel
  int64_t pitch, n;
  int64_t layers;
  const double* gammas;  // [L], rbf only, else null
  double shift;          // rbf only
  const double* shifts;  // [L], distance only, else null
  const int* exponent;   // [L]
  KernelKind kernel;
  Estimator estimator;

  __device__ double shift_of(int64_t layer) const {
    return kernel == KernelKind::distance ? shifts[layer] : shift;
  }
  __device__ double diagonal(int64_t layer, int64_t i) const {
    if (kernel == KernelKind::linear) return norms[layer * pitch + i];
    return (kernel == KernelKind::rbf ? 1 : 0) - shift_of(layer);
  }
};

// Returns the HSIC of layers a and b, computed by one warp, `upper` being their sum over i < j.
__device__ inline double hsic_of(const HsicSums& s, int64_t a, int64_t b, double upper) {
  PairSums pair{2 * upper, 0, 0};
  double rows_a = 0, rows_b = 0;
  const bool linear = s.row_sums == nullptr, unbiased = s.estimator == Estimator::unbiased;
  for (int64_t i = lane_of_thread(); i < s.n; i += kWarp) {
    const double diag_a = s.diagonal(a, i), diag_b = s.diagonal(b, i);
    pair.diag += diag_a * diag_b;
    // Rows of a linear Gram sum to 0, the diagonal included: features are centred.
    const double off_a = linear ? -diag_a : s.row_sums[a * s.pitch + i];
    const double off_b = linear ? -diag_b : s.row_sums[b * s.pitch + i];
    const double row_a = unbiased ? off_a : linear ? 0 : off_a + diag_a;
    const double row_b = unbiased ? off_b : linear ? 0 : off_b + diag_b;
    pair.row_dot += row_a * row_b;
    rows_a += row_a;
    rows_b += row_b;
  }
  pair.diag = warp_sum(pair.diag);
  pair.row_dot = warp_sum(pair.row_dot);
  rows_a = warp_sum(rows_a);
  rows_b = warp_sum(rows_b);
  const double n = double(s.n);
  double value;
  if (unbiased)
    value = hsic_unbiased(pair, rows_a, rows_b, n);
  else if (s.estimator == Estimator::biased)
    value = hsic_biased(pair, rows_a, rows_b, n);
  else
    value = gram_product(pair, rows_a, rows_b, s.shift_of(a), s.shift_of(b), n);
  if (s.kernel == KernelKind::rbf)
    return isfinite(s.gammas[a]) && isfinite(s.gammas[b]) ? value : nan("");
  // The features were scaled by 2^-exponent.
  return scalbn(value, degree(s.kernel) * (s.exponent[a] + s.exponent[b]));
}

constexpr int kFinishThreads = 256;

// xy [La, Lb]: a warp per pair of `pairs`, the triangle mirrored.
static __global__ void finish_pairs(HsicSums s, PairBlock pairs, double* xy) {
  const int64_t count = pairs.triangle ? triangle_size(pairs.rows) : pairs.rows * pairs.columns;
  const int64_t index = int64_t(blockIdx.x) * (kFinishThreads / kWarp) + warp_of_thread();
  if (index >= count) return;
  const Place p =
      pairs.triangle ? triangle_place(index, pairs.rows) : rectangle_place(index, pairs.columns);
  double upper = 0;
  for (int64_t share = 0; share < s.shares; share++)
    upper += s.offdiag[(share * pairs.rows + p.row) * pairs.columns + p.column];
  const double value = hsic_of(s, pairs.row0 + p.row, pairs.column0 + p.column, upper);
  if (lane_of_thread() != 0) return;
  xy[p.row * pairs.columns + p.column] = value;
  if (pairs.triangle) xy[p.column * pairs.columns + p.row] = value;
}

// HSIC of layer l with itself: xx [count_x], then yy; a warp per layer.
static __global__ void finish_selves(HsicSums s, PairBlock pairs, int64_t count_x, double* xx,
                                     double* yy) {
  const int64_t l = int64_t(blockIdx.x) * (kFinishThreads / kWarp) + warp_of_thread();
  if (l >= s.layers) return;
  double upper = 0;
  if (s.self == nullptr)
    for (int64_t share = 0; share < s.shares; share++)
      upper += s.offdiag[(share * pairs.rows + l) * pairs.columns + l];
  else
    for (int64_t share = 0; share < s.self_shares; share++) upper += s.self[share * s.layers + l];
  const double value = hsic_of(s, l, l, upper);
  if (lane_of_thread() != 0) return;
  if (l < count_x) xx[l] = value;
  if (s.self == nullptr) yy[l] = value;
  if (l >= count_x) yy[l - count_x] = value;
}

}  // namespace simcore::cuda
