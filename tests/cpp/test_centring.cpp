// make_centring: means, scale, variance and finiteness of one layer.
#include <cstring>
#include <limits>

#include "check.h"
#include "naive.h"

using naive::DType;
using simcore::cpu::Centring;
using simcore::cpu::make_centring;

namespace {

template <typename T>
double centred(const Centring<T>& c, double value, int64_t k) {
  return (value * double(c.scale) - double(c.mean_hi[k])) - double(c.mean_lo[k]);
}

template <typename T>
void compare_with_long_double(const naive::Layer& layer) {
  const Centring<T> c = make_centring<T>(layer.view, layer.n);
  CHECK(c.nonfinite == 0);
  double squares = 0;
  for (int64_t i = 0; i < layer.n; i++)
    for (int64_t k = 0; k < layer.view.width; k++) {
      const double value = centred(c, layer.at(i, k), k);
      squares += value * value;
    }
  CHECK_NEAR(c.squares, squares, 1e-6 * (1 + squares));
  for (int64_t k = 0; k < layer.view.width; k++) {
    long double mean = 0;
    double largest = 0;
    for (int64_t i = 0; i < layer.n; i++) {
      mean += static_cast<long double>(layer.at(i, k)) / static_cast<long double>(layer.n);
      largest = std::max(largest, std::fabs(layer.at(i, k)));
    }
    // mean_hi + mean_lo has twice T's digits, but never more than float64 sums have.
    const double digits = sizeof(T) == 4 ? 0x1p-47 : 0x1p-49;
    const double scale = double(c.scale);
    CHECK_NEAR(double(c.mean_hi[k]) + double(c.mean_lo[k]), double(mean) * scale,
               digits * largest * scale);
  }
}

}  // namespace

TEST(means_keep_their_digits_at_large_offsets) {
  for (const int64_t n : {1, 2, 3, 31, 129})
    for (const double offset : {0.0, 10.0, 1000.0})
      for (const naive::Order order :
           {naive::Order::rows, naive::Order::columns, naive::Order::reversed}) {
        check::context = "n " + std::to_string(n) + ", offset " + std::to_string(offset);
        const auto shape = [&](DType dtype) { return naive::Shape{dtype, offset, 30, order}; };
        compare_with_long_double<double>(naive::make_layer(n, 33, 1, shape(DType::f64)));
        compare_with_long_double<float>(naive::make_layer(n, 33, 1, shape(DType::f32)));
        compare_with_long_double<float>(naive::make_layer(n, 33, 1, shape(DType::f16)));
        compare_with_long_double<float>(naive::make_layer(n, 33, 1, shape(DType::bf16)));
      }
}

TEST(a_constant_column_centres_to_exact_zero) {
  naive::Layer layer = naive::make_layer(31, 5, 2, {DType::f32, 0, 1, naive::Order::rows});
  for (int64_t i = 0; i < layer.n; i++) layer.values[i * 5 + 3] = 0.1;
  naive::lay_out(layer, naive::Order::rows);
  const Centring<float> c = make_centring<float>(layer.view, layer.n);
  CHECK(c.has_variance);
  for (int64_t i = 0; i < layer.n; i++) CHECK(centred(c, layer.at(i, 3), 3) == 0);
}

TEST(a_constant_layer_has_no_variance) {
  naive::Layer layer = naive::make_layer(31, 5, 2);
  layer.view.row_stride = 0;  // every row is row 0
  CHECK(!make_centring<double>(layer.view, layer.n).has_variance);
  CHECK(!make_centring<double>(layer.view, 1).has_variance);
}

TEST(scale_brings_any_magnitude_near_one) {
  for (const double magnitude : {1e-30, 1e-3, 1.0, 1e5, 1e30}) {
    naive::Layer layer = naive::make_layer(33, 7, 3, {DType::f32, 3, 1, naive::Order::rows});
    for (double& value : layer.values) value *= magnitude;
    naive::lay_out(layer, naive::Order::rows);
    const Centring<float> c = make_centring<float>(layer.view, layer.n);
    check::context = "magnitude " + std::to_string(std::log10(magnitude));
    CHECK(double(c.scale) == std::ldexp(1.0, -c.exponent));
    double square = 0;
    for (int64_t i = 0; i < layer.n; i++)
      for (int64_t k = 0; k < 7; k++) square += std::pow(centred(c, layer.at(i, k), k), 2);
    const double size = std::sqrt(square / double(33 * 7));
    CHECK(size > 0.4 && size < 2.1);
  }
}

TEST(nan_and_infinity_are_counted) {
  naive::Layer layer = naive::make_layer(31, 5, 4);
  layer.values[7] = std::numeric_limits<double>::quiet_NaN();
  layer.values[50] = std::numeric_limits<double>::infinity();
  layer.values[51] = -std::numeric_limits<double>::infinity();
  for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
    layer.dtype = dtype;
    naive::lay_out(layer, naive::Order::columns);
    CHECK(make_centring<float>(layer.view, layer.n).nonfinite == 3);
  }
}

int main() { return check::main(); }
