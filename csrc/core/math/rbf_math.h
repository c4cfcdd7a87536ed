// The RBF kernel's width: which order statistics the median is made of, and what follows from it.
//
// Math    Sorted, the m^2 squared distances of m rows are m zeros (the diagonal), then every
//         unordered pair twice. numpy's median of them is the mean of entries (m^2-1)/2 and m^2/2,
//         each of which is 0 or one order statistic of the m(m-1)/2 pairs.
// Twin    simcore/reference/hsic.py:rbf_width
#pragma once

#include <cmath>
#include <cstdint>

#include "core/math/host_device.h"

namespace simcore {

// n above which the width comes from every s-th row, s the least that leaves at most so many: at
// least 4 million ordered pairs.
constexpr int64_t kExactMedianRows = 4096;

// RBF bandwidths from here on compute in float64: all entries of K then lie within 1 % of 1, and in
// float32 their differences, which are all that HSIC sees, would be rounding.
constexpr double kFloat64Bandwidth = 8.0;

// The median is the mean of order statistics `first` and `second` (counted from 0) of the squared
// distances of the pairs of every step-th of n rows, or half of it: of the second and a zero.
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

// The kernel's value at the median distance: a shift that both estimators are blind to.
inline double rbf_shift(double bandwidth) { return std::exp(-0.5 / (bandwidth * bandwidth)); }

// 1 / (2 sigma^2), at most `largest`; infinite for a median of 0, which leaves it undefined.
SIMCORE_HD inline double rbf_gamma(double median, double bandwidth, double largest) {
  const double gamma = 0.5 / (bandwidth * bandwidth * median);
  return median > 0 && gamma > largest ? largest : gamma;
}

}  // namespace simcore
