// How rows of numbers lie in memory for a product: [rows][kPlanes][pitch] of Stored.
#pragma once

#include "cuda/base/device_math.cuh"

namespace simcore::cuda {

// The number itself.
template <typename T>
struct PlainRows {
  using Value = T;
  using Stored = T;
  static constexpr int kPlanes = 1;

  // `count` numbers from entry k of a row on.
  template <int count>
  __device__ static __forceinline__ void put(Stored* row, int64_t, int64_t k,
                                             const T (&values)[count]) {
#pragma unroll
    for (int e = 0; e < count; e++) row[k + e] = values[e];
  }
  __device__ static __forceinline__ T get(const Stored* row, int64_t, int64_t k) { return row[k]; }
};

// The nearest bfloat16, ties to even, as its bits; x is left with the rest. NaN may become 0:
// layers that hold one are counted while they are centred.
__device__ __forceinline__ uint32_t take_bfloat16(float& x) {
  const uint32_t bits = __float_as_uint(x);
  const uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
  x -= __uint_as_float(rounded << 16);
  return rounded;
}

// x = x_1 + x_2 + x_3, every x_p the bfloat16 nearest to what the former ones leave, a plane each.
// Three hold all of float32's 24 bits, of numbers above 2^-110 (layers are scaled). Split when they
// are stored: once, and not once for every product that reads them.
template <int parts>
struct SplitRows {
  using Value = float;
  using Stored = uint16_t;
  static constexpr int kPlanes = parts;

  // One number, or two from an even entry on.
  template <int count>
  __device__ static __forceinline__ void put(Stored* row, int64_t pitch, int64_t k,
                                             const float (&values)[count]) {
    static_assert(count <= 2);
    float rest[count];
#pragma unroll
    for (int e = 0; e < count; e++) rest[e] = values[e];
#pragma unroll
    for (int p = 0; p < parts; p++) {
      uint32_t word = take_bfloat16(rest[0]);
      if constexpr (count == 1) {
        row[p * pitch + k] = uint16_t(word);
      } else {
        word |= take_bfloat16(rest[1]) << 16;
        *reinterpret_cast<uint32_t*>(&row[p * pitch + k]) = word;
      }
    }
  }
  __device__ static __forceinline__ float get(const Stored* row, int64_t pitch, int64_t k) {
    float sum = 0;
#pragma unroll
    for (int p = parts - 1; p >= 0; p--) sum += __uint_as_float(uint32_t(row[p * pitch + k]) << 16);
    return sum;
  }
};

}  // namespace simcore::cuda
