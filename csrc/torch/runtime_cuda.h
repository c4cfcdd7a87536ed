// Device, stream, memory and error messages, shared by the CUDA adapters: from torch's stable ABI
// and the CUDA runtime, so that one build runs with every torch from 2.11 on that is for the same
// major release of CUDA.
#pragma once

#include <limits>
#include <memory>
#include <stdexcept>

#include "cuda/base/check.h"
#include "cuda/base/device.h"
#include "torch/tensor.h"

namespace simcore {

// The device of that index is the current one as long as this lives.
class DeviceGuard {
 public:
  explicit DeviceGuard(int32_t index) {
    DeviceGuardHandle guard = nullptr;
    succeed(aoti_torch_create_device_guard(index, &guard), "no guard of a device");
    guard_.reset(guard);
  }

 private:
  std::unique_ptr<DeviceGuardOpaque, decltype(&aoti_torch_delete_device_guard)> guard_{
      nullptr, aoti_torch_delete_device_guard};
};

inline cudaStream_t current_stream(const Device& device) {
  void* stream = nullptr;
  succeed(aoti_torch_get_current_cuda_stream(device.index(), &stream), "no stream of a device");
  return static_cast<cudaStream_t>(stream);
}

inline bool capturing(const Device& device) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cuda::check(cudaStreamIsCapturing(current_stream(device), &status), "cudaStreamIsCapturing");
  return status != cudaStreamCaptureStatusNone;
}

inline int attribute_of(const Device& device, cudaDeviceAttr attribute) {
  int value = 0;
  cuda::check(cudaDeviceGetAttribute(&value, attribute, device.index()), "cudaDeviceGetAttribute");
  return value;
}

// Asynchronous copies and products of 16 x 8 x 16 entries on tensor cores came with compute
// capability 8.0.
inline cuda::Device properties_of(const Device& device) {
  constexpr int least = 8;
  const int major = attribute_of(device, cudaDevAttrComputeCapabilityMajor);
  SIMCORE_CHECK(major >= least, "simcore: wanted a CUDA device of compute capability ", least,
                ".0 or newer, got ", major, ".",
                attribute_of(device, cudaDevAttrComputeCapabilityMinor));
  return {attribute_of(device, cudaDevAttrMultiProcessorCount),
          attribute_of(device, cudaDevAttrL2CacheSize)};
}

// Returns the plan within the bound in force: max_memory itself, or a quarter of the free device
// memory for 0. A small workspace is never bounded, so that small calls need not ask for the free
// memory. While a graph is captured nothing may be asked of the device: the plan's own sizes are
// the bound then.
template <typename MakePlan>
auto plan_within(int64_t max_memory, const Device& device, MakePlan make_plan) {
  constexpr int64_t kShare = 4, kSmall = 256 << 20;
  if (max_memory > 0) return make_plan(max_memory);
  const auto wanted = make_plan(std::numeric_limits<int64_t>::max());
  if (wanted.workspace_bytes <= kSmall || capturing(device)) return wanted;
  // An operator of Python (simcore/_grid/memory.py), which torch's allocator tells its numbers.
  return make_plan(call<int64_t>("simcore::free_memory", "", device) / kShare);
}

inline void check_same_device(const Tensors& layers, const char* name, const Device& device) {
  for (size_t i = 0; i < layers.size(); i++)
    SIMCORE_CHECK(layers[i].device() == device, name, "[", i, "]: wanted device ", device,
                  " as in X[0], got ", layers[i].device());
}

// Returns an uninitialised tensor. Errors of the stable ABI are all of one type; a device that
// answers, and has no memory for the tensor, is a torch.OutOfMemoryError.
inline Tensor empty_on(const Device& device, Shape shape, ScalarType type) {
  try {
    return empty(shape, type, device);
  } catch (const std::runtime_error&) {  // whose text names a call in torch, and no reason
    size_t free = 0, total = 0;
    cuda::check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    refuse_memory(text("CUDA out of memory: wanted an array ", shape, " of ", type, " on ", device,
                       ", got ", free, " free bytes of ", total));
  }
}

// Returns a view of bytes of the host.
inline Tensor bytes_of_host(std::vector<uint8_t>& bytes) {
  const int64_t size = int64_t(bytes.size()), stride = 1;
  const Device host = Device::cpu();
  AtenTensorHandle handle = nullptr;
  succeed(aoti_torch_create_tensor_from_blob_v2(
              bytes.data(), 1, &size, &stride, 0, number_of(ScalarType::Byte), host.type(),
              host.index(), &handle, aoti_torch_layout_strided(), nullptr, 0),
          "no tensor of bytes of the host");
  return Tensor(handle);
}

// Returns a tensor that kernels write, on the host. A kernel that failed is told of here, with its
// reason: torch's stable ABI would say that a copy failed.
inline Tensor on_host(const Tensor& tensor, const char* name) {
  cuda::check(cudaStreamSynchronize(current_stream(tensor.device())), name);
  return to(tensor, Device::cpu());
}

// counts: NaN or infinite entries of every layer, x first. Waits for the kernels that counted them.
inline void refuse_nonfinite(const Tensor& counts, int64_t count_x, const Tensors& x,
                             const Tensors& y) {
  const Tensor host = on_host(counts, "gram_terms");
  const int64_t* bad = const_data<int64_t>(host);
  for (int64_t l = 0; l < host.numel(); l++) {
    const bool in_x = l < count_x;
    const int64_t index = in_x ? l : l - count_x;
    if (bad[l] < 0)
      refuse_unimplemented(text(in_x ? "X[" : "Y[", index, "]: wanted entries of about one size, ",
                                "got some that float16 pairs do not resolve"));
    SIMCORE_CHECK(bad[l] == 0, in_x ? "X[" : "Y[", index, "]: wanted finite values, got ", bad[l],
                  " NaN or infinite of ", (in_x ? x : y)[size_t(index)].numel());
  }
}

}  // namespace simcore
