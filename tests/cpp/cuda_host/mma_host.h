// The instructions of csrc/cuda/products/mma.cuh on the host, from the PTX manual (sections
// "ldmatrix", "Matrix fragments for mma.m16n8k16" and "cp.async"), written apart from their use.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

#include "cuda_runtime.h"

namespace simcore::cuda {

inline void load_matrices(uint32_t (&r)[4], const uint16_t* row) {
  const auto& shown =
      cuda_host::Machine::get().exchange(std::array<uint64_t, 1>{reinterpret_cast<uint64_t>(row)});
  const unsigned lane = threadIdx.x % cuda_host::kLanes;
  for (unsigned m = 0; m < 4; m++) {
    const uint64_t at = shown[m * 8 + lane / 4][0].load(std::memory_order_relaxed);
    if (at % 16 != 0) std::abort();  // a row of a matrix is one access of 16 bytes
    const uint16_t* pair = reinterpret_cast<const uint16_t*>(at) + lane % 4 * 2;
    r[m] = uint32_t(pair[0]) | uint32_t(pair[1]) << 16;
  }
}

inline float bfloat16_at(uint64_t word, unsigned half) {
  return __uint_as_float(uint32_t(word) >> (16 * half) << 16);
}

inline void multiply_add(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  const auto& shown =
      cuda_host::Machine::get().exchange(std::array<uint64_t, 6>{a[0], a[1], a[2], a[3], b0, b1});
  const unsigned lane = threadIdx.x % cuda_host::kLanes;
  for (unsigned e = 0; e < 4; e++) {
    const unsigned row = lane / 4 + e / 2 * 8, column = lane % 4 * 2 + e % 2;
    for (unsigned k = 0; k < 16; k++) {
      const unsigned of_a = row % 8 * 4 + k % 8 / 2, of_b = column * 4 + k % 8 / 2;
      const auto& a_words = shown[of_a];
      const float x =
          bfloat16_at(a_words[row / 8 + k / 8 * 2].load(std::memory_order_relaxed), k % 2);
      const float y = bfloat16_at(shown[of_b][4 + k / 8].load(std::memory_order_relaxed), k % 2);
      d[e] += x * y;
    }
  }
}

// Asynchronous copies arrive at any time between their issue and the wait for them. Here all copies
// of a launch arrive at one end of that time: where a wait is missing, late copies leave old
// numbers; where a barrier is missing, early copies overwrite numbers too soon.
inline bool copies_arrive_late = false;

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
inline PendingCopies& pending_copies() {
  static std::array<PendingCopies, 1024> of_threads;
  return of_threads[threadIdx.x];
}

inline void copy_or_clear(uint16_t* to, const uint16_t* from, bool exists) {
  if (reinterpret_cast<uint64_t>(to) % 16 != 0 || reinterpret_cast<uint64_t>(from) % 16 != 0)
    std::abort();
  const PendingCopy copy{to, from, exists, false};
  if (copies_arrive_late)
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
