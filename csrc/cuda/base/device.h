// Properties of a device that plans depend on.
#pragma once

#include <cstdint>

namespace simcore::cuda {

// Variants of the products: `tensor` on tensor cores of compute capability 8.0 or newer; `plain` is
// for the host run alone.
enum class Variant : int { plain = 0, tensor = 1 };

struct Device {
  int64_t multiprocessors = 1;
  int64_t l2_bytes = 4 << 20;
};

}  // namespace simcore::cuda
