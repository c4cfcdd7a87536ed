// Projection-weighted CCA of all pairs, pairs side by side.
//
// Math      M = U_x^T U_y = P diag(rho) R^T; U_x^T Xc = diag(s) V^T, so that the weights of x are
//           a_i = sum_j |p_i^T (diag(s) V^T)_j|; value sum(a rho) / sum(a) (Morcos et al. 2018).
// Plan      float32: eigenvectors P of M M^T on the smaller side, P^T M = diag(rho) R^T row by row,
//           so that both directions of a pair come from one decomposition. Squares of small rho are
//           lost beside the largest: rows below kStep of it are decomposed again, among themselves,
//           until none is. Where a rho is 0 to rounding, R is taken from the SVD. float64 always
//           takes the SVD, because M M^T halves the digits.
// Cost      2 k_x k_y (n + 2 k) + 9 k^3 flops a pair and 2 k^2 p for each direction.
// Numerics  equal rho leave their vectors, and so their weights, undetermined: a property of PWCCA.
//           Rounding mixes p_i and p_j by an angle of t = unit / |rho_i - rho_j|, at most 1, which
//           moves the value to first order by t (d_i <sign y_i, y_j> - d_j <sign y_j, y_i>) over
//           sum(a), y_i = p_i^T diag(s) V^T, d_i = rho_i - value. The root of the sum of squares of
//           all pairs is the error returned; unit is kUnits times that of the precision.
// Twin      simcore/reference/cca.py:pwcca
#include "torch/composed/pwcca.h"

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

constexpr double kStep = 0.1;
constexpr double kSmallest = 1e-5;
// Values of float32 layers moved by up to 4.2 times the error of one unit.
constexpr double kUnits = 8;
constexpr double kNegligible = 1e-6;  // of an error, by all pairs of one direction

// Canonical directions as rows [c, k], rho [c].
struct Canonical {
  Tensor x, y;
  std::vector<double> rho;
};

std::vector<double> at_most_one(std::vector<double> rho) {
  for (double& value : rho) value = std::min(value, 1.0);
  return rho;
}

Canonical by_svd(const Tensor& m) {
  const auto [p, rho, rt] = thin_svd(m);
  const Tensor wide = as(rho, ScalarType::Double);
  const double* const values = const_data<double>(wide);
  return {transposed(p), rt, at_most_one({values, values + wide.size(0)})};
}

// m [k_x, k_y] with k_x <= k_y, float32.
Canonical by_eigenvectors(const Tensor& m) {
  const int64_t count = m.size(0);
  Tensor p, turned;
  std::vector<double> rho(count);
  double largest = 0;
  for (int64_t rows = count; rows > 0;) {  // rows [0, rows) are still to be decomposed
    const bool first = rows == count;
    const Tensor left = first ? m : rows_between(turned, 0, rows);
    const Tensor vectors = std::get<1>(eigenvectors(product(left, transposed(left))));
    const Tensor part = product(vectors, left);
    const float* const entries = const_data<float>(part);
    const int64_t width = part.size(1);
    for (int64_t i = 0; i < rows; i++)
      rho[i] = std::sqrt(sum_of_squares(entries + i * width, width));
    if (first) {
      p = vectors, turned = part;
    } else {
      Tensor above = rows_between(p, 0, rows), below = rows_between(turned, 0, rows);
      copy_into(above, product(vectors, above));
      copy_into(below, part);
    }
    const double top = *std::max_element(rho.begin(), rho.begin() + rows);
    largest = std::max(largest, top);
    if (!(top > kSmallest * largest)) return by_svd(m);
    const auto is_small = [&](double value) { return value < kStep * top; };
    rows = std::count_if(rho.begin(), rho.begin() + rows, is_small);  // ascending up to rounding
  }
  std::vector<double> shrink(count);
  for (int64_t i = 0; i < count; i++) shrink[i] = 1 / rho[i];
  scale_rows<float>(turned, shrink);
  return {p, turned, at_most_one(rho)};
}

Canonical canonical(const Tensor& m) {
  if (m.scalar_type() == ScalarType::Double) return by_svd(m);
  if (m.size(0) <= m.size(1)) return by_eigenvectors(m);
  const Canonical swapped = by_eigenvectors(transposed(m));
  return {swapped.y, swapped.x, swapped.rho};
}

struct Weighted {
  double value, error;
};

// <sign x, y>, in lanes; the precision of the entries is enough for an error.
template <typename T>
double along_signs(const T* x, const T* y, int64_t count) {
  constexpr int64_t kLanes = 16;
  T lanes[kLanes] = {}, sum = 0;
  const int64_t whole = count / kLanes * kLanes;
  for (int64_t i = 0; i < whole; i += kLanes)
    for (int64_t j = 0; j < kLanes; j++) lanes[j] += std::copysign(T(1), x[i + j]) * y[i + j];
  for (int64_t i = whole; i < count; i++) sum += std::copysign(T(1), x[i]) * y[i];
  for (const T lane : lanes) sum += lane;
  return double(sum);
}

