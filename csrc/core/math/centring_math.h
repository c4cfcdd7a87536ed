// Column means and a layer's scale from sums of differences from the first row.
//
// Math      mean_k = x_0k + sum_i (x_ik - x_0k) / n: a constant column has a mean of exactly its
//           value, and a common offset costs no digits.
//           scale = 2^-e brings the centred entries near 1: squares of Gram entries then stay in
//           float32's range for any input scale, and it is undone exactly in float64.
#pragma once

#include <cmath>

#include "core/math/host_device.h"

namespace simcore {

// Sums over all columns of a layer.
struct LayerSums {
  double square = 0;      // of (x_ik - x_0k)^2
  double correction = 0;  // of (sum_i (x_ik - x_0k))^2 / n
  double largest = 0;     // finite |x_ik - x_0k|; needed only where squares leave float64's range
};

SIMCORE_HD inline bool squares_in_range(const LayerSums& sums) {
  return sums.square > 1e-280 && std::isfinite(sums.square);
}

// The exponent of the centred entries' root mean square (of `entries` entries), within +-limit; 0
// for a layer without variance. Where the first row is so far out that the variance is lost to
// cancellation, its distance serves instead.
SIMCORE_HD inline int layer_exponent(const LayerSums& sums, double entries, int limit) {
  int exponent = 0;
  if (squares_in_range(sums)) {
    const double centred = sums.square - sums.correction;
    const double mean = (centred > 1e-12 * sums.square ? centred : sums.square) / entries;
    exponent = std::ilogb(std::sqrt(mean));
  } else if (sums.largest > 0) {
    exponent = std::ilogb(sums.largest);
  }
  return exponent > limit ? limit : exponent < -limit ? -limit : exponent;
}

// 2^-e must itself be a normal number of type T.
template <typename T>
inline constexpr int kExponentLimit = sizeof(T) == 4 ? 126 : 1000;

// The exponent that also keeps products of two centred rows below 2^15, for a type whose range ends
// there (float16): no product is above the sum of all squares, and the root mean square is below 2,
// or below 4 where squares leave float64's range.
SIMCORE_HD inline int half_exponent(const LayerSums& sums, double entries) {
  const int bits = std::ilogb(entries) + 1 + (squares_in_range(sums) ? 2 : 4);
  return layer_exponent(sums, entries, kExponentLimit<float>) + (bits > 15 ? (bits - 14) / 2 : 0);
}

// (first + delta) * scale as hi + lo, to twice T's precision.
template <typename T>
SIMCORE_HD inline void split_mean(double first, double delta, double scale, T* hi, T* lo) {
  const double mean = first + delta;
  // Knuth's two-sum: `lost` is what rounding dropped from first + delta.
  const double back = mean - first;
  const double lost = (first - (mean - back)) + (delta - back);
  *hi = static_cast<T>(mean * scale);
  *lo = static_cast<T>((mean * scale - double(*hi)) + lost * scale);
}

}  // namespace simcore
