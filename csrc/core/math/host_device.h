// Marks functions that the CPU code and the CUDA kernels share.
#pragma once

#if defined(__CUDACC__)
#define SIMCORE_HD __host__ __device__
#else
#define SIMCORE_HD
#endif
