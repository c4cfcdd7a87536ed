// Products of Gram matrices whose examples are reordered or weighted: permutation tests and the
// bootstrap.
#pragma once

#include <cstdint>

#include "cpu/base/runtime.h"

namespace simcore::cpu {

template <typename T>
struct PermutedGrams {
  int64_t n = 0, count_x = 0, count_y = 0, draws = 0;
  const T* x = nullptr;           // [n, n, count_x] symmetric in the first two
  const T* y = nullptr;           // [n, n, count_y] symmetric in the first two
  const int32_t* rows = nullptr;  // [draws, n] entries in [0, n)
  const T* weights = nullptr;     // [draws, n], or null: all 1
};

// out[k, a, b] = sum_ij w_ki w_kj x[i, j, a] y[r_k(i), r_k(j), b], [draws, count_x, count_y].
template <typename T>
void permuted_gram_products(const PermutedGrams<T>& grams, double* out, const Runtime& rt);

}  // namespace simcore::cpu
