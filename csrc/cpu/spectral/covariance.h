// Single-threaded products of one layer: the steps of its decomposition that LAPACK does not do.
#pragma once

#include <cstdint>

#include "cpu/base/layer.h"

namespace simcore::cpu {

// Row stride of a covariance of p columns.
int64_t covariance_stride(int64_t p);

// c[p padded, stride]: Xc^T Xc times 4^-centring.exponent; only i >= j is to be read.
void lower_covariance(const LayerView& layer, const Centring<double>& centring, int64_t n,
                      double* c);

// out[n, k], rows out_stride apart: Xc directions^T times 2^-centring.exponent, products in T;
// directions [k, p] row-major.
template <typename T>
void project(const LayerView& layer, const Centring<T>& centring, int64_t n, const T* directions,
             int64_t k, float* out, int64_t out_stride);

}  // namespace simcore::cpu
