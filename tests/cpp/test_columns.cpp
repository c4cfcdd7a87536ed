// What is made of products of columns: covariances, projections, and the neuron-level measures.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "check.h"
#include "cpu/neurons/neurons.h"
#include "cpu/spectral/covariance.h"
#include "naive_neurons.h"

namespace {
using simcore::LayersProblem;
using namespace simcore::cpu;
using naive::centred;
using naive::norm;
using naive::product;

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
          CHECK_NEAR(std::ldexp(c[k * stride + l], 2 * centring.exponent),
                     product(x, p, k, x, p, l, n), 1e-11 * double(n));

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

constexpr int64_t kRows = 65;
const std::vector<int64_t> kWidths{1, 33, 50};

TEST(best_partners_match_the_plain_loop) {
  const std::vector<naive::Layer> layers = naive::make_layers(kRows, kWidths, 0, {DType::f32, 3.0});
  LayersProblem problem{kRows, naive::views(layers), {}};
  const TilePlan plan = neuron_plan(problem, 0, 3);
  const Partners got = best_partners(problem, true, plan, naive::threads(3));
  CHECK(got.grid == best_partners(problem, true, plan, Runtime::serial()).grid);
  naive::check_partners(layers, layers, got.grid, got.best, got.partner, 1e-5);
}

TEST(multiple_correlations_with_one_direction_are_correlations) {
  const std::vector<naive::Layer> layers = naive::make_layers(kRows, kWidths, 0, {DType::f32, 3.0});
  const std::vector<double> other = centred(naive::make_layer(kRows, 1, 9));
  std::vector<float> direction(kRows);
  for (int64_t i = 0; i < kRows; i++) direction[i] = float(other[i] / norm(other, 1, 0, kRows));
  const LayersProblem problem{
      kRows, naive::views(layers), {{direction.data(), DType::f32, 1, 1, 1}}};
  const TilePlan plan = neuron_plan(problem, 0, 3);
  const std::vector<double> got = multiple_correlations(problem, plan, naive::threads(3));
  for (size_t a = 0; a < layers.size(); a++) {
    const std::vector<double> x = centred(layers[a]);
    double mean = 0;
    for (int64_t k = 0; k < kWidths[a]; k++)
      mean += std::abs(product(x, kWidths[a], k, other, 1, 0, kRows)) /
              norm(x, kWidths[a], k, kRows) / norm(other, 1, 0, kRows) / double(kWidths[a]);
    CHECK_NEAR(got[a], mean, 1e-5);
  }
}

}  // namespace

int main() { return check::main(); }
