// C = A B' of one tile on tensor cores: float32 operands as sums of bfloat16 numbers.
//
// Math      x = x_1 + x_2 + x_3, every x_p the bfloat16 nearest to what the former ones leave; so
//           a b = sum_{p + q <= parts + 1} a_p b_q up to 2^(-8 parts): 1, 3 or 6 products. With
//           three parts nothing of float32's 24 bits is lost.
// Plan      8 warps of 64 x 32 entries. Rows are read ahead into registers, split while they are
//           stored to shared memory, and multiplied from there.
// Numerics  float32 accumulators; the caller bounds the depth.
#pragma once

#include "cuda/mma.cuh"
#include "cuda/product_plain.cuh"

namespace simcore::cuda {

// The nearest bfloat16, ties to even, as its bits; x is left with the rest.
__device__ __forceinline__ uint32_t take_bfloat16(float& x) {
  const uint32_t bits = __float_as_uint(x);
  const uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
  x -= __uint_as_float(rounded << 16);
  return rounded;
}

template <int parts>
class TensorProduct {
 public:
  using Value = float;
  static constexpr int kTile = 128;
  static constexpr int kThreads = 256;
  static constexpr int kDepth = parts == 3 ? 16 : 32;  // what static shared memory has room for

  // As PlainProduct's.
  __device__ void add(const Panel<float>& a, const Panel<float>& b, int64_t begin, int64_t end) {
    alignas(16) __shared__ uint16_t left[parts][kTile][kPitch], right[parts][kTile][kPitch];
    float4 next_left[kLoads], next_right[kLoads];
    fetch(a, begin, next_left);
    fetch(b, begin, next_right);
    for (int64_t k = begin; k < end; k += kDepth) {
      split(next_left, left);
      split(next_right, right);
      __syncthreads();
      if (k + kDepth < end) {
        fetch(a, k + kDepth, next_left);
        fetch(b, k + kDepth, next_right);
      }
#pragma unroll
      for (int d = 0; d < kDepth; d += kStep) multiply(left, right, d);
      __syncthreads();
    }
  }

  template <typename F>
  __device__ void visit(F f) const {
    const int group = lane_of_thread() / 4, pair = lane_of_thread() % 4 * 2;
#pragma unroll
    for (int i = 0; i < kRowsOf; i++)
#pragma unroll
      for (int j = 0; j < kColumnsOf; j++)
#pragma unroll
        for (int e = 0; e < 4; e++)
          f(row0() + i * 16 + group + e / 2 * 8, column0() + j * 8 + pair + e % 2, sum_[i][j][e]);
  }

 private:
  static constexpr int kStep = 16;           // depth of one instruction
  static constexpr int kPitch = kDepth + 8;  // eight rows of a matrix then lie in all 32 banks
  static constexpr int kWarpRows = 64, kWarpColumns = 32;
  static constexpr int kRowsOf = kWarpRows / 16, kColumnsOf = kWarpColumns / 8;
  static constexpr int kQuads = kDepth / 4;  // float4 of a row
  static constexpr int kLoads = kTile * kQuads / kThreads;
  using Staged = uint16_t[parts][kTile][kPitch];

  __device__ static int row0() { return warp_of_thread() % (kTile / kWarpRows) * kWarpRows; }
  __device__ static int column0() { return warp_of_thread() / (kTile / kWarpRows) * kWarpColumns; }

  __device__ static void fetch(const Panel<float>& panel, int64_t k, float4 (&values)[kLoads]) {
#pragma unroll
    for (int i = 0; i < kLoads; i++) {
      const int at = int(threadIdx.x) + i * kThreads, r = at / kQuads, c = at % kQuads * 4;
      values[i] = r < panel.rows
                      ? *reinterpret_cast<const float4*>(panel.data + r * panel.pitch + k + c)
                      : make_float4(0, 0, 0, 0);
    }
  }

  __device__ static void split(float4 (&values)[kLoads], Staged& staged) {
#pragma unroll
    for (int i = 0; i < kLoads; i++) {
      const int at = int(threadIdx.x) + i * kThreads, r = at / kQuads, c = at % kQuads * 4;
      float4 v = values[i];
#pragma unroll
      for (int p = 0; p < parts; p++) {
        uint2 words;
        words.x = take_bfloat16(v.x);
        words.x |= take_bfloat16(v.y) << 16;
        words.y = take_bfloat16(v.z);
        words.y |= take_bfloat16(v.w) << 16;
        *reinterpret_cast<uint2*>(&staged[p][r][c]) = words;
      }
    }
  }

  __device__ void multiply(const Staged& left, const Staged& right, int d) {
    const int lane = lane_of_thread();
    // B: matrices of rows 0-7 and 8-15, each at depths 0-7 and 8-15.
    uint32_t b[parts][kColumnsOf / 2][4];
#pragma unroll
    for (int p = 0; p < parts; p++)
#pragma unroll
      for (int j = 0; j < kColumnsOf / 2; j++)
        load_matrices(
            b[p][j],
            &right[p][column0() + j * 16 + lane / 16 * 8 + lane % 8][d + lane / 8 % 2 * 8]);
#pragma unroll
    for (int p = parts - 1; p >= 0; p--) {
      uint32_t a[kRowsOf][4];
#pragma unroll
      for (int i = 0; i < kRowsOf; i++)
        load_matrices(a[i], &left[p][row0() + i * 16 + lane % 16][d + lane / 16 * 8]);
      // From the smallest products to the largest.
#pragma unroll
      for (int q = parts - 1 - p; q >= 0; q--)
#pragma unroll
        for (int i = 0; i < kRowsOf; i++)
#pragma unroll
          for (int j = 0; j < kColumnsOf; j++)
            multiply_add(sum_[i][j], a[i], b[q][j / 2][j % 2 * 2], b[q][j / 2][j % 2 * 2 + 1]);
    }
  }

  float sum_[kRowsOf][kColumnsOf][4] = {};
};

}  // namespace simcore::cuda
