// HSIC from sums over example pairs; shared by every path (Gram, feature; CPU, CUDA).
//
// Math    K, L are the Gram matrices of two layers. Each path reduces a pair of layers to
//           offdiag = sum_{i != j} K_ij L_ij      diag    = sum_i K_ii L_ii
//           row_dot = sum_i r_i s_i               r_i, s_i row sums of K, L
//         and the estimators are written down once, here. K may be shifted by a constant: both
//         estimators are blind to it, and the shift is what keeps float32 RBF Grams accurate.
// Twin    simcore/reference/hsic.py:hsic
#pragma once

#include <cstdint>

#include "core/math/host_device.h"

namespace simcore {

enum class KernelKind : int { linear = 0, rbf = 1 };
enum class Estimator : int { biased = 0, unbiased = 1 };

// The smallest n for which the estimator is defined: (n-1)^2 and n(n-3) are divisors.
inline int64_t min_examples(Estimator estimator) { return estimator == Estimator::biased ? 2 : 4; }

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

}  // namespace simcore
