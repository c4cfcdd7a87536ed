// The RBF kernel's width: the order statistics that the median consists of, and derived constants.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/math/host_device.h"

namespace simcore {

// The largest n for which the width comes from all rows. Above it the width comes from every s-th
// row, s being the least that leaves at most kExactMedianRows rows: at least 4 million ordered
// pairs.
constexpr int64_t kExactMedianRows = 4096;

// RBF bandwidths of this value and above compute in float64. At the median distance K is
// exp(-1/128) there, within 1 % of 1, and so it is for all pairs near that distance: in float32 the
// differences between such entries would be mostly rounding, and HSIC sees nothing but differences.
constexpr double kFloat64Bandwidth = 8.0;

// The median is the mean of order statistics `first` and `second` (counted from 0) of the squared
// distances of the pairs of every step-th of n rows. If `halved`, it is the mean of `second` and a
// zero of the diagonal.
struct MedianRule {
  explicit MedianRule(int64_t n)
      : step((n + kExactMedianRows - 1) / kExactMedianRows), rows((n - 1) / step + 1) {
    const int64_t lower = (rows * rows - 1) / 2, upper = rows * rows / 2;
    halved = lower < rows;
    first = halved ? 0 : (lower - rows) / 2;
    second = upper < rows ? 0 : (upper - rows) / 2;
  }
  int64_t step, rows, first = 0, second = 0;
  bool halved = false;
};

// Returns the kernel's value at the median distance: a constant shift of K, which changes neither
// estimator.
inline double rbf_shift(double bandwidth) { return std::exp(-0.5 / (bandwidth * bandwidth)); }

// Returns 1 / (2 sigma^2), at most `largest`; infinite for a median of 0, for which sigma is
// undefined.
SIMCORE_HD inline double rbf_gamma(double median, double bandwidth, double largest) {
  const double gamma = 0.5 / (bandwidth * bandwidth * median);
  return median > 0 && gamma > largest ? largest : gamma;
}

}  // namespace simcore
