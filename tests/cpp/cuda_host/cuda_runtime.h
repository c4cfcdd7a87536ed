// Stands in for CUDA's own header of this name, so that g++ compiles the kernels and launchers of
// csrc/cuda as they are and the host runs them: fibres.h says how.
//
// Device memory is host memory, a stream is nothing, a launch returns when its blocks have run. A
// host thread runs one block at a time; __shared__ arrays are therefore static and its own. What
// they hold when a block starts is left over from another one, as on a device.
#pragma once

#include <math.h>

#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "fibres.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __shared__ static thread_local
#define __grid_constant__
#define __launch_bounds__(...)

// threadIdx and its like are objects here, because CUDA has members of structures with these names.
template <const dim3& (*get)(), unsigned dim3::* axis>
struct IndexComponent {
  operator unsigned() const { return get().*axis; }
};
template <const dim3& (*get)()>
struct Index {
  IndexComponent<get, &dim3::x> x;
  IndexComponent<get, &dim3::y> y;
  IndexComponent<get, &dim3::z> z;
};
inline const Index<cuda_host::thread_index> threadIdx{};
inline const Index<cuda_host::block_index> blockIdx{};
inline const Index<cuda_host::block_size> blockDim{};
inline const Index<cuda_host::grid_size> gridDim{};

struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

inline void __syncthreads(cuda_host::Place place = cuda_host::Place::current()) {
  cuda_host::Machine::get().wait_block(place);
}

template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask,
                  cuda_host::Place place = cuda_host::Place::current()) {
  if (mask != ~0u) {
    std::printf("a shuffle of part of a warp is not emulated\n");
    std::abort();
  }
  std::array<uint64_t, 1> word{};
  std::memcpy(word.data(), &value, sizeof value);
  const auto& shown = cuda_host::Machine::get().exchange(word, place);
  const unsigned lane = threadIdx.x % cuda_host::kLanes;
  const uint64_t other = shown[lane ^ unsigned(lane_mask)][0].load(std::memory_order_relaxed);
  std::memcpy(&value, &other, sizeof value);
  return value;
}

template <typename T>
T atomicAdd(T* at, T value) {
  return std::atomic_ref<T>(*at).fetch_add(value, std::memory_order_relaxed);
}
template <typename T>
T atomicMin(T* at, T value) {
  std::atomic_ref<T> ref(*at);
  T old = ref.load(std::memory_order_relaxed);
  while (value < old && !ref.compare_exchange_weak(old, value, std::memory_order_relaxed)) {
  }
  return old;
}

template <typename T>
T atomicMax(T* at, T value) {
  std::atomic_ref<T> ref(*at);
  T old = ref.load(std::memory_order_relaxed);
  while (old < value && !ref.compare_exchange_weak(old, value, std::memory_order_relaxed)) {
  }
  return old;
}

// The errors that CUDA's programming guide allows these functions; the host's own are smaller. They
// are drawn from the bits of x, so that repetition gives the same.
namespace cuda_host {
inline double error_of(float x) {  // in [-1, 1]
  const uint32_t mixed = (std::bit_cast<uint32_t>(x) ^ 0x9e3779b9u) * 0x85ebca6bu;
  return double(mixed >> 8) / double(1 << 23) - 1;
}
inline float with_ulps(double value, double ulps, float x) {
  const float nearest = float(value);
  const float ulp = std::nextafter(std::fabs(nearest), INFINITY) - std::fabs(nearest);
  return isfinite(nearest) ? float(value + ulps * error_of(x) * double(ulp)) : nearest;
}
inline float device_exp(float x) { return with_ulps(exp(double(x)), 1, x); }
inline float device_expm1(float x) { return with_ulps(expm1(double(x)), 1, x); }
}  // namespace cuda_host
// Good to 2^-22 in [0.5, 2], to 2 ulp elsewhere.
inline float __log2f(float x) {
  const double exact = log2(double(x));
  if (x >= 0.5f && x <= 2) return float(exact + 0x1p-22 * cuda_host::error_of(x));
  return cuda_host::with_ulps(exact, 2, x);
}

inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }

using cudaStream_t = struct CUstream_st*;
enum cudaError_t { cudaSuccess = 0, cudaErrorInvalidConfiguration = 9 };
inline const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaSuccess ? "no error" : "invalid configuration argument";
}
// The last error stays until it is asked for, whoever asks.
namespace cuda_host {
inline cudaError_t last_error = cudaSuccess;
inline cudaError_t failed() { return last_error = cudaErrorInvalidConfiguration; }
}  // namespace cuda_host
inline cudaError_t cudaGetLastError() { return std::exchange(cuda_host::last_error, cudaSuccess); }

// Launches that are noted instead of run, so that the work of any size can be counted: what a
// launch sequence does depends on sizes alone.
namespace cuda_host {
struct Noted {
  std::string name;  // as given to launch(), or "clear"
  int64_t blocks, threads;
};
inline std::vector<Noted>* notes = nullptr;  // where they go; null: launches run
inline const char* launching = "";           // the name of the next launch
}  // namespace cuda_host

inline cudaError_t cudaMemsetAsync(void* at, int value, size_t bytes, cudaStream_t) {
  if (cuda_host::notes != nullptr) {
    cuda_host::notes->push_back({"clear", 0, 0});
    return cudaSuccess;
  }
  std::memset(at, value, bytes);
  return cudaSuccess;
}

enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
// The shared memory that a block may have: 227 kB with compute capability 9.0 and 10.0. The least
// of all devices from 8.0 on is 99 kB (8.6, 8.9 and 12).
inline int shared_limit = 227 << 10;
template <typename Kernel>
cudaError_t cudaFuncSetAttribute(Kernel, cudaFuncAttribute, int bytes) {
  return bytes <= shared_limit ? cudaSuccess : cuda_host::failed();
}

struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
};

// The limits of every device since compute capability 3.0.
template <typename... Formal, typename... Actual>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Formal...),
                               Actual&&... actual) {
  const dim3 grid = config->gridDim, block = config->blockDim;
  if (grid.x > 0x7fffffffu || grid.y > 65535u || grid.z > 65535u ||
      uint64_t(block.x) * block.y * block.z > 1024)
    return cuda_host::failed();
  if (cuda_host::notes != nullptr) {
    cuda_host::notes->push_back(
        {cuda_host::launching, int64_t(grid.x) * grid.y * grid.z, int64_t(block.x)});
    return cudaSuccess;
  }
  const std::tuple<Formal...> arguments(std::forward<Actual>(actual)...);
  const std::function<void()> body = [&] { std::apply(kernel, arguments); };
  cuda_host::run({grid, block, config->dynamicSmemBytes, &body});
  return cudaSuccess;
}
