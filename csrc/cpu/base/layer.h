// A layer of the CPU grids: the caller's view of it, and how it is centred.
#pragma once

#include <cstdint>
#include <vector>

#include "core/views/layer_view.h"

namespace simcore::cpu {

using simcore::DType;
using simcore::LayerView;

// The centring of a layer in the compute type T.
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
  double squares = 0;         // of the centred entries times scale, summed
  bool has_variance = false;  // false: every column is constant
  int64_t nonfinite = 0;      // NaN or infinite entries in the layer
};

template <typename T>
Centring<T> make_centring(const LayerView& layer, int64_t n);

}  // namespace simcore::cpu
