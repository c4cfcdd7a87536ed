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

#include <algorithm>
#include <cmath>

#include "cpu/spectral/covariance.h"
#include "torch/composed/centred.h"
#include "torch/composed/linalg.h"
#include "torch/convert.h"
#include "torch/torch_runtime.h"

namespace simcore::composed {
namespace {

constexpr double kNear = 1.0 / 64;

struct Decomposition {
  Tensor u, vt;
  std::vector<double> s;
};

// Divides the columns by their standard deviation.
Centred standardised(const Centred& x) {
  const int64_t n = x.values.size(0), p = x.values.size(1);
  double* const entries = mutable_data<double>(x.values);
  std::vector<double> deviation(p);
  for (int64_t i = 0; i < n; i++)
    for (int64_t k = 0; k < p; k++) deviation[k] += entries[i * p + k] * entries[i * p + k];
  for (double& value : deviation) value = value > 0 ? std::sqrt(value / double(n)) : 1;
  for (int64_t i = 0; i < n; i++)
    for (int64_t k = 0; k < p; k++) entries[i * p + k] /= deviation[k];
  return {x.values, 0};
}

// Eigenvalues of the smaller side as singular values, descending; vectors [r, r], one a row.
struct Spectrum {
  std::vector<double> s;
  Tensor vectors;
};

Spectrum spectrum(const Tensor& lower) {
  const auto [values, vectors] = eigenvectors(lower);
  const int64_t r = lower.size(0);
  Spectrum found{std::vector<double>(r), empty({r, r}, ScalarType::Double)};
  const double *of_value = const_data<double>(values), *of_vector = const_data<double>(vectors);
  double* const out = mutable_data<double>(found.vectors);
  for (int64_t i = 0; i < r; i++) {
    found.s[i] = std::sqrt(std::max(of_value[r - 1 - i], 0.0));
    std::copy_n(of_vector + (r - 1 - i) * r, r, out + i * r);
  }
  return found;
}

double reciprocal(double s) { return s > 0 ? 1 / s : 0; }

std::vector<double> reciprocals(std::vector<double> s) {
  std::transform(s.begin(), s.end(), s.begin(), reciprocal);
  return s;
}

std::vector<double> scaled(std::vector<double> s, int exponent) {
  for (double& value : s) value = std::ldexp(value, exponent);
  return s;
}

// Decomposes a layer with p <= n of float32 or lower precision.
Decomposition tall(const Tensor& layer, const cpu::Centring<double>& centring, bool standardize) {
  const int64_t n = layer.size(0), p = layer.size(1), stride = cpu::covariance_stride(p);
  const Tensor padded = empty({stride, stride}, ScalarType::Double);
  double* const c = mutable_data<double>(padded);
  cpu::lower_covariance(layer_view(layer), centring, n, c);
  std::vector<double> scale(p, 1.0);  // of the columns
  std::vector<char> constant(p);
  for (int64_t k = 0; k < p; k++) {
    constant[k] = c[k * stride + k] == 0;
    if (standardize) scale[k] = reciprocal(std::sqrt(c[k * stride + k] / double(n)));
  }
  if (standardize)
    for (int64_t i = 0; i < p; i++)
      for (int64_t j = 0; j <= i; j++) c[i * stride + j] *= scale[i] * scale[j];
  Tensor rows = rows_between(padded, 0, p);
  const auto [s, vt] = spectrum(narrow(rows, 1, 0, p));
  const Tensor directions = clone(vt);
  scale_rows<double>(directions, reciprocals(s));
  double* const direction = mutable_data<double>(directions);
  for (int64_t r = 0; r < p; r++)
    for (int64_t k = 0; k < p; k++) direction[r * p + k] *= scale[k];
  const Tensor u = empty({n, p}, ScalarType::Float);
  float* const out = mutable_data<float>(u);
  // Standard deviations may differ by more than float32's range.
  const auto is_near = [&](double value) { return value >= kNear * s[0]; };
  const int64_t near = standardize ? 0 : std::count_if(s.begin(), s.end(), is_near);
  const auto single = cpu::make_centring<float>(layer_view(layer), n);
  std::vector<float> leading(near * p);
  const double step = std::ldexp(1.0, single.exponent - centring.exponent);
  for (int64_t i = 0; i < near * p; i++) leading[i] = float(direction[i] * step);
  cpu::project(layer_view(layer), single, n, leading.data(), near, out, p);
  cpu::project(layer_view(layer), centring, n, direction + near * p, p - near, out + near, p);
  // Rounding would give a constant column some variance again in the vectors diag(s) components.
  double* const component = mutable_data<double>(vt);
  for (int64_t r = 0; r < p; r++)
    for (int64_t k = 0; k < p; k++)
      if (constant[k]) component[r * p + k] = 0;
  return {u, vt, standardize ? s : scaled(s, centring.exponent)};
}

Decomposition wide(const Centred& x) {
  const auto [s, ut] = spectrum(product(x.values, transposed(x.values)));
  const Tensor vt = product(ut, x.values);
  scale_rows<double>(vt, reciprocals(s));
  return {transposed(ut), vt, scaled(s, x.exponent)};
}

Decomposition by_svd(const Centred& x) {
  const auto [u, values, factors] = thin_svd(x.values);
  const int64_t n = x.values.size(0), p = x.values.size(1), r = values.size(0);
  const Tensor vt = as(factors, ScalarType::Double);
  const double* const entries = const_data<double>(x.values);
  double* const component = mutable_data<double>(vt);
  for (int64_t k = 0; k < p; k++) {
    bool constant = true;
    for (int64_t i = 0; constant && i < n; i++) constant = entries[i * p + k] == 0;
    for (int64_t i = 0; constant && i < r; i++) component[i * p + k] = 0;
  }
  const double* const s = const_data<double>(values);
  return {u, vt, scaled({s, s + r}, x.exponent)};
}

Decomposition decompose(const Tensor& layer, bool standardize, int64_t index) {
  const cpu::Centring<double> centring = centring_of(layer, "X", index);
  const auto columns = [&] {
    const Centred x = centred(layer, centring);
    return standardize ? standardised(x) : x;
  };
  if (layer.scalar_type() == ScalarType::Double) return by_svd(columns());
  if (layer.size(1) <= layer.size(0)) return tall(layer, centring, standardize);
  return wide(columns());
}

}  // namespace

std::tuple<Tensors, Tensors, Tensors> principal_components(const Tensors& layers,
                                                           bool standardize) {
  Tensors u(layers.size()), s(layers.size()), vt(layers.size());
  const cpu::Runtime runtime = torch_runtime();
  cpu::parallel_tasks(runtime, int64_t(layers.size()), [&](int64_t l, int) {
    const NoGrad no_grad;
    const Decomposition d = decompose(layers[l], standardize, l);
    const bool narrow = layers[l].scalar_type() != ScalarType::Double;
    const ScalarType dtype = narrow ? ScalarType::Float : ScalarType::Double;
    u[l] = as(d.u, dtype), vt[l] = as(d.vt, dtype);
    s[l] = to_tensor(d.s, {int64_t(d.s.size())});
  });
  return {u, s, vt};
}

}  // namespace simcore::composed
