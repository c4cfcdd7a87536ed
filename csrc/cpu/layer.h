// A layer's representation as the caller holds it: any strides, any floating dtype, never copied.
#pragma once

#include <cstdint>
#include <vector>

namespace simcore::cpu {

enum class DType : int { f16 = 0, bf16 = 1, f32 = 2, f64 = 3 };

struct LayerView {
  const void* data;  // [n, width], element (i, k) at data + i * row_stride + k * col_stride
  DType dtype;
  int64_t width;
  int64_t row_stride;  // in elements; may be 0 or negative
  int64_t col_stride;
};

// What centring needs to know of a layer, in the compute type T.
//   centred(i, k) = (x(i, k) * scale - mean_hi[k]) - mean_lo[k]
// mean_hi + mean_lo is the column mean times scale to twice T's precision, so an offset of many
// standard deviations costs no accuracy; a constant column centres to exactly 0. scale is a power
// of two that brings the layer's centred entries near 1: squares of Gram entries then stay in
// float32's range for any input scale, and it is undone exactly in float64.
template <typename T>
struct Centring {
  std::vector<T> mean_hi, mean_lo;  // [width]
  T scale = 1;
  int exponent = 0;           // scale == 2^-exponent
  bool has_variance = false;  // false: every column is constant
  int64_t nonfinite = 0;      // NaN or infinite entries in the layer
};

template <typename T>
Centring<T> make_centring(const LayerView& layer, int64_t n);

}  // namespace simcore::cpu
