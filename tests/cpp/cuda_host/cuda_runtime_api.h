// See cuda_runtime.h beside this. Here is what the torch adapters ask of a device: one with compute
// capability 9.0, few multiprocessors and little memory.
#pragma once
#include "cuda_runtime.h"

enum cudaStreamCaptureStatus { cudaStreamCaptureStatusNone = 0 };
inline cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  *status = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}

inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }

enum cudaDeviceAttr {
  cudaDevAttrMultiProcessorCount = 16,
  cudaDevAttrL2CacheSize = 38,
  cudaDevAttrComputeCapabilityMajor = 75,
  cudaDevAttrComputeCapabilityMinor = 76,
};
inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount: *value = 4; break;
    case cudaDevAttrL2CacheSize: *value = 1 << 20; break;
    case cudaDevAttrComputeCapabilityMajor: *value = 9; break;
    case cudaDevAttrComputeCapabilityMinor: *value = 0; break;
  }
  return cudaSuccess;
}

inline cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *free = 1 << 20;
  *total = 2 << 20;
  return cudaSuccess;
}
