// The instructions of csrc/cuda/products/mma.cuh on the host, from the PTX manual (sections
// "ldmatrix", "Matrix fragments for mma.m16n8k16" and "cp.async"), written apart from their use.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <vector>

#include "cuda_fp16.h"
#include "cuda_runtime.h"

namespace simcore::cuda {

inline void load_matrices(uint32_t (&r)[4], const uint16_t* row,
                          cuda_host::Place place = cuda_host::Place::current()) {
  const auto& shown = cuda_host::Machine::get().exchange(
      std::array<uint64_t, 1>{reinterpret_cast<uint64_t>(row)}, place);
  const unsigned lane = threadIdx.x % cuda_host::kLanes;
  for (unsigned m = 0; m < 4; m++) {
    const uint64_t at = shown[m * 8 + lane / 4][0].load(std::memory_order_relaxed);
    if (at % 16 != 0) std::abort();  // a row of a matrix is one access of 16 bytes
    const uint16_t* pair = reinterpret_cast<const uint16_t*>(at) + lane % 4 * 2;
    r[m] = uint32_t(pair[0]) | uint32_t(pair[1]) << 16;
  }
}

inline float float16_at(uint64_t word, unsigned half) {
  return __half2float(__ushort_as_half(static_cast<unsigned short>(word >> (16 * half))));
}

// How a tensor core adds: 8 exact products and the accumulator are cut to multiples of 2^-24 of the
// largest of them, and their sum to float32, all towards zero (Fasi et al. 2021, PeerJ CS 330, for
// an A100; later devices keep a bit or two more). Without it, as float32 arithmetic adds.
inline bool accumulators_truncate = true;

inline float towards_zero(double value) {
  const float nearest = float(value);
  return std::fabs(double(nearest)) > std::fabs(value) ? std::nextafter(nearest, 0.0f) : nearest;
}

inline float add_products(float sum, const float* x, const float* y) {
  constexpr int kProducts = 8, kKeptBits = 24;
  double terms[kProducts + 1], largest = std::fabs(double(sum));
  for (int k = 0; k < kProducts; k++) {
    terms[k] = double(x[k]) * double(y[k]);
    largest = std::fmax(largest, std::fabs(terms[k]));
  }
  terms[kProducts] = double(sum);
  if (largest == 0) return sum;
  if (!std::isfinite(largest)) return float(std::accumulate(terms, terms + kProducts + 1, 0.0));
  const int exponent = int(std::bit_cast<uint64_t>(largest) >> 52 & 0x7ff) - 1023;
  const double up = std::bit_cast<double>(uint64_t(1023 + kKeptBits - exponent) << 52);
  int64_t total = 0;
  for (const double term : terms) total += int64_t(term * up);
  return towards_zero(double(total) / up);
}

// Each lane of a warp has 4 entries of d: two rows of a, two rows of b.
inline void multiply_add(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                         cuda_host::Place place = cuda_host::Place::current()) {
  constexpr unsigned kDepth = 16;
  const auto& shown = cuda_host::Machine::get().exchange(
      std::array<uint64_t, 6>{a[0], a[1], a[2], a[3], b0, b1}, place);
  const unsigned lane = threadIdx.x % cuda_host::kLanes;
  float x[2][kDepth], y[2][kDepth];
  for (unsigned r = 0; r < 2; r++)
    for (unsigned k = 0; k < kDepth; k++) {
      const unsigned of_a = lane / 4 * 4 + k % 8 / 2, of_b = (lane % 4 * 2 + r) * 4 + k % 8 / 2;
      x[r][k] = float16_at(shown[of_a][r + k / 8 * 2].load(std::memory_order_relaxed), k % 2);
      y[r][k] = float16_at(shown[of_b][4 + k / 8].load(std::memory_order_relaxed), k % 2);
    }
  const auto zeros = [](const float (&row)[kDepth]) {
    return std::all_of(row, row + kDepth, [](float value) { return value == 0; });
  };
  const bool x_zeros[2] = {zeros(x[0]), zeros(x[1])}, y_zeros[2] = {zeros(y[0]), zeros(y[1])};
  for (unsigned e = 0; e < 4; e++)
    for (unsigned k = 0; k < kDepth && !x_zeros[e / 2] && !y_zeros[e % 2]; k += 8) {
      const float *left = &x[e / 2][k], *right = &y[e % 2][k];
      if (accumulators_truncate)
        d[e] = add_products(d[e], left, right);
      else
        for (int i = 0; i < 8; i++) d[e] += left[i] * right[i];
    }
}

// Asynchronous copies arrive at any time between their issue and the wait for them. Here all copies
// of a launch arrive at one end of that time, or each at an end that is drawn: where a wait is
// missing, late copies leave old numbers; where a barrier is missing, early copies overwrite
// numbers too soon.
enum class Arrival { early, late, mixed };
inline Arrival arrival_of_copies = Arrival::early;

struct PendingCopy {
  uint16_t* to;
  const uint16_t* from;
  bool exists;
  bool ends_group;

  void arrive() const {
    if (to == nullptr) return;
    for (int e = 0; e < 8; e++) to[e] = exists ? from[e] : uint16_t(0);
  }
};

// Copies of the running thread, in the order of issue; the copies before `arrived` are complete.
struct PendingCopies {
  std::vector<PendingCopy> copies;
  size_t arrived = 0;
};
CUDA_HOST_UNSEEN inline PendingCopies& pending_copies() {
  static thread_local std::array<PendingCopies, 1024> of_threads;
  return of_threads[threadIdx.x];
}

// Draws a bit, by a xorshift generator.
CUDA_HOST_UNSEEN inline bool draw_late() {
  static thread_local uint32_t state = 1;
  state ^= state << 13;
  state ^= state >> 17;
  state ^= state << 5;
  return state >> 31;
}

inline void copy_or_clear(uint16_t* to, const uint16_t* from, bool exists) {
  if (reinterpret_cast<uint64_t>(to) % 16 != 0 || reinterpret_cast<uint64_t>(from) % 16 != 0)
    std::abort();
  const PendingCopy copy{to, from, exists, false};
  const bool late =
      arrival_of_copies == Arrival::late || (arrival_of_copies == Arrival::mixed && draw_late());
  if (late)
    pending_copies().copies.push_back(copy);
  else
    copy.arrive();
}

inline void commit_copies() { pending_copies().copies.push_back({nullptr, nullptr, false, true}); }

template <int pending>
void wait_for_copies() {
  PendingCopies& mine = pending_copies();
  int groups = 0;
  size_t end = mine.copies.size();
  while (end > mine.arrived && (groups += mine.copies[end - 1].ends_group) <= pending) end--;
  for (; mine.arrived < end; mine.arrived++) mine.copies[mine.arrived].arrive();
  if (mine.arrived == mine.copies.size()) mine = {};
}

}  // namespace simcore::cuda
