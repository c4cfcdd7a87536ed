// Kernel launches with every error checked; tests/cpp/cuda_host stands in for <cuda_runtime.h> in
// the host run, so nothing here may use the <<<>>> syntax.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <stdexcept>
#include <string>

#include "cuda/base/check.h"

namespace simcore::cuda {

constexpr int kWarp = 32;
constexpr int64_t kMaxGridX = 0x7fffffff;  // of the x axis of a grid
constexpr int64_t kMaxGridY = 65535;       // of its y and z axes

struct LaunchGrid {
  int64_t x = 1, y = 1, z = 1;
};

struct DynamicShared {
  int64_t bytes = 0;
};

// A kernel's dynamic shared memory; the host run defines it in its own way.
#if defined(__CUDACC__)
#define SIMCORE_DYNAMIC_SHARED(T, name)                                   \
  extern __shared__ __align__(16) unsigned char simcore_dynamic_shared[]; \
  T* const name = reinterpret_cast<T*>(simcore_dynamic_shared)
#else
#define SIMCORE_DYNAMIC_SHARED(T, name) \
  T* const name = static_cast<T*>(cuda_host::Machine::get().dynamic_shared())
#endif

// An empty grid launches nothing. Throws std::invalid_argument where a grid is larger than a device
// takes, which would be taken modulo 2^32.
template <typename... Formal, typename... Actual>
void launch(const char* name, void (*kernel)(Formal...), LaunchGrid grid, int threads,
            cudaStream_t stream, DynamicShared shared, Actual... actual) {
  constexpr int64_t without_asking = 48 << 10;
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  if (grid.x > kMaxGridX || grid.y > kMaxGridY || grid.z > kMaxGridY)
    throw std::invalid_argument(
        std::string(name) + ": wanted at most " + std::to_string(kMaxGridX) + " blocks, and " +
        std::to_string(kMaxGridY) + " along y and z, got " + std::to_string(grid.x) + ", " +
        std::to_string(grid.y) + ", " + std::to_string(grid.z));
  if (shared.bytes > without_asking)
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               int(shared.bytes)),
          name);
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(unsigned(grid.x), unsigned(grid.y), unsigned(grid.z));
  config.blockDim = dim3(unsigned(threads));
  config.dynamicSmemBytes = size_t(shared.bytes);
  config.stream = stream;
#if !defined(__CUDACC__)
  cuda_host::launching = name;
#endif
  check(cudaLaunchKernelEx(&config, kernel, static_cast<Formal>(actual)...), name);
}

template <typename... Formal, typename... Actual>
void launch(const char* name, void (*kernel)(Formal...), LaunchGrid grid, int threads,
            cudaStream_t stream, Actual... actual) {
  launch(name, kernel, grid, threads, stream, DynamicShared{}, actual...);
}

template <typename T>
void clear(T* values, int64_t count, cudaStream_t stream) {
  check(cudaMemsetAsync(values, 0, size_t(count) * sizeof(T), stream), "cudaMemsetAsync");
}

}  // namespace simcore::cuda
