// Column means, scale and the finiteness check of one layer, in one pass over its rows.
//
// Math      core/math/centring_math.h
// Cost      n * width loads; bound by memory.
// Numerics  float64 sums; NaN and infinity show up in the sums and are counted only then.
#include <algorithm>
#include <cmath>
#include <vector>

#include "core/math/centring_math.h"
#include "cpu/base/half.h"
#include "cpu/base/layer.h"

namespace simcore::cpu {
namespace {

struct ColumnSums {
  std::vector<double> first, shift, square;  // x_0k, sum (x - x_0k), sum (x - x_0k)^2
};

inline double to_double(float x) { return x; }
inline double to_double(double x) { return x; }
inline double to_double(Float16 x) { return static_cast<float>(x); }
inline double to_double(BFloat16 x) { return x.to_float(); }

template <typename Source>
ColumnSums sum_columns(const Source* data, const LayerView& layer, int64_t n) {
  ColumnSums sums{std::vector<double>(layer.width), std::vector<double>(layer.width),
                  std::vector<double>(layer.width)};
  double* first = sums.first.data();
  double* shift = sums.shift.data();
  double* square = sums.square.data();
  for (int64_t k = 0; k < layer.width; k++) first[k] = to_double(data[k * layer.col_stride]);
  const auto add_row = [&](const Source* row, auto stride) {
    for (int64_t k = 0; k < layer.width; k++) {
      const double d = to_double(row[k * stride]) - first[k];
      shift[k] += d;
      square[k] += d * d;
    }
  };
  for (int64_t i = 0; i < n; i++) {
    const Source* row = data + i * layer.row_stride;
    if (layer.col_stride == 1)
      add_row(row, std::integral_constant<int64_t, 1>{});
    else
      add_row(row, layer.col_stride);
  }
  return sums;
}

template <typename Source>
int64_t count_nonfinite(const Source* data, const LayerView& layer, int64_t n) {
  int64_t count = 0;
  for (int64_t i = 0; i < n; i++)
    for (int64_t k = 0; k < layer.width; k++)
      count += !std::isfinite(to_double(data[i * layer.row_stride + k * layer.col_stride]));
  return count;
}

// The largest finite |x_ik - x_0k|.
template <typename Source>
double largest_difference(const Source* data, const LayerView& layer, int64_t n) {
  double largest = 0;
  for (int64_t i = 0; i < n; i++)
    for (int64_t k = 0; k < layer.width; k++) {
      const int64_t column = k * layer.col_stride;
      const double d = to_double(data[i * layer.row_stride + column]) - to_double(data[column]);
      if (std::isfinite(d)) largest = std::max(largest, std::abs(d));
    }
  return largest;
}

LayerSums layer_sums(const ColumnSums& sums, int64_t n) {
  LayerSums total;
  for (size_t k = 0; k < sums.shift.size(); k++) {
    total.square += sums.square[k];
    total.correction += sums.shift[k] * (sums.shift[k] / double(n));
  }
  return total;
}

template <typename T, typename Source>
Centring<T> centring_of(const Source* data, const LayerView& layer, int64_t n) {
  const ColumnSums sums = sum_columns(data, layer, n);
  Centring<T> c;
  c.mean_hi.resize(layer.width);
  c.mean_lo.resize(layer.width);
  LayerSums total = layer_sums(sums, n);
  if (!squares_in_range(total)) total.largest = largest_difference(data, layer, n);
  c.has_variance = squares_in_range(total) || total.largest > 0;
  c.exponent = layer_exponent(total, double(n) * double(layer.width), kExponentLimit<T>);
  const double scale = std::ldexp(1.0, -c.exponent);
  c.scale = static_cast<T>(scale);
  c.squares = (total.square - total.correction) * scale * scale;
  bool finite = true;
  for (int64_t k = 0; k < layer.width; k++) {
    split_mean(sums.first[k], sums.shift[k] / double(n), scale, &c.mean_hi[k], &c.mean_lo[k]);
    finite &= std::isfinite(sums.square[k]);
  }
  if (!finite) c.nonfinite = count_nonfinite(data, layer, n);
  return c;
}

}  // namespace

template <typename T>
Centring<T> make_centring(const LayerView& layer, int64_t n) {
  switch (layer.dtype) {
    case DType::f16: return centring_of<T>(static_cast<const Float16*>(layer.data), layer, n);
    case DType::bf16: return centring_of<T>(static_cast<const BFloat16*>(layer.data), layer, n);
    case DType::f32: return centring_of<T>(static_cast<const float*>(layer.data), layer, n);
    default: return centring_of<T>(static_cast<const double*>(layer.data), layer, n);
  }
}

template Centring<float> make_centring<float>(const LayerView&, int64_t);
template Centring<double> make_centring<double>(const LayerView&, int64_t);

}  // namespace simcore::cpu
