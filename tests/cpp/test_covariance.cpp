// The covariance of a layer and its projection on directions against plain double loops.
#include "cpu/spectral/covariance.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "check.h"
#include "naive.h"

namespace {
using namespace simcore::cpu;
using naive::DType;

// Centred columns [n, p] in double.
std::vector<double> centred(const naive::Layer& layer) {
  const int64_t n = layer.n, p = layer.view.width;
  std::vector<double> x(n * p);
  for (int64_t k = 0; k < p; k++) {
    double mean = 0;
    for (int64_t i = 0; i < n; i++) mean += (layer.at(i, k) - layer.at(0, k)) / double(n);
    for (int64_t i = 0; i < n; i++) x[i * p + k] = layer.at(i, k) - layer.at(0, k) - mean;
  }
  return x;
}

// Product of columns k and l of [n, p].
double product(const std::vector<double>& x, int64_t p, int64_t k, int64_t l) {
  double sum = 0;
  for (size_t row = 0; row < x.size(); row += p) sum += x[row + k] * x[row + l];
  return sum;
}

TEST(covariance_and_projection) {
  for (int64_t n : {2, 33, 300})
    for (int64_t p : {1, 31, 70}) {
      check::context = "n = " + std::to_string(n) + ", p = " + std::to_string(p);
      const naive::Layer layer = naive::make_layer(n, p, 1, {DType::f32, 10.0});
      const std::vector<double> x = centred(layer);
      const auto centring = make_centring<double>(layer.view, n);
      const auto single = make_centring<float>(layer.view, n);
      const int64_t stride = covariance_stride(p);
      std::vector<double> c(stride * stride);
      lower_covariance(layer.view, centring, n, c.data());
      for (int64_t k = 0; k < p; k++)
        for (int64_t l = 0; l <= k; l++)
          CHECK_NEAR(std::ldexp(c[k * stride + l], 2 * centring.exponent), product(x, p, k, l),
                     1e-11 * double(n));

      const int64_t directions = std::min<int64_t>(p, 5), out_stride = directions + 2;
      std::vector<double> d(directions * p);
      for (size_t i = 0; i < d.size(); i++) d[i] = std::sin(double(i));
      const std::vector<float> d32(d.begin(), d.end());
      std::vector<float> u(n * out_stride), u32(n * out_stride);
      project(layer.view, centring, n, d.data(), directions, u.data(), out_stride);
      project(layer.view, single, n, d32.data(), directions, u32.data(), out_stride);
      for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < directions; j++) {
          double want = 0;
          for (int64_t k = 0; k < p; k++) want += x[i * p + k] * d[j * p + k];
          CHECK_NEAR(std::ldexp(u[i * out_stride + j], centring.exponent), want, 1e-5);
          CHECK_NEAR(std::ldexp(u32[i * out_stride + j], single.exponent), want, 1e-4);
        }
    }
}

}  // namespace

int main() { return check::main(); }
