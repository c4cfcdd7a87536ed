// Mean cosine of rows after the best rotation, of all pairs, pairs side by side.
//
// Math      the rotation Q = U V' of x'y = U S V' turns x to y (orthogonal Procrustes, uncentred).
//           With unit rows x_, y_: mean_i x_i Q y_i' / (|x_i| |y_i|) = <Q, x_'y_> / rows; columns
//           of zeros that pad the narrower layer add nothing to it.
// Plan      copies of two layers a pair, as unit rows and as they are, times powers of two; two
//           products; one singular value decomposition. Symmetric: x with itself takes each pair
//           once.
// Cost      4 n p q flops, and LAPACK's decomposition of [p, q], which takes most of the time.
// Numerics  in the layers' own precision, float32 at least. Directions with singular values below
//           kCut eps of the largest are rounding, or common to no rows: they are left out. A
//           perturbation E of x'y moves the value by sum_rc E_rc B_rc / (s_r + s_c) to first order,
//           B = U' x_'y_ V: its size with eps of the largest value for E, and what is left out, are
//           the error returned.
// Twin      simcore/reference/matching.py:aligned_cosine_grid
#include "torch/composed/aligned_cosines.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <utility>
#include <vector>

#include "core/math/nan.h"
#include "torch/composed/linalg.h"
#include "torch/convert.h"
#include "torch/torch_runtime.h"

