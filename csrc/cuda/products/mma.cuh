// The instructions of tensor cores and of asynchronous copies that the kernels use, by name. The
// host run has functions of the same names, written from the PTX manual (tests/cpp/cuda_host).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#if defined(__CUDACC__)
namespace simcore::cuda {

// Four 8 x 8 matrices of 16-bit numbers; lane l names row l % 8 of matrix l / 8.
__device__ __forceinline__ void load_matrices(uint32_t (&r)[4], const uint16_t* row) {
  const uint32_t at = uint32_t(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(at)
               : "memory");
}

// d += a b', a [16, 16], b [8, 16], float16; d [16, 8] float32.
__device__ __forceinline__ void multiply_add(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                             uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Copies 16 bytes to shared memory, some time before wait_for_copies returns; zeros unless they
// exist.
__device__ __forceinline__ void copy_or_clear(uint16_t* to, const uint16_t* from, bool exists) {
  const uint32_t at = uint32_t(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(at), "l"(__cvta_generic_to_global(from)), "r"(exists ? 16 : 0)
               : "memory");
}

// Makes a group of the copies since the last commit.
__device__ __forceinline__ void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits until all groups of this thread but the last `pending` have arrived.
template <int pending>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

}  // namespace simcore::cuda
#else
#include "mma_host.h"
#endif
