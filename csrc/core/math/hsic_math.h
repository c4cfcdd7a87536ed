// HSIC from sums over example pairs; shared by every path (Gram, feature; CPU, CUDA).
//
// Math    K, L are the Gram matrices of two layers. Each path reduces a pair of layers to
//           offdiag = sum_{i != j} K_ij L_ij      diag    = sum_i K_ii L_ii
//           row_dot = sum_i r_i s_i               r_i, s_i row sums of K, L
//         and the estimators are written down once, here. K may be shifted by a constant: both
//         estimators of HSIC are blind to it, and the shift is what keeps float32 sums over RBF
//         Grams and distances accurate.
// Twin    simcore/reference/hsic.py:hsic; of distances simcore/reference/distances.py
#pragma once

#include <cmath>
#include <cstdint>

#include "core/math/host_device.h"

namespace simcore {

// distance: K_ij = |x_i - x_j|.
enum class KernelKind : int { linear = 0, rbf = 1, distance = 2 };
// product is no estimator of HSIC: it is tr(K L).
enum class Estimator : int { biased = 0, unbiased = 1, product = 2 };

// The smallest n for which the estimator is defined: (n-1)^2 and n(n-3) are divisors.
inline int64_t min_examples(Estimator estimator) {
  return estimator == Estimator::unbiased ? 4 : 2;
}

struct PairSums {
  double offdiag;
  double diag;
  double row_dot;
};

// Unbiased HSIC (Song et al. 2012, eq. 5). Row sums leave the diagonal out; rows_x = sum_i r_i.
SIMCORE_HD inline double hsic_unbiased(const PairSums& s, double rows_x, double rows_y, double n) {
  const double means = rows_x * rows_y / ((n - 1.0) * (n - 2.0));
  return (s.offdiag + means - 2.0 / (n - 2.0) * s.row_dot) / (n * (n - 3.0));
}

// tr(K H L H) / (n-1)^2. Row sums include the diagonal; they are 0 for the linear kernel on
// centred features, and passing exact zeros avoids cancelling terms that are only rounding.
SIMCORE_HD inline double hsic_biased(const PairSums& s, double rows_x, double rows_y, double n) {
  const double trace = s.offdiag + s.diag - 2.0 / n * s.row_dot + rows_x * rows_y / (n * n);
  return trace / ((n - 1.0) * (n - 1.0));
}

// tr(K L) of K + shift_x and L + shift_y. Row sums include the diagonal.
SIMCORE_HD inline double gram_product(const PairSums& s, double rows_x, double rows_y,
                                      double shift_x, double shift_y, double n) {
  const double linear = shift_x * rows_y + shift_y * rows_x;
  return s.offdiag + s.diag + linear + shift_x * shift_y * (n * n);
}

// The shift of a layer's distances: their root mean square, from the sum of the squares of its
// centred entries. Any shift is right, so that 0 serves where float64 does not hold the squares.
SIMCORE_HD inline double distance_shift(double squares, double n) {
  const double shift = std::sqrt(2.0 * squares / (n - 1.0));
  return std::isfinite(shift) ? shift : 0.0;
}

// The power of the layer's scale that an entry of its Gram matrix has.
SIMCORE_HD inline int degree(KernelKind kernel) {
  return kernel == KernelKind::linear ? 2 : kernel == KernelKind::distance ? 1 : 0;
}

}  // namespace simcore
