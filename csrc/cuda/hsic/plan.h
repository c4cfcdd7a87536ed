// The buffers of hsic_terms and the pieces in which it works: one list of buffers serves for
// counting the bytes and for handing them out.
#pragma once

#include "core/math/centring_math.h"
#include "core/math/rbf_math.h"
#include "cuda/base/arena.h"
#include "cuda/hsic/hsic.h"

namespace simcore::cuda {

// Sizes that every buffer depends on.
struct HsicSizes {
  explicit HsicSizes(const HsicProblem& problem);
  int64_t n, count_x, count_y, layers;  // count_y: 0 for x with itself
  int64_t columns, widest;              // of all layers, of one
  int64_t pitches, widest_pitch;        // the same of packed rows
  KernelKind kernel;
  bool rbf() const { return kernel == KernelKind::rbf; }
  bool linear() const { return kernel == KernelKind::linear; }
  bool symmetric() const { return count_y == 0; }
  int64_t padded_n(int64_t tile) const { return round_to(n, tile); }
};

constexpr int64_t kSelfShares = 8;

}  // namespace simcore::cuda