namespace simcore::composed {
namespace {

constexpr double kCut = 4;
constexpr int64_t kNarrow = 16;  // products of fewer columns are sums in the order of the rows
constexpr double kResolved = 0x1p-10;  // singular values above it, over the largest, lose nothing

struct Aligned {
  double value, error;
};

struct Sides {
  Tensor rows;             // [n, p] times a power of two
  Tensor units;            // rows of unit length, or zeros
  std::vector<char> some;  // [n]: whether the row is not zeros
};

// Returns the largest magnitude, in lanes as sum_of; entries are finite.
template <typename T>
T largest_of(const T* entries, int64_t count) {
  constexpr int64_t kLanes = 8;
  T lanes[kLanes] = {}, largest = 0;
  const int64_t whole = count / kLanes * kLanes;
  for (int64_t i = 0; i < whole; i += kLanes)
    for (int64_t j = 0; j < kLanes; j++) {
      const T magnitude = std::abs(entries[i + j]);
      lanes[j] = magnitude > lanes[j] ? magnitude : lanes[j];
    }
  for (int64_t i = whole; i < count; i++) largest = std::max(largest, std::abs(entries[i]));
  for (const T lane : lanes) largest = std::max(largest, lane);
  return largest;
}

// The layer in T, its largest entry near 1.
template <typename T>
Sides sides_of(const Tensor& layer, ScalarType dtype) {
  const int64_t n = layer.size(0), p = layer.size(1);
  Tensor rows = empty({n, p}, dtype);
  copy_into(rows, layer);
  Sides sides{rows, clone(rows), std::vector<char>(n)};
  T *entry = mutable_data<T>(rows), *unit = mutable_data<T>(sides.units);
  const double largest = largest_of(entry, n * p);
  if (largest == 0) return sides;
  const int exponent = std::clamp(std::ilogb(largest), -1000, 1000);
  // 2^-exponent may be beyond float32: two steps.
  const T first = T(std::ldexp(1.0, -exponent / 2));
  const T second = T(std::ldexp(1.0, exponent / 2 - exponent));
  for (int64_t i = 0; i < n; i++, entry += p, unit += p) {
    for (int64_t k = 0; k < p; k++) entry[k] = entry[k] * first * second;
    // A row may be much shorter than the longest: its own largest entry brings it in range.
    const T of_row = largest_of(unit, p);
    sides.some[i] = of_row > 0;
    if (!sides.some[i]) continue;
    for (int64_t k = 0; k < p; k++) unit[k] /= of_row;
    const T length = T(std::sqrt(sum_of_squares(unit, p)));
    for (int64_t k = 0; k < p; k++) unit[k] /= length;
  }
  return sides;
}

// The error of the sum over directions, from the singular values and the factors of x'y.
template <typename T>
double rotation_error(const Tensor& values, const Tensor& turned, const Tensor& vt) {
  const T* s = const_data<T>(values);
  const int64_t count = vt.size(0);
  const double least = double(std::numeric_limits<T>::epsilon()) * double(s[0]);
  int64_t first = 0;
  while (first<count&& double(s[first])> kResolved * double(s[0])) first++;
  if (first == count) return 0;
  const Tensor block =
      product(rows_between(turned, first, count), transposed(rows_between(vt, first, count)));
  const T* entry = const_data<T>(block);
  double squares = 0;
  for (int64_t r = first; r < count; r++)
    for (int64_t c = first; c < count; c++) {
      const double both = double(s[r]) + double(s[c]);
      const double moved = double(*entry++) * (both > least ? least / both : 1);
      squares += moved * moved;
    }
  return std::sqrt(squares);
}

template <typename T>
Aligned aligned(const Tensor& x, const Tensor& y, ScalarType dtype) {
  const Sides a = sides_of<T>(x, dtype), b = sides_of<T>(y, dtype);
  int64_t rows = 0;
  for (size_t i = 0; i < a.some.size(); i++) rows += a.some[i] && b.some[i];
  if (rows == 0) return {kNaN, 0};
  const auto [u, values, factors] = thin_svd(product(transposed(a.rows), b.rows));
  const Tensor turned = product(transposed(u), product(transposed(a.units), b.units));
  const Tensor vt = as(factors, dtype);
  const T *const s = const_data<T>(values), *turn = const_data<T>(turned),
                 *direction = const_data<T>(vt);
  const T least = s[0] * T(kCut * double(std::numeric_limits<T>::epsilon()));
  const int64_t count = vt.size(0), width = vt.size(1);
  double total = 0, left_out = 0;
  for (int64_t r = 0; r < count; r++) {
    double along = 0;
    for (int64_t k = 0; k < width; k++) along += double(*turn++) * double(*direction++);
    (s[r] > least ? total : left_out) += s[r] > least ? along : std::abs(along);
  }
  return {std::clamp(total / double(rows), -1.0, 1.0),
          (left_out + rotation_error<T>(values, turned, vt)) / double(rows)};
}

bool has_entries(const Tensor& layer) {
  const Tensor any = call("aten::any", "", layer);
  return *const_data<bool>(any);
}

}  // namespace

std::tuple<Tensor, Tensor> aligned_cosines(const Tensors& x, const Tensors& y, int64_t max_memory) {
  const bool symmetric = y.empty();
  const Tensors& others = symmetric ? x : y;
  const int64_t count = int64_t(x.size()), across = int64_t(others.size()), n = x[0].size(0);
  int64_t width = 0, element = 4;
  for (const Tensors* side : {&x, &others})
    for (const Tensor& layer : *side) {
      width = std::max(width, layer.size(1));
      if (layer.scalar_type() == ScalarType::Double || layer.size(1) < kNarrow) element = 8;
    }
  // Copies of two layers, each in four forms; products, factors and LAPACK's workspace.
  cpu::Runtime runtime = torch_runtime();
  const int threads = affordable_threads(element * (8 * n * width + 14 * width * width), max_memory,
                                         runtime.threads);
  std::vector<double> grid(count * across), errors(count * across);
  std::vector<std::pair<int64_t, int64_t>> pairs;
  for (int64_t i = 0; i < count; i++)
    for (int64_t j = symmetric ? i : 0; j < across; j++) pairs.emplace_back(i, j);
  const int64_t part = std::max<int64_t>(8 * threads, 1), total = int64_t(pairs.size());
  for (int64_t begin = 0; begin < total; begin += part) {
    const int64_t end = std::min(begin + part, total);
    cpu::parallel_tasks(runtime, end - begin, threads, [&](int64_t task, int) {
      const NoGrad no_grad;
      const auto [i, j] = pairs[begin + task];
      const bool wide = x[i].scalar_type() == ScalarType::Double ||
                        others[j].scalar_type() == ScalarType::Double ||
                        std::min(x[i].size(1), others[j].size(1)) < kNarrow;
      Aligned pair{1, 0};
      if (symmetric && i == j)
        pair.value = has_entries(x[i]) ? 1 : kNaN;
      else if (wide)
        pair = aligned<double>(x[i], others[j], ScalarType::Double);
      else
        pair = aligned<float>(x[i], others[j], ScalarType::Float);
      grid[i * across + j] = pair.value;
      errors[i * across + j] = pair.error;
      if (!symmetric) return;
      grid[j * across + i] = pair.value;
      errors[j * across + i] = pair.error;
    });
    runtime.progress(double(end) / double(total));
  }
  return {to_tensor(grid, {count, across}), to_tensor(errors, {count, across})};
}

}  // namespace simcore::composed
