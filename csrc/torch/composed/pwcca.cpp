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
// Twin      simcore/reference/cca.py:pwcca
#include "torch/composed/pwcca.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_eigh.h>
#include <ATen/ops/linalg_svd.h>
#include <ATen/ops/promote_types.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "torch/torch_runtime.h"

namespace simcore::composed {
namespace {

constexpr double kStep = 0.1;
constexpr double kSmallest = 1e-5;

// Canonical directions as rows [c, k], rho [c].
struct Canonical {
  at::Tensor x, y, rho;
};

Canonical by_svd(const at::Tensor& m) {
  const auto [p, rho, rt] = at::linalg_svd(m, /*full_matrices=*/false);
  return {p.t(), rt, rho.clamp_max(1.0).to(at::kDouble)};
}

// m [k_x, k_y] with k_x <= k_y.
Canonical by_eigenvectors(const at::Tensor& m) {
  const int64_t count = m.size(0);
  at::Tensor p, product, rho;
  double largest = 0;
  for (int64_t rows = count; rows > 0;) {  // rows [0, rows) are still to be decomposed
    const at::Tensor left = rows == count ? m : product.slice(0, 0, rows);
    const at::Tensor vectors = std::get<1>(at::linalg_eigh(left.mm(left.t()))).t();
    const at::Tensor turned = vectors.mm(left);
    const at::Tensor norms = turned.norm(2, 1, false, at::kDouble);
    if (rows == count) {
      p = vectors, product = turned, rho = norms;
    } else {
      p.slice(0, 0, rows).copy_(vectors.mm(p.slice(0, 0, rows)));
      product.slice(0, 0, rows).copy_(turned);
      rho.slice(0, 0, rows).copy_(norms);
    }
    const double top = norms.max().item<double>();
    largest = std::max(largest, top);
    if (!(top > kSmallest * largest)) return by_svd(m);
    rows = (norms < kStep * top).sum().item<int64_t>();  // ascending up to rounding
  }
  return {p, product / rho.to(product.scalar_type()).unsqueeze(1), rho.clamp_max(1.0)};
}

Canonical canonical(const at::Tensor& m) {
  if (m.scalar_type() == at::kDouble) return by_svd(m);
  if (m.size(0) <= m.size(1)) return by_eigenvectors(m);
  const Canonical swapped = by_eigenvectors(m.t());
  return {swapped.y, swapped.x, swapped.rho};
}

double weighted_mean(const at::Tensor& directions, const at::Tensor& rho,
                     const at::Tensor& weighted) {
  const at::Tensor a = directions.mm(weighted).abs().sum(1, false, at::kDouble);
  const double total = a.sum().item<double>();
  if (!(total > 0)) return std::numeric_limits<double>::quiet_NaN();
  return a.dot(rho).item<double>() / total;
}

// Workspace of one thread: the decomposition's few k x k matrices, one k x p product, and bases and
// components in another dtype.
int64_t workspace(at::TensorList u_x, at::TensorList u_y, at::TensorList weighted) {
  int64_t k = 1, p = 1;
  for (const at::TensorList side : {u_x, u_y})
    for (const at::Tensor& basis : side) k = std::max(k, basis.size(1));
  for (const at::Tensor& components : weighted) p = std::max(p, components.size(1));
  return 8 * (10 * k * k + 3 * k * p + 2 * u_x[0].size(0) * k);
}

}  // namespace

at::Tensor pwcca(at::TensorList u_x, at::TensorList weighted_x, at::TensorList u_y,
                 int64_t max_memory) {
  const bool symmetric = u_y.empty();
  const at::TensorList columns = symmetric ? u_x : u_y;
  const int64_t rows = int64_t(u_x.size()), across = int64_t(columns.size());
  at::Tensor result = at::empty({rows, across}, at::kDouble);
  auto out = result.accessor<double, 2>();
  cpu::Runtime runtime = torch_runtime();
  const int threads =
      affordable_threads(workspace(u_x, u_y, weighted_x), max_memory, runtime.threads);

  std::vector<std::pair<int64_t, int64_t>> pairs;
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = symmetric ? i + 1 : 0; j < across; j++) pairs.push_back({i, j});
  if (symmetric) result.fill_(1.0);  // the diagonal: all rho are 1
  const int64_t count = int64_t(pairs.size()), batch = 8 * threads;
  for (int64_t begin = 0; begin < count; begin += batch) {
    const int64_t end = std::min(begin + batch, count);
    cpu::parallel_tasks(runtime, end - begin, threads, [&](int64_t task, int) {
      const at::NoGradGuard no_grad;  // of this thread
      const auto [i, j] = pairs[begin + task];
      const at::ScalarType dtype =
          at::promote_types(u_x[i].scalar_type(), columns[j].scalar_type());
      const Canonical c = canonical(u_x[i].to(dtype).t().mm(columns[j].to(dtype)));
      out[i][j] = weighted_mean(c.x, c.rho, weighted_x[i].to(dtype));
      if (symmetric) out[j][i] = weighted_mean(c.y, c.rho, weighted_x[j].to(dtype));
    });
    runtime.progress(double(end) / double(count));
  }
  return result;
}

}  // namespace simcore::composed
