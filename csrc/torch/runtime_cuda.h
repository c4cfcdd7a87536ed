// Device, stream, workspace and error messages, shared by the CUDA adapters.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <limits>
#include <stdexcept>

#include "cuda/base/device.h"

namespace simcore {

inline int device_attribute(cudaDeviceAttr attribute) {
  int value = 0;
  C10_CUDA_CHECK(cudaDeviceGetAttribute(&value, attribute, c10::cuda::current_device()));
  return value;
}

inline cuda::Device current_device() {
  return {device_attribute(cudaDevAttrMultiProcessorCount),
          device_attribute(cudaDevAttrL2CacheSize)};
}

// Tensor-core instructions with bfloat16 came with compute capability 8.0.
inline cuda::Variant best_variant() {
  return device_attribute(cudaDevAttrComputeCapabilityMajor) >= 8 ? cuda::Variant::tensor
                                                                  : cuda::Variant::plain;
}

inline bool capturing() {
  return c10::cuda::currentStreamCaptureStatusMayInitCtx() != c10::cuda::CaptureStatus::None;
}

// Returns the bound in force: max_memory itself, or a quarter of the free device memory for 0.
// While a graph is captured nothing may be asked of the device: the plan's own sizes are the bound
// then.
inline int64_t device_memory_bound(int64_t max_memory) {
  if (max_memory > 0) return max_memory;
  if (capturing()) return std::numeric_limits<int64_t>::max();
  size_t free = 0, total = 0;
  C10_CUDA_CHECK(cudaMemGetInfo(&free, &total));
  return int64_t(free / 4);
}

inline void check_same_device(at::TensorList layers, const char* name, const at::Device& device) {
  for (size_t i = 0; i < layers.size(); i++)
    TORCH_CHECK_VALUE(layers[i].device() == device, name, "[", i, "]: wanted device ", device,
                      " as in X[0], got ", layers[i].device());
}

inline at::Tensor empty_on(const at::Device& device, at::IntArrayRef shape, at::ScalarType type) {
  return at::empty(shape, at::TensorOptions().dtype(type).device(device));
}

// counts: NaN or infinite entries of every layer, x first. Waits for the kernels that counted them.
inline void refuse_nonfinite(const at::Tensor& counts, int64_t count_x, at::TensorList x,
                             at::TensorList y) {
  const at::Tensor host = counts.to(at::kCPU);
  const int64_t* bad = host.const_data_ptr<int64_t>();
  for (int64_t l = 0; l < host.numel(); l++) {
    const bool in_x = l < count_x;
    const int64_t index = in_x ? l : l - count_x;
    TORCH_CHECK_VALUE(bad[l] == 0, in_x ? "X[" : "Y[", index, "]: wanted finite values, got ",
                      bad[l], " NaN or infinite of ", (in_x ? x : y)[size_t(index)].numel());
  }
}

}  // namespace simcore
