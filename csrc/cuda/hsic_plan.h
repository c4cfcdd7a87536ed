// What hsic_terms allocates, and in which pieces it works: one list of buffers serves for counting
// the bytes and for handing them out.
#pragma once

#include "core/centring_math.h"
#include "core/index_math.h"
#include "core/rbf_math.h"
#include "cuda/hsic.h"

namespace simcore::cuda {

// Hands out aligned pieces of a workspace; from a null base it only counts.
class Arena {
 public:
  explicit Arena(void* base) : base_(static_cast<unsigned char*>(base)) {}

  template <typename T>
  T* take(int64_t count) {
    const int64_t at = used_;
    used_ += round_to(count * int64_t(sizeof(T)), 256);
    return base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + at);
  }
  int64_t used() const { return used_; }
  // Pieces taken after this start over at `mark`, a former used(): they take turns with others.
  void rewind(int64_t mark) { used_ = mark; }

 private:
  unsigned char* base_;
  int64_t used_ = 0;
};

// Sizes that every buffer depends on.
struct HsicSizes {
  explicit HsicSizes(const HsicProblem& problem);
  int64_t n, count_x, count_y, layers;  // count_y: 0 for x with itself
  int64_t columns, widest;              // of all layers, of one
  int64_t pitches, widest_pitch;        // the same of packed rows
  bool rbf;
  bool symmetric() const { return count_y == 0; }
  int64_t padded_n(int64_t tile) const { return round_to(n, tile); }
};

constexpr int64_t kSelfShares = 8;

}  // namespace simcore::cuda
