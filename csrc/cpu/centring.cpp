// Column means, scale and the finiteness check of one layer, in one pass over its rows.
//
// Math      mean_k = x_0k + sum_i (x_ik - x_0k) / n: differences from the first row, so that a
//           constant column has a mean of exactly its value and a common offset costs no digits.
// Cost      n * width loads; bound by memory.
// Numerics  float64 sums; NaN and infinity show up in the sums and are counted only then.
#include <algorithm>
#include <cmath>
#include <vector>

#include "cpu/half.h"
#include "cpu/layer.h"

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

// The exponent of the centred entries' root mean square; 0 for a layer without variance. Where the
// first row is so far out that the variance is lost to cancellation, its distance serves instead.
// Called only where the squares have stayed in float64's range.
int variance_exponent(const ColumnSums& sums, int64_t n) {
  double square = 0, correction = 0;
  for (size_t k = 0; k < sums.shift.size(); k++) {
    square += sums.square[k];
    correction += sums.shift[k] * (sums.shift[k] / double(n));
  }
  const double centred = square - correction;
  const double mean =
      (centred > 1e-12 * square ? centred : square) / (double(n) * double(sums.shift.size()));
  return std::ilogb(std::sqrt(mean));
}

bool squares_in_range(const ColumnSums& sums) {
  double square = 0;
  for (double value : sums.square) square += value;
  return square > 1e-280 && std::isfinite(square);
}

template <typename T, typename Source>
Centring<T> centring_of(const Source* data, const LayerView& layer, int64_t n) {
  const ColumnSums sums = sum_columns(data, layer, n);
  Centring<T> c;
  c.mean_hi.resize(layer.width);
  c.mean_lo.resize(layer.width);
  int exponent = 0;
  if (squares_in_range(sums)) {
    c.has_variance = true;
    exponent = variance_exponent(sums, n);
  } else if (const double largest = largest_difference(data, layer, n); largest > 0) {
    c.has_variance = true;
    exponent = std::ilogb(largest);
  }
  // 2^-e must itself be a normal number of type T.
  constexpr int limit = sizeof(T) == 4 ? 126 : 1000;
  c.exponent = std::clamp(exponent, -limit, limit);
  const double scale = std::ldexp(1.0, -c.exponent);
  c.scale = static_cast<T>(scale);
  bool finite = true;
  for (int64_t k = 0; k < layer.width; k++) {
    const double delta = sums.shift[k] / double(n);
    const double mean = sums.first[k] + delta;
    // Knuth's two-sum: `lost` is what rounding dropped from first + delta.
    const double back = mean - sums.first[k];
    const double lost = (sums.first[k] - (mean - back)) + (delta - back);
    c.mean_hi[k] = static_cast<T>(mean * scale);
    c.mean_lo[k] = static_cast<T>((mean * scale - double(c.mean_hi[k])) + lost * scale);
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
