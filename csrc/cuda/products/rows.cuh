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

// Returns the bits of the bfloat16 nearest to x, ties to even, and leaves the rest in x. NaN may
// become 0: layers that hold NaN are counted while they are centred.
__device__ __forceinline__ uint32_t take_bfloat16(float& x) {
  const uint32_t bits = __float_as_uint(x);
  const uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
  x -= __uint_as_float(rounded << 16);
  return rounded;
}

// Rows that store x = x_1 + x_2 + x_3, a plane for each x_p, the bfloat16 nearest to the rest that
// the former ones leave. Three numbers hold all 24 bits of float32 numbers above 2^-110 (layers are
// scaled). Numbers are split once, when they are stored, and not for every product that reads them.
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
