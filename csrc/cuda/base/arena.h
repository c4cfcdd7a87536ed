// Pieces of a workspace: one list of buffers serves for counting the bytes and for handing them
// out.
#pragma once

#include <cstdint>

#include "core/math/index_math.h"

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
  // Lets the next pieces start at `mark`, a former used(): they take turns with the pieces after
  // it.
  void rewind(int64_t mark) { used_ = mark; }

 private:
  unsigned char* base_;
  int64_t used_ = 0;
};

}  // namespace simcore::cuda
