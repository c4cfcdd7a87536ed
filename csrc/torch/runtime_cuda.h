// Device, stream, workspace and error messages, shared by the CUDA adapters.
#pragma once

#include <ATen/ops/empty.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAMacros.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/csrc/inductor/aoti_torch/utils.h>

#include <array>
#include <atomic>
#include <limits>
#include <stdexcept>

#include "cuda/base/device.h"
#include "torch/tensor.h"

namespace simcore {

// The current device is the tensor's as long as this lives.
class DeviceGuard {
 public:
  explicit DeviceGuard(const Device& device) : guard_(c10::DeviceIndex(device.index())) {}

 private:
  c10::cuda::CUDAGuard guard_;
};

inline int device_attribute(cudaDeviceAttr attribute) {
  int value = 0;
  C10_CUDA_CHECK(cudaDeviceGetAttribute(&value, attribute, c10::cuda::current_device()));
  return value;
}

// Asynchronous copies and products of 16 x 8 x 16 entries on tensor cores came with compute
// capability 8.0.
inline cuda::Device current_device() {
  constexpr int least = 8;
  const int major = device_attribute(cudaDevAttrComputeCapabilityMajor);
  SIMCORE_CHECK(major >= least, "simcore: wanted a CUDA device of compute capability ", least,
                ".0 or newer, got ", major, ".",
                device_attribute(cudaDevAttrComputeCapabilityMinor));
  return {device_attribute(cudaDevAttrMultiProcessorCount),
          device_attribute(cudaDevAttrL2CacheSize)};
}

inline bool capturing() {
  return c10::cuda::currentStreamCaptureStatusMayInitCtx() != c10::cuda::CaptureStatus::None;
}

struct DeviceMemory {
  size_t free = 0, total = 0;
};

inline DeviceMemory ask_driver() {
  DeviceMemory memory;
  C10_CUDA_CHECK(cudaMemGetInfo(&memory.free, &memory.total));
  return memory;
}

// Returns the bytes of the current device, which the driver is asked for once.
inline int64_t total_device_memory() {
  static std::array<std::atomic<int64_t>, C10_COMPILE_TIME_MAX_GPUS> known{};
  std::atomic<int64_t>& total = known[size_t(c10::cuda::current_device())];
  if (total == 0) total = int64_t(ask_driver().total);
  return total;
}

// Returns the bytes that a call could take now: what the driver has, and what torch keeps of the
// memory that it once took from the driver, which torch gives out again.
inline int64_t free_device_memory() {
  const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(c10::cuda::current_device());
  constexpr auto all = size_t(c10::CachingAllocator::StatType::AGGREGATE);
  return int64_t(ask_driver().free) + stats.reserved_bytes[all].current -
         stats.allocated_bytes[all].current;
}

// Returns the bound in force: max_memory itself, or a quarter of the free device memory for 0. A
// workspace of at most 1 / kSmallShare of the device's memory is never bounded, so that small calls
// need not ask the driver. While a graph is captured nothing may be asked of the device: the plan's
// own sizes are the bound then.
template <typename MakePlan>
auto plan_within(int64_t max_memory, MakePlan make_plan) {
  constexpr int64_t kShare = 4, kSmallShare = 64;
  if (max_memory > 0) return make_plan(max_memory);
  const auto wanted = make_plan(std::numeric_limits<int64_t>::max());
  if (capturing() || wanted.workspace_bytes <= total_device_memory() / kSmallShare) return wanted;
  return make_plan(free_device_memory() / kShare);
}

inline void check_same_device(const Tensors& layers, const char* name, const Device& device) {
  for (size_t i = 0; i < layers.size(); i++)
    SIMCORE_CHECK(layers[i].device() == device, name, "[", i, "]: wanted device ", device,
                  " as in X[0], got ", layers[i].device());
}

// Not by the stable ABI, whose errors are all of one type: a device without enough memory is a
// torch.OutOfMemoryError.
inline Tensor empty_on(const Device& device, Shape shape, ScalarType type) {
  const c10::Device where(device.type(), c10::DeviceIndex(device.index()));
  return Tensor(torch::aot_inductor::new_tensor_handle(
      at::empty({shape.data(), shape.size()}, at::TensorOptions().dtype(type).device(where))));
}

inline Tensor on_host(const Tensor& tensor) {
  return torch::stable::to(tensor, Device(torch::headeronly::DeviceType::CPU));
}

// counts: NaN or infinite entries of every layer, x first. Waits for the kernels that counted them.
inline void refuse_nonfinite(const Tensor& counts, int64_t count_x, const Tensors& x,
                             const Tensors& y) {
  const Tensor host = on_host(counts);
  const int64_t* bad = const_data<int64_t>(host);
  for (int64_t l = 0; l < host.numel(); l++) {
    const bool in_x = l < count_x;
    const int64_t index = in_x ? l : l - count_x;
    TORCH_CHECK_NOT_IMPLEMENTED(bad[l] >= 0, in_x ? "X[" : "Y[", index, "]: wanted entries of ",
                                "about one size, got some that float16 pairs do not resolve");
    SIMCORE_CHECK(bad[l] == 0, in_x ? "X[" : "Y[", index, "]: wanted finite values, got ", bad[l],
                  " NaN or infinite of ", (in_x ? x : y)[size_t(index)].numel());
  }
}

}  // namespace simcore
