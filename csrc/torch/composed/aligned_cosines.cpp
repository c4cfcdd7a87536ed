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
//           kCut eps of the largest are rounding, or common to no rows: they are left out.
// Twin      simcore/reference/matching.py:aligned_cosine_grid
#include "torch/composed/aligned_cosines.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linalg_svd.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "torch/torch_runtime.h"

namespace simcore::composed {
namespace {

constexpr double kCut = 4;

struct Sides {
  at::Tensor rows;   // [n, p] times a power of two
  at::Tensor units;  // rows of unit length, or zeros
  at::Tensor some;   // [n] double: 1 for rows that are not zeros
};

// The layer in `dtype`, its largest entry near 1.
Sides sides_of(const at::Tensor& layer, at::ScalarType dtype) {
  const at::Tensor wide = layer.to(dtype);
  const double largest = wide.abs().max().item<double>();
  if (largest == 0) return {wide, wide, at::full({wide.size(0)}, 0.0, at::kDouble)};
  const int exponent = std::clamp(std::ilogb(largest), -1000, 1000);
  // 2^-exponent may be beyond float32: two steps.
  const at::Tensor rows =
      wide * std::ldexp(1.0, -exponent / 2) * std::ldexp(1.0, exponent / 2 - exponent);
  // A row may be much shorter than the longest: its own largest entry brings it in range.
  const at::Tensor of_rows = wide.abs().amax(1, true);
  const at::Tensor some = of_rows > 0;
  const at::Tensor near_one = wide / at::where(some, of_rows, at::ones_like(of_rows));
  const at::Tensor length = at::linalg_vector_norm(near_one, 2, 1, true);
  return {rows, near_one / at::where(some, length, at::ones_like(length)),
          some.flatten().to(at::kDouble)};
}

double aligned(const at::Tensor& x, const at::Tensor& y) {
  const at::ScalarType dtype =
      x.scalar_type() == at::kDouble || y.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const Sides a = sides_of(x, dtype), b = sides_of(y, dtype);
  const double rows = (a.some * b.some).sum().item<double>();
  if (rows == 0) return std::numeric_limits<double>::quiet_NaN();
  const auto [u, s, vh] = at::linalg_svd(a.rows.t().mm(b.rows), false);
  const double eps = dtype == at::kDouble ? std::numeric_limits<double>::epsilon()
                                          : double(std::numeric_limits<float>::epsilon());
  const at::Tensor kept = s > s[0] * (kCut * eps);
  const at::Tensor turned = u.t().mm(a.units.t().mm(b.units));
  const at::Tensor along = (turned * vh).sum({1}, false, at::kDouble);
  return std::clamp((along * kept).sum().item<double>() / rows, -1.0, 1.0);
}

}  // namespace

at::Tensor aligned_cosines(at::TensorList x, at::TensorList y, int64_t max_memory) {
  const bool symmetric = y.empty();
  const at::TensorList others = symmetric ? x : y;
  const int64_t count = int64_t(x.size()), across = int64_t(others.size()), n = x[0].size(0);
  int64_t width = 0, element = 4;
  for (const at::TensorList side : {x, others})
    for (const at::Tensor& layer : side) {
      width = std::max(width, layer.size(1));
      if (layer.scalar_type() == at::kDouble) element = 8;
    }
  // Copies of two layers, each in four forms; products, factors and LAPACK's workspace.
  cpu::Runtime runtime = torch_runtime();
  const int threads = affordable_threads(element * (8 * n * width + 14 * width * width), max_memory,
                                         runtime.threads);
  at::Tensor grid = at::empty({count, across}, at::kDouble);
  auto out = grid.accessor<double, 2>();
  std::vector<std::pair<int64_t, int64_t>> pairs;
  for (int64_t i = 0; i < count; i++)
    for (int64_t j = symmetric ? i : 0; j < across; j++) pairs.emplace_back(i, j);
  const int64_t part = std::max<int64_t>(8 * threads, 1), total = int64_t(pairs.size());
  for (int64_t begin = 0; begin < total; begin += part) {
    const int64_t end = std::min(begin + part, total);
    cpu::parallel_tasks(runtime, end - begin, threads, [&](int64_t task, int) {
      const at::NoGradGuard no_grad;  // of this thread
      const auto [i, j] = pairs[begin + task];
      if (symmetric && i == j)
        out[i][j] = x[i].any().item<bool>() ? 1 : std::numeric_limits<double>::quiet_NaN();
      else
        out[i][j] = aligned(x[i], others[j]);
      if (symmetric) out[j][i] = out[i][j];
    });
    runtime.progress(double(end) / double(total));
  }
  return grid;
}

}  // namespace simcore::composed
