// The thin SVD of every layer's centred columns.
//
// Math      Xc = U diag(s) V^T, s descending; with standardize the columns are divided by their
//           standard deviation first (constant ones stay 0).
// Shapes    layer [n, p] -> U [n, r], s [r], V^T [r, p], r = min(n, p).
// Plan      one layer a thread.
// Numerics  float64, except for the columns of U whose singular value is at least kNear of the
//           largest: these are computed in float32, where their rounding stays small. Layers of
//           lower precision go through the eigenvalues of the smaller of Xc^T Xc and Xc Xc^T:
//           squaring loses singular values below 1e-8 s_1, which their rank rule (float32's eps *
//           max(n, p), simcore/basis.py) cuts anyway. float64 layers take the SVD itself. Columns
//           of U whose singular value is lost are not orthonormal.
// Twin      simcore/reference/cca.py:svd
#include "torch/composed/principal_components.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_eigh.h>
#include <ATen/ops/linalg_svd.h>
#include <ATen/ops/where.h>

#include <cmath>

#include "cpu/spectral/covariance.h"
#include "torch/composed/centred.h"
#include "torch/convert.h"
#include "torch/torch_runtime.h"

namespace simcore::composed {
namespace {

constexpr double kNear = 1.0 / 64;

struct Decomposition {
  at::Tensor u, s, vt;
};

Centred standardised(Centred x) {
  const at::Tensor deviation = x.values.norm(2, 0) / std::sqrt(double(x.values.size(0)));
  x.values.div_(at::where(deviation > 0, deviation, 1.0));
  return {x.values, 0};
}

// Returns the eigenvalues of the smaller side as singular values, descending, and their vectors as
// columns.
std::pair<at::Tensor, at::Tensor> spectrum(const at::Tensor& lower) {
  const auto [values, vectors] = at::linalg_eigh(lower, "L");
  return {values.clamp_min(0.0).sqrt().flip(0), vectors.flip(1)};
}

at::Tensor reciprocals(const at::Tensor& s) { return at::where(s > 0, s.reciprocal(), 0.0); }

// Decomposes a layer with p <= n of float32 or lower precision.
Decomposition tall(const at::Tensor& layer, const cpu::Centring<double>& centring,
                   bool standardize) {
  const int64_t n = layer.size(0), p = layer.size(1), stride = cpu::covariance_stride(p);
  at::Tensor c = at::empty({stride, stride}, at::kDouble);
  cpu::lower_covariance(layer_view(layer), centring, n, c.mutable_data_ptr<double>());
  c = c.slice(0, 0, p).slice(1, 0, p);
  at::Tensor scale;  // of the columns
  if (standardize) {
    const at::Tensor deviation = (c.diagonal() / double(n)).sqrt();
    scale = reciprocals(deviation);
    c = scale.unsqueeze(1) * c * scale;
  }
  const auto [s, v] = spectrum(c);
  at::Tensor directions = reciprocals(s).unsqueeze(1) * v.t();
  if (standardize) directions = directions * scale;
  at::Tensor u = at::empty({n, p}, at::kFloat);
  float* const out = u.mutable_data_ptr<float>();
  // Standard deviations may differ by more than float32's range.
  const int64_t near = standardize ? 0 : (s >= kNear * s[0]).sum().item<int64_t>();
  const auto single = cpu::make_centring<float>(layer_view(layer), n);
  const at::Tensor leading =
      directions.slice(0, 0, near) * std::ldexp(1.0, single.exponent - centring.exponent);
  cpu::project(layer_view(layer), single, n,
               leading.to(at::kFloat).contiguous().const_data_ptr<float>(), near, out, p);
  const at::Tensor others = directions.slice(0, near).contiguous();
  cpu::project(layer_view(layer), centring, n, others.const_data_ptr<double>(), p - near,
               out + near, p);
  // Rounding would give a constant column some variance again in the vectors diag(s) components.
  const at::Tensor vt = v.t().masked_fill(c.diagonal() == 0, 0.0);
  return {u, standardize ? s : s * std::ldexp(1.0, centring.exponent), vt};
}

Decomposition wide(const Centred& x) {
  const auto [s, u] = spectrum(x.values.mm(x.values.t()));
  return {u, s * std::ldexp(1.0, x.exponent), reciprocals(s).unsqueeze(1) * u.t().mm(x.values)};
}

Decomposition by_svd(const Centred& x) {
  const auto [u, s, vt] = at::linalg_svd(x.values, /*full_matrices=*/false);
  return {u, s * std::ldexp(1.0, x.exponent), vt.masked_fill(x.values.abs().amax(0) == 0, 0.0)};
}

Decomposition decompose(const at::Tensor& layer, bool standardize, int64_t index) {
  const cpu::Centring<double> centring = centring_of(layer, "X", index);
  const bool narrow = layer.scalar_type() != at::kDouble;
  const auto columns = [&] {
    const Centred x = centred(layer, centring);
    return standardize ? standardised(x) : x;
  };
  Decomposition d;
  if (!narrow)
    d = by_svd(columns());
  else if (layer.size(1) <= layer.size(0))
    d = tall(layer, centring, standardize);
  else
    d = wide(columns());
  const at::ScalarType dtype = narrow ? at::kFloat : at::kDouble;
  return {d.u.to(dtype).contiguous(), d.s, d.vt.to(dtype).contiguous()};
}

}  // namespace

std::tuple<std::vector<at::Tensor>, std::vector<at::Tensor>, std::vector<at::Tensor>>
principal_components(at::TensorList layers, bool standardize) {
  std::vector<at::Tensor> u(layers.size()), s(layers.size()), vt(layers.size());
  const cpu::Runtime runtime = torch_runtime();
  cpu::parallel_tasks(runtime, int64_t(layers.size()), [&](int64_t l, int) {
    const at::NoGradGuard no_grad;  // of this thread
    Decomposition d = decompose(layers[l], standardize, l);
    u[l] = d.u, s[l] = d.s, vt[l] = d.vt;
  });
  return {u, s, vt};
}

}  // namespace simcore::composed
