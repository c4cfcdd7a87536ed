// Neighbours as the tests call and compare them.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "check.h"
#include "cpu/neighbours/neighbours.h"
#include "naive.h"

namespace naive {

using simcore::cpu::Metric;
using simcore::cpu::Runtime;

struct Found {
  std::vector<int32_t> index;
  std::vector<double> values, own;
};

inline Found nearest(const std::vector<Layer>& layers, int64_t k, Metric metric, const Runtime& rt,
                     int64_t max_memory = 0) {
  const int64_t n = layers[0].n, count = int64_t(layers.size());
  Found found{std::vector<int32_t>(count * n * k), std::vector<double>(count * n * k),
              std::vector<double>(count * n)};
  simcore::cpu::nearest_rows({views(layers), n, k, metric, "X"}, max_memory, rt, found.index.data(),
                             found.values.data(), found.own.data());
  // Without values most rows are ordered by products in float32: the lists are the same.
  std::vector<int32_t> order(count * n * k);
  simcore::cpu::nearest_rows({views(layers), n, k, metric, "X"}, max_memory, rt, order.data(),
                             nullptr, nullptr);
  CHECK(order == found.index);
  return found;
}

// The distance of two rows in long double: cosine, squared or minus the inner product.
inline long double distance(const Layer& x, int64_t i, int64_t j, Metric metric) {
  long double product = 0, square_i = 0, square_j = 0, gap = 0;
  for (int64_t c = 0; c < x.view.width; c++) {
    const long double a = x.at(i, c), b = x.at(j, c);
    product += a * b, square_i += a * a, square_j += b * b, gap += (a - b) * (a - b);
  }
  if (metric == Metric::inner) return -product;
  if (metric == Metric::euclidean) return gap;
  if (square_i == 0 || square_j == 0) return 1;
  long double half = 0;
  for (int64_t c = 0; c < x.view.width; c++) {
    const long double d = x.at(i, c) / std::sqrt(square_i) - x.at(j, c) / std::sqrt(square_j);
    half += d * d / 2;
  }
  return half;
}

}  // namespace naive
