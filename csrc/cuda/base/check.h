// What a call of the CUDA runtime returns, as an error of C++.
#pragma once

#include <cuda_runtime_api.h>

#include <stdexcept>
#include <string>

namespace simcore::cuda {

inline void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  cudaGetLastError();  // else the next check of another library would report this error as its own
  throw std::runtime_error(std::string("simcore, CUDA: ") + what + ": " +
                           cudaGetErrorString(error));
}

}  // namespace simcore::cuda
