// Instruction-set dependent inner loops of csrc/cpu/neighbours. See neighbours_impl.h.
#pragma once

#include <cstdint>

#include "core/views/layer_view.h"

namespace simcore::cpu {

// Bits of a flag of NeighboursTable::flag.
constexpr uint8_t kNearRow = 1, kNearColumn = 2;

// Sums of a centred row: of its squares, and of its products with the mean row.
struct CentredSums {
  double square, with_mean;
};

struct NeighboursTable {
  // flags[j] for j < count, a multiple of IsaTable<float>::width: kNearRow where
  // bias[j] - g[j] <= limit, kNearColumn where own - g[j] <= limits[j].
  void (*flag)(const float* g, int64_t count, float own, float limit, const float* bias,
               const float* limits, uint8_t* flags);

  // Returns the k-th smallest of count keys, which infinite ones follow up to a multiple of
  // IsaTable<float>::width.
  float (*kth)(const float* keys, int64_t count, int64_t k);

  // out[k] = (source[k * stride] * scale) * factor for k < count, in float64.
  void (*load_scaled)(const void* source, DType dtype, int64_t stride, int64_t count, double scale,
                      double factor, double* out);

  // sums[k] += source[k * stride] * factor for k < count, in float64.
  void (*add_scaled)(const void* source, DType dtype, int64_t stride, int64_t count, double factor,
                     double* sums);

  double (*largest)(const double* x, int64_t count);  // max |x[k]|, 0 for nan
  double (*dot)(const double* a, const double* b, int64_t count);
  double (*squared_distance)(const double* a, const double* b, int64_t count);

  // x[k] <- half the softmax of x, k < count, count at least 1; every entry is finite.
  void (*half_softmax)(double* x, int64_t count);

  // sums[k] += x[k] - first[k]; returns max |x[k] - first[k]|.
  double (*add_difference)(const double* x, const double* first, int64_t count, double* sums);

  // out[k] = (x[k] - mean[k]) * scale, rounded to float32; the sums are of what was written.
  CentredSums (*centre)(const double* x, const double* mean, int64_t count, double scale,
                        float* out);
};

const NeighboursTable& neighbours_table();

}  // namespace simcore::cpu
