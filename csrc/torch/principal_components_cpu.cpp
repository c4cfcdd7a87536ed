// simcore::principal_components on the CPU: the thin SVD of every layer's centred columns.
//
// Math      Xc = U diag(s) V^T, s descending; with standardize the columns are divided by their
//           standard deviation first (constant ones stay 0).
// Shapes    layer [n, p] -> U [n, r], s [r], V^T [r, p], r = min(n, p).
// Plan      one layer a thread: at 768 columns two layers side by side take 1.5 s for what one
// after
//           the other takes 1.9 s with two threads on each (measured, 10 layers).
// Numerics  float64 throughout. Layers of lower precision go through the eigenvalues of the smaller
//           of Xc^T Xc and Xc Xc^T: squaring loses singular values below 1e-8 s_1, which their rank
//           rule (float32's eps * max(n, p), simcore/basis.py) cuts anyway. float64 layers take the
//           SVD itself. Columns of U whose singular value is lost are not orthonormal.
// Twin      simcore/reference/cca.py:svd
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/linalg_eigh.h>
#include <ATen/ops/linalg_svd.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <cmath>
#include <tuple>
#include <vector>

#include "torch/options.h"

namespace simcore {
namespace {

struct Decomposition {
  at::Tensor u, s, vt;
};

constexpr int64_t kCovarianceBlock = 256;  // columns per product: a third of the flops is saved

// Centred columns in float64, scaled by the power of two 2^-exponent to entries near 1: squares of
// float64's largest and smallest numbers would leave its range.
struct Centred {
  at::Tensor values;  // [n, p]
  int exponent = 0;
};

Centred centre(const at::Tensor& layer, bool standardize, int64_t index) {
  const auto c = cpu::make_centring<double>(layer_view(layer), layer.size(0));
  TORCH_CHECK_VALUE(c.nonfinite == 0, "X[", index, "]: wanted finite values, got ", c.nonfinite,
                    " NaN or infinite of ", layer.numel());
  // Also where the layer is float64 already: what follows writes in place.
  at::Tensor x = layer.to(at::kDouble, /*non_blocking=*/false, /*copy=*/true);
  if (c.scale != 1.0) x.mul_(c.scale);
  x.sub_(to_tensor(c.mean_hi, {x.size(1)})).sub_(to_tensor(c.mean_lo, {x.size(1)}));
  if (!standardize) return {x, c.exponent};
  const at::Tensor deviation = x.square().mean(0).sqrt();
  return {at::where(deviation > 0, x / deviation, 0.0), 0};
}

// X^T X, below and on the diagonal, which is what the eigen-solver reads.
at::Tensor covariance(const at::Tensor& x) {
  const int64_t p = x.size(1);
  at::Tensor c = at::zeros({p, p}, x.options());
  for (int64_t j = 0; j < p; j += kCovarianceBlock) {
    const int64_t end = std::min(j + kCovarianceBlock, p);
    c.slice(0, j).slice(1, j, end).copy_(x.slice(1, j).t().mm(x.slice(1, j, end)));
  }
  return c;
}

Decomposition by_eigenvalues(const at::Tensor& x) {
  const bool tall = x.size(0) >= x.size(1);
  auto [values, vectors] = at::linalg_eigh(covariance(tall ? x : x.t()), "L");
  const at::Tensor s = values.clamp_min(0.0).sqrt().flip(0);
  vectors = vectors.flip(1);
  const at::Tensor inverse = at::where(s > 0, s.reciprocal(), 0.0);
  if (tall) return {x.mm(vectors * inverse), s, vectors.t()};
  return {vectors, s, inverse.unsqueeze(1) * vectors.t().mm(x)};
}

Decomposition decompose(const at::Tensor& layer, bool standardize, int64_t index) {
  const Centred x = centre(layer, standardize, index);
  const at::ScalarType dtype = layer.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  Decomposition d;
  if (dtype == at::kDouble)
    std::tie(d.u, d.s, d.vt) = at::linalg_svd(x.values, /*full_matrices=*/false);
  else
    d = by_eigenvalues(x.values);
  d.s = d.s * std::ldexp(1.0, x.exponent);
  // Rounding would give a constant column variance again in vectors diag(s) components.
  d.vt = d.vt.masked_fill(x.values.abs().amax(0) == 0, 0.0);
  return {d.u.to(dtype).contiguous(), d.s, d.vt.to(dtype).contiguous()};
}

std::tuple<std::vector<at::Tensor>, std::vector<at::Tensor>, std::vector<at::Tensor>>
principal_components_cpu(at::TensorList layers, bool standardize) {
  check_layers(layers, "X", rows_of(layers));
  std::vector<at::Tensor> u(layers.size()), s(layers.size()), vt(layers.size());
  const cpu::Runtime runtime = torch_runtime();
  cpu::parallel_tasks(runtime, int64_t(layers.size()), [&](int64_t l, int) {
    const at::NoGradGuard no_grad;  // of this thread
    Decomposition d = decompose(layers[l], standardize, l);
    u[l] = d.u, s[l] = d.s, vt[l] = d.vt;
  });
  return {u, s, vt};
}

}  // namespace

TORCH_LIBRARY_IMPL(simcore, CPU, m) { m.impl("principal_components", principal_components_cpu); }

}  // namespace simcore
