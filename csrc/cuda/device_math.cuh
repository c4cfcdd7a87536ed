// Small device functions that several kernels need.
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "core/layer_view.h"
#include "cuda/launch.cuh"

namespace simcore::cuda {

__device__ __forceinline__ int lane_of_thread() { return int(threadIdx.x) % kWarp; }
__device__ __forceinline__ int warp_of_thread() { return int(threadIdx.x) / kWarp; }

// Element (i, k) of a layer in the compute type.
template <typename T>
__device__ __forceinline__ T load(const LayerView& layer, int64_t i, int64_t k) {
  const int64_t at = i * layer.row_stride + k * layer.col_stride;
  switch (layer.dtype) {
    case DType::f16: return T(__half2float(static_cast<const __half*>(layer.data)[at]));
    case DType::bf16: {
      const uint32_t bits = static_cast<const uint16_t*>(layer.data)[at];
      return T(__uint_as_float(bits << 16));
    }
    case DType::f32: return T(static_cast<const float*>(layer.data)[at]);
    default: return T(static_cast<const double*>(layer.data)[at]);
  }
}

// The sum over the warp, in every lane, always in the same order.
template <typename T>
__device__ __forceinline__ T warp_sum(T value) {
  for (int step = kWarp / 2; step > 0; step /= 2) value += __shfl_xor_sync(~0u, value, step);
  return value;
}

}  // namespace simcore::cuda
