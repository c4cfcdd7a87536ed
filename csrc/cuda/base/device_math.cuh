// Small device functions that several kernels need.
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "core/views/layer_view.h"
#include "cuda/base/launch.cuh"

namespace simcore::cuda {

__device__ __forceinline__ int lane_of_thread() { return int(threadIdx.x) % kWarp; }
__device__ __forceinline__ int warp_of_thread() { return int(threadIdx.x) / kWarp; }

// A stored entry in the compute type; bfloat16 travels as its 16 bits.
template <typename T>
__device__ __forceinline__ T entry_of(__half value) {
  return T(__half2float(value));
}
template <typename T>
__device__ __forceinline__ T entry_of(uint16_t value) {
  return T(__uint_as_float(uint32_t(value) << 16));
}
template <typename T>
__device__ __forceinline__ T entry_of(float value) {
  return T(value);
}
template <typename T>
__device__ __forceinline__ T entry_of(double value) {
  return T(value);
}

// The device's exponentials; the host run draws errors within their bounds.
#if defined(__CUDACC__)
__device__ __forceinline__ float exp_of(float x) { return expf(x); }
__device__ __forceinline__ float expm1_of(float x) { return expm1f(x); }
#else
inline float exp_of(float x) { return cuda_host::device_exp(x); }
inline float expm1_of(float x) { return cuda_host::device_expm1(x); }
#endif
__device__ __forceinline__ double exp_of(double x) { return exp(x); }
__device__ __forceinline__ double expm1_of(double x) { return expm1(x); }

// Element `at` of an array.
template <typename T>
__device__ __forceinline__ T load(const void* data, DType dtype, int64_t at) {
  switch (dtype) {
    case DType::f16: return entry_of<T>(static_cast<const __half*>(data)[at]);
    case DType::bf16: return entry_of<T>(static_cast<const uint16_t*>(data)[at]);
    case DType::f32: return entry_of<T>(static_cast<const float*>(data)[at]);
    default: return entry_of<T>(static_cast<const double*>(data)[at]);
  }
}

// Element (i, k) of a layer.
template <typename T>
__device__ __forceinline__ T load(const LayerView& layer, int64_t i, int64_t k) {
  return load<T>(layer.data, layer.dtype, i * layer.row_stride + k * layer.col_stride);
}

// The sum over the warp, in every lane, always in the same order.
template <typename T>
__device__ __forceinline__ T warp_sum(T value) {
  for (int step = kWarp / 2; step > 0; step /= 2) value += __shfl_xor_sync(~0u, value, step);
  return value;
}

}  // namespace simcore::cuda
