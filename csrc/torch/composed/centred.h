// A layer's centred columns as a tensor, for routines of LAPACK.
#pragma once

#include "cpu/base/layer.h"
#include "torch/tensor.h"

namespace simcore::composed {

// Returns a layer's centring. Refuses NaN and infinity, naming name[index].
cpu::Centring<double> centring_of(const Tensor& layer, const char* name, int64_t index);

// [n, p] float64, times 2^-exponent: entries near 1, whose squares stay finite.
struct Centred {
  Tensor values;
  int exponent = 0;
};

Centred centred(const Tensor& layer, const cpu::Centring<double>& centring);

}  // namespace simcore::composed
