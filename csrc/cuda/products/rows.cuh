// The storage of rows of numbers for a product: [rows][kPlanes][pitch] of Stored.
#pragma once

#include "cuda/base/device_math.cuh"

namespace simcore::cuda {

// Rows that store each number itself.
template <typename T>
struct PlainRows {
  using Value = T;
  using Stored = T;
  static constexpr int kPlanes = 1;

  // Stores `count` numbers from entry k of a row on.
  template <int count>
  __device__ static __forceinline__ void put(Stored* row, int64_t, int64_t k,
                                             const T (&values)[count]) {
#pragma unroll
    for (int e = 0; e < count; e++) row[k + e] = values[e];
  }
  __device__ static __forceinline__ T get(const Stored* row, int64_t, int64_t k) { return row[k]; }
};

// Returns the bits of the float16 nearest to x, ties to even, and leaves the rest in x.
__device__ __forceinline__ uint32_t take_float16(float& x) {
  const __half nearest = __float2half_rn(x);
  x -= __half2float(nearest);
  return __half_as_ushort(nearest);
}

// Rows that store x = x_1 + x_2, a plane for each x_p, the float16 nearest to the rest that the
// former one leaves: 22 bits of x, down to 2^-25. Layers are scaled so that neither their entries
// nor their Gram entries leave float16's range (core/math/centring_math.h). Numbers are split once,
// when they are stored, and not for every product that reads them.
template <int parts>
struct SplitRows {
  using Value = float;
  using Stored = uint16_t;
  static constexpr int kPlanes = parts;

  // Stores one number, or two from an even entry on.
  template <int count>
  __device__ static __forceinline__ void put(Stored* row, int64_t pitch, int64_t k,
                                             const float (&values)[count]) {
    static_assert(count <= 2);
    float rest[count];
#pragma unroll
    for (int e = 0; e < count; e++) rest[e] = values[e];
#pragma unroll
    for (int p = 0; p < parts; p++) {
      uint32_t word = take_float16(rest[0]);
      if constexpr (count == 1) {
        row[p * pitch + k] = uint16_t(word);
      } else {
        word |= take_float16(rest[1]) << 16;
        *reinterpret_cast<uint32_t*>(&row[p * pitch + k]) = word;
      }
    }
  }
  __device__ static __forceinline__ float get(const Stored* row, int64_t pitch, int64_t k) {
    float sum = 0;
#pragma unroll
    for (int p = parts - 1; p >= 0; p--) sum += __half2float(__ushort_as_half(row[p * pitch + k]));
    return sum;
  }
};

}  // namespace simcore::cuda
