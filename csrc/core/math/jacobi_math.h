// One rotation of one-sided Jacobi: two columns made orthogonal.
//
// Math    with a = |u|^2, b = |v|^2, c = u.v and z = (b - a) / (2 c) the rotation by
//         t = sign(z) / (|z| + sqrt(1 + z^2)), cos = 1 / sqrt(1 + t^2), sin = cos t
//         takes u, v to cos u - sin v, sin u + cos v, whose product is 0 (Golub & Van Loan, 8.6.3).
#pragma once

#include <cmath>

#include "core/math/host_device.h"

namespace simcore {

template <typename T>
struct Rotation {
  T cosine = 1, sine = 0;
  bool needed = false;
};

// Not needed where the columns are orthogonal to `eps` of their lengths, or one is zero.
template <typename T>
SIMCORE_HD inline Rotation<T> jacobi_rotation(T a, T b, T c, T eps) {
  if (!(c * c > eps * eps * a * b) || !(a > 0) || !(b > 0)) return {};
  const T z = (b - a) / (2 * c);
  const T t = (z < 0 ? T(-1) : T(1)) / (std::fabs(z) + std::sqrt(1 + z * z));
  const T cosine = 1 / std::sqrt(1 + t * t);
  return {cosine, cosine * t, true};
}

struct ColumnPair {
  int first, second;
};

// Pair `pair` of round `round` of a tournament in which each of `players` (even) meets each other
// in players - 1 rounds: player 0 stays, the others go round.
SIMCORE_HD inline ColumnPair tournament_pair(int players, int round, int pair) {
  const int others = players - 1;
  const int a = pair == 0 ? 0 : 1 + (round + pair) % others;
  const int b = 1 + (round + others - pair) % others;
  return a < b ? ColumnPair{a, b} : ColumnPair{b, a};
}

}  // namespace simcore
