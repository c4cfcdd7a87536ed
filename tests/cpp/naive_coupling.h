// Affine couplings as plain loops in long double, and the data for them.
#pragma once

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "check.h"
#include "core/views/coupling_view.h"
#include "naive.h"

namespace naive {

using simcore::Coupling;
using simcore::RowsView;

// An array [batch, rows, columns] that owns its numbers, with a gap after every row.
struct Array {
  int64_t rows = 0, columns = 0;
  std::vector<double> values;
  std::vector<unsigned char> storage;
  RowsView view{};

  double at(int64_t b, int64_t i, int64_t k) const { return values[(b * rows + i) * columns + k]; }
};

template <typename Function>
Array make_array(int64_t batch, int64_t rows, int64_t columns, DType dtype, bool transposed,
                 int64_t gap, const Function& entry) {
  const int64_t row_stride = transposed ? 1 : columns + gap;
  const int64_t col_stride = transposed ? rows + gap : 1;
  const int64_t batch_stride = transposed ? columns * (rows + gap) : rows * (columns + gap);
  Array array{rows, columns, {}, {}, {nullptr, dtype, batch_stride, row_stride, col_stride}};
  array.storage.resize(batch * batch_stride * bytes_of(dtype) + 1);
  for (int64_t b = 0; b < batch; b++)
    for (int64_t i = 0; i < rows; i++)
      for (int64_t k = 0; k < columns; k++)
        array.values.push_back(store(array.storage, dtype,
                                     b * batch_stride + i * row_stride + k * col_stride, entry(k)));
  array.view.data = array.storage.data();
  return array;
}

struct Problem {
  Array x, params, grad, grad_log_det;
  Coupling coupling;
};

inline Problem make_problem(int64_t batch, int64_t rows, int64_t width, DType dtype,
                            bool transposed, bool inverse, int64_t gap = 3) {
  std::mt19937 generator(unsigned(rows * 1000 + width));
  std::uniform_real_distribution<double> uniform(-1, 1);
  const auto any = [&](int64_t) { return uniform(generator); };
  const auto params = [&](int64_t k) {  // s_raw: beyond both ends of the clamp, tiny, and 0
    const double value = uniform(generator);
    if (k >= width) return value;
    return k % 7 == 3 ? 0 : k % 5 == 1 ? value * 1e-4 : k % 11 == 2 ? value * 100 : value * 3;
  };
  Problem p{make_array(batch, rows, width, dtype, transposed, gap, any),
            make_array(batch, rows, 2 * width, dtype, transposed, gap, params),
            make_array(batch, rows, width, dtype, transposed, gap, any),
            make_array(batch, rows, 1, dtype, transposed, gap, any),
            {}};
  p.coupling = {batch, rows, width, p.x.view, p.params.view, 1.3, inverse};
  return p;
}

struct Entry {
  long double out, s, grad_x, grad_s_raw, grad_t;
};

inline Entry naive_entry(const Problem& p, int64_t b, int64_t i, int64_t k) {
  const long double c = p.coupling.clamp, x = p.x.at(b, i, k), s_raw = p.params.at(b, i, k);
  const long double t = p.params.at(b, i, p.coupling.width + k), g = p.grad.at(b, i, k);
  const long double l = p.grad_log_det.at(b, i, 0);
  const long double u = std::tanh(s_raw / c), slope = 1 / std::pow(std::cosh(s_raw / c), 2);
  const long double s = c * u;
  if (p.coupling.inverse) {
    const long double e = std::exp(-s);
    // For the inverse the gradients take its result, which is x here.
    return {(x - t) * e, -s, g * e, -(g * x + l) * slope, -g * e};
  }
  const long double e = std::exp(s);
  return {x * e + t, s, g * e, (g * x * e + l) * slope, g};
}

template <typename T>
constexpr double kTolerance = sizeof(T) == 8 ? 2e-15 : 1e-6;  // relative, of numbers near 1

// Results of `couple` and `couple_gradients`, rows one after the other.
template <typename T>
struct Coupled {
  std::vector<T> out, log_det, grad_x, grad_params;

  explicit Coupled(const Coupling& c)
      : out(c.batch * c.rows * c.width),
        log_det(c.batch * c.rows),
        grad_x(out.size()),
        grad_params(2 * out.size()) {}
};

template <typename T>
void check_coupled(const Problem& p, const Coupled<T>& got) {
  const Coupling& c = p.coupling;
  const int64_t k = c.width;
  for (int64_t row = 0; row < c.batch * c.rows; row++) {
    long double sum = 0, sizes = 1;
    for (int64_t j = 0; j < k; j++) {
      const Entry want = naive_entry(p, row / c.rows, row % c.rows, j);
      const auto near = [&](T value, long double wanted) {
        CHECK_NEAR(double(value), double(wanted), kTolerance<T> * (1 + std::fabs(double(wanted))));
      };
      near(got.out[row * k + j], want.out);
      near(got.grad_x[row * k + j], want.grad_x);
      near(got.grad_params[row * 2 * k + j], want.grad_s_raw);
      near(got.grad_params[row * 2 * k + k + j], want.grad_t);
      sum += want.s;
      sizes += std::fabs(want.s);
    }
    CHECK_NEAR(double(got.log_det[row]), double(sum), kTolerance<T> * double(sizes));
  }
}

}  // namespace naive
