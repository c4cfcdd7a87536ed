// Mean rows and cosines to them against plain loops.
#include "cpu/hsic/mean_rows.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "check.h"
#include "naive.h"

namespace {
using namespace simcore::cpu;
using naive::DType;
using naive::Layer;

MeanRows compute(const std::vector<Layer>& layers, const Runtime& rt, bool with_cosines = true,
                 int64_t max_memory = 0) {
  MeanRowsProblem problem{naive::views(layers), {}, with_cosines, "X"};
  for (const Layer& layer : layers) problem.rows.push_back(layer.n);
  return mean_rows(problem, max_memory, rt);
}

struct Plain {
  long double length = 0, cosine = 0;
  int64_t zeros = 0;
};

Plain plain(const Layer& x) {
  const int64_t n = x.n, width = x.view.width;
  std::vector<long double> mean(width);
  for (int64_t i = 0; i < n; i++)
    for (int64_t k = 0; k < width; k++) mean[k] += (long double)x.at(i, k) / n;
  Plain result;
  for (const long double entry : mean) result.length += entry * entry;
  result.length = std::sqrt(result.length);
  for (int64_t i = 0; i < n; i++) {
    long double square = 0, product = 0;
    for (int64_t k = 0; k < width; k++) {
      square += (long double)x.at(i, k) * x.at(i, k);
      product += x.at(i, k) * mean[k];
    }
    if (square == 0)
      result.zeros++;
    else
      result.cosine += product / std::sqrt(square) / result.length;
  }
  result.cosine /= n - result.zeros;
  return result;
}

TEST(mean_rows_match_plain_loops) {
  for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16})
    for (const auto order : {naive::Order::rows, naive::Order::columns, naive::Order::reversed})
      for (const double offset : {0.1, 100.0})
        for (const int64_t n : {1, 5, 97}) {
          check::context = "n " + std::to_string(n) + ", offset " + std::to_string(offset);
          // Two threads take four layers each whole, and one together.
          const auto x =
              naive::make_layers(n, {3, 65, 1, 2, 64, 7, 8, 9, 5}, 1, {dtype, offset, 2, order});
          const MeanRows got = compute(x, naive::threads(2));
          for (size_t l = 0; l < x.size(); l++) {
            const Plain want = plain(x[l]);
            CHECK_NEAR(got.length[l], double(want.length), 1e-13 * double(want.length));
            CHECK_NEAR(got.cosine[l], double(want.cosine), 1e-13);
            CHECK(got.zeros[l] == 0);
          }
          const MeanRows serial = compute(x, Runtime::serial());
          CHECK(got.length == serial.length && got.cosine == serial.cosine);
          const MeanRows lengths = compute(x, naive::threads(2), false);
          CHECK(lengths.length == got.length && lengths.cosine.empty() && lengths.zeros.empty());
        }
}

TEST(scales_at_the_ends_of_the_range) {
  const Layer x = naive::make_layer(33, 7, 1, {DType::f64, 1});
  const MeanRows want = compute({x}, Runtime::serial());
  for (const int exponent : {-1000, -600, 600, 1000}) {
    const Layer scaled = changed(x, [&](std::vector<double>& values) {
      for (double& value : values) value = std::ldexp(value, exponent);
    });
    const MeanRows got = compute({scaled}, Runtime::serial());
    CHECK(got.length[0] == std::ldexp(want.length[0], exponent));
    CHECK(got.cosine[0] == want.cosine[0]);
  }
}

TEST(zeros_and_means_without_a_direction) {
  const Layer x = naive::make_layer(34, 7, 1, {DType::f32, 1});
  const Layer some =
      changed(x, [](std::vector<double>& values) { std::fill_n(values.begin() + 14, 21, 0.0); });
  const MeanRows got = compute({some}, naive::threads(2));
  CHECK(got.zeros[0] == 3);
  CHECK_NEAR(got.cosine[0], double(plain(some).cosine), 1e-13);
  const Layer none = changed(x, [](std::vector<double>& values) {
    for (double& value : values) value = 0;
  });
  const Layer opposite = changed(x, [](std::vector<double>& values) {
    for (size_t e = 0; e < values.size() / 2; e++) values[values.size() / 2 + e] = -values[e];
  });
  const MeanRows nothing = compute({none, opposite}, naive::threads(2));
  CHECK(nothing.length[0] == 0 && nothing.zeros[0] == 34 && std::isnan(nothing.cosine[0]));
  CHECK(std::isnan(nothing.cosine[1]));
}

}  // namespace

int main(int count, char** arguments) { return check::main(count, arguments); }