// others: whether the layer has dimensions beside the directions.
template <typename T>
Weighted weighted_mean(const Tensor& directions, const std::vector<double>& rho,
                       const Tensor& weighted, bool others) {
  const Tensor a = product(directions, weighted);
  const T* const entries = const_data<T>(a);
  const int64_t count = a.size(0), width = a.size(1);
  double total = 0, sum = 0;
  std::vector<double> weights(count), away(count);
  for (int64_t i = 0; i < count; i++) {
    weights[i] = sum_of(entries + i * width, width, [](double x) { return std::abs(x); });
    total += weights[i], sum += weights[i] * rho[i];
  }
  if (!(total > 0)) return {kNaN, 0};
  const double value = sum / total;
  for (int64_t i = 0; i < count; i++) away[i] = rho[i] - value;

  constexpr double unit = kUnits * double(std::numeric_limits<T>::epsilon()) / 2;
  const auto angle = [](double gap) { return gap > unit ? unit / gap : 1; };
  const double negligible = kNegligible * total / std::sqrt(double(count));
  double squares = 0;
  for (int64_t i = 0; i < count; i++) {
    const T* const one = entries + i * width;
    if (others) {
      const double moved = angle(rho[i]) * away[i] * weights[i];
      squares += moved * moved;
    }
    for (int64_t j = 0; j < i; j++) {
      const double t = angle(std::abs(rho[i] - rho[j]));
      const double most = std::abs(away[i]) * weights[j] + std::abs(away[j]) * weights[i];
      if (t * most <= negligible) continue;
      const T* const other = entries + j * width;
      const double moved =
          t * (away[i] * along_signs(one, other, width) - away[j] * along_signs(other, one, width));
      squares += moved * moved;
    }
  }
  return {value, std::sqrt(squares) / total};
}

// Workspace of one thread: the decomposition's few k x k matrices, one k x p product, and bases and
// components in another dtype.
int64_t workspace(const Tensors& u_x, const Tensors& u_y, const Tensors& weighted) {
  int64_t k = 1, p = 1;
  for (const Tensors* side : {&u_x, &u_y})
    for (const Tensor& basis : *side) k = std::max(k, basis.size(1));
  for (const Tensor& components : weighted) p = std::max(p, components.size(1));
  return 8 * (10 * k * k + 3 * k * p + 2 * u_x[0].size(0) * k);
}

}  // namespace

std::tuple<Tensor, Tensor> pwcca(const Tensors& u_x, const Tensors& weighted_x, const Tensors& u_y,
                                 int64_t max_memory) {
  const bool symmetric = u_y.empty();
  const Tensors& columns = symmetric ? u_x : u_y;
  const int64_t rows = int64_t(u_x.size()), across = int64_t(columns.size());
  std::vector<double> grid(rows * across, 1.0), errors(rows * across);  // a layer itself: all 1
  cpu::Runtime runtime = torch_runtime();
  const int threads =
      affordable_threads(workspace(u_x, u_y, weighted_x), max_memory, runtime.threads);

  std::vector<std::pair<int64_t, int64_t>> pairs;
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = symmetric ? i + 1 : 0; j < across; j++) pairs.push_back({i, j});
  const int64_t count = int64_t(pairs.size()), batch = 8 * threads;
  for (int64_t begin = 0; begin < count; begin += batch) {
    const int64_t end = std::min(begin + batch, count);
    cpu::parallel_tasks(runtime, end - begin, threads, [&](int64_t task, int) {
      const NoGrad no_grad;
      const auto [i, j] = pairs[begin + task];
      const bool narrow = u_x[i].scalar_type() != ScalarType::Double &&
                          columns[j].scalar_type() != ScalarType::Double;
      const ScalarType dtype = narrow ? ScalarType::Float : ScalarType::Double;
      const Canonical c = canonical(product(transposed(as(u_x[i], dtype)), as(columns[j], dtype)));
      const auto mean = narrow ? weighted_mean<float> : weighted_mean<double>;
      const auto give = [&](int64_t from, int64_t to, const Tensor& directions) {
        const bool others = directions.size(0) < directions.size(1);
        const auto [value, error] = mean(directions, c.rho, as(weighted_x[from], dtype), others);
        grid[from * across + to] = value, errors[from * across + to] = error;
      };
      give(i, j, c.x);
      if (symmetric) give(j, i, c.y);
    });
    runtime.progress(double(end) / double(count));
  }
  return {to_tensor(grid, {rows, across}), to_tensor(errors, {rows, across})};
}

}  // namespace simcore::composed
